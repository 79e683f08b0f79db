// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/member_entry.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// Below it are the members of the group.
inline constexpr std::string_view group_prefix = "group/";
inline constexpr std::string_view tombstone_prefix = "group.";

/// What must be true of the members of a group, and of what its followers are told.
class member_rules {
public:
    explicit member_rules(world& w)
        : world_(w)
        , states_{{{}, nanoseconds(0)}} {}

    // What clients do.

    /// A member, as long as this exists: its key is to be there while it says so.
    struct membership {
        std::string key;
        std::string value;
        std::function<bool()> lives;
        nanoseconds since{0};
    };
    class seat {
    public:
        seat(member_rules& of, membership m)
            : of_(of)
            , place_(of.members_.insert(of.members_.end(), std::move(m))) {}
        ~seat() { of_.members_.erase(place_); }
        seat(const seat&) = delete;
        seat& operator=(const seat&) = delete;
        membership& operator*() const { return *place_; }

    private:
        member_rules& of_;
        const std::list<membership>::iterator place_;
    };
    /// join() or update() has returned: this value is, or was, there.
    void has_put(const std::string& key, const std::string& value);
    /// leave() has returned, and said that the member was there.
    void has_left(const std::string& key);

    using list = std::vector<coetcd::member_entry>;
    struct following {
        nanoseconds since{0};
        std::size_t at = 0; ///< The state that was told last, of those that were.
        bool told = false;
        list last{};
    };
    /// A follower of the group, as long as this exists.
    class entry {
    public:
        explicit entry(member_rules& of)
            : of_(of)
            , place_(of.followers_.insert(of.followers_.end(), following{of.world_.now()})) {}
        ~entry() { of_.followers_.erase(place_); }
        entry(const entry&) = delete;
        entry& operator=(const entry&) = delete;
        following& operator*() const { return *place_; }

    private:
        member_rules& of_;
        const std::list<following>::iterator place_;
    };
    void told(following& f, const list& now);

    // What etcd does.

    /// Of one revision.
    /// @param has_returned Whether a lease had ended before: with it went what makes late copies
    ///   void.
    void changed(const std::vector<etcd::change>& changes,
                 const std::function<bool(lease_id)>& has_returned);

    /// Whether a follower was not told the last state yet, or a member is not there.
    bool owes_states() const;
    void look_for_untold(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t joined = 0;
    std::uint64_t told_lists = 0;

private:
    struct state {
        list members;
        nanoseconds since{0};
    };
    bool is_untold(const following& f) const { return !f.told || f.last != states_.back().members; }
    bool is_missing(const membership& m) const;

    world& world_;
    std::vector<state> states_;                        ///< All that there were.
    std::map<std::string, std::set<std::string>> put_; ///< By key.
    std::map<std::string, lease_id> lease_of_;         ///< Of each key, and then of its tombstone.
    std::map<std::string, lease_id> left_;             ///< In which lease.
    std::list<membership> members_;
    std::list<following> followers_;
};

} // namespace sim
