// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace coetcd::detail {
class session_impl;
} // namespace coetcd::detail

namespace sim {

inline constexpr std::string_view mail_name = "mail";
/// An operator may delete what is below it: places of consumers that wait.
inline constexpr std::string_view mail_line_prefix = ".mail.line/";
/// The same for a queue of priorities.
inline constexpr std::string_view parcels_name = "parcels";
inline constexpr std::string_view parcels_line_prefix = ".parcels.line/";

/// What must be true of the items of a queue, and of what its users are told.
///
/// An item is known by its value, which no other one has. The marker that is written with each
/// change tells whose session has made it.
class queue_rules {
    struct calling {
        nanoseconds began{0};
        bool waits = false;
    };
    struct bounds { // of the number of items
        std::int64_t least = 0;
        std::int64_t most = 0;
    };

public:
    enum class order { arrival, priority };

    queue_rules(world& w, std::string_view name, order by)
        : world_(w)
        , items_prefix_(std::string(name) + "/")
        , beside_("." + std::string(name) + ".")
        , by_(by) {}

    // What clients do.

    using values = std::vector<std::string>;
    /// @param priority 0 where there are none.
    void appends(const values& all, std::uint16_t priority);
    void appended(const values& all);
    void not_appended(const values& all);

    /// Of a consumer or producer.
    void opened(lease_id id, const std::shared_ptr<coetcd::detail::session_impl>& s) {
        sessions_[id] = s;
    }
    /// A call of that session does not know whether it has taken an item.
    void lost_track(lease_id id) { unknown_.insert(id); }

    /// A call that takes an item, as long as this exists.
    class seat {
    public:
        /// @param waits Until there is one.
        seat(queue_rules& of, bool waits)
            : of_(of)
            , place_(of.calls_.insert(of.calls_.end(), {of.world_.now(), waits})) {}
        ~seat() { of_.calls_.erase(place_); }
        seat(const seat&) = delete;
        seat& operator=(const seat&) = delete;
        /// There was none.
        void found_nothing() const { of_.look_at_empty(place_->began); }
        /// There was this one.
        void found(const std::string& value) const { of_.look_at_order(value, place_->began); }

    private:
        queue_rules& of_;
        const std::list<calling>::iterator place_;
    };
    /// A consumer of that session has it.
    void handed(lease_id by, const std::string& value);

    /// A call that asks for the number of items, as long as this exists.
    class sizing {
    public:
        explicit sizing(queue_rules& of)
            : of_(of)
            , place_(of.sizings_.insert(of.sizings_.end(), {of.there_, of.there_})) {}
        ~sizing() { of_.sizings_.erase(place_); }
        sizing(const sizing&) = delete;
        sizing& operator=(const sizing&) = delete;
        void told(std::int64_t size) const;

    private:
        queue_rules& of_;
        const std::list<bounds>::iterator place_;
    };

    // What etcd does.

    /// Of one revision.
    /// @param has_returned Whether a lease had ended before: with it went what makes late copies
    ///   void.
    void changed(const std::vector<etcd::change>& changes,
                 etcd::cause why,
                 const std::function<bool(lease_id)>& has_returned);

    /// Whether there are items, and a consumer waits for one; or one may be put back yet.
    bool owes_items() const;
    /// No item is there for long while a consumer waits. None is lost while the session lives that
    /// has taken it.
    void look_for_idle(nanoseconds healed_at, nanoseconds bound) const;

    /// No consumer waits: then each knows the order by what it has read.
    bool only_looks = false;

    std::uint64_t handed_out = 0;
    std::uint64_t put_back = 0;

private:
    enum class place { none, there, taken, handed };
    struct item {
        place at = place::none;
        std::string key;
        std::int64_t put = 0; ///< The revision.
        nanoseconds since{0};
        lease_id taken_by = 0;
        bool refused = false;
        std::uint64_t began = 0; ///< When enqueue() was called, as a number that grows.
        std::uint64_t over = 0;  ///< When it had returned; 0: it has not.
        std::string folder;      ///< What its key begins with, unless it was put back.
        /// When one came that was before it when it was taken, if any was.
        std::optional<nanoseconds> passed_over;
    };

    bool is_put_back(const etcd::change& c) const;
    void judge_appended(const std::string& value, const etcd::change& c);
    void judge_put_back(const etcd::change& c, lease_id by);
    void judge_taken(const etcd::change& c, etcd::cause why, lease_id by);
    void look_at_empty(nanoseconds began) const;
    void look_at_order(const std::string& value, nanoseconds began) const;
    bool is_live(lease_id id) const;
    bool is_excused() const {
        return excused_ || world_.count_of(fault::early_revoke) != 0 || world_.had_other_clusters();
    }

    world& world_;
    const std::string items_prefix_;
    const std::string beside_;
    const order by_;
    std::map<std::string, item> items_; ///< All that there were, by value.
    std::map<lease_id, std::weak_ptr<coetcd::detail::session_impl>> sessions_;
    std::set<lease_id> unknown_;
    std::list<calling> calls_;
    std::list<bounds> sizings_;
    std::int64_t there_ = 0;
    std::uint64_t times_ = 0;
    bool excused_ = false; ///< A lease has returned.
};

} // namespace sim
