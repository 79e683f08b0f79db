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

/// Watches over a few keys that clients put, erase and read by single calls: each call is carried
/// out once at most, as its answer says, and as if no other one had shared its request.
class registers {
public:
    static constexpr const char* prefix = "free/";
    static constexpr const char* forbidden = "crowd/denied";

    explicit registers(world& w)
        : world_(w) {}

    static std::string key(std::uint64_t i) { return prefix + std::to_string(i); }

    /// What a key had at a revision; nothing if it was not there.
    std::optional<std::string> at(const std::string& key, std::int64_t revision) const;
    std::optional<std::string> now(const std::string& key) const {
        return at(key, world_.store.revision);
    }

    /// A value that one call puts, and no other one.
    std::string begin();
    /// The call has ended: it was carried out at this revision, or never, if that is 0.
    void ended(const std::string& value, std::int64_t revision);

    /// What an answer says of a key.
    void saw(const std::string& key,
             const std::optional<std::string>& value,
             std::int64_t revision,
             const char* who);

    void changed(const std::vector<etcd::change>& changes);

    std::uint64_t calls = 0; ///< That were carried out, or read.

private:
    struct entry {
        std::optional<std::int64_t> applied;
        std::optional<std::int64_t> told;
    };

    void check(const entry& e);
    /// Whether an answer may be another one than etcd's.
    bool is_excused() const;
    /// Whether the network has made a second request of one.
    bool were_copied() const;

    world& world_;
    std::map<std::string, std::map<std::int64_t, std::optional<std::string>>> history_;
    std::map<std::string, entry> entries_; // by value
    std::uint64_t begun_ = 0;
};

} // namespace sim
