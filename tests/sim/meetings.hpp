// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

inline constexpr std::string_view turnstile_name = "turnstile";
inline constexpr std::string_view hall_name = "hall";

/// What must be true of a barrier where groups gather, and of what its members are told.
///
/// Each member has a session of its own: a call knows its arrival by that, and by its revision.
class meeting_rules {
    struct calling {
        lease_id by = 0;
        std::int64_t after = 0; ///< The revision when it began.
        nanoseconds began{0};
    };
    struct leaving {
        std::int64_t group = 0;
        nanoseconds began{0};
    };

public:
    enum class kind { passes, stays };

    meeting_rules(world& w, std::string_view name, kind k)
        : world_(w)
        , name_(name)
        , kind_(k) {}

    // What clients do.

    /// A call that arrives and waits, as long as this exists.
    class seat {
    public:
        seat(meeting_rules& of, lease_id by)
            : of_(of)
            , place_(of.calls_.insert(of.calls_.end(),
                                      {by, of.world_.store.revision, of.world_.now()})) {}
        ~seat() {
            if (!is_over_) {
                of_.doubtful_.insert(place_->by);
            }
            of_.calls_.erase(place_);
        }
        seat(const seat&) = delete;
        seat& operator=(const seat&) = delete;
        /// It went through.
        /// @returns The key of its arrival; empty if that could be another one's, too.
        std::string came_through() {
            is_over_ = true;
            return of_.claim(*place_);
        }
        /// It did not.
        void withdrew() {
            is_over_ = true;
            of_.look_at_withdrawn(*place_);
        }

    private:
        meeting_rules& of_;
        const std::list<calling>::iterator place_;
        bool is_over_ = false;
    };

    /// A member that is inside, as long as this exists.
    class member {
    public:
        member(meeting_rules& of, std::string arrival)
            : of_(of)
            , arrival_(std::move(arrival)) {
            of_.staying_.insert(arrival_);
        }
        ~member() { goes(); }
        member(const member&) = delete;
        member& operator=(const member&) = delete;
        /// From now on it may leave.
        void goes() { of_.staying_.erase(arrival_); }
        std::int64_t group() const { return of_.group_of(arrival_); }

    private:
        meeting_rules& of_;
        const std::string arrival_;
    };
    /// A member that waits for the others to leave, as long as this exists.
    class departure {
    public:
        departure(meeting_rules& of, std::int64_t group)
            : of_(of)
            , place_(of.departures_.insert(of.departures_.end(), {group, of.world_.now()})) {}
        ~departure() { of_.departures_.erase(place_); }
        departure(const departure&) = delete;
        departure& operator=(const departure&) = delete;
        /// All have left, it says; or not.
        void returned(bool all) const { of_.look_at_left(*place_, all); }

    private:
        meeting_rules& of_;
        const std::list<leaving>::iterator place_;
    };

    // What etcd does.

    void changed(const std::vector<etcd::change>& changes, etcd::cause why);

    /// Whether somebody waits that need not wait any more.
    bool owes_passage() const { return find_stuck(world_.now()).has_value(); }
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t groups = 0; ///< That went through.

private:
    enum class place { there, through, gone };
    struct arrival {
        lease_id by = 0;
        std::int64_t revision = 0;
        place at = place::there;
        bool claimed = false;
        std::int64_t group = 0; ///< The revision in which it went through.
        nanoseconds since{0};
    };

    std::string claim(const calling& c);
    void look_at_withdrawn(const calling& c) const;
    void look_at_left(const leaving& l, bool all) const;
    void judge_group(const std::set<std::string>& erased, std::int64_t revision);
    void judge_bound(const etcd::change& c, const std::set<std::string>& erased);
    void judge_entered(const std::vector<etcd::change>& entered,
                       const std::set<std::string>& erased);
    void judge_left(const std::string& id, etcd::cause why);
    std::int64_t group_of(const std::string& id) const;
    std::optional<std::string> find_stuck(nanoseconds until) const;

    world& world_;
    const std::string name_;
    const kind kind_;
    std::int64_t parties_ = 0;
    std::int64_t bound_ = 0;
    std::map<std::string, arrival> arrivals_; ///< All that there were, by id.
    std::int64_t there_ = 0;                  ///< How many of them wait.
    nanoseconds full_since_{0};
    std::map<std::int64_t, std::set<std::string>> inside_; ///< Ids, by group.
    std::map<std::int64_t, nanoseconds> empty_since_;      ///< By group.
    std::set<std::string> staying_;                        ///< Ids of members.
    std::set<lease_id> doubtful_;                          ///< An arrival of them may come late.
    std::set<lease_id> ended_;                             ///< Keys have gone with them.
    std::list<calling> calls_;
    std::list<leaving> departures_;
};

} // namespace sim
