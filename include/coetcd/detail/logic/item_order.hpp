// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// The order of items in a queue: that of their keys, so that the first item is the first key of a
/// range, and to find it etcd need not sort.
namespace coetcd::detail::logic {

/// The most items that one call may append: each is a put, and etcd accepts 128 operations.
inline constexpr std::size_t most_appended = 60;

/// A number whose digits are ordered as the numbers are.
inline std::string sortable(std::uint64_t value, std::size_t digits = 16) {
    constexpr const char* symbols = "0123456789abcdef";
    std::string text(digits, '0');
    for (std::size_t at = digits; at != 0 && value != 0; value >>= 4) {
        text[--at] = symbols[value & 15];
    }
    return text;
}

/// What the keys of items that are appended together have in common.
/// @param revision One of the store, at least that of each item that is to be before them.
/// @param chance Tells apart what is appended at the same revision.
inline std::string order_of(std::int64_t revision, std::uint64_t chance) {
    return sortable(static_cast<std::uint64_t>(revision)) + "-" + sortable(chance);
}
/// That of one of them.
inline std::string order_of(const std::string& all, std::size_t index) {
    return all + "-" + sortable(index, 2);
}

/// True if no key that begins with `prefix` is ordered at or after `order`.
inline compare nothing_from(const std::string& prefix, const std::string& order) {
    return compare::create_revision(
               key_range(prefix + order, key_range::prefix(prefix).range_end)) == 0;
}

/// @throws std::invalid_argument if they cannot be appended by one call.
inline void require_appendable(const std::vector<std::string>& values) {
    if (values.empty() || values.size() > most_appended) {
        throw std::invalid_argument("values: must be from 1 to 60");
    }
}

} // namespace coetcd::detail::logic
