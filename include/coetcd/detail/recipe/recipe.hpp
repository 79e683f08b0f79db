// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/kv.hpp>

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
    /// Several may hold at once: the next one of the session goes on as soon as etcd has our keys.
    bool shares = false;
};

/// A name that an attempt wants, and how.
struct wanted_name {
    std::string name;
    const recipe* how;
};

inline std::vector<wanted_name> one_name(std::string name, const recipe& how) {
    std::vector<wanted_name> all;
    all.push_back({std::move(name), &how});
    return all;
}

} // namespace coetcd::detail
