// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>

namespace coetcd::detail::logic {

/// The oldest transaction of a queue.
struct oldest {
    std::uint64_t number = 0; ///< In the order of submission.
    unsigned passed_over = 0; ///< By how many requests, since it became the oldest.
    std::chrono::nanoseconds waited{0};
};

/// Whether it has given way for long enough.
inline bool is_overdue(const oldest& o) {
    constexpr unsigned few = 3;
    constexpr std::chrono::milliseconds long_enough{100};
    return o.passed_over >= few || o.waited >= long_enough;
}

/// Whether the oldest patient transaction goes before the oldest pressing one.
inline bool goes_first(const oldest& patient, const oldest& pressing) {
    return is_overdue(patient) && patient.number < pressing.number;
}

} // namespace coetcd::detail::logic
