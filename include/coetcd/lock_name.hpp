// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace coetcd {

/// The name of the lock for one thing among many: `prefix`, a slash, and `id`, which may have any
/// bytes. `/`, `.` and `%` in `id` are written `%2F`, `%2E` and `%25`.
///
/// Different prefixes or ids give different names, and no lock of a prefix gets in the way of
/// another, as `77/x` would block `77`. Do not use `prefix` itself as the name of a lock, nor a
/// name from this function as a prefix. A `mutex` accepts 512 bytes.
///
/// @throws std::invalid_argument if `prefix` or `id` is empty, or `prefix` ends with a slash.
inline std::string lock_name(std::string_view prefix, std::string_view id) {
    if (prefix.empty()) {
        throw std::invalid_argument("prefix: is empty");
    }
    if (prefix.back() == '/') {
        throw std::invalid_argument("prefix: ends with a slash, which lock_name adds");
    }
    if (id.empty()) {
        throw std::invalid_argument("id: is empty");
    }
    std::string name(prefix);
    name += '/';
    for (const char c : id) {
        if (c == '/') {
            name += "%2F";
        } else if (c == '.') {
            name += "%2E";
        } else if (c == '%') {
            name += "%25";
        } else {
            name += c;
        }
    }
    return name;
}

} // namespace coetcd
