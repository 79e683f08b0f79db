// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/presence.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/logic/slots.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/detail/recipe/attempt.hpp>
#include <coetcd/detail/recipe/departure.hpp>
#include <coetcd/detail/recipe/entrance.hpp>
#include <coetcd/detail/recipe/mode_change.hpp>
#include <coetcd/detail/recipe/recipe.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/lock_mode.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// One attempt's places in the queues of its names, from the first request to the last. Whatever
/// ends it, nothing of it stays in etcd: what is then left to do is done in the background.
class place final : public attempt, private loss_listener {
    struct passkey {};

public:
    /// Takes the last place in the session's own lines. It is given up when its last handle goes.
    /// @param value What its keys hold; if nothing, the session's label.
    /// @param by If null, the first in the queue owns.
    static std::shared_ptr<place> open(std::shared_ptr<session_impl> s,
                                       const recipe& how,
                                       std::vector<wanted_name> wanted,
                                       std::optional<std::string> value = {},
                                       std::shared_ptr<logic::rule> by = nullptr) {
        auto world = s->owner->world;
        const auto made =
            make_at_home<place>(std::move(world), passkey(), std::move(s), how, std::move(wanted));
        made->entering.queue_up(std::move(value), std::move(by));
        return {made.get(), [made](place*) { made->abandon(); }}; // from anywhere
    }
    /// Takes over what an earlier object with the same lease has put. It stands in no line of the
    /// session: a waiter of the session for the same name waits behind it in etcd.
    /// @param may_come Whether something that puts it again may still be under way.
    static std::shared_ptr<place> resume(std::shared_ptr<session_impl> s,
                                         const recipe& how,
                                         std::string name,
                                         logic::name_keys put,
                                         std::int64_t create_revision,
                                         bool may_come) {
        std::vector<wanted_name> wanted = one_name(std::move(name), how);
        auto world = s->owner->world;
        const auto made =
            make_at_home<place>(std::move(world), passkey(), std::move(s), how, std::move(wanted));
        const lease_id lease = made->session->lease();
        made->there = logic::presence(lease, std::move(put), create_revision, may_come);
        made->queues.front().slot = &made->resumed_slot_;
        made->resumed = true;
        return {made.get(), [made](place*) { made->abandon(); }};
    }
    place(passkey, std::shared_ptr<session_impl> s, const recipe& h, std::vector<wanted_name> w)
        : attempt(std::move(s), h, std::move(w))
        , entering(*this)
        , departure_(*this)
        , mode_(*this)
        , loss_of_session_(session->losses, static_cast<loss_listener&>(*this)) {}

    entrance entering;
    std::atomic<int> handles = 0; ///< These answer for it together: the last one gives it back.
    std::atomic<bool> was_dropped = false; ///< By a handle that was destroyed, whatever it did.

    /// @throws error if the session has ended.
    void require_session() const {
        if (!session->alive()) {
            throw loss();
        }
    }

    /// What the answer to a `confirm` means.
    logic::standing confirmed(const txn_response& response) {
        return there.confirmed(entering.rule(), response);
    }
    std::optional<std::chrono::nanoseconds> overrun_to_report() const override {
        const client_options& o = session->owner->options;
        return o.observer ? std::optional<std::chrono::nanoseconds>(o.overrun) : std::nullopt;
    }
    void report_overrun(std::chrono::nanoseconds overrun) const override {
        session->owner->options.observer->on_overrun(
            {name(), overrun, how.word, create_revision(), session->lease()});
    }
    std::shared_ptr<place> shared_from_this() {
        return std::static_pointer_cast<place>(attempt::shared_from_this());
    }

    // Holding.

    /// From here on the place is ours, if the session is still alive.
    /// @throws error if the session has ended: the answer may have waited for us while the process
    ///   stood still.
    void grant() {
        require_session();
        phase_ = phase::held;
        mode_.begin();
        holds_ = true;
        not_after = time_point::max(); // the waiter's deadline no longer counts
        granted_at_ = session->world.now();
        session->look_after(*this);
        if (entering.rule().admits()) {
            entering.leave_line();
        }
    }
    bool held() const override {
        return holds_ && session->world.now() < held_until_.load() && session->alive();
    }
    bool is_given_up() const override { return !holds_ && !is_lost(); }
    /// Why it was lost: the first reason counts.
    error loss() const override {
        const errc why = lost_by_ ? *lost_by_ : end_by_now();
        return why == errc::session_lost ? session->loss(title()) : error(why, title());
    }
    /// Lets it stay with its session, unused for at most that long, once it was given back cleanly.
    void retain_for(std::chrono::nanoseconds most) { retained_for_ = most; }
    /// Makes it end `most` after it was granted, whatever becomes of the session. See keeping.hpp.
    void end_after(std::chrono::nanoseconds most) { held_until_ = after(granted_at_, most); }
    time_point held_until() const { return held_until_; }
    /// Granted, and neither lost nor given back. Call it at home.
    bool is_kept() const { return is_granted() && !is_lost(); }
    bool is_lost() const { return lost_by_.has_value(); }
    /// Call it when the observer is told that the place was granted: it is told of the end, too.
    void tell_end() { is_reported_ = false; }
    /// Gives it back, since its time is over.
    void on_expired();
    /// Somebody who was there before us has it after all.
    void on_not_ours() {
        const auto self = shared_from_this(); // listeners may let go of it
        holds_ = false;
        tell_own_loss(errc::lock_lost);
        (void)leave(false);
    }
    void on_key_gone() override {
        const auto self = shared_from_this(); // listeners may let go of it
        const bool leaves = !there.is_deleted() && there.outlasts_deletion();
        holds_ = false;
        there.deleted();
        if (leaves) {
            leave_etcd(); // no late request may put it again, and its other keys must go
        }
        tell_own_loss(errc::lock_lost);
        changed.notify_all();
    }

    /// Waits until it is lost.
    /// @returns Why. Throws `operation_aborted` if it is given back before.
    static asio::awaitable<error_code> wait_lost(std::shared_ptr<place> self) {
        while (self->holds_ && !self->is_lost()) {
            (void)self->session->alive(); // if it has just ended, it tells us
            if (!self->is_lost()) {
                (void)co_await self->changed.wait(self->session->certain_until());
            }
        }
        if (!self->is_lost()) {
            throw_aborted();
        }
        co_return self->loss().code();
    }

    /// The key that stands for it; with several names, that of the first.
    const std::string& key() const { return there.key(mode_.writes()); }
    /// The lives that stand for it: one of each name.
    std::vector<logic::held_life> proof() const { return there.proof(mode_.write_life()); }

    // Reading and writing, where that makes a difference.

    lock_mode mode() const { return mode_.mode(); }
    asio::awaitable<void> downgrade() { return mode_change::downgrade(shared_from_this(), mode_); }
    asio::awaitable<bool> upgrade() { return mode_change::upgrade(shared_from_this(), mode_); }

    // Leaving.

    /// Gives it up: here at once, in etcd in the background; the session's next attempt may go on.
    /// May be called from anywhere.
    void abandon() noexcept override;

    /// How a hold ends.
    enum class ending {
        clean,  ///< Its holder has given it back, and has nothing under way.
        unclean ///< Or that is not known.
    };
    /// Gives it up. Call it at home.
    /// @param stays Whether its keys are left in etcd, if it is held.
    /// @returns Whether it was held.
    bool leave(bool stays, ending end = ending::unclean) noexcept;
    /// Its session does not retain it any more.
    void end_retention() noexcept { leave_etcd(); }

    /// Gives it up as `abandon` does, and waits until etcd knows. May be called from anywhere.
    /// @returns Whether it was there to be given back.
    asio::awaitable<bool> release();
    /// Lets go of what was resumed as if it never had been, so that it can be resumed again.
    /// Nothing else is changed. May be called from anywhere.
    void leave_resumed() {
        if (resumed) {
            at_home(session->world, [self = shared_from_this()] {
                self->session->resumed.erase({self->key(), self->create_revision()});
                (void)self->leave(true);
            });
        }
    }

private:
    enum class phase {
        wanted, // our keys may be there, if we have slots
        held,   // they are, and we own what they stand for
        over,   // we want nothing any more
    };

    /// The session that adopts an orphaned lease gets what it holds, except what was given back
    /// before.
    bool is_for_heir() const { return session->reason() == session_end::orphaned; }

    // As an attempt.

    bool is_granted() const override { return phase_ == phase::held; }
    bool is_leaving() const override { return departure_.has_begun(); }
    void share_turn() override { entering.share_turn(); }
    void leave_to_lease() override;
    void all_over() override {
        departure_.all_over();
        mode_.cancel();
        changed.notify_all();
    }

    void on_loss() override {                      // of the session
        const auto self = weak_from_this().lock(); // listeners may let go of it
        if (!self) {
            return; // it ends
        }
        if (is_granted() || is_lost()) {
            tell_loss(end_by_now());
        }
        changed.notify_all();
    }
    /// Before the session's was.
    bool is_own_time_over() const {
        const time_point own = held_until_;
        return own <= session->world.now() && own <= session->certain_until();
    }
    /// What has ended it, if nothing was told yet: its own time, the session, or otherwise its key.
    errc end_by_now() const {
        if (is_own_time_over()) {
            return errc::hold_expired;
        }
        return session->alive() ? errc::lock_lost : errc::session_lost;
    }
    void tell_own_loss(errc why) noexcept;
    void tell_loss(errc why) {
        lost_by_ = lost_by_.value_or(why);
        report_end();
        losses.tell();
    }
    /// Does not look at the session in a way that might end it here and now.
    lock_end end_of_hold() const;
    /// Tells the observer, once, as `end_of_hold` has it.
    void report_end();

    bool stays_in_session() noexcept;
    void leave_etcd() noexcept;
    static asio::awaitable<void> finish_entry(std::shared_ptr<place> self);

    phase phase_ = phase::wanted;
    logic::slot_table::slot resumed_slot_; // if its keys are not of a slot of ours
    std::atomic<bool> holds_ = false;      // what can be seen of it from anywhere
    std::optional<errc> lost_by_;          // while it was held
    time_point granted_at_{};
    std::chrono::nanoseconds retained_for_{0};
    std::atomic<time_point> held_until_{time_point::max()}; // whatever becomes of the session
    bool is_reported_ = true; // to the observer, that it is no longer granted
    departure departure_;
    mode_change mode_;
    const loss_source::subscription loss_of_session_;
};

inline void place::on_expired() {
    const auto self = shared_from_this(); // listeners may let go of it
    holds_ = false;
    tell_own_loss(errc::hold_expired);
    (void)leave(is_for_heir());
}

inline void place::abandon() noexcept {
    holds_ = false;
    try {
        at_home(session->world,
                [self = shared_from_this(), stays = is_for_heir()] { (void)self->leave(stays); });
    } catch (const std::bad_alloc&) {
        session->lose(session_end::cleanup_failed);
    }
}

/// Leaves the keys of a place that is given back to its session. See retaining.hpp.
/// @returns False if there is no memory for it.
bool retain(const std::shared_ptr<place>& last, std::chrono::nanoseconds most) noexcept;

/// Whether the keys stay, or may stay, with the session, for its next holder.
inline bool place::stays_in_session() noexcept {
    const bool retains = retained_for_.count() != 0 && session->most_retained != 0;
    if (!retains || resumed || is_lost() || !session->alive()) {
        return false;
    }
    if (kept) {
        const bool is_back = kept->take_back(shared_from_this(), retained_for_);
        if (is_back) {
            kept = nullptr;
        }
        return is_back;
    }
    return !there.needs_epoch() && session->wanted.habit(name()).may_stay() &&
           retain(shared_from_this(), retained_for_);
}

inline bool place::leave(bool stays, ending end) noexcept {
    holds_ = false;
    const bool was_held = is_granted();
    if (was_held) {
        report_end();
        session->look_away(*this);
    }
    if (phase_ != phase::over && !(was_held && stays)) {
        const bool is_kept = was_held && end == ending::clean && stays_in_session();
        if (!is_kept) {
            leave_etcd();
        }
    }
    phase_ = phase::over;
    entering.leave_line();
    changed.notify_all();
    return was_held;
}

/// Tells of a loss other than the session's; where memory is short, ends the session.
inline void place::tell_own_loss(errc why) noexcept {
    try {
        tell_loss(why);
    } catch (const std::bad_alloc&) {
        session->fail(session_end::cleanup_failed);
    }
}

inline asio::awaitable<bool> place::release() {
    holds_ = false;
    const auto was_held = std::make_shared<bool>(false);
    const bool is_shared = handles != 0 || was_dropped; // somebody may still work under it
    // Before the coroutine begins, whether it is ever awaited or not.
    at_home(session->world,
            [self = shared_from_this(), was_held, is_shared, stays = is_for_heir()] {
                const bool lives =
                    self->session->alive() && self->session->world.now() < self->held_until();
                const ending how_it_ends = lives && !is_shared ? ending::clean : ending::unclean;
                *was_held = self->leave(stays, how_it_ends) && lives;
            });
    return session->owner->home(departure::until_over(shared_from_this(), departure_, was_held));
}

inline lock_end place::end_of_hold() const {
    const time_point now = session->world.now();
    if (lost_by_ == errc::lock_lost) {
        return lock_end::key_deleted;
    }
    if (lost_by_ == errc::hold_expired || is_own_time_over()) {
        return lock_end::hold_expired;
    }
    if (session->is_taken_away() || now >= session->certain_until()) {
        return lock_end::session_lost;
    }
    return session->is_ended_by_us() ? lock_end::session_closed : lock_end::given_back;
}

inline void place::report_end() {
    const auto& observer = session->owner->options.observer;
    if (!std::exchange(is_reported_, true) && observer) {
        observer->on_lock_hold({name(),
                                session->world.now() - granted_at_,
                                end_of_hold(),
                                entering.has_retained(),
                                how.word,
                                create_revision(),
                                session->lease()});
    }
}

inline void place::leave_etcd() noexcept {
    if (const auto of_session = std::exchange(kept, nullptr)) {
        of_session->recall();
    }
    if (departure_.has_begun() || !has_slots()) {
        return;
    }
    not_after = time_point::max();
    if (session->gives_lease_up()) {
        leave_to_lease();
        return;
    }
    try {
        departure_.begin();
    } catch (const std::bad_alloc&) {
        give_lease_up();
        return;
    }
    mode_.cancel();
    entering.withdraw();
    try {
        if (!entering.request()) {
            departure_.send();
        }
    } catch (const std::bad_alloc&) {
        // `finish` tries again.
    }
    try {
        spawn(session->world,
              entering.request() ? finish_entry(shared_from_this())
                                 : departure::finish(shared_from_this(), departure_));
    } catch (const std::bad_alloc&) {
        give_lease_up();
    }
}

inline void place::leave_to_lease() {
    session->revoke();
    mode_.cancel();
    entering.withdraw();
    if (entering.request()) { // it is under way
        session->owner->transactions->withdraw(entering.request());
    }
    departure_.withdraw();
}

/// The entry is answered like any other request; after that less is in doubt.
inline asio::awaitable<void> place::finish_entry(std::shared_ptr<place> self) {
    const departure::guard until_the_end{self->departure_};
    session_impl& s = *self->session;
    entrance& entering = self->entering;
    while (!entering.request()->over && !s.gives_lease_up()) {
        (void)co_await self->changed.wait();
    }
    if (!s.gives_lease_up()) {
        try {
            if (entering.request()->ec) {
                entering.failed();
            } else {
                (void)entering.answered();
            }
        } catch (const error&) {
            entering.misunderstood();
        }
    }
    co_await departure::finish(self, self->departure_);
}

} // namespace coetcd::detail

#include <coetcd/detail/recipe/retaining.hpp>
