// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <optional>
#include <string>

/// Numbers that are versions of an empty key.
namespace coetcd::detail::logic {

/// The version of the key when it was read; 0 if it did not exist.
/// @returns Nothing if the key is not that of a sequence.
inline std::optional<std::int64_t> last_drawn(const range_response& read) {
    if (read.kvs.empty()) {
        return 0;
    }
    const key_value& kv = read.kvs.front();
    return kv.value.empty() ? std::optional(kv.version) : std::nullopt;
}

/// Draws a number, and reads it; otherwise reads what is there.
/// @param exists Whether the key exists: etcd compares no value of a key that does not. Draws that
///   find the key do not refuse each other.
inline txn draw(const std::string& key, bool exists) {
    return txn()
        .when(exists ? compare::value(key) == std::string() : compare::create_revision(key) == 0)
        .then(op::put(key, std::string()), op::range(key))
        .otherwise(op::range(key));
}

} // namespace coetcd::detail::logic
