// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/lock_mode.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace coetcd::detail::logic {

/// etcd takes 128 conditions or operations in a list, and each name may need four.
inline constexpr std::size_t most_parts = 32;

/// Sorts by name and keeps each name once: exclusive if any part of that name is. etcd refuses a
/// transaction that puts a key twice.
template<class Part>
std::vector<Part> each_once(std::vector<Part> parts) {
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
        return a.name != b.name ? a.name < b.name
                                : a.mode == lock_mode::exclusive && b.mode != lock_mode::exclusive;
    });
    const auto same = [](const Part& a, const Part& b) { return a.name == b.name; };
    parts.erase(std::unique(parts.begin(), parts.end(), same), parts.end());
    return parts;
}

} // namespace coetcd::detail::logic
