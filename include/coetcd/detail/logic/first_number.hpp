// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

/// A positive number that the first user of a name stores, and that counts for all.
namespace coetcd::detail::logic {

/// Stores the number, unless there is one; reads what counts.
inline txn store_first(const std::string& key, std::int64_t number) {
    return txn()
        .when(compare::create_revision(key) == 0)
        .then(op::put(key, std::to_string(number)), op::range(key))
        .otherwise(op::range(key));
}

/// @returns Nothing if the key holds no such number.
inline std::optional<std::int64_t> number_in(const range_response& read) {
    if (read.kvs.empty()) {
        return std::nullopt;
    }
    const std::string& text = read.kvs.front().value;
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, number);
    const bool whole = failure == std::errc() && stop == end && number > 0;
    return whole ? std::optional(number) : std::nullopt;
}

/// What the answer to `store_first` tells.
inline std::optional<std::int64_t> first_stored(const txn_response& said) {
    return number_in(answers::range_at(said, said.succeeded ? 1 : 0));
}

} // namespace coetcd::detail::logic
