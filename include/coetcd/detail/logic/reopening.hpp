// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/error.hpp>
#include <coetcd/session_options.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace coetcd::detail::logic {

/// Sessions that are opened one after the other: when to try again, and what a waiter is told while
/// there is none.
class reopening {
public:
    /// The pauses grow from `first` to `most`.
    reopening(std::chrono::milliseconds first, std::chrono::milliseconds most)
        : first_(first)
        , most_(most) {}

    void opened() {
        failures_ = 0;
        failure_.reset();
        trouble_.clear();
    }
    void failed(const error& how) {
        failure_ = how;
        trouble_.clear();
    }
    /// What has kept the attempt under way from ending, so far.
    void tried(const std::string& how) { trouble_ = how; }
    void lost(session_end why) { end_ = why; }

    /// How long to wait before the next attempt.
    std::chrono::nanoseconds pause(std::uint64_t random) {
        return backoff(failures_++, random, first_, most_);
    }

    /// Whether waiting may help: nothing has failed, or what has failed may pass by itself.
    /// Otherwise somebody has to act, and a waiter is told at once.
    bool may_pass() const { return !failure_ || is_transient(failure_->code()); }

    /// What a waiter is told at its deadline, or when waiting cannot help.
    error told() const {
        if (!may_pass()) {
            return *failure_;
        }
        std::string text = "no session: ";
        if (failure_) {
            // The code of the whole error says what to do.
            text += "the last attempt to open one failed: " + words_of(*failure_);
            if (failure_->code() == errc::outcome_unknown) { // users do not see this outcome
                text += "; a lease that it may have left is given back";
            }
        } else if (end_ != session_end::none) {
            text += std::string("the last one was lost (") + describe(end_) +
                    "), the next one is not open yet";
        } else {
            text += "the first one is not open yet";
        }
        if (!failure_ && !trouble_.empty()) {
            text += ": " + trouble_;
        }
        return {errc::timed_out, text};
    }

private:
    const std::chrono::milliseconds first_;
    const std::chrono::milliseconds most_;
    unsigned failures_ = 0;               // and losses, since a session was last opened
    std::optional<error> failure_;        // of the last attempt
    std::string trouble_;                 // with the attempt under way
    session_end end_ = session_end::none; // of the last session
};

} // namespace coetcd::detail::logic
