// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/permits.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/rank.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Permits: the transactions of a semaphore, and what their answers mean.
///
/// The waiters of a semaphore queue at `<name>/wait/`, like those of a mutex. Those in front count
/// what comes before them; as soon as they fit besides, they exchange their keys for those of
/// permits, side by side. A permit of weight `w` is a key `<name>/hold/<b>/...` for each bit `b`
/// that is set in `w`, so that a few counts tell how much is taken, however many permits there are.
/// The limit is at `<name>.limit`.
///
/// There are never more permits than the limit allowed at the time:
/// - *take* puts a permit's keys where nobody waits, and counts them in the same transaction; the
///   permit is granted only if they fit.
/// - *admit* follows a count: see rank.hpp. It compares the limit, which must still be the one that
///   was counted with. And since a member may tell of ends that are none, it counts once more, as
///   *take* does.
///
/// A permit's keys and its key in the queue belong to one slot, with one epoch. Within an attempt,
/// late copies of its requests are void, too:
/// - A copy of *take* needs an empty queue, and our key is in it until we are admitted; after that
///   it needs that our permit is not there.
/// - A copy of *enter*, which erases what *take* has put, compares the life of that, or that
///   nothing was there; a permit that was admitted since is another life.
/// - A copy of *admit* compares the life of our key in the queue, and ends it.
///
/// All of these compare the epoch, which is another one when the slot is used again after any of
/// them was in doubt.
namespace coetcd::detail::logic {

/// One attempt to get a permit.
///
/// Its `keys` are those of its place in the queue or of its permit, whichever etcd has; the `later`
/// ones are those of the other.
class permit_rule final : public rule {
public:
    /// @param weight From 1 to `most_permits`.
    /// @param initial The limit to store if there is none; empty to be refused then.
    permit_rule(std::string name, std::int64_t weight, std::optional<std::int64_t> initial)
        : name_(std::move(name))
        , weight_(weight)
        , initial_(initial)
        , rank_(name_) {}

    bool admits() const override { return true; }
    void prepare(attempt_keys& a) override {
        name_keys& c = a.by_name.front();
        const std::string id = c.keys.front().substr((name_ + "/wait/").size());
        waiting_ = c.keys;
        for (std::size_t bit = 0; bit != permit_bits; ++bit) {
            if ((weight_ >> bit & 1) != 0) {
                permit_.push_back(permits::held_prefix(name_, bit) + id);
                c.later.push_back({permit_.back(), 0});
            }
        }
    }

    /// Puts the permit if nobody waits, and counts it.
    txn take(const attempt_keys& a, const std::string& label) const override {
        const name_keys& c = a.by_name.front();
        txn t;
        t.compares.push_back(transactions::epoch_holds(c));
        t.compares.push_back(compare::create_revision(c.before) == 0);
        permits::require_life(permit_, 0, t);
        t.success.push_back(op::nested(limit_if_none()));
        permits::put_all(permit_, a.lease, label, t);
        permits::ask_room(name_, t.success);
        permits::read_all(permit_, t.failure);
        permits::read_all({c.epoch_key}, t.failure);
        return t;
    }
    /// `owner`, `too_many`, `exceeds`, `taken`, `ended`, `gone`; `queued` if it was put before.
    standing after_take(const txn_response& response, attempt_keys& a) override {
        if (response.succeeded) {
            const std::size_t before = 1 + permit_.size();
            const std::int64_t born = answers::require_revision(response.header.revision);
            learn(permits::room_in(response, before, name_, initial_));
            return stand_in(a, born);
        }
        standing now;
        if (response.responses.empty()) { // the request did not ask why
            now.at = standing::where::taken;
            return now;
        }
        const permits::life life = permits::life_in(response, 0, permit_);
        if (life.all) {
            return ask_in(a, life.create_revision);
        }
        now = why_not_there(response, permit_.size(), a);
        if (life.none && now.at == standing::where::gone) {
            now.at = standing::where::taken;
        }
        return now;
    }

    /// Takes a place in the queue, in exchange for the permit if that was taken and does not fit.
    txn enter(const attempt_keys& a, const std::string& label) const override {
        const name_keys& c = a.by_name.front();
        txn t;
        t.compares.push_back(transactions::epoch_holds(c));
        permits::require_life(waiting_, 0, t);
        permits::require_life(permit_, in_ ? taken_ : 0, t);
        t.success.push_back(op::range(c.before, newest()));
        if (in_) {
            permits::erase_all(permit_, t);
        }
        permits::put_all(waiting_, a.lease, permits::waiting_value(weight_, label), t);
        permits::ask_room(name_, t.success);
        permits::read_all(waiting_, t.failure);
        permits::read_all(permit_, t.failure);
        permits::read_all({c.epoch_key}, t.failure);
        return t;
    }
    /// `behind`, `room`, `no_room`, `exceeds`, `ended`, `gone`; `queued` if it was put before, or
    /// the permit was.
    standing after_enter(const txn_response& response, attempt_keys& a) override {
        if (response.succeeded) {
            const std::int64_t born = answers::require_revision(response.header.revision);
            const std::size_t before = 1 + (in_ ? permit_.size() : 0) + waiting_.size();
            learn(permits::room_in(response, before, name_, initial_));
            set_in(a, false);
            return stand_behind(response, 0, born);
        }
        const permits::life place = permits::life_in(response, 0, waiting_);
        const permits::life life = permits::life_in(response, waiting_.size(), permit_);
        if (place.all) {
            set_in(a, false);
            return queued(place.create_revision);
        }
        if (life.all && !(in_ && life.create_revision == taken_)) {
            return ask_in(a, life.create_revision); // a late copy of `take` has put it
        }
        standing now = why_not_there(response, waiting_.size() + permit_.size(), a);
        if (now.at == standing::where::ended && life.all) {
            now.create_revision = taken_; // the permit is still there
        } else if (now.at == standing::where::ended && life.none) {
            set_in(a, false);
        } else {
            now.at = standing::where::gone;
        }
        return now;
    }

    /// Asks, through etcd's consensus, who is before us and whether there is room; with a permit
    /// that is there already, whether it fits.
    txn confirm(const attempt_keys& a, std::int64_t create_revision) const override {
        const name_keys& c = a.by_name.front();
        txn t;
        permits::require_life(c.keys, create_revision, t);
        t.success.push_back(op::erase(c.void_key));
        if (!in_) {
            t.success.push_back(older_than(c, create_revision));
        }
        permits::ask_room(name_, t.success);
        return t;
    }
    /// `behind`, `room`, `no_room`, `exceeds`, `gone`; with a permit `owner`, `too_many`.
    standing after_confirm(const txn_response& response,
                           attempt_keys& a,
                           std::int64_t create_revision) override {
        if (!response.succeeded) {
            return {};
        }
        learn(permits::room_in(response, in_ ? 1 : 2, name_, initial_));
        return in_ ? stand_in(a, create_revision) : stand_behind(response, 1, create_revision);
    }

    /// Exchanges the place in the queue for the permit, and counts it.
    txn admit(const attempt_keys& a,
              std::int64_t create_revision,
              const std::string& label) const override {
        const name_keys& c = a.by_name.front();
        txn t;
        t.compares.push_back(transactions::epoch_holds(c));
        permits::require_life(waiting_, create_revision, t);
        t.compares.push_back(compare::mod_revision(permits::limit_key(name_)) ==
                             room_.limit_revision);
        permits::erase_all(waiting_, t);
        if (puts_limit()) {
            t.success.push_back(op::put(permits::limit_key(name_), std::to_string(*initial_)));
        }
        permits::put_all(permit_, a.lease, label, t);
        permits::ask_room(name_, t.success);
        permits::read_all(waiting_, t.failure);
        permits::read_all(permit_, t.failure);
        permits::read_all({c.epoch_key}, t.failure);
        return t;
    }
    /// `owner`, `gone`; `too_many` if what was told was not true; `queued` if the limit has
    /// changed, or if a permit is there: not only `admit` may have put it.
    standing after_admit(const txn_response& response,
                         attempt_keys& a,
                         std::int64_t create_revision) override {
        if (response.succeeded) {
            const std::int64_t born = answers::require_revision(response.header.revision);
            const std::size_t limit = puts_limit() ? 1 : 0;
            const std::size_t before = waiting_.size() + limit + permit_.size();
            learn(permits::room_in(response, before, name_, initial_));
            return stand_in(a, born);
        }
        const permits::life place = permits::life_in(response, 0, waiting_);
        const permits::life life = permits::life_in(response, waiting_.size(), permit_);
        const std::size_t epoch = waiting_.size() + permit_.size();
        if (place.create_revision == create_revision) {
            const bool moved = why_not_there(response, epoch, a).at == standing::where::ended;
            return moved ? standing() : queued(create_revision);
        }
        return life.all ? ask_in(a, life.create_revision) : standing();
    }

    std::vector<key_range> signs_of_room() const override {
        if (in_) {
            return {};
        }
        return {permits::all_attempts(name_), permits::limit_key(name_)};
    }
    /// What tells where we stand tells all that its revision has, so it comes after what others
    /// give back. If we give something back with it, the others see that.
    int turn(enum asking what) const override {
        if (what == asking::admit) {
            return 0;
        }
        return in_ ? 1 : 2;
    }
    void asking() override { rank_.asking(); }
    void heed(const std::vector<event>& changes) override { rank_.heed(changes); }
    bool is_in_doubt() const override { return rank_.is_in_doubt(); }
    bool has_room() const override { return rank_.fits(weight_, room_.limit); }
    txn look(const attempt_keys& a, std::int64_t create_revision) const override {
        const name_keys& c = a.by_name.front();
        txn t;
        permits::read_all(c.keys, t.success);
        t.success.push_back(older_than(c, create_revision));
        permits::ask_room(name_, t.success);
        return t;
    }
    bool has_moved(const txn_response& response,
                   const attempt_keys& a,
                   std::int64_t create_revision) const override {
        const auto& own = a.by_name.front().keys;
        const permits::life place = permits::life_in(response, 0, own);
        const room now = permits::room_in(response, own.size() + 1, name_, initial_);
        std::int64_t before = now.used;
        for (const older_waiter& w : older_in(answers::range_at(response, own.size()))) {
            before += w.weight;
        }
        return place.create_revision != create_revision || before != rank_.before() ||
               now.limit_revision != room_.limit_revision;
    }
    std::string why_not() const override {
        if (!room_.has_limit) {
            return permits::no_limit;
        }
        return "it asks for " + std::to_string(weight_) + ", and the limit is " +
               std::to_string(room_.limit);
    }

private:
    /// @param in True: etcd has our permit. False: it has our place in the queue.
    void set_in(attempt_keys& a, bool in) {
        name_keys& c = a.by_name.front();
        in_ = in;
        c.keys = in ? permit_ : waiting_;
        c.later.clear();
        for (const std::string& key : in ? waiting_ : permit_) {
            c.later.push_back({key, 0});
        }
    }

    /// Does nothing if we bring no limit.
    txn limit_if_none() const {
        const std::string key = permits::limit_key(name_);
        txn t;
        t.compares.push_back(compare::create_revision(key) == 0);
        if (initial_) {
            t.success.push_back(op::put(key, std::to_string(*initial_)));
        }
        return t;
    }
    /// Whether `admit` does: the limit was deleted since.
    bool puts_limit() const { return initial_ && room_.limit_revision == 0; }

    void learn(const room& now) { room_ = now; }
    /// Those before us who wait, as far as is asked for, with their weights.
    static range_options newest() {
        range_options how = transactions::newest(permits::most_counting);
        how.keys_only = false;
        return how;
    }
    static op older_than(const name_keys& c, std::int64_t create_revision) {
        range_options how = newest();
        how.max_create_revision = create_revision - 1;
        return op::range(c.before, how);
    }
    /// Who has no weight lets nobody behind it fit.
    std::vector<older_waiter> older_in(const range_response& told) const {
        std::vector<older_waiter> all;
        for (const key_value& kv : told.kvs) {
            const std::optional<permits::key_of> of = permits::read_key(name_, kv.key);
            const std::int64_t weight = permits::waiter(kv).weight;
            all.push_back({of ? of->id : std::string(), weight > 0 ? weight : most_limit});
        }
        return all;
    }

    /// Where we stand with the permit, which is counted.
    standing stand_in(attempt_keys& a, std::int64_t born) {
        set_in(a, true);
        taken_ = born;
        standing now;
        now.at = weight_ > room_.limit       ? standing::where::exceeds
                 : room_.used <= room_.limit ? standing::where::owner
                                             : standing::where::too_many;
        now.create_revision = born;
        now.crowded = waited_ || room_.used >= room_.limit;
        return now;
    }
    /// Where we stand in the queue.
    /// @param newest The index of the read that tells who is before us.
    standing stand_behind(const txn_response& response, std::size_t newest, std::int64_t born) {
        const range_response& told = answers::range_at(response, newest);
        standing now;
        now.create_revision = born;
        now.seen = response.header.revision;
        const std::size_t most = permits::counting(room_.limit);
        if (weight_ > room_.limit) {
            now.at = standing::where::exceeds;
        } else if (told.kvs.size() >= most) {
            const key_value& last = told.kvs[most - 1];
            now.at = standing::where::behind;
            now.ahead.push_back({{{last.key, answers::require_revision(last.create_revision)}}});
        } else {
            rank_.proved(room_.used, older_in(told), now.seen);
            now.at = has_room() ? standing::where::room : standing::where::no_room;
        }
        waited_ = waited_ || now.at != standing::where::room;
        return now;
    }
    static standing queued(std::int64_t born) {
        standing now;
        now.at = standing::where::queued;
        now.create_revision = born;
        return now;
    }
    /// The permit is there; we have to ask whether it fits.
    standing ask_in(attempt_keys& a, std::int64_t born) {
        set_in(a, true);
        taken_ = born;
        return queued(born);
    }
    /// @param at The index of the read of the epoch.
    static standing
    why_not_there(const txn_response& response, std::size_t at, const attempt_keys& a) {
        const name_keys& c = a.by_name.front();
        const std::int64_t epoch = answers::epoch_of(answers::range_at(response, at), c.epoch_key);
        standing now;
        if (epoch != 0 && epoch != c.epoch) {
            now.at = standing::where::ended;
            now.epochs.push_back(epoch);
        }
        return now;
    }

    const std::string name_;
    const std::int64_t weight_;
    const std::optional<std::int64_t> initial_;
    std::vector<std::string> waiting_; // the place in the queue
    std::vector<std::string> permit_;  // a key for each bit
    bool in_ = false;                  // etcd has our permit, not our place
    std::int64_t taken_ = 0;           // if so: its life
    bool waited_ = false;              // etcd has told us that we have to
    room room_;                        // as etcd last told it
    rank rank_;                        // while it waits
};

} // namespace coetcd::detail::logic
