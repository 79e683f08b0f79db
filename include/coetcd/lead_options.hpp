// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

namespace coetcd {

/// What `lead` does when its body has ended, or its term was lost.
enum class again {
    never,   ///< One term: its loss is an error.
    on_loss, ///< Campaigns again if the term was lost, until the body ends in time.
    always,  ///< Campaigns again in either case. Only an error or a cancellation ends it.
};

/// The name of the enumerator; "unknown" for any other value.
inline const char* to_string(again a) noexcept {
    switch (a) {
    case again::never:
        return "never";
    case again::on_loss:
        return "on_loss";
    case again::always:
        return "always";
    }
    return "unknown";
}

/// Options of `lead`. Trivially destructible, so that a call may spell them in braces.
struct lead_options {
    /// The ttl of the sessions that it opens: see `session_options::ttl`.
    std::chrono::seconds ttl = std::chrono::seconds(10);
    coetcd::again again = coetcd::again::on_loss;
    /// How long it waits, with some jitter, before it tries again after a failure, a loss, or the
    /// end of the body; doubles with each failure or loss up to `ttl`, until a term has lasted that
    /// long. Must be positive.
    std::chrono::milliseconds pause = std::chrono::milliseconds(100);
};

} // namespace coetcd
