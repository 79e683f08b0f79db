// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a place is given up in etcd: the coroutines of `place` that go on in the background.

#include <coetcd/detail/logic/leaving.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/rw.hpp>
#include <coetcd/detail/recipe/place.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

inline void place::on_expired() {
    const auto self = shared_from_this(); // those who are told may let go of it
    holds_ = false;
    tell_own_loss();
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

inline bool place::leave(bool stays) noexcept {
    holds_ = false;
    const bool was_held = phase_ == phase::held;
    if (was_held) {
        report_end();
        session->look_away(*this);
    }
    if ((phase_ == phase::entered || was_held) && !(was_held && stays)) {
        leave_etcd();
    }
    phase_ = phase::over;
    turn_.reset();
    changed.notify_all();
    return was_held;
}

/// Not that of the session; where memory is short, with it.
inline void place::tell_own_loss() noexcept {
    try {
        tell_loss();
    } catch (const std::bad_alloc&) {
        session->fail(session_end::cleanup_failed);
    }
}

inline asio::awaitable<bool> place::release() {
    holds_ = false;
    const auto was_held = std::make_shared<bool>(false);
    // Before the coroutine begins, whether that is ever awaited or not.
    at_home(session->world, [self = shared_from_this(), was_held, stays = is_for_heir()] {
        const bool lives =
            self->session->alive() && self->session->world.now() < self->held_until();
        *was_held = self->leave(stays) && lives;
    });
    return session->owner->home(until_left(shared_from_this(), was_held));
}

inline void place::report_end() {
    const auto& observer = session->owner->options.observer;
    if (granted_ && observer) {
        const bool late = now() >= std::min(session->certain_until(), held_until());
        const bool lost = there_.is_deleted() || late || session->is_taken_away();
        observer->on_lock_hold({names.front(), now() - *granted_, lost});
    }
    granted_.reset();
}

inline void place::keep_apart(lane_part& part) const {
    if (there_.has_note()) {
        part.puts = names;
    }
}

inline void place::leave_etcd() noexcept {
    if (!leaving_.empty() || slots_.empty()) {
        return;
    }
    not_after_ = time_point::max();
    if (session->gives_lease_up()) {
        leave_to_lease();
        return;
    }
    try {
        leaving_.resize(slots_.size());
    } catch (const std::bad_alloc&) {
        give_lease_up();
        return;
    }
    for (std::size_t i = 0; i != slots_.size(); ++i) {
        leaving_[i].of = i;
        logic::slot_table::close(*slots_[i]);
    }
    cancel_changes();
    withdraw_entry();
    try {
        if (!entry_) {
            send_leave(); // at once, so that the next one can go along
        }
    } catch (const std::bad_alloc&) {
        // `finish` tries again.
    }
    try {
        spawn(session->world, finish(shared_from_this()));
    } catch (const std::bad_alloc&) {
        give_lease_up();
    }
}

/// If it was not sent yet.
inline void place::withdraw_entry() {
    if (entry_ && !entry_->in_flight && !entry_->over) {
        session->owner->transactions->withdraw(entry_);
        failed();
    }
}

inline void place::send_leave() {
    for (leaving& l : leaving_) {
        if (l.over || l.part) {
            continue;
        }
        if (there_.is_absent() && !there_.was_refused()) {
            given_up(l, keys().claims[l.of].epoch);
            continue;
        }
        l.just_in_case = there_.is_absent();
        l.life = create_revision();
        l.bumps = there_.needs_epoch();
        send(l);
    }
}

inline void place::send(leaving& l) {
    auto part = std::make_shared<lane_part>(to_leave(l));
    part->likely = true;
    keep_apart(*part);
    l.part = submit(std::move(part));
}

/// What is given up.
inline logic::claim place::what_of(const leaving& l) const {
    const logic::claim& c = keys().claims[l.of];
    return l.writing ? logic::writing_part(c) : c;
}

inline txn place::to_leave(const leaving& l) const {
    if (inherited_) {
        return logic::end_legacy(keys().claims[l.of], keys().lease, l.life, l.bumps);
    }
    const logic::claim what = what_of(l);
    return l.bumps ? logic::end(what, keys().lease, l.life) : logic::release(what, l.life);
}

/// Of what was to be given up nothing is there, and nothing will be.
inline void place::given_up(leaving& l, std::int64_t epoch) {
    l.over = true;
    l.trouble = {}; // with an earlier request
    if (l.writing) {
        lowered(l, epoch);
        return;
    }
    logic::slot_table::free(*slots_[l.of], epoch);
    session->wanted.slot_freed(names[l.of]);
}

/// Sees to it that nothing of it stays in etcd. If that cannot be achieved the session gives its
/// lease up: a stray key would block everybody else for as long as the session lives.
inline asio::awaitable<void> place::finish(std::shared_ptr<place> self) {
    struct finishing {
        place& of;
        ~finishing() {
            if (!of.is_left() && !of.session->gives_lease_up()) {
                of.session->fail(session_end::cleanup_failed);
            }
        }
    };
    const finishing until_the_end{*self};
    session_impl& s = *self->session;
    if (self->entry_) {
        // It is answered like any other, and then there is less in doubt.
        while (!self->entry_->over && !s.gives_lease_up()) {
            (void)co_await self->changed.wait();
        }
        if (!s.gives_lease_up()) {
            try {
                if (self->entry_->ec) {
                    self->failed();
                } else {
                    (void)self->entered();
                }
            } catch (const error&) {
                self->there_.failed(logic::effect::unresolved, false);
                self->entry_ = nullptr;
            }
        }
    }
    if (!s.gives_lease_up()) {
        self->send_leave(); // what was not sent yet
    }
    while (!self->is_left()) {
        if (s.gives_lease_up()) {
            self->leave_to_lease();
            break;
        }
        bool news = false;
        for (leaving& l : self->leaving_) {
            if (l.part && l.part->over) {
                news = true;
                co_await go_on(self, l);
            }
        }
        if (!news && !self->is_left()) {
            (void)co_await self->changed.wait();
        }
    }
    self->changed.notify_all();
}

/// Reads an answer to `release` or `end`, and asks again if that is necessary.
inline asio::awaitable<void> place::go_on(std::shared_ptr<place> self, leaving& l) {
    session_impl& s = *self->session;
    const auto part = std::exchange(l.part, nullptr);
    error_code ec = part->ec;
    std::string text = part->text;
    if (!ec) {
        s.cleanups.succeeded();
        try {
            const logic::left_place done =
                self->inherited_
                    ? logic::after_ending_legacy(part->response)
                    : logic::after_leaving(part->response, self->what_of(l), l.life, l.bumps);
            // If an answer was lost, it may have been our own first copy that deleted them.
            l.was_there = l.was_there || done.was_there || part->left == logic::effect::unresolved;
            // Else somebody has deleted it before, and its note is still there.
            const bool with_note = part->response.succeeded || (self->inherited_ && l.bumps);
            if (done.over && (with_note || !self->there_.has_note())) {
                self->given_up(l, done.epoch);
                self->changed.notify_all();
                co_return;
            }
            self->there_.not_left(l.of, done.epoch);
            self->send_again(l);
            co_return;
        } catch (const error& e) {
            ec = e.code();
            text = e.what();
        }
    }
    logic::remedy next = logic::remedy_for(ec, text);
    if (next == logic::remedy::forget) {
        const call_terms how = s.owner->within(s.request_timeout);
        const std::optional<bool> gone = co_await session_impl::look_for_lease(self->session, how);
        if (gone == true) {
            self->all_over();
            co_return;
        }
        if (s.gives_lease_up()) {
            co_return; // it has ended otherwise meanwhile
        }
        next = logic::remedy::later;
    }
    l.trouble = ec;
    l.trouble_text = std::move(text);
    self->changed.notify_all();
    if (!self->may_go_on(l, next)) {
        if (l.just_in_case) {
            logic::slot_table::renew(*self->slots_[l.of]);
            self->given_up(l, 0);
            self->changed.notify_all();
        } else {
            self->give_lease_up();
        }
        co_return;
    }
    if (next == logic::remedy::erase) {
        co_await self->erase_meanwhile(l);
    }
    if (next != logic::remedy::again) {
        notifier pause(s.world);
        const std::chrono::milliseconds first(100);
        (void)co_await pause.wait(
            after(s.world.now(), logic::backoff(l.pauses++, s.world.random(), first)));
    }
    self->send_again(l);
}

inline void place::send_again(leaving& l) {
    if (!l.writing) {
        send_leave();
    } else if (!l.over) {
        l.bumps = there_.may_come();
        send(l);
    }
}

/// Whether there is still hope after one more failure.
inline bool place::may_go_on(leaving& l, logic::remedy next) {
    const auto too_long = [&](logic::failing_time<time_point>& failing) {
        const time_point now = session->world.now();
        failing.failed(now);
        return failing.has_lasted(session->ttl(), now, session->well_since());
    };
    if (l.just_in_case && next != logic::remedy::again) {
        return false; // who may not put a key may not erase one, either
    }
    l.refusals = next == logic::remedy::surrender ? l.refusals + 1 : 0;
    switch (next) {
    case logic::remedy::again:
        // That nothing gets through is no matter of this place alone.
        return !too_long(session->cleanups);
    case logic::remedy::later:
        return !too_long(l.failing);
    case logic::remedy::surrender:
        return l.refusals < logic::refusals_for_good;
    case logic::remedy::erase:
    case logic::remedy::forget:
        break;
    }
    return true;
}

/// There is no space for an epoch. Nothing can be put either: so let the others get on.
inline asio::awaitable<void> place::erase_meanwhile(leaving& l) {
    auto part = std::make_shared<lane_part>(logic::erase_only(what_of(l), l.life));
    part->likely = true;
    keep_apart(*part);
    part = submit(std::move(part));
    const withdrawn_at_end unless_over{*session->owner->transactions, part};
    while (!part->over && !session->gives_lease_up()) {
        (void)co_await changed.wait();
    }
}

inline void place::give_lease_up() {
    session_impl& s = *session;
    s.lose(session_end::cleanup_failed);
    s.revoke();
    all_over();
}

/// The keys go, or have gone, with the lease: one request for all of them.
inline void place::leave_to_lease() {
    session->revoke();
    cancel_changes();
    withdraw_entry();
    if (entry_) { // it is under way
        session->owner->transactions->withdraw(entry_);
    }
    for (const leaving& l : leaving_) {
        if (l.part) {
            session->owner->transactions->withdraw(l.part);
        }
    }
}

/// Nothing is left to do, with the session. No slot is free by that.
inline void place::all_over() {
    for (leaving& l : leaving_) {
        l.over = true;
    }
    cancel_changes();
    changed.notify_all();
}

/// @throws error if giving it up has failed, perhaps not for good.
inline void place::throw_trouble() const {
    for (const leaving& l : leaving_) {
        if (l.trouble) {
            throw error(l.trouble, leaving_title() + l.trouble_text + if_denied(l.trouble));
        }
    }
}

inline asio::awaitable<bool> place::until_left(std::shared_ptr<place> self,
                                               std::shared_ptr<const bool> was_held) {
    if (!*was_held) {
        co_return false;
    }
    session_impl& s = *self->session;
    const time_point deadline = after(s.world.now(), s.request_timeout + grace);
    while (!self->is_left()) {
        self->throw_trouble();
        if (s.gives_lease_up()) {
            co_return false;
        }
        const bool in_time = co_await self->changed.wait(deadline);
        if (!in_time) {
            throw error(errc::outcome_unknown, self->leaving_title() + "no answer in time");
        }
    }
    self->throw_trouble();
    co_return !self->there_.is_deleted() &&
        std::all_of(self->leaving_.begin(), self->leaving_.end(), [](const leaving& l) {
            return l.was_there;
        });
}

} // namespace coetcd::detail
