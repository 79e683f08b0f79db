// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/leaving.hpp>
#include <coetcd/detail/logic/legacy.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/lines.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/wire/printable.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// What tells one recipe's places from another's.
struct recipe {
    const char* word; ///< For messages.
    /// The keys that a slot has under one name.
    logic::claim (*claim)(const std::string& name,
                          lease_id lease,
                          std::uint64_t nonce,
                          std::uint64_t slot,
                          std::int64_t epoch);
    // Its calls, for messages.
    const char* patiently = "try_lock_for";
    const char* at_once = "try_lock";
    const char* giving_back = "unlock";
};

/// One attempt's places in the queues of its names, from the first request to the last. Whatever
/// ends it, nothing of it stays in etcd: what is left to do then is done in the background.
class place final : public ownership,
                    public looked_after,
                    public std::enable_shared_from_this<place>,
                    private turn_taker,
                    private loss_listener {
    struct passkey {};

public:
    /// Takes the last place in the session's own lines. With the last handle to it, it is given up.
    /// @param value What is in its keys; nothing: the session's label.
    static std::shared_ptr<place> open(std::shared_ptr<session_impl> s,
                                       const recipe& how,
                                       std::vector<std::string> names,
                                       std::optional<std::string> value = {}) {
        auto world = s->owner->world;
        const auto made =
            make_at_home<place>(std::move(world), passkey(), std::move(s), how, std::move(names));
        made->value_ = std::move(value);
        made->turn_.emplace(made->session->wanted, made->names, static_cast<turn_taker&>(*made));
        return {made.get(), [made](place*) { made->abandon(); }}; // from anywhere
    }
    /// What an earlier object with the same lease has put. It stands in no line of the session's:
    /// a waiter of the session for the same name waits behind it in etcd.
    /// @param unresolved Something that puts it again may still be under way.
    static std::shared_ptr<place> inherit(std::shared_ptr<session_impl> s,
                                          const recipe& how,
                                          std::string name,
                                          logic::claim claim,
                                          std::int64_t create_revision,
                                          bool unresolved) {
        std::vector<std::string> names;
        names.push_back(std::move(name));
        auto world = s->owner->world;
        const auto made =
            make_at_home<place>(std::move(world), passkey(), std::move(s), how, std::move(names));
        made->keys_.lease = made->session->lease();
        made->keys_.claims.push_back(std::move(claim));
        made->slots_.push_back(&made->inherited_slot_);
        made->create_revision_ = create_revision;
        made->unresolved_ = unresolved;
        made->inherited_ = true;
        made->phase_ = phase::entered;
        return {made.get(), [made](place*) { made->abandon(); }};
    }
    place(passkey, std::shared_ptr<session_impl> s, const recipe& how, std::vector<std::string> n)
        : session(std::move(s))
        , names(std::move(n))
        , changed(session->world)
        , recipe_(how)
        , loss_of_session_(session->losses, static_cast<loss_listener&>(*this)) {}

    const std::shared_ptr<session_impl> session;
    const std::vector<std::string> names;
    notifier changed; ///< Of everything that a wait may be for.

    /// For messages.
    std::string title() const {
        return std::string(recipe_.word) + " \"" + wire::printable(names.front()) + "\"";
    }
    /// @throws error if the session has ended.
    void require_session() const {
        if (!session->alive()) {
            throw loss();
        }
    }

    // Entering.

    /// What the first request is to be.
    enum class beginning {
        enter,        ///< Stand in the queue; take, where the name was free the last time.
        take_or_leave ///< Only if nobody is there.
    };
    /// Begins as soon as it is its turn, and there is a slot: now, or in `on_turn`.
    void begin(beginning how, time_point not_after) {
        beginning_ = how;
        not_after_ = not_after;
        begins_ = true;
        if (turn_->has_come()) {
            on_turn();
        }
    }
    /// The request to enter that is under way, or was the last; null before the first.
    const std::shared_ptr<lane_part>& entry() const { return entry_; }
    /// What its answer means. Call it once for each.
    logic::standing entered() {
        // Other copies may still be under way, whatever became of the one that was answered.
        unresolved_ = unresolved_ || entry_->left == logic::effect::unresolved;
        doubtful_ = entry_->left == logic::effect::settled;
        const bool taking = std::exchange(taking_, false);
        const logic::standing now = taking ? logic::after_take(entry_->response, keys_)
                                           : logic::after_enter(entry_->response, keys_);
        // It was put by a copy that was not answered: of those there may be more.
        unresolved_ = unresolved_ || (!entry_->response.succeeded && now.create_revision != 0);
        learn(now);
        entry_ = nullptr;
        return now;
    }
    /// It failed, perhaps not for good. Call it once for each.
    void failed() {
        unresolved_ = unresolved_ || entry_->left != logic::effect::none;
        entry_ = nullptr;
    }
    /// Asks (again).
    void send_entry(bool taking) {
        taking_ = taking;
        const bool why = beginning_ == beginning::take_or_leave || !taking;
        const std::string& value = value_ ? *value_ : session->label();
        auto part = std::make_shared<lane_part>(taking ? logic::take(keys_, value)
                                                       : logic::enter(keys_, value));
        part->puts = names.front();
        part->likely = beginning_ != beginning::take_or_leave;
        part->asks_why = why;
        entry_ = submit(std::move(part));
    }

    bool is_taking() const { return taking_; }
    /// Whether another coroutine of this session has the lock, or a place in etcd's queue.
    bool is_behind_own() const { return turn_ && turn_->is_behind_known(); }
    const logic::attempt_keys& keys() const { return keys_; }

    /// A request of ours, on its way.
    std::shared_ptr<lane_part> submit(std::shared_ptr<lane_part> part) {
        part->not_after = not_after_;
        part->on_end = [weak = weak_from_this()] {
            if (const auto self = weak.lock()) {
                self->changed.notify_all();
            }
        };
        session->owner->transactions->submit(part);
        return part;
    }

    // Holding.

    /// From here on it is ours, if the session still is.
    /// @throws error if the session has ended: the answer may have waited for us while the process
    ///   stood still.
    void grant() {
        require_session();
        phase_ = phase::held;
        holds_ = true;
        not_after_ = time_point::max(); // the patience of who waited for it is over
        granted_ = session->world.now();
        session->look_after(*this);
    }
    bool held() const override { return holds_ && session->alive(); }
    /// It was not lost, but is not wanted any more.
    bool is_given_up() const { return !holds_ && !lost_; }
    error loss() const override {
        if (!session->alive()) {
            return session->loss(title());
        }
        return error(errc::lock_lost, title());
    }
    env& world() const override { return session->world; }

    const std::string& key() const override { return keys_.claims.front().keys.front(); }
    std::int64_t create_revision() const override { return create_revision_; }
    void on_missing() override {
        const auto self = shared_from_this(); // those who are told may let go of it
        holds_ = false;
        if (!std::exchange(missing_, true) && unresolved_) {
            leave_etcd(); // a late request must not put it again
        }
        tell_loss();
        changed.notify_all();
    }

    /// Waits until it is lost.
    /// @returns Why. Throws `operation_aborted` if it is given back before.
    static asio::awaitable<error_code> wait_lost(std::shared_ptr<place> self) {
        while (self->holds_ && !self->lost_) {
            (void)self->session->alive(); // if not, and that is news, it tells us
            if (!self->lost_) {
                (void)co_await self->changed.wait(self->session->certain_until());
            }
        }
        if (!self->lost_) {
            throw_aborted();
        }
        co_return self->loss().code();
    }

    // Leaving.

    /// Gives it up: here at once, in etcd in the background; the next of the session may go on.
    /// From anywhere.
    void abandon() override {
        holds_ = false;
        at_home(session->world, [self = shared_from_this()] { (void)self->leave(); });
    }

    /// The same, at home.
    /// @returns Whether it was held.
    bool leave() {
        holds_ = false;
        const bool was_held = phase_ == phase::held;
        if (was_held) {
            // Without a look at the session that might end it here and now.
            report_end(missing_ || session->reason() != session_end::none ||
                       session->world.now() >= session->certain_until());
            session->look_away(*this);
        }
        // What an orphaned lease holds is for who adopts it.
        const bool handed_over = was_held && session->reason() == session_end::orphaned;
        if ((phase_ == phase::entered || was_held) && !handed_over) {
            leave_etcd();
        }
        phase_ = phase::over;
        turn_.reset();
        changed.notify_all();
        return was_held;
    }

    /// Gives it up as `abandon` does, and waits until etcd knows. From anywhere.
    /// @returns Whether it was there to be given back.
    asio::awaitable<bool> release() {
        holds_ = false;
        const auto was_held = std::make_shared<bool>(false);
        // Before the coroutine begins, whether that is ever awaited or not.
        at_home(session->world, [self = shared_from_this(), was_held] {
            const bool lives = self->session->alive();
            *was_held = self->leave() && lives;
        });
        return session->owner->home(until_left(shared_from_this(), was_held));
    }

private:
    enum class phase {
        waiting, // nothing was sent yet
        entered, // our keys may be there
        held,    // they are, and we own what they stand for
        over,    // we want nothing any more
    };

    std::string leaving_title() const { return title() + ", " + recipe_.giving_back + ": "; }

    /// How far the leaving of one claim is.
    struct leaving {
        std::shared_ptr<lane_part> part;
        bool bumps = false;
        bool over = false;
        bool was_there = false;
        unsigned pauses = 0;
        int refusals = 0;                          // in a row
        logic::failing_time<time_point> failing{}; // with answers that say nothing
    };

    void on_turn() override {
        const bool lives = session->reason() == session_end::none;
        if (phase_ == phase::waiting && begins_ && lives && slots_.empty() && take_slots()) {
            phase_ = phase::entered;
            bool free = true;
            for (std::size_t i = 0; i != names.size(); ++i) {
                // What we are giving up is there when etcd looks, even in the same request.
                free = free && turn_->at(i).was_free && !turn_->at(i).slots.any_closing();
            }
            send_entry(beginning_ == beginning::take_or_leave || free);
        }
        changed.notify_all();
    }

    bool is_known() const override { return create_revision_ != 0; }

    bool take_slots() {
        for (std::size_t i = 0; i != names.size(); ++i) {
            logic::slot_table::slot* s = turn_->at(i).slots.take();
            if (!s) {
                for (auto* taken : slots_) {
                    logic::slot_table::free(*taken, taken->epoch);
                }
                slots_.clear();
                return false;
            }
            slots_.push_back(s);
        }
        keys_.lease = session->lease();
        for (std::size_t i = 0; i != names.size(); ++i) {
            keys_.claims.push_back(recipe_.claim(
                names[i], session->lease(), session->nonce(), slots_[i]->number, slots_[i]->epoch));
        }
        return true;
    }

    void learn(const logic::standing& now) {
        using at = logic::standing::place;
        create_revision_ = now.create_revision;
        if (now.at == at::owner || now.at == at::behind || now.at == at::taken) {
            for (std::size_t i = 0; turn_ && i != names.size(); ++i) {
                turn_->at(i).was_free = now.at == at::owner;
            }
        }
        if (now.at == at::ended) {
            for (std::size_t i = 0; i != names.size(); ++i) {
                keys_.claims[i].epoch = slots_[i]->epoch = now.epochs[i];
            }
        }
        if (now.at == at::gone) {
            unresolved_ = true; // some of them may be there
        }
    }

    void on_loss() override { // of the session
        const auto self = shared_from_this();
        if (phase_ == phase::held) {
            tell_loss();
        }
        changed.notify_all();
    }

    void tell_loss() {
        lost_ = true;
        report_end(true);
        losses.tell();
    }

    /// Tells the observer, once.
    void report_end(bool lost) {
        const auto& observer = session->owner->options.observer;
        if (granted_ && observer) {
            observer->on_lock_hold({names.front(), session->world.now() - *granted_, lost});
        }
        granted_.reset();
    }

    // What happens in etcd; goes on when nobody has a handle any more. See place_end.hpp.

    void leave_etcd() {
        if (!leaving_.empty() || slots_.empty()) {
            return;
        }
        not_after_ = time_point::max();
        if (session->gives_lease_up()) {
            leave_to_lease();
            return;
        }
        leaving_.resize(slots_.size());
        for (auto* s : slots_) {
            logic::slot_table::close(*s);
        }
        withdraw_entry();
        if (!entry_) {
            send_leave(); // at once, so that the next one can go along
        }
        spawn(session->world, finish(shared_from_this()));
    }

    /// If it was not sent yet.
    void withdraw_entry() {
        if (entry_ && !entry_->in_flight && !entry_->over) {
            session->owner->transactions->withdraw(entry_);
            failed();
        }
    }

    void send_leave() {
        for (std::size_t i = 0; i != leaving_.size(); ++i) {
            leaving& l = leaving_[i];
            if (l.over || l.part) {
                continue;
            }
            if (create_revision_ == 0 && !unresolved_ &&
                !doubtful_) { // nothing was put, and nothing will be
                left(i, keys_.claims[i].epoch);
                continue;
            }
            l.bumps = unresolved_ || create_revision_ == 0;
            auto part = std::make_shared<lane_part>(to_leave(keys_.claims[i], l.bumps));
            part->likely = true;
            l.part = submit(std::move(part));
        }
    }

    txn to_leave(const logic::claim& c, bool bumps) const {
        if (inherited_) {
            return logic::end_legacy(c, keys_.lease, create_revision_, bumps);
        }
        return bumps ? logic::end(c, keys_.lease) : logic::release(c, create_revision_);
    }

    /// None of the keys of a claim is there, and none will be.
    void left(std::size_t i, std::int64_t epoch) {
        leaving_[i].over = true;
        logic::slot_table::free(*slots_[i], epoch);
        session->wanted.slot_freed(names[i]);
    }

    bool is_left() const {
        return std::all_of(
            leaving_.begin(), leaving_.end(), [](const leaving& l) { return l.over; });
    }

    static asio::awaitable<void> finish(std::shared_ptr<place> self);
    static asio::awaitable<void> go_on(std::shared_ptr<place> self, std::size_t i);
    bool may_go_on(leaving& l, logic::remedy next);
    void leave_to_lease();
    void give_lease_up();
    void all_over();
    asio::awaitable<void> erase_meanwhile(std::size_t i);
    static asio::awaitable<bool> until_left(std::shared_ptr<place> self,
                                            std::shared_ptr<const bool> was_held);

    const recipe& recipe_;
    std::optional<std::string> value_;
    beginning beginning_ = beginning::enter;
    time_point not_after_ = time_point::max();
    bool begins_ = false;
    phase phase_ = phase::waiting;
    std::atomic<bool> holds_ = false; // what can be seen of it from anywhere
    logic::attempt_keys keys_;
    std::vector<logic::slot_table::slot*> slots_; // of each name, from the turn to the end
    bool inherited_ = false;                      // from an earlier object with this lease
    logic::slot_table::slot inherited_slot_;
    std::int64_t create_revision_ = 0;
    bool taking_ = false;
    bool unresolved_ = false; // something that puts may still be under way
    bool doubtful_ = false;   // it was refused, and we do not know why
    bool missing_ = false;    // somebody deleted the key
    bool lost_ = false;       // while it was held
    std::shared_ptr<lane_part> entry_;
    std::vector<leaving> leaving_; // of each name, once it is left
    error_code trouble_;           // with leaving
    std::string trouble_text_;
    std::optional<time_point> granted_; // for the observer
    std::optional<lines::turn> turn_;
    const loss_source::subscription loss_of_session_;
};

} // namespace coetcd::detail

#include <coetcd/detail/recipe/place_end.hpp>
