// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>

namespace coetcd::detail::logic {

// Renewals of several leases that are due together share requests.

/// The most messages in one request. When the answer begins, Go's server drops what the gateway has
/// not read of the request. The gateway reads 512 bytes at once, enough for so many of the longest
/// messages.
inline constexpr std::size_t most_renewals_together = 16;

/// The most such requests under way, unless they are full: one that is held up does not hold up all
/// others.
inline constexpr std::size_t most_renewal_requests = 2;

/// The most that are full: thousands of sessions fill the way to an etcd that is far.
inline constexpr std::size_t most_full_renewal_requests = 32;

/// The most further requests under way, with a single renewal each.
inline constexpr std::size_t most_renewals_alone = 2;

/// Connections for all of them.
inline constexpr std::size_t renewal_connections = most_full_renewal_requests + most_renewals_alone;

/// How long a renewal waits for others while a request is under way that might be held up.
inline constexpr std::chrono::milliseconds longest_gathering{20};

/// Whether to send the renewals that were gathered, as many as fit in a request.
/// @param gathered One or more.
/// @param longest_wait How long the first of them has waited.
inline bool is_group_due(std::size_t requests_under_way,
                         std::size_t gathered,
                         std::chrono::nanoseconds longest_wait) {
    if (gathered >= most_renewals_together) {
        return requests_under_way < most_full_renewal_requests;
    }
    return requests_under_way == 0 ||
           (requests_under_way < most_renewal_requests && longest_wait >= longest_gathering);
}

} // namespace coetcd::detail::logic
