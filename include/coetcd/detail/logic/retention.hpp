// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/admin.hpp>
#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

/// When a lock stays with its session although nobody holds it, so that the session's next holder
/// has it without a request.
namespace coetcd::detail::logic {

/// What the locks of one name have taught: a lock that goes before its session wants it again, as
/// when others do, costs more than a release. So after such a miss the next release is a
/// real one, and after each further miss twice as many are.
class retention_habit {
public:
    /// A lock is given back.
    /// @returns Whether it may stay.
    bool may_stay() {
        if (to_release_ != 0) {
            --to_release_;
            return false;
        }
        return true;
    }
    /// The session had it again.
    void was_hit() { pause_ = 0; }
    /// It went before the session used it.
    void was_missed() {
        pause_ = pause_ == 0 ? 1 : std::min(2 * pause_, longest_pause);
        to_release_ = pause_;
    }

private:
    static constexpr unsigned longest_pause = 64;
    unsigned pause_ = 0;
    unsigned to_release_ = 0;
};

/// A lock that stays with its session, from when it is given back for the first time until it is
/// given back to etcd. The watch that tells whether others want it begins behind a look.
template<class TimePoint>
class retention {
public:
    /// It is given back for the first time, and looked at.
    /// @param most How long it may stay unused.
    retention(std::chrono::nanoseconds most, TimePoint now)
        : most_(most)
        , since_(now)
        , deaf_since_(now) {}

    // What happens.

    /// The first look is over.
    /// @param may_stay Nobody else wants the lock; a watch of what comes later has begun.
    void looked(bool may_stay, TimePoint now) {
        now_ = state::idle;
        since_ = now;
        is_recalled_ = is_recalled_ || !may_stay;
    }
    /// The watch is in force, and tells all that has happened since the look.
    void hears() { broken_ = false; }
    /// The watch tells nothing for now.
    void is_deaf(TimePoint now) {
        if (!broken_) {
            broken_ = true;
            deaf_since_ = now;
        }
    }
    /// Somebody wants the lock, or it is not ours any more, or the session has ended.
    void recall() { is_recalled_ = true; }
    /// The session's next holder has it.
    void taken() {
        now_ = state::used;
        was_used_ = true;
    }
    /// That holder gives it back, cleanly.
    void given_back(std::chrono::nanoseconds most, TimePoint now) {
        most_ = most;
        now_ = state::idle;
        since_ = now;
    }

    // What follows.

    bool is_decided() const { return now_ != state::looks; }
    bool is_idle() const { return now_ == state::idle; }
    /// It is recalled, and was of no use. Told once.
    bool was_missed() { return is_recalled_ && !std::exchange(was_used_, true); }
    /// Nobody else is known to want it, and somebody who does could say so.
    bool may_stay(TimePoint now) const {
        return !is_recalled_ && !(broken_ && now - deaf_since_ >= longest_deaf);
    }
    /// Whether it is to be given back to etcd: at once if it is idle, else when it is given back.
    bool must_go(TimePoint now) const {
        return !may_stay(now) || (now_ == state::idle && now - since_ >= most_);
    }
    /// When to ask that again, if nothing happens.
    TimePoint due() const {
        const bool ends = now_ == state::idle && TimePoint::max() - since_ > most_;
        const TimePoint end = ends ? since_ + most_ : TimePoint::max();
        return broken_ ? std::min(end, deaf_since_ + longest_deaf) : end;
    }

private:
    enum class state {
        looks, ///< It was given back; whether it may stay is not known.
        idle,
        used,
    };
    /// Longer than it takes to open a broken stream anew.
    static constexpr std::chrono::seconds longest_deaf{1};

    std::chrono::nanoseconds most_;
    state now_ = state::looks;
    bool is_recalled_ = false;
    bool was_used_ = false;
    bool broken_ = true;
    TimePoint since_;      // when it was given back last
    TimePoint deaf_since_; // if `broken_`
};

/// Looks whether a place may stay: it is ours, nobody stands behind it, and nobody has asked for
/// it. It changes nothing. What comes later is told by a watch from the revision of the answer on.
/// Whoever waits for a lock below this name counts, too: its key may be a plain one of this queue.
/// Without a read, etcd would answer from any member's memory.
inline txn look_for_others(const name_keys& c, std::int64_t create_revision) {
    txn t;
    t.compares.push_back(compare::create_revision(c.keys.front()) == create_revision);
    t.compares.push_back(compare::create_revision(c.before) < create_revision + 1);
    const key_range asking = key_range::prefix(asking_keys(c.name)); // which stay
    t.compares.push_back(compare::mod_revision(asking) < create_revision);
    t.failure.push_back(op::range(c.keys.front(), transactions::keys_only()));
    return t;
}

/// The keys whose changes tell whether a place may stay: those of the queue and of requests.
inline key_range keys_of_others(const std::string& name) {
    return {name + ".", name + "0"};
}

/// Whether a change tells that a place has to go.
/// @param key That of the place.
inline bool ends_retention(const event& e, const std::string& name, std::string_view key) {
    if (e.type == event_type::erase) {
        return e.kv.key == key;
    }
    const bool asks = e.kv.key.starts_with(asking_keys(name));
    return asks || (e.kv.key != key && split_key(name, e.kv.key).has_value());
}

} // namespace coetcd::detail::logic
