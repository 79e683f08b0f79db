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
    none,       ///< Nothing, and it never will.
    settled,    ///< It was applied or it was not; nothing is under way any more.
    unresolved, ///< It may have been applied, or may still be.
};

/// What one failed attempt of a request means.
struct verdict {
    effect left;
    bool transient; ///< Another attempt, perhaps elsewhere, may succeed.
    bool blame;     ///< The endpoint is at fault: prefer another one.
    /// It counts only if all endpoints say so: ask the others at once.
    bool ask_others = false;
};

/// No endpoint would answer differently.
constexpr verdict for_good(effect left) {
    return {.left = left, .transient = false, .blame = false};
}
/// This endpoint is at fault: another one may succeed.
constexpr verdict elsewhere(effect left) {
    return {.left = left, .transient = true, .blame = true};
}

/// The code for the lack of a complete answer. etcd's own answers are too large only if they may be
/// large, and never in their headers; any other answer that is too large is not etcd's.
/// @param http_status That of the answer, as far as it came.
/// @param may_be_large Whether etcd's answer may exceed the limit.
inline error_code transport_code(const error_code& ec, unsigned http_status, bool may_be_large) {
    const bool foreign = ec == errc::too_large && (http_status != 200 || !may_be_large);
    return foreign ? make_error_code(errc::protocol_error) : ec;
}

/// Whether this process, or its machine, lacks the resources for a connection. No endpoint is at
/// fault.
inline bool is_lack(const error_code& ec) {
    using namespace boost::system::errc;
    return ec == too_many_files_open || ec == too_many_files_open_in_system ||
           ec == no_buffer_space || ec == not_enough_memory;
}

/// Judges an attempt that got no complete answer.
/// @param crowded Our own requests were in the way: the endpoint is not at fault.
inline verdict judge_transport(const error_code& ec, bool sent, bool crowded = false) {
    // An answer that cannot be read says nothing about what the server did. An answer that is too
    // large may be a true one: see `attempts`.
    const bool transient = ec != errc::too_large;
    return {.left = sent ? effect::unresolved : effect::none,
            .transient = transient,
            .blame = transient && !crowded && !is_lack(ec)};
}

/// Judges an answer that is not from etcd but from a proxy, or from a member without its gateway.
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
        return elsewhere(effect::none); // the request was turned away
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
        return has("supported for learner") ? elsewhere(effect::none) : for_good(effect::none);
    case server_errc::resource_exhausted:
        if (has("too many requests")) { // this member is behind; others need not be
            return elsewhere(effect::none);
        }
        // A write that exceeds the quota is applied, and then reported. And it may be the answer
        // that is larger than gRPC accepts.
        return for_good(has("space exceeded") || has("larger than max") ? effect::settled
                                                                        : effect::none);
    case server_errc::unavailable:
        // Learners, and members before 3.6; and a member that is not connected to all others lets
        // none be added or removed.
        if (has("learner") || has("not capable") || has("unhealthy cluster")) {
            return elsewhere(effect::none);
        }
        // "no leader" is said before a request is proposed; with any other text it may still
        // commit.
        return elsewhere(has("no leader") ? effect::none : effect::unresolved);
    case server_errc::data_loss:
        // The CORRUPT alarm: no member changes anything until it is disarmed.
        return elsewhere(has("corrupt cluster") ? effect::none : effect::unresolved);
    case server_errc::unknown:
        if (has("not enough started members")) { // to remove one of them: it is not even proposed
            return for_good(effect::none);
        }
        break;
    case server_errc::canceled:
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

/// Judges an error that answers a request of this kind. A refusal is one member's word, and may be
/// a mistake: neither a session nor a place in a queue ends because of one alone. But an answer to
/// a renewal that there is no such lease is always believed: that is the safe side.
/// @param movable The request may be made elsewhere, too, even if this member has applied it.
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

/// Whether a call that ended in this way, after all its attempts, may succeed later.
inline bool is_transient(const error_code& ec) {
    return ec == errc::timed_out || ec == errc::unavailable || ec == errc::outcome_unknown ||
           ec == errc::wrong_cluster || // the endpoint may lead to ours again
           ec == errc::protocol_error;  // etcd may be back behind what answers in its place
}

/// Whether etcd has refused a call for good. Only etcd's word says that nothing was done.
inline bool is_refusal(const error_code& ec) {
    return ec.category() == server_category() && !is_transient(ec);
}

/// Whether etcd does not let this user in, or not to these keys.
inline bool is_forbidden(const error_code& ec) {
    return ec == server_errc::permission_denied || ec == server_errc::unauthenticated ||
           ec == errc::login_failed;
}

/// This many refusals in a row are final. A single one may be a mistake.
inline constexpr int refusals_for_good = 2;

/// How often in a row etcd has refused something for lack of a lease, although the lease lives.
class lease_refusals {
public:
    /// @param gone Whether there is no lease, as a renewal tells; nothing if none was answered.
    void add(std::optional<bool> gone) { in_a_row_ += gone == false ? 1 : 0; }
    /// The request ended in another way.
    void end_row() { in_a_row_ = 0; }
    /// If not, the request is made again, as long as the session lives.
    bool are_final() const { return in_a_row_ >= refusals_for_good; }

private:
    int in_a_row_ = 0;
};

/// The text of an error, without that of its code.
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

/// Whether fewer requests at once might have been served: all endpoints had too many, or what is
/// before them, a limit of rates perhaps, has answered in their place.
inline bool is_too_many_requests(const error_code& ec, std::string_view text) {
    return ec == errc::protocol_error ||
           (ec == server_errc::resource_exhausted && !is_no_space(ec, text) &&
            text.find("larger than max") == text.npos);
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
