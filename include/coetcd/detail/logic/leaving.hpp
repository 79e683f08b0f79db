// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

/// What becomes of a place that could not be given up at once. Its keys would block others for as
/// long as the session lives: if all else fails, the session gives up its lease.
namespace coetcd::detail::logic {

/// What to do when a request to give up a place fails.
enum class remedy {
    again,     ///< Repeat it at once: the request has taken its time.
    later,     ///< Repeat it after a pause. The failure does not tell what etcd thinks.
    erase,     ///< There is no space for an epoch. Erase the keys meanwhile, and come back later.
    forget,    ///< The lease and its keys are gone, if a renewal says so, too.
    surrender, ///< etcd refuses. If it refuses again, there is no other way.
};

inline remedy remedy_for(const error_code& ec, std::string_view text) {
    if (ec == errc::protocol_error) {
        return remedy::later; // such an answer may come at once
    }
    if (is_transient(ec)) {
        return remedy::again;
    }
    if (is_no_space(ec, text)) {
        return remedy::erase;
    }
    if (ec.category() != server_category()) {
        return remedy::later; // the answer may not even be etcd's; the password may change
    }
    switch (static_cast<server_errc>(ec.value())) {
    case server_errc::not_found:
        return is_lease_gone(ec, text) ? remedy::forget : remedy::later;
    case server_errc::invalid_argument:
    case server_errc::already_exists:
    case server_errc::permission_denied:
    case server_errc::resource_exhausted:
    case server_errc::failed_precondition:
    case server_errc::out_of_range:
        return remedy::surrender;
    case server_errc::canceled:
    case server_errc::unknown:
    case server_errc::deadline_exceeded:
    case server_errc::aborted:
    case server_errc::unimplemented:
    case server_errc::internal:
    case server_errc::unavailable:
    case server_errc::data_loss:
    case server_errc::unauthenticated:
        break;
    }
    return remedy::later;
}

/// For how long giving something up has failed.
template<class TimePoint>
class failing_time {
public:
    void failed(TimePoint now) {
        if (!since_) {
            since_ = now;
        }
    }
    void succeeded() { since_.reset(); }
    /// @param well_since When the last renewal failed. While renewals fail, too, it is an outage,
    ///   which may end the session by its own deadline.
    bool has_lasted(std::chrono::nanoseconds limit, TimePoint now, TimePoint well_since) const {
        return since_ && now - std::max(*since_, well_since) >= limit;
    }

private:
    std::optional<TimePoint> since_;
};

} // namespace coetcd::detail::logic
