// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace coetcd::detail::logic {

/// The times that follow from a lease's ttl.

/// The longest ttl to which an etcd raises a shorter one: one and a half times the longest election
/// timeout that it accepts, which is 50 s.
inline constexpr std::chrono::seconds longest_minimum{75};

/// The ttl to believe of a grant. An answer may be wrong, and a lease that is trusted for too long
/// has two owners: a ttl above the one that was asked for is believed only as far as etcd can have
/// raised it.
inline std::chrono::seconds credible_grant(std::chrono::seconds asked, std::chrono::seconds said) {
    return said > std::max(asked, longest_minimum) ? asked : said;
}

/// How long a lease lasts from each renewal, such that one wrong answer alone cannot mislead us: no
/// longer than it was granted for, and no longer than was asked for until a renewal says so, too.
class trusted_ttl {
public:
    trusted_ttl(std::chrono::seconds asked, std::chrono::seconds granted)
        : most_(credible_grant(asked, granted))
        , first_(std::min(asked, granted)) {}
    /// For a lease that somebody else has asked for.
    static trusted_ttl of_granted(std::chrono::seconds granted) { return {granted, granted}; }

    std::chrono::seconds at_first() const { return first_; }
    /// @param said The ttl in the answer to a renewal.
    std::chrono::seconds renewed(std::chrono::seconds said) const { return std::min(said, most_); }

private:
    std::chrono::seconds most_;
    std::chrono::seconds first_;
};

/// The session stops trusting the lease this long before it can end: clocks differ in rate.
inline std::chrono::nanoseconds margin(std::chrono::seconds ttl) {
    using namespace std::chrono;
    return std::max<nanoseconds>(nanoseconds(ttl) / 10, milliseconds(250));
}

/// How long the lease is certain to exist after a renewal was sent, once that is answered.
inline std::chrono::nanoseconds certain(std::chrono::seconds ttl) {
    return std::chrono::nanoseconds(ttl) - margin(ttl);
}

/// The pause between renewals, with a jitter of a tenth.
inline std::chrono::nanoseconds renewal_interval(std::chrono::seconds ttl, std::uint64_t random) {
    const auto third = std::chrono::nanoseconds(ttl) / 3;
    const auto tenth = static_cast<std::uint64_t>(third.count() / 10);
    return third - third / 20 +
           std::chrono::nanoseconds(static_cast<std::int64_t>(random % (tenth + 1)));
}

/// How long one attempt of a renewal may take before another endpoint is asked.
inline std::chrono::nanoseconds renewal_timeout(std::chrono::seconds ttl) {
    using namespace std::chrono;
    return std::min<nanoseconds>(nanoseconds(ttl) / 4, seconds(2));
}

/// Whether a renewal gets a request of its own: a lease that may be about to end holds up others
/// that share a request with it.
inline bool renews_alone(std::chrono::nanoseconds left, std::chrono::seconds ttl) {
    return left < certain(ttl) / 2;
}

/// The pause before a failed renewal is tried again.
inline std::chrono::nanoseconds renewal_pause(std::uint64_t random) {
    return std::chrono::milliseconds(100 + static_cast<std::int64_t>(random % 400));
}

/// How long a waiter ignores events after some that were false.
/// @param in_a_row How many were false.
inline std::chrono::nanoseconds pause_after_false_end(unsigned in_a_row, std::uint64_t random) {
    return backoff(in_a_row, random, std::chrono::milliseconds(25), std::chrono::seconds(2));
}

/// How often a waiter looks by itself, in case etcd has lost the event that it waits for.
inline std::chrono::nanoseconds recheck_interval(std::chrono::seconds ttl, std::uint64_t random) {
    using namespace std::chrono;
    const nanoseconds full = std::min<nanoseconds>(nanoseconds(ttl) / 2, seconds(10));
    const auto quarter = static_cast<std::uint64_t>(full.count() / 4);
    return full - nanoseconds(static_cast<std::int64_t>(random % (quarter + 1)));
}

} // namespace coetcd::detail::logic
