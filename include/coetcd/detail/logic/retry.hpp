// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>

#include <boost/system/errc.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace coetcd::detail::logic {

/// What a failed request may have done to the store. In order of trouble.
enum class effect {
    none,       ///< Nothing, and it will not.
    settled,    ///< It was applied or it was not; nothing is under way any more.
    unresolved, ///< It may have been applied, or may still be.
};

/// What one failed attempt of a request means.
struct verdict {
    effect left;
    bool transient; ///< Another attempt, perhaps elsewhere, may succeed.
    bool blame;     ///< The endpoint is at fault: prefer another one.
    /// It counts if all endpoints say so, and not if one does: ask the others at once.
    bool ask_others = false;
};

/// No endpoint would answer differently.
constexpr verdict for_good(effect left) {
    return {.left = left, .transient = false, .blame = false};
}
/// This endpoint is at fault: another one may do it.
constexpr verdict elsewhere(effect left) {
    return {.left = left, .transient = true, .blame = true};
}

/// What the lack of a complete answer is to be called: etcd's own answers are too large only where
/// it has something to say, and never in their headers.
/// @param http_status Of the answer, as far as it came.
/// @param may_be_large Whether what etcd would say may be over the limit.
inline error_code transport_code(const error_code& ec, unsigned http_status, bool may_be_large) {
    const bool foreign = ec == errc::too_large && (http_status != 200 || !may_be_large);
    return foreign ? make_error_code(errc::protocol_error) : ec;
}

/// Whether this process, or its machine, lacks what a connection takes. No endpoint is at fault.
inline bool is_lack(const error_code& ec) {
    using namespace boost::system::errc;
    return ec == too_many_files_open || ec == too_many_files_open_in_system ||
           ec == no_buffer_space || ec == not_enough_memory;
}

/// Judges an attempt that got no complete answer.
/// @param crowded Requests of our own were in its way, and no fault of the endpoint's.
inline verdict judge_transport(const error_code& ec, bool sent, bool crowded = false) {
    // An answer that cannot be read says nothing about what the server did. One that is too large
    // may be true: see `attempts`.
    const bool transient = ec != errc::too_large;
    return {.left = sent ? effect::unresolved : effect::none,
            .transient = transient,
            .blame = transient && !crowded && !is_lack(ec)};
}

/// Judges an answer that something else than etcd gave: a proxy, or a member without its gateway.
/// The endpoint does not lead to an etcd that serves us, whatever it says; another one may.
inline verdict judge_foreign(const wire::status& s) {
    if (s.too_large) {
        return for_good(effect::none);
    }
    switch (s.code) {
    case server_errc::invalid_argument:
    case server_errc::permission_denied:
    case server_errc::unauthenticated:
    case server_errc::unimplemented:
    case server_errc::failed_precondition:
    case server_errc::resource_exhausted:
        return elsewhere(effect::none); // it was turned away
    default:
        return elsewhere(effect::unresolved);
    }
}

/// Judges an answer that is an error.
inline verdict judge(const wire::status& s) {
    if (s.foreign) {
        return judge_foreign(s);
    }
    const auto has = [&](std::string_view text) {
        return s.message.find(text) != std::string::npos;
    };
    switch (s.code) {
    case server_errc::invalid_argument:
    case server_errc::not_found:
    case server_errc::already_exists:
    case server_errc::permission_denied:
    case server_errc::out_of_range:
    case server_errc::unauthenticated:
        return for_good(effect::none);
    case server_errc::unimplemented: // by this member: others may be newer
        return elsewhere(effect::none);
    case server_errc::failed_precondition:
        // Learners serve nearly nothing; another member will.
        return has("learner") ? elsewhere(effect::none) : for_good(effect::none);
    case server_errc::resource_exhausted:
        if (has("too many requests")) { // of this member: others need not be behind
            return elsewhere(effect::none);
        }
        // The write that exceeds the quota is applied, and then reported; and it may be the answer
        // that is larger than what gRPC takes.
        return for_good(has("space exceeded") || has("larger than max") ? effect::settled
                                                                        : effect::none);
    case server_errc::unavailable:
        if (has("learner") || has("not capable")) { // before 3.6
            return elsewhere(effect::none);
        }
        // Refused before it was proposed; any other kind may still commit.
        return elsewhere(has("no leader") ? effect::none : effect::unresolved);
    case server_errc::data_loss:
        // The CORRUPT alarm: no member changes anything until it is disarmed.
        return elsewhere(has("corrupt cluster") ? effect::none : effect::unresolved);
    case server_errc::canceled:
    case server_errc::unknown:
    case server_errc::deadline_exceeded:
    case server_errc::aborted:
    case server_errc::internal:
        break;
    }
    return elsewhere(effect::unresolved);
}

/// Whether etcd says that there is no such lease, in its own words.
inline bool is_lease_gone(const error_code& ec, std::string_view text) {
    return ec == server_errc::not_found && text.find("requested lease not found") != text.npos;
}

/// Whether etcd says so of a request of this kind, and that counts. A refusal is one member's word,
/// and may be a slip: neither a session nor a place in a queue ends by it alone. But that there is
/// no such lease is believed of any answer to a renewal: it is the safe side.
/// @param movable It may be made elsewhere, too, even if this member has applied it.
inline verdict judge(const wire::status& s, rpc what, bool movable) {
    verdict v = judge(s);
    const bool counts = what == rpc::lease_keep_alive ? is_lease_gone(s.code, s.message)
                                                      : what != rpc::txn || v.left != effect::none;
    if (!v.transient && movable && !counts) {
        v.transient = true;
        v.ask_others = true;
    }
    return v;
}

/// Whether a call that ended so, all its attempts included, may succeed later.
inline bool is_transient(const error_code& ec) {
    return ec == errc::timed_out || ec == errc::unavailable || ec == errc::outcome_unknown ||
           ec == errc::wrong_cluster || // the endpoint may lead to ours again
           ec == errc::protocol_error;  // etcd may be back behind what answers in its place
}

/// Whether etcd has refused a call for good. That nothing was done then is its word alone.
inline bool is_refusal(const error_code& ec) {
    return ec.category() == server_category() && !is_transient(ec);
}

/// So many refusals in a row are final. One may be a slip of whatever gave it.
inline constexpr int refusals_for_good = 2;

/// How often in a row etcd has refused something for the lack of a lease that lives.
class lease_refusals {
public:
    /// @param gone Whether there is no lease, as a renewal tells; nothing if none was answered.
    void add(std::optional<bool> gone) { in_a_row_ += gone == false ? 1 : 0; }
    /// It ended in another way.
    void end_row() { in_a_row_ = 0; }
    /// Else it is asked for again, as long as the session lives.
    bool are_final() const { return in_a_row_ >= refusals_for_good; }

private:
    int in_a_row_ = 0;
};

/// What an error says besides what its code does.
inline std::string words_of(const error& e) {
    std::string words = e.what();
    const std::string of_code = ": " + e.code().what();
    if (words.ends_with(of_code)) {
        words.resize(words.size() - of_code.size());
    }
    return words;
}

/// Whether etcd takes no puts because its quota is used up. It still erases.
inline bool is_no_space(const error_code& ec, std::string_view text) {
    return ec == server_errc::resource_exhausted && text.find("space exceeded") != text.npos;
}

/// How long to wait before the next attempt: doubles from `first` up to `most`, with jitter of
/// a half, so that many clients do not come back at the same moment.
inline std::chrono::nanoseconds
backoff(unsigned attempt,
        std::uint64_t random,
        std::chrono::milliseconds first = std::chrono::milliseconds(25),
        std::chrono::milliseconds most = std::chrono::milliseconds(1000)) {
    const auto full =
        std::min<std::chrono::milliseconds>(first * (1 << std::min(attempt, 16U)), most);
    const auto half = std::chrono::nanoseconds(full) / 2;
    return half + std::chrono::nanoseconds(static_cast<std::int64_t>(
                      random % static_cast<std::uint64_t>(half.count() + 1)));
}

} // namespace coetcd::detail::logic
