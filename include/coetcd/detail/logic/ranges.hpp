// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <string>
#include <string_view>

namespace coetcd::detail::logic {

/// Whether a range goes beyond `key`, wherever it begins.
inline bool ends_after(const key_range& r, std::string_view key) {
    if (r.range_end.empty()) {
        return key <= r.key;
    }
    return r.range_end == std::string_view("\0", 1) || key < r.range_end;
}

inline bool contains(const key_range& r, std::string_view key) {
    return key >= r.key && ends_after(r, key);
}

inline bool overlap(const key_range& a, const key_range& b) {
    return ends_after(a, b.key) && ends_after(b, a.key);
}

} // namespace coetcd::detail::logic
