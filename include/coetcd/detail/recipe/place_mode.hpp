// SPDX-License-Identifier: BSL-1.0
#pragma once

// How the holder of a place goes on as a reader, or as a writer, with the keys of one slot.
//
// The write key may have several lives in one hold, one after the other, by the same slot. Requests
// that come late do not mix them up:
// - What erases one life, a downgrade, compares it.
// - What puts one, an upgrade, compares the epoch. If one is in doubt, the write key is erased by a
//   request that puts another epoch, which makes all copies of that upgrade void; and the next one
//   is not asked for before etcd has confirmed it.
// - What erases under an epoch compares one that nobody uses afterwards: it was sent because
//   something was in doubt, and until it is confirmed the place, too, is given up by another epoch.
// So when an upgrade is asked for, nothing can put or erase the write key but its own copies.

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/rw.hpp>
#include <coetcd/detail/recipe/place.hpp>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/this_coro.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

inline asio::awaitable<bool> explain_missing_key(std::shared_ptr<place> who, time_point deadline);

/// @throws error if it was given back, or is lost.
inline void place::require_held(const char* call) const {
    if (phase_ != phase::held) {
        throw error(errc::not_owner, title() + ", " + call);
    }
    if (!held()) {
        throw loss();
    }
}

inline void place::require_shared_mutex() const {
    if (!there_.has_modes()) {
        throw std::logic_error("coetcd: only the lock of a shared_mutex changes its mode");
    }
}

inline asio::awaitable<void> place::downgrade() {
    require_shared_mutex();
    // An upgrade under way notices; the next one waits until home knows of this.
    std::int64_t life = write_life_;
    while (!write_life_.compare_exchange_weak(
        life, life > reads || life == lowering ? lowering : reads)) {
    }
    at_home(session->world, [self = shared_from_this(), life] {
        if (life > reads) {
            self->write_life_ = reads;
            self->lower(life);
            self->changed.notify_all();
        }
    });
    return session->owner->home(until_lowered(shared_from_this()));
}

/// Has etcd erase the write key.
/// @param life The one that it has; 0 if it may have one, and what puts it is in doubt.
inline void place::lower(std::int64_t life) noexcept {
    try {
        begin_lowering(life);
    } catch (const std::bad_alloc&) {
        session->fail(session_end::cleanup_failed);
    }
}

inline void place::begin_lowering(std::int64_t life) {
    if (phase_ != phase::held || !leaving_.empty() || session->gives_lease_up()) {
        return; // all keys go
    }
    there_.change_mode();
    lowering_ = std::make_shared<leaving>();
    lowering_->writing = true;
    lowering_->life = life;
    lowering_->bumps = there_.may_come();
    send(*lowering_);
    if (turn_) { // readers of the session may go on, with the same request
        turn_->share();
        turn_->pass_on();
    }
    spawn(session->world, finish_lowering(shared_from_this(), lowering_));
}

inline asio::awaitable<void> place::finish_lowering(std::shared_ptr<place> self,
                                                    std::shared_ptr<leaving> l) {
    struct lowering_one {
        place& of;
        const leaving& what;
        ~lowering_one() {
            if (!what.over && !of.session->gives_lease_up()) {
                of.session->fail(session_end::cleanup_failed);
            }
        }
    };
    const lowering_one until_the_end{*self, *l};
    while (!l->over && !self->session->gives_lease_up()) {
        if (l->part && l->part->over) {
            co_await go_on(self, *l);
        } else {
            (void)co_await self->changed.wait();
        }
    }
}

/// The write key is not there, and none can come.
inline void place::lowered(const leaving& l, std::int64_t epoch) {
    slots_.front()->epoch = epoch;
    there_.lowered(epoch, l.bumps);
    lowering_ = nullptr;
}

/// All keys go: so no change of them is wanted any more.
inline void place::cancel_changes() {
    transaction_lane& lane = *session->owner->transactions;
    if (raise_) {
        there_.raise_ended(raise_->in_flight || raise_->left != logic::effect::none);
        lane.withdraw(std::exchange(raise_, nullptr));
    }
    if (lowering_) {
        lowering_->over = true;
        if (lowering_->part) {
            lane.withdraw(lowering_->part);
        }
        lowering_ = nullptr;
    }
}

inline asio::awaitable<void> place::until_lowered(std::shared_ptr<place> self) {
    constexpr const char* call = "downgrade";
    self->require_held(call);
    session_impl& s = *self->session;
    const time_point deadline = after(s.world.now(), s.request_timeout + grace);
    while (self->raise_ || self->lowering_) {
        if (self->lowering_ && self->lowering_->trouble) {
            const leaving& l = *self->lowering_;
            throw error(l.trouble,
                        self->title() + ", downgrade: " + l.trouble_text +
                            self->if_denied(l.trouble));
        }
        const bool in_time = co_await self->changed.wait(deadline);
        self->require_held(call);
        if (!in_time) {
            throw error(errc::outcome_unknown, self->title() + ", downgrade: no answer in time");
        }
    }
}

/// An upgrade that is under way; given up, should nobody wait for it any more.
struct place::raise_guard {
    place& of;
    std::shared_ptr<lane_part> part;
    ~raise_guard() {
        if (of.raise_ == part) {
            const bool doubtful =
                part->in_flight || part->over || part->left != logic::effect::none;
            of.session->owner->transactions->withdraw(part);
            of.not_raised(doubtful);
        }
    }
};

/// It goes on as a reader.
/// @param doubtful An upgrade may still be applied.
inline void place::not_raised(bool doubtful) {
    raise_ = nullptr;
    std::int64_t expected = raising;
    write_life_.compare_exchange_strong(expected, reads);
    there_.raise_ended(doubtful);
    if (doubtful) {
        lower(0);
    }
    changed.notify_all();
}

inline asio::awaitable<bool> place::upgrade() {
    require_shared_mutex();
    return session->owner->home(try_upgrade(shared_from_this()));
}

inline asio::awaitable<bool> place::try_upgrade(std::shared_ptr<place> self) {
    constexpr const char* call = "try_upgrade";
    const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type cancelled_before = stop.cancelled();
    session_impl& s = *self->session;
    const time_point deadline = after(s.world.now(), s.request_timeout);
    self->require_held(call);
    while (self->raise_ || self->lowering_ || self->write_life_ == lowering) { // one at a time
        const bool in_time = co_await self->changed.wait(deadline);
        self->require_held(call);
        if (!in_time) {
            throw error(errc::timed_out,
                        self->title() + ", try_upgrade: an earlier change is not over yet");
        }
    }
    std::int64_t before = reads;
    if (!self->write_life_.compare_exchange_strong(before, raising)) {
        co_return true; // it writes
    }
    self->there_.change_mode();
    const logic::claim& c = self->there_.first();
    const std::int64_t revision = self->create_revision();
    auto part =
        std::make_shared<lane_part>(logic::upgrade(c, self->keys().lease, s.label(), revision));
    part->puts = self->names;
    part->likely = true;
    part->not_after = deadline;
    self->raise_ = part;
    const raise_guard until_answered{*self, part};
    (void)self->submit(part);
    while (!part->over) {
        const bool in_time = co_await self->changed.wait(after(deadline, grace));
        self->require_held(call);
        if (!in_time) {
            throw error(errc::timed_out, self->title() + ", try_upgrade: no answer in time");
        }
    }
    self->require_held(call);
    if (part->ec) {
        self->not_raised(part->left != logic::effect::none);
        if (logic::is_lease_gone(part->ec, part->text)) { // with which we would put
            const call_terms how = s.owner->within(s.request_timeout);
            const auto gone = co_await session_impl::look_for_lease(self->session, how);
            self->require_held(call);
            if (!gone) {
                self->throw_refused(call, errc::timed_out, part->text);
            }
        }
        self->throw_refused(call, part->ec, part->text);
    }
    const logic::upgraded how = logic::after_upgrade(part->response, c, revision);
    const bool doubtful = part->left == logic::effect::unresolved;
    if (how.went == logic::upgraded::how::gone) {
        self->not_raised(doubtful);
        (void)co_await explain_missing_key(self, deadline);
        if (self->held()) {
            self->on_key_gone();
        }
        throw self->loss();
    }
    if (how.create_revision == 0) {
        self->not_raised(doubtful);
        co_return false;
    }
    self->raise_ = nullptr;
    self->there_.raise_ended(doubtful || how.went == logic::upgraded::how::earlier);
    std::int64_t expected = raising;
    const bool wanted = stop.cancelled() == cancelled_before;
    if (wanted && self->write_life_.compare_exchange_strong(expected, how.create_revision)) {
        self->there_.raised(how.create_revision);
        self->changed.notify_all();
        co_return true;
    }
    expected = raising;
    self->write_life_.compare_exchange_strong(expected, reads);
    self->lower(how.create_revision);
    self->changed.notify_all();
    if (!wanted) {
        throw_aborted();
    }
    co_return false;
}

/// Why a request in the middle of a hold has failed.
[[noreturn]] inline void
place::throw_refused(const char* call, const error_code& ec, const std::string& text) {
    const error_code told = logic::is_transient(ec) ? make_error_code(errc::timed_out) : ec;
    throw error(told, title() + ", " + call + ": " + text + if_denied(ec));
}

} // namespace coetcd::detail

#include <coetcd/detail/recipe/missing_key.hpp>
