// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace coetcd::detail::logic {

/// The times that follow from a lease's ttl.

/// How long before the lease can end the session stops to trust it: clocks differ in rate.
inline std::chrono::nanoseconds margin(std::chrono::seconds ttl) {
    using namespace std::chrono;
    return std::max<nanoseconds>(nanoseconds(ttl) / 10, milliseconds(250));
}

/// How long after a renewal was sent the lease is certain to exist, once it was answered.
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

/// Whether a renewal is to have a request of its own: a lease that may be about to end holds up
/// those that share one with it.
inline bool renews_alone(std::chrono::nanoseconds left, std::chrono::seconds ttl) {
    return left < certain(ttl) / 2;
}

/// The pause before a renewal that failed is tried again.
inline std::chrono::nanoseconds renewal_pause(std::uint64_t random) {
    return std::chrono::milliseconds(100 + static_cast<std::int64_t>(random % 400));
}

/// For how long a waiter acts upon no event after some that were false.
/// @param in_a_row How many.
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
