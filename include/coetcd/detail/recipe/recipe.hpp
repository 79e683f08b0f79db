// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/notes.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// What tells one recipe's places from another's.
struct recipe {
    const char* word; ///< For messages.
    /// The keys that a slot has under one name.
    logic::name_keys (*keys)(const std::string& name,
                             lease_id lease,
                             std::uint64_t nonce,
                             std::uint64_t slot,
                             std::int64_t epoch);
    // Its calls, for messages.
    const char* patiently = "try_lock_for";
    const char* at_once = "try_lock";
    const char* giving_back = "unlock";
    /// Several may hold at once: the session's next attempt goes on as soon as etcd has our keys.
    bool shares = false;
};

/// A name that an attempt wants, and how.
struct wanted_name {
    std::string name;
    const recipe* how;
    /// How long to wait after an owner that has vanished. If it is not 0, owners leave notes.
    std::chrono::nanoseconds delay{0};
};

inline std::vector<wanted_name>
one_name(std::string name, const recipe& how, std::chrono::nanoseconds delay = {}) {
    std::vector<wanted_name> all;
    all.push_back({std::move(name), &how, delay});
    return all;
}

/// The keys that one slot has under that name.
inline logic::name_keys slot_keys(const wanted_name& of,
                                  lease_id lease,
                                  std::uint64_t nonce,
                                  std::uint64_t slot,
                                  std::int64_t epoch) {
    logic::name_keys result = of.how->keys(of.name, lease, nonce, slot, epoch);
    if (of.delay.count() > 0) {
        result.note_key = logic::notes::key_of(of.name);
    }
    return result;
}

} // namespace coetcd::detail
