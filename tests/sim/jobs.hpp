// SPDX-License-Identifier: BSL-1.0
#pragma once

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

inline constexpr std::string_view jobs_name = "jobs";
/// Here is noted for which items the work was done.
inline constexpr std::string_view effect_prefix = "effect/";
/// An operator may delete what is below it: whose the items are.
inline constexpr std::string_view claim_prefix = "jobs/run/claim/";

/// What must be true of the items of a work queue, and of what its consumers are told.
///
/// An item is known by what all its keys have in common, its order. It is at one place at a time,
/// and goes from one to the next; it vanishes once, by the claim of its consumer.
class job_rules {
public:
    static constexpr int most_attempts = 3;

    explicit job_rules(world& w)
        : world_(w) {}

    // What clients do.

    using values = std::vector<std::string>;
    /// Each value is that of one item.
    void appends(const values& all);
    void appended(const values& all);
    void not_appended(const values& all);
    /// A dead item may vanish.
    void erases_dead(const std::string& id) { erased_.insert(id); }
    /// Or come back, as a new one.
    void revives(const std::string& id, const std::string& value);

    /// A consumer that waits for an item, as long as this exists.
    class seat {
    public:
        explicit seat(job_rules& of)
            : of_(of)
            , place_(of.waiting_.insert(of.waiting_.end(), of.world_.now())) {}
        ~seat() { of_.waiting_.erase(place_); }
        seat(const seat&) = delete;
        seat& operator=(const seat&) = delete;

    private:
        job_rules& of_;
        const std::list<nanoseconds>::iterator place_;
    };
    /// A consumer that has an item, as long as this exists.
    class hold {
    public:
        hold(job_rules& of, std::int64_t token)
            : of_(of)
            , token_(token) {
            ++of_.held_[token_].count;
        }
        ~hold() {
            held& h = of_.held_[token_];
            --h.count;
            h.since = of_.world_.now();
        }
        hold(const hold&) = delete;
        hold& operator=(const hold&) = delete;

    private:
        job_rules& of_;
        const std::int64_t token_;
    };
    /// An attempt at an item, as its consumer knows it.
    struct attempt {
        std::string order;
        int number = 0;
        std::int64_t token = 0;
        std::string value;
    };
    void taken(const attempt& a);

    enum class verdict { none, ack, ack_with_effect, retry, bury };
    /// A bury() begins.
    void buries(std::int64_t token) { buried_.insert(token); }
    /// A call about it has returned.
    /// @param done Whether that happened.
    void ended(const attempt& a, verdict how, bool done);

    // What etcd does.

    /// Of one revision.
    /// @param has_returned Whether a lease had ended before: with it went what makes late copies
    ///   void.
    void changed(const std::vector<etcd::change>& changes,
                 etcd::cause why,
                 const std::function<bool(lease_id)>& has_returned);

    /// Whether there is work to do, and a consumer waits for it.
    bool owes_work() const;
    /// No item is ready for long while a consumer waits, nor busy with nobody.
    void look_for_idle(nanoseconds healed_at, nanoseconds bound) const;

    std::uint64_t claims = 0;
    std::uint64_t finished = 0; ///< Items.

private:
    enum class place { none, ready, again, busy, dead };
    struct where {
        place at = place::none;
        std::string id; ///< The order and the attempt.
    };
    struct item {
        std::string value;
        std::map<std::string, where> keys; ///< One, but for what happens in one revision.
        nanoseconds since{0};
    };
    struct value_state {
        bool refused = false;
        bool is_new = true;
        bool is_reviving = false;
        std::uint64_t began = 0; ///< When enqueue() was called, as a number that grows.
        std::uint64_t over = 0;  ///< When it had returned; 0: it has not.
    };
    struct claim {
        std::int64_t token = 0;
        nanoseconds since{0};
    };
    enum class fate { open, erased, again, dead };
    struct known_attempt {
        std::string id;
        std::string value;
        fate end = fate::open;
        bool told = false;
    };
    struct held {
        int count = 0;
        nanoseconds since{0};
    };
    /// What a revision does to items.
    struct revision {
        std::map<std::string, where> before; ///< Of each item that it touches.
        std::set<std::string> claimed;
        std::map<std::string, std::int64_t> given_up; ///< Claims that it erases, and their tokens.
        std::set<std::string> effects;
        std::set<std::string> gone_dead; ///< Values of dead items that it erases.
    };

    static where parse(const std::string& key);
    static std::string order_of(const std::string& id) { return id.substr(0, id.rfind('.')); }
    static int attempt_of(const std::string& id) { return std::stoi(id.substr(id.rfind('.') + 1)); }
    void note(const etcd::change& c, revision& r, etcd::cause why);
    void judge(const std::string& order, const where& was, const revision& r);
    void judge_appended(const std::string& order, const where& is, const revision& r);
    void judge_taken(const std::string& order, const where& was, const revision& r) const;
    void judge_given_up(const where& was, const where& is, const revision& r);
    bool is_excused() const {
        return excused_ || world_.count_of(fault::early_revoke) != 0 || world_.had_other_clusters();
    }
    static const where* place_of(const item& i) {
        return i.keys.empty() ? nullptr : &i.keys.begin()->second;
    }

    world& world_;
    std::map<std::string, item> items_; ///< All that there were, by order.
    std::map<std::string, value_state> values_;
    std::map<std::string, claim> claims_;          ///< Those that are there, by id.
    std::set<std::string> claimed_;                ///< All that there were.
    std::map<std::string, nanoseconds> unclaimed_; ///< When they went, by id.
    std::map<std::int64_t, known_attempt> attempts_;
    std::map<std::int64_t, held> held_;
    std::set<std::int64_t> buried_;
    std::set<std::string> erased_;
    std::set<std::string> effects_; ///< Orders.
    std::list<nanoseconds> waiting_;
    std::uint64_t calls_ = 0;
    bool excused_ = false; ///< A lease has returned.
};

} // namespace sim
