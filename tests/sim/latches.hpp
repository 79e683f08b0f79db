// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

inline constexpr std::string_view latch_prefix = "latch/";

/// What must be true of latches, each with a number of its own, and of what is told of them.
class latch_rules {
    struct calling {
        int of = 0;
        nanoseconds began{0};
        std::int64_t least = 0; ///< Counts, while it lasts.
        std::int64_t most = 0;
        bool waits = false;
    };

public:
    explicit latch_rules(world& w)
        : world_(w) {}

    /// The first latch that is not open.
    int current() const;
    static std::string name_of_latch(int which) {
        return std::string(latch_prefix) + std::to_string(which);
    }

    /// A call about a latch, as long as this exists.
    class call {
    public:
        call(latch_rules& of, int which, bool waits)
            : of_(of)
            , place_(of.begin_call(which, waits)) {}
        ~call() { of_.calls_.erase(place_); }
        call(const call&) = delete;
        call& operator=(const call&) = delete;
        /// So many are left.
        /// @param reads It has changed nothing.
        void told_remaining(std::int64_t n, bool reads) const {
            of_.look_at_remaining(*place_, n, reads);
        }
        void told_open(bool open) const { of_.look_at_open(*place_, open); }

    private:
        latch_rules& of_;
        const std::list<calling>::iterator place_;
    };
    void counts(int which, lease_id by) { ++latches_[which].by[by].begun; }
    void counted(int which, lease_id by);
    void not_counted(int which, lease_id by);

    void changed(const std::vector<etcd::change>& changes);

    bool owes_opening() const;
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t opened = 0;

private:
    struct tally {
        std::int64_t begun = 0;
        std::int64_t done = 0;
        std::int64_t refused = 0;
        std::int64_t keys = 0;
    };
    struct latch_state {
        std::int64_t total = 0; ///< 0: none is stored.
        std::int64_t counts = 0;
        nanoseconds open_since{0};
        std::map<lease_id, tally> by;
        bool is_open() const { return total != 0 && counts >= total; }
    };

    std::list<calling>::iterator begin_call(int which, bool waits);
    void check(int which, lease_id by) const;
    void look_at_remaining(const calling& c, std::int64_t n, bool reads) const;
    void look_at_open(const calling& c, bool open) const;
    bool is_excused() const {
        return world_.count_of(fault::stale_read) != 0 || world_.had_other_clusters();
    }

    world& world_;
    std::map<int, latch_state> latches_;
    std::list<calling> calls_;
};

} // namespace sim
