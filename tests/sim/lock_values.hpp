// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// What must be true of the values of locks. Holders count them up, so each change adds 1: none is
/// missed by the next holder, and none comes after the end of its own.
class lock_value_rules {
public:
    explicit lock_value_rules(world& w)
        : world_(w) {}

    static std::string key_of(const std::string& lock) { return lock + ".value"; }

    /// What etcd does, in one revision.
    void changed(const std::vector<etcd::change>& changes);
    /// A holder is told what the value is.
    /// @param key That of the lock, with the life that it is held by.
    void
    told(const std::string& lock, const std::string& key, std::int64_t life, std::int64_t number);

    std::uint64_t counted = 0;

private:
    world& world_;
    std::map<std::string, std::int64_t> last_; // of each value's key
};

} // namespace sim
