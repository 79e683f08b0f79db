// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a place is given up in etcd: the coroutines of `place` that go on in the background.

#include <coetcd/detail/logic/leaving.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/place.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Sees to it that nothing of it stays in etcd. If that cannot be achieved the session gives its
/// lease up: a stray key would block everybody else for as long as the session lives.
inline asio::awaitable<void> place::finish(std::shared_ptr<place> self) {
    session_impl& s = *self->session;
    if (self->entry_) {
        // It is answered like any other, and then there is less in doubt.
        while (!self->entry_->over) {
            (void)co_await self->changed.wait();
        }
        try {
            if (self->entry_->ec) {
                self->failed();
            } else {
                (void)self->entered();
            }
        } catch (const error&) {
            self->unresolved_ = true;
            self->entry_ = nullptr;
        }
        if (!s.gives_lease_up()) {
            self->send_leave();
        }
    }
    while (!self->is_left()) {
        if (s.gives_lease_up()) {
            self->leave_to_lease();
            break;
        }
        bool news = false;
        for (std::size_t i = 0; i != self->leaving_.size(); ++i) {
            const auto& part = self->leaving_[i].part;
            if (part && part->over) {
                news = true;
                co_await go_on(self, i);
            }
        }
        if (!news && !self->is_left()) {
            (void)co_await self->changed.wait();
        }
    }
    self->changed.notify_all();
}

/// Reads an answer to `release` or `end`, and asks again if that is necessary.
inline asio::awaitable<void> place::go_on(std::shared_ptr<place> self, std::size_t i) {
    session_impl& s = *self->session;
    leaving& l = self->leaving_[i];
    const auto part = std::exchange(l.part, nullptr);
    error_code ec = part->ec;
    std::string text = part->text;
    if (!ec) {
        s.cleanups.succeeded();
        try {
            const logic::left_place done =
                self->inherited_
                    ? logic::after_ending_legacy(part->response)
                    : logic::after_leaving(
                          part->response, self->keys_.claims[i], self->create_revision_, l.bumps);
            // If an answer was lost, it may have been our own first copy that deleted them.
            l.was_there = l.was_there || done.was_there || part->left == logic::effect::unresolved;
            if (done.over) {
                self->left(i, done.epoch);
                self->changed.notify_all();
                co_return;
            }
            self->keys_.claims[i].epoch = done.epoch;
            self->unresolved_ = true;
            self->send_leave();
            co_return;
        } catch (const error& e) {
            ec = e.code();
            text = e.what();
        }
    }
    const logic::remedy next = logic::remedy_for(ec, text);
    if (next == logic::remedy::forget) {
        s.lose(session_end::expired);
        self->all_over();
        co_return;
    }
    self->trouble_ = ec;
    self->trouble_text_ = std::move(text);
    self->changed.notify_all();
    if (!self->may_go_on(l, next)) {
        self->give_lease_up();
        co_return;
    }
    if (next == logic::remedy::erase) {
        co_await self->erase_meanwhile(i);
    }
    if (next != logic::remedy::again) {
        notifier pause(s.world);
        const std::chrono::milliseconds first(100);
        (void)co_await pause.wait(
            after(s.world.now(), logic::backoff(l.pauses++, s.world.random(), first)));
    }
    self->send_leave();
}

/// Whether there is still hope after one more failure.
inline bool place::may_go_on(leaving& l, logic::remedy next) {
    const auto too_long = [&](logic::failing_time<time_point>& failing) {
        const time_point now = session->world.now();
        failing.failed(now);
        return failing.has_lasted(session->ttl(), now, session->well_since());
    };
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
inline asio::awaitable<void> place::erase_meanwhile(std::size_t i) {
    auto part = std::make_shared<lane_part>(logic::erase_only(keys_.claims[i]));
    part->likely = true;
    part = submit(std::move(part));
    while (!part->over) {
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
    withdraw_entry();
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
    changed.notify_all();
}

inline asio::awaitable<bool> place::until_left(std::shared_ptr<place> self,
                                               std::shared_ptr<const bool> was_held) {
    if (!*was_held) {
        co_return false;
    }
    session_impl& s = *self->session;
    // The request has a deadline of its own, and can tell more: that one first.
    constexpr std::chrono::milliseconds grace(100);
    const time_point deadline = after(s.world.now(), s.request_timeout + grace);
    while (!self->is_left()) {
        if (self->trouble_) {
            throw error(self->trouble_, self->leaving_title() + self->trouble_text_);
        }
        if (s.gives_lease_up()) {
            co_return false;
        }
        const bool in_time = co_await self->changed.wait(deadline);
        if (!in_time) {
            throw error(errc::outcome_unknown, self->leaving_title() + "no answer in time");
        }
    }
    if (self->trouble_) {
        throw error(self->trouble_, self->leaving_title() + self->trouble_text_);
    }
    co_return !self->missing_ && std::all_of(self->leaving_.begin(),
                                             self->leaving_.end(),
                                             [](const leaving& l) { return l.was_there; });
}

} // namespace coetcd::detail
