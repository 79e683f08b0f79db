// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

inline constexpr std::string_view barrier_prefix = "bar/";

/// What must be true of barriers, each with a number, and of what is told of them.
///
/// The marker that is written with each closing tells whose session has made it. A session makes no
/// two closings of a barrier at once.
class barrier_rules {
    struct calling {
        int of = 0;
        nanoseconds began{0};
        bool waits = false;
        bool releases = false;
        bool was_open = false; ///< At any moment, while it lasts.
        bool was_closed = false;
        std::vector<nanoseconds> opened{}; ///< When, while it lasts.
    };

public:
    explicit barrier_rules(world& w)
        : world_(w) {}

    static std::string name_of_barrier(int which) {
        return std::string(barrier_prefix) + std::to_string(which);
    }

    enum class purpose { waits, asks, releases };
    /// How long a barrier is to be closed.
    enum class closing : std::size_t { for_good, while_alive };

    /// A call about a barrier, as long as this exists.
    class call {
    public:
        call(barrier_rules& of, int which, purpose p)
            : of_(of)
            , place_(of.begin_call(which, p)) {}
        ~call() { of_.calls_.erase(place_); }
        call(const call&) = delete;
        call& operator=(const call&) = delete;
        /// A wait has ended: the barrier is open, it says, or was; or not.
        void told(bool open) const { of_.look_at_wait(*place_, open); }
        /// It has opened the barrier, it says; or that was open.
        void released(bool opened) const { of_.look_at_release(*place_, opened); }

    protected:
        barrier_rules& of_;
        const std::list<calling>::iterator place_;
    };

    /// A call that closes a barrier, likewise.
    class holding : public call {
    public:
        holding(barrier_rules& of, int which, lease_id by, closing how)
            : call(of, which, purpose::asks)
            , by_(by)
            , how_(how)
            , keys_before_(of.begin_closing(which, by, how)) {}
        /// It has closed the barrier, it says.
        void closed() const { of_.look_at_closed(*place_, by_, how_, keys_before_); }
        /// That was closed, it says.
        void found_closed() const { of_.look_at_found_closed(*place_, by_, how_); }
        /// It failed, and has changed nothing, it says.
        void changed_nothing() const { of_.look_at_refused(place_->of, by_, how_); }

    private:
        const lease_id by_;
        const closing how_;
        const std::int64_t keys_before_;
    };

    /// Of one revision.
    /// @param has_returned Whether a lease had ended before: with it went what makes late copies
    ///   void.
    void changed(const std::vector<etcd::change>& changes,
                 etcd::cause why,
                 const std::function<bool(lease_id)>& has_returned);

    bool owes_passage() const;
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t closings = 0;

private:
    struct tally {
        std::int64_t begun = 0;
        std::int64_t done = 0;
        std::int64_t refused = 0;
        std::int64_t keys = 0;
    };
    using tallies = std::array<tally, 2>; // by how they close
    struct state {
        bool is_closed = false;
        bool may_open = false; ///< A call that opens it was under way since it was closed.
        nanoseconds open_since{0};
        std::map<lease_id, tallies> by;
    };

    std::list<calling>::iterator begin_call(int which, purpose p);
    std::int64_t begin_closing(int which, lease_id by, closing how);
    tally& tally_of(int which, lease_id by, closing how) {
        return barriers_[which].by[by][static_cast<std::size_t>(how)];
    }
    void check(const tally& t) const;
    void look_at_wait(const calling& c, bool open) const;
    void look_at_release(const calling& c, bool opened) const;
    void look_at_closed(const calling& c, lease_id by, closing how, std::int64_t keys_before);
    void look_at_found_closed(const calling& c, lease_id by, closing how);
    void look_at_refused(int which, lease_id by, closing how);
    void judge_closed(state& b, const etcd::change& c, const etcd::change* marker);
    void judge_opened(const state& b, const etcd::change& c, etcd::cause why) const;
    bool is_excused() const {
        return world_.count_of(fault::stale_read) != 0 || world_.had_other_clusters();
    }

    world& world_;
    std::map<int, state> barriers_;
    std::set<std::pair<std::string, std::string>> marks_; ///< Of all closings: marker, value.
    std::list<calling> calls_;
    bool excused_ = false; ///< A lease has returned.
};

} // namespace sim
