// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::logic {

/// How one attempt to make a request ended.
struct attempt_end {
    error_code code; ///< Clear: it succeeded, and the rest has no meaning.
    std::string text;
    verdict meaning;
    bool wants_token = false; ///< etcd refused the token, or wants one.
};

/// The attempts to make one request: whether to make another one, and how the call ends.
template<class TimePoint>
class attempts {
public:
    /// @param logs_in Whether there is a user, for whom another token can be had.
    /// @param can_be_split The request has parts that can be made one by one: if no endpoint gives
    ///   an answer that is etcd's, one of the parts may be the reason.
    attempts(impact does, TimePoint deadline, bool logs_in, bool can_be_split = false)
        : does_(does)
        , deadline_(deadline)
        , logs_in_(logs_in)
        , can_be_split_(can_be_split) {}

    enum class step {
        go,        ///< Make an attempt.
        again,     ///< Prepare another attempt, at once.
        elsewhere, ///< Prepare another one elsewhere, to see whether it ends in the same way.
        log_in,    ///< Prepare another one, with another token.
        pause,     ///< Prepare another one, after `pause`.
        succeed,   ///< The last attempt succeeded.
        give_up,   ///< The call ends with `code`.
    };

    /// Before each attempt.
    /// @param no_token Why there is no token; clear if there is one, or none is needed.
    step begin(TimePoint now, const error_code& no_token, std::string_view text) {
        if (no_token) {
            code_ = no_token;
            text_ = text;
        }
        const bool late = now >= deadline_;
        if (logged_in_anew_ && (late || no_token)) {
            left_ = std::max(left_, effect::settled); // only one member says that nothing was done
        }
        if (late) {
            return end_late();
        }
        return no_token ? end(may_be_applied()) : step::go;
    }

    /// After each attempt.
    /// @param endpoints How many there are.
    /// @param places As `endpoints`, but an endpoint with several addresses counts once for each.
    ///   Each address is tried once before the first pause.
    step ended(const attempt_end& how,
               std::string_view where,
               std::size_t endpoints,
               std::size_t places) {
        ++made_;
        if (!how.code) {
            code_.clear();
            text_.clear();
            return step::succeed;
        }
        code_ = how.code;
        text_ = how.text + ", on " + std::string(where);
        refused_ = refused_ || is_refusal(code_);
        if (how.wants_token && !logs_in_) {
            text_ += "; etcd wants a user: set client_options::credentials";
        }
        if (code_ == errc::protocol_error || code_ == errc::wrong_cluster) {
            stranger_ = text_;
            strange_code_ = code_;
        } else if (is_from_etcd(code_)) {
            stranger_.clear();
        }
        if (how.wants_token && logs_in_ && !logged_in_anew_) {
            logged_in_anew_ = true; // it does not count, unless there is no other attempt
            return step::log_in;
        }
        note_strange(is_strange(how.code), where);
        left_ = std::max(left_, how.meaning.left);
        const bool must_not = does_ == impact::once && how.meaning.left != effect::none;
        if (code_ == errc::too_large && places > 1 && !compared_ && !must_not) {
            compared_ = true;
            return step::elsewhere;
        }
        if (how.meaning.ask_others) {
            refusal_ = {code_, text_};
        }
        if (refusal_.code && how.meaning.transient) {
            return after_refusal(how.meaning.ask_others, where, endpoints, places);
        }
        const bool all_strange = strange_ > places && strangers_.size() >= endpoints;
        if (!how.meaning.transient || all_strange || must_not) {
            if (code_ == server_errc::data_loss) {
                text_ += "; etcd changes nothing while its CORRUPT alarm is raised: see its log";
            }
            return end(does_ == impact::once && how.meaning.left == effect::unresolved);
        }
        return made_ % places == 0 ? step::pause : step::again;
    }

    /// How long the pause after an attempt is: longer each time that all endpoints were tried.
    std::chrono::nanoseconds pause(std::size_t endpoints, std::uint64_t random) const {
        return backoff(static_cast<unsigned>((made_ - 1) / endpoints), random);
    }

    bool repeatable() const { return does_ != impact::once; }
    std::size_t made() const { return made_; }

    /// Whether the endpoints whose answers were doubted are at fault, now that the call has ended:
    /// others may answer differently. They are not at fault if all have said the same.
    bool blames_doubted() const { return !code_ || late_; }

    // How the call ended:
    const error_code& code() const { return code_; } ///< Clear: it succeeded.
    const std::string& text() const { return text_; }
    effect left() const { return left_; } ///< What the failed attempts left.
    /// An attempt was refused, even if the last one was not. A refusal says that nothing was done,
    /// and may be wrong.
    bool refused() const { return refused_; }

private:
    /// Whether the call is given up once each endpoint has failed in this way. An answer that is
    /// not etcd's is a reason only if the request can be split: otherwise etcd may come back behind
    /// whatever sent the answer.
    bool is_strange(const error_code& ec) const {
        return ec == errc::tls_failed || ec == server_errc::unimplemented ||
               ec == server_errc::data_loss || (ec == errc::protocol_error && can_be_split_);
    }
    /// An endpoint that is asked again, while the others are shunned for longer, counts once.
    void note_strange(bool is, std::string_view where) {
        if (!is) {
            strange_ = 0;
            strangers_.clear();
            return;
        }
        ++strange_;
        if (std::find(strangers_.begin(), strangers_.end(), where) == strangers_.end()) {
            strangers_.emplace_back(where);
        }
    }
    /// Once one endpoint has refused the request, each is asked once. Those that refuse it, too,
    /// confirm the refusal, and those that cannot be reached say nothing.
    step
    after_refusal(bool refused, std::string_view where, std::size_t endpoints, std::size_t places) {
        ++asked_places_;
        if (std::find(asked_.begin(), asked_.end(), where) == asked_.end()) {
            asked_.emplace_back(where);
        }
        if (asked_places_ < places || asked_.size() < endpoints) {
            return refused ? step::elsewhere : made_ % places == 0 ? step::pause : step::again;
        }
        code_ = refusal_.code;
        text_ = refusal_.text;
        return end(false);
    }
    static bool is_from_etcd(const error_code& ec) {
        return ec.category() == make_error_code(server_errc::unknown).category();
    }
    bool may_be_applied() const { return does_ != impact::none && left_ == effect::unresolved; }

    step end(bool unknown) {
        if (unknown) {
            code_ = errc::outcome_unknown;
        }
        return step::give_up;
    }
    step end_late() {
        late_ = true;
        if (refusal_.code) { // it tells more; the other endpoints were not asked in time
            code_ = refusal_.code;
            text_ = refusal_.text;
            return end(may_be_applied());
        }
        const bool late = code_ == errc::timed_out || code_ == server_errc::deadline_exceeded;
        // An endpoint that does not answer says less than one that does.
        if (!stranger_.empty()) {
            code_ = strange_code_;
            text_ = stranger_;
        } else {
            code_ = late ? errc::timed_out : errc::unavailable;
        }
        text_ = "the deadline passed; last: " + text_;
        return end(may_be_applied());
    }

    const impact does_;
    const TimePoint deadline_;
    const bool logs_in_;
    const bool can_be_split_;
    std::size_t made_ = 0;
    std::size_t strange_ = 0;            // failures in a row that another attempt will hardly mend
    std::vector<std::string> strangers_; // the endpoints with such failures
    bool logged_in_anew_ = false;
    bool compared_ = false;
    struct {
        error_code code;
        std::string text;
    } refusal_;                      // the last one that counts only if all endpoints agree
    std::size_t asked_places_ = 0;   // since the first refusal
    std::vector<std::string> asked_; // the endpoints of these places
    bool late_ = false;
    effect left_ = effect::none;
    bool refused_ = false;
    error_code code_ = errc::timed_out; // of the last attempt
    std::string text_ = "no attempt was made";
    std::string stranger_; // what was said of the last answer, if it was not from our etcd
    error_code strange_code_;
};

} // namespace coetcd::detail::logic
