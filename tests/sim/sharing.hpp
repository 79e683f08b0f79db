// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/lock_mode.hpp>

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

inline constexpr std::string_view sharing_prefix = "shared/";

inline std::string shared_name_of(int lock) {
    return std::string(sharing_prefix) + std::to_string(lock);
}

/// Locks that are shared, or several at once, that their user counts on.
struct shared_hold {
    const process* in;
    coetcd::lease_id lease;
    std::shared_ptr<coetcd::detail::session_impl> session;
    bool sound_clock;
    std::vector<std::string> names;
    std::function<bool()> owns;                         ///< What the library says, as all of these.
    std::function<coetcd::lock_mode(std::size_t)> mode; ///< Of each name.
    std::function<std::vector<coetcd::detail::logic::held_life>()> proof; ///< As all of these.
    std::function<std::vector<coetcd::detail::logic::held_life>()> keys;  ///< That it is held by.

    /// It reads, and no upgrade may still be under way.
    std::shared_ptr<bool> just_reads = std::make_shared<bool>(false);
    /// When it is to end, by its process's clock, whatever becomes of the session.
    std::optional<coetcd::detail::time_point> until{};
    bool watched = false; ///< Its keys are watched while it is held.
    nanoseconds since{0}; ///< When it was granted, or raised.

    bool is_over() const { return until && session->world.now() >= *until; }
    bool valid() const { return session->is_certain() && owns(); }
};

/// What must be true of readers and writers: which keys may own a lock follows from what is in
/// etcd, in the order of their ages.
class sharing_rules {
public:
    /// @param over Tells whether a lease was ended by something else than its ttl.
    /// @param tells Tells whether watches are told now what happens.
    sharing_rules(world& w, std::function<bool(lease_id)> over, std::function<bool()> tells)
        : over_(std::move(over))
        , tells_(std::move(tells))
        , world_(w) {}

    void changed(const etcd::change& c, etcd::cause why);

    /// A client wants locks, or changes what it has.
    void touch(lease_id lease, const std::vector<std::string>& names);
    std::list<shared_hold>::iterator granted(shared_hold h);
    /// It says that it writes now.
    void raised(shared_hold& h);
    void gives_back(std::list<shared_hold>::iterator h);
    /// No client may hold anything for longer than it wanted.
    void look_at_holds();

    /// No attempt may be entitled to a lock for long, and not take it. No key may be there for long
    /// that no client counts on.
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound);
    /// A holder of what an operator has taken away has to notice that.
    void look_for_unnoticed(const late_end& is_late) const;
    /// Who watches its key has to notice at once, as each request is answered at once.
    void look_for_unheard() const;
    /// The keys in queues.
    std::vector<std::string> left_behind() const;

    std::uint64_t grants = 0;
    std::uint64_t upgrades = 0;
    std::uint64_t downgrades = 0;

private:
    using life = std::pair<std::string, std::int64_t>;

    void look_at(const std::string& name);
    void check_upgrade(const std::string& name, const etcd::change& c);
    void check(const shared_hold& h);
    bool went_before_its_turn(const shared_hold& h,
                              const coetcd::detail::logic::held_life& own) const;
    bool excused(const shared_hold& h) const;
    std::optional<nanoseconds> entitled_since(const etcd::record& r) const;

    struct taken {
        nanoseconds when;
        bool told; ///< By an event.
    };

    const std::function<bool(lease_id)> over_;
    const std::function<bool()> tells_;
    world& world_;
    std::map<life, nanoseconds> entitled_;                            // since when
    std::map<std::pair<lease_id, std::string>, nanoseconds> touched_; // the last time
    std::map<life, nanoseconds> held_at_;                             // seen last
    std::set<std::pair<lease_id, std::string>> robbed_;               // by an operator
    std::map<life, taken> taken_away_;                                // by an operator
    std::list<shared_hold> holds_;
};

} // namespace sim
