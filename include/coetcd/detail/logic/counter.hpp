// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

/// A number that is kept in a key, in decimal digits.
namespace coetcd::detail::logic {

/// What is known of the number.
struct counted {
    std::int64_t value = 0;        ///< 0 if the key does not exist.
    std::int64_t mod_revision = 0; ///< Of the key.
};

/// @returns Nothing if the value is not a number.
inline std::optional<counted> to_counted(const range_response& read) {
    counted result;
    if (read.kvs.empty()) {
        return result;
    }
    const key_value& kv = read.kvs.front();
    const std::string_view text = kv.value;
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, result.value);
    if (failure != std::errc() || stop != end) {
        return std::nullopt;
    }
    result.mod_revision = kv.mod_revision;
    return result;
}

/// @returns Nothing if the sum does not fit.
inline std::optional<std::int64_t> sum(std::int64_t value, std::int64_t by) {
    using limits = std::numeric_limits<std::int64_t>;
    const bool fits = by > 0 ? value <= limits::max() - by : value >= limits::min() - by;
    return fits ? std::optional(value + by) : std::nullopt;
}

/// Writes a number, if nobody has written one since the one that is known.
inline txn count(const std::string& key, const counted& known, std::int64_t next) {
    return txn()
        .when(compare::mod_revision(key) == known.mod_revision)
        .then(op::put(key, std::to_string(next)))
        .otherwise(op::range(key));
}

} // namespace coetcd::detail::logic
