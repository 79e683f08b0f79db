// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/etcd.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace coetcd::detail::testing {

inline bool in_range(const std::string& key, const std::string& first, const std::string& end) {
    if (end.empty()) {
        return key == first;
    }
    return key >= first && (end == std::string_view("\0", 1) || key < end);
}

/// Calls `take` with each entry of `keys` in the range.
template<class Keys, class F>
void each_in(Keys& keys, const std::string& first, const std::string& end, F take) {
    for (auto k = keys.lower_bound(first); k != keys.end() && in_range(k->first, first, end);) {
        const auto here = k++;
        take(*here);
    }
}

inline etcd::change erasure(const std::string& key, std::int64_t at, const etcd::record& before) {
    etcd::change c;
    c.deleted = true;
    c.key = key;
    c.revision = at;
    c.before = before;
    return c;
}

} // namespace coetcd::detail::testing
