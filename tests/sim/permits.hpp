// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/service/session.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

inline constexpr std::string_view semaphore_prefix = "sem/";

inline std::string semaphore_name(int number) {
    return std::string(semaphore_prefix) + std::to_string(number);
}

/// A key of a semaphore: `<name>/wait/<id>`, or `<name>/hold/<bit>/<id>`.
struct permit_key {
    std::string name;
    std::string id;
    bool held = false; ///< Else its owner waits.
    std::int64_t weight = 0;

    /// @returns Nothing if it is no place in a queue, and no part of a permit.
    static std::optional<permit_key> parse(std::string_view key);
};

/// Permits that their user counts on, from the grant until they are given back.
struct permit_hold {
    std::string name;
    std::string key;
    std::int64_t token;
    std::int64_t weight;
    lease_id lease;
    std::shared_ptr<coetcd::detail::session_impl> session;
    std::function<bool()> owns; ///< What the library says.
    bool sound_clock;

    bool valid() const { return session->is_certain() && owns(); }
};

/// What must be true of semaphores.
class permit_rules {
public:
    explicit permit_rules(world& w)
        : world_(w) {}

    /// Of one revision.
    /// @param has_returned Whether a lease had ended before; see `ledger::changed`.
    void changed(const std::vector<etcd::change>& changes,
                 etcd::cause why,
                 const std::function<bool(lease_id)>& has_returned);
    /// Its lease was ended before its time.
    void revoked(lease_id id) { revoked_.insert(id); }

    std::list<permit_hold>::iterator granted(permit_hold h);
    void gives_back(std::list<permit_hold>::iterator h);
    /// A client wants permits, or does not want them any more.
    void touch(lease_id lease, const std::string& name) { touched_[{lease, name}] = world_.now(); }

    /// A client begins to change a limit: by that much, or to that.
    std::size_t changes_limit(std::string name, bool relative, std::int64_t by);
    /// It is said to be done. What was returned is what it is now.
    void changed_limit(std::size_t call, std::int64_t now);
    /// It is said to be refused for good.
    void refused_limit(std::size_t call);

    /// Nobody may wait for long where there is room besides those before it; nor may keys be there
    /// for long that no client counts on.
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound);
    /// See `sharing_rules`.
    void look_for_unnoticed(const late_end& is_late) const;

    /// The keys that are there of attempts.
    std::vector<std::string> left_behind() const;

    std::uint64_t grants = 0;
    std::uint64_t limits = 0; ///< That were changed.

private:
    /// An attempt that may come now.
    struct candidate {
        std::int64_t life = 0;
        nanoseconds since{0};
        std::size_t ahead = 0; ///< How many wait before it.
    };
    struct waiter {
        std::int64_t since; ///< The revision.
        std::int64_t weight;
    };
    struct limit_call {
        std::string name;
        bool relative;
        std::int64_t by;
        bool done = false;
        bool refused = false;
        std::int64_t now = 0; ///< It says, once it is done.
    };
    struct limit_change {
        std::int64_t now;
        bool needs_none;             ///< It may be no call's.
        std::vector<std::size_t> by; ///< Calls that may have made it.
    };

    /// How much is held.
    std::int64_t used(const std::string& name) const;
    void look_at(const std::string& name);
    void check_limit(const std::string& name, std::int64_t before, std::int64_t now);
    bool made(std::size_t call, const limit_change& c) const;
    static bool all_differ(const std::vector<std::vector<std::size_t>>& choices);
    bool excused(const permit_hold& h) const;
    /// The greatest limit that there was from a revision on.
    std::int64_t limit_since(const std::string& name, std::int64_t revision) const;

    world& world_;
    std::map<std::string, std::map<std::string, waiter>> waiting_;       // by name and id
    std::map<std::string, std::map<std::int64_t, std::int64_t>> limits_; // by name and revision
    std::set<std::pair<std::string, std::int64_t>> put_;                 // lives of permits' keys
    std::map<std::pair<std::string, std::int64_t>, nanoseconds> robbed_; // permits, by their owner
    std::set<std::pair<std::string, std::int64_t>> tokens_;
    std::set<lease_id> revoked_;
    std::list<permit_hold> holds_;
    std::map<std::string, nanoseconds> born_;                         // keys that are there
    std::map<std::pair<lease_id, std::string>, nanoseconds> touched_; // the last time
    std::map<std::string, std::map<std::string, candidate>> next_;    // by name, and by key
    std::vector<limit_call> limit_calls_;
    std::vector<limit_change> limit_changes_;
    bool returned_ = false; ///< A lease has, and with it went what makes late copies void.
};

} // namespace sim
