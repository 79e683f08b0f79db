// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/held_mode.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/rw.hpp>
#include <coetcd/detail/recipe/attempt.hpp>
#include <coetcd/detail/recipe/erasure.hpp>
#include <coetcd/detail/recipe/missing_key.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lock_mode.hpp>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/this_coro.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// How the holder of a place becomes a reader or a writer, with the keys of one slot.
///
/// The write key may have several lives in one hold, one after the other, by the same slot.
/// Requests that come late do not mix them up:
/// - A downgrade, which erases a life, compares that life.
/// - An upgrade, which puts a life, compares the epoch. If an upgrade is in doubt, a request that
///   puts another epoch erases the write key; this makes all copies of the upgrade void. The next
///   upgrade is not asked for before etcd has confirmed that request.
/// - A request that erases under an epoch compares one that nobody uses afterwards: it was sent
///   because something was in doubt, and until it is confirmed the place, too, is given up by
///   another epoch.
/// So when an upgrade is asked for, nothing can put or erase the write key but its own copies.
class mode_change {
public:
    explicit mode_change(attempt& of)
        : of_(of) {}
    mode_change(const mode_change&) = delete;
    mode_change& operator=(const mode_change&) = delete;

    /// The place is granted with the keys that it has entered with.
    void begin() {
        const logic::name_keys& first = of_.there.first();
        if (first.keys.front() == first.write_key) {
            mode_.begin_writing(of_.create_revision());
        }
    }
    /// May be called from anywhere, like the next two.
    lock_mode mode() const {
        return of_.there.has_modes() && !writes() ? lock_mode::shared : lock_mode::exclusive;
    }
    bool writes() const { return mode_.writes(); }
    /// The life of the write key; 0 if it reads.
    std::int64_t write_life() const { return mode_.write_life(); }

    /// Becomes a reader: here at once, in etcd in the background. May be called from anywhere;
    /// await it to know that etcd knows.
    static asio::awaitable<void> downgrade(const std::shared_ptr<attempt>& self, mode_change& m);
    /// Becomes a writer, if nobody is in the way. May be called from anywhere.
    static asio::awaitable<bool> upgrade(const std::shared_ptr<attempt>& self, mode_change& m);

    /// All keys go, so no change of them is wanted any more.
    void cancel();

private:
    /// The downgrade that is under way, in etcd.
    class lowering final : public erasure {
    public:
        explicit lowering(attempt& of, mode_change& change)
            : erasure(of, 0)
            , change_(change) {}

    private:
        logic::name_keys what() const override { return logic::writing_part(of().there.first()); }
        /// The write key is not there, and none can come.
        void given_up(std::int64_t epoch) override {
            of().queues.front().slot->epoch = epoch;
            of().there.lowered(epoch, bumps());
            change_.lowering_ = nullptr;
        }
        void send_again() override {
            if (!over) {
                send(life(), of().there.may_come());
            }
        }

        mode_change& change_;
    };
    /// An upgrade that is under way; it is given up when nobody waits for it any more.
    struct raise_guard {
        mode_change& of;
        std::shared_ptr<lane_part> part;
        ~raise_guard() {
            if (of.raise_ == part) {
                const bool doubtful =
                    part->in_flight || part->over || part->left != logic::effect::none;
                of.of_.session->owner->transactions->withdraw(part);
                of.not_raised(doubtful);
            }
        }
    };

    void require_modes() const {
        if (!of_.there.has_modes()) {
            throw std::logic_error("coetcd: only the lock of a shared_mutex changes its mode");
        }
    }
    /// @throws error if it was given back, or is lost.
    void require_held(const char* call) const {
        if (!of_.is_granted()) {
            throw error(errc::not_owner, of_.title() + ", " + call);
        }
        if (!of_.held()) {
            throw of_.loss();
        }
    }
    [[noreturn]] void
    throw_refused(const char* call, const error_code& ec, const std::string& text) const;
    void lower(std::int64_t life) noexcept;
    void begin_lowering(std::int64_t life);
    void not_raised(bool doubtful);
    static asio::awaitable<void> finish_lowering(std::shared_ptr<attempt> self,
                                                 std::shared_ptr<lowering> l);
    static asio::awaitable<void> until_lowered(std::shared_ptr<attempt> self, mode_change& m);
    static asio::awaitable<bool> try_upgrade(std::shared_ptr<attempt> self, mode_change& m);

    attempt& of_;
    logic::held_mode mode_;
    std::shared_ptr<lane_part> raise_;   // the upgrade that is under way
    std::shared_ptr<lowering> lowering_; // the downgrade that is under way
};

inline asio::awaitable<void> mode_change::downgrade(const std::shared_ptr<attempt>& self,
                                                    mode_change& m) {
    m.require_modes();
    const std::int64_t life = m.mode_.downgrade();
    at_home(self->session->world, [self, &m, life] {
        if (life != 0) {
            m.mode_.downgrade_known();
            m.lower(life);
            self->changed.notify_all();
        }
    });
    return self->session->owner->home(until_lowered(self, m));
}

/// Has etcd erase the write key.
/// @param life The life that it has; 0 if it may have one and the request that puts it is in doubt.
inline void mode_change::lower(std::int64_t life) noexcept {
    try {
        begin_lowering(life);
    } catch (const std::bad_alloc&) {
        of_.session->fail(session_end::cleanup_failed);
    }
}

inline void mode_change::begin_lowering(std::int64_t life) {
    if (!of_.is_granted() || of_.is_leaving() || of_.session->gives_lease_up()) {
        return; // all keys go
    }
    of_.there.change_mode();
    lowering_ = std::make_shared<lowering>(of_, *this);
    lowering_->send(life, of_.there.may_come());
    of_.share_turn(); // readers of the session may go on, with the same request
    spawn(of_.session->world, finish_lowering(of_.shared_from_this(), lowering_));
}

inline asio::awaitable<void> mode_change::finish_lowering(std::shared_ptr<attempt> self,
                                                          std::shared_ptr<lowering> l) {
    struct lowering_one {
        session_impl& s;
        const lowering& what;
        ~lowering_one() {
            if (!what.over && !s.gives_lease_up()) {
                s.fail(session_end::cleanup_failed);
            }
        }
    };
    session_impl& s = *self->session;
    const lowering_one until_the_end{s, *l};
    while (!l->over && !s.gives_lease_up()) {
        if (l->part && l->part->over) {
            co_await erasure::go_on(self, *l);
        } else {
            (void)co_await self->changed.wait();
        }
    }
}

inline void mode_change::cancel() {
    transaction_lane& lane = *of_.session->owner->transactions;
    if (raise_) {
        of_.there.raise_ended(raise_->in_flight || raise_->left != logic::effect::none);
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

inline asio::awaitable<void> mode_change::until_lowered(std::shared_ptr<attempt> self,
                                                        mode_change& m) {
    constexpr const char* call = "downgrade";
    m.require_held(call);
    session_impl& s = *self->session;
    const time_point deadline = after(s.world.now(), s.request_timeout + grace_for_requests);
    while (m.raise_ || m.lowering_) {
        if (m.lowering_ && m.lowering_->trouble) {
            const lowering& l = *m.lowering_;
            throw error(l.trouble,
                        self->title() + ", downgrade: " + l.trouble_text +
                            self->if_denied(l.trouble));
        }
        const bool in_time = co_await self->changed.wait(deadline);
        m.require_held(call);
        if (!in_time) {
            throw error(errc::outcome_unknown,
                        self->title() +
                            ", downgrade: no answer in time; it goes on in the background");
        }
    }
}

/// It stays a reader.
/// @param doubtful An upgrade may still be applied.
inline void mode_change::not_raised(bool doubtful) {
    raise_ = nullptr;
    mode_.not_upgraded();
    of_.there.raise_ended(doubtful);
    if (doubtful) {
        lower(0);
    }
    of_.changed.notify_all();
}

inline asio::awaitable<bool> mode_change::upgrade(const std::shared_ptr<attempt>& self,
                                                  mode_change& m) {
    m.require_modes();
    return self->session->owner->home(try_upgrade(self, m));
}

inline asio::awaitable<bool> mode_change::try_upgrade(std::shared_ptr<attempt> self,
                                                      mode_change& m) {
    constexpr const char* call = "try_upgrade";
    const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type cancelled_before = stop.cancelled();
    session_impl& s = *self->session;
    const time_point deadline = after(s.world.now(), s.request_timeout);
    m.require_held(call);
    while (m.raise_ || m.lowering_ || m.mode_.is_downgrade_unknown()) { // one at a time
        const bool in_time = co_await self->changed.wait(deadline);
        m.require_held(call);
        if (!in_time) {
            throw error(errc::timed_out,
                        self->title() + ", try_upgrade: an earlier change is not over yet");
        }
    }
    if (!m.mode_.begin_upgrade()) {
        co_return true; // it writes
    }
    self->there.change_mode();
    const logic::name_keys& c = self->there.first();
    const std::int64_t revision = self->create_revision();
    auto part =
        std::make_shared<lane_part>(logic::upgrade(c, self->keys().lease, s.label(), revision));
    part->puts = self->names();
    part->likely = true;
    part->not_after = deadline;
    m.raise_ = part;
    const raise_guard until_answered{m, part};
    (void)self->submit(part);
    while (!part->over) {
        const bool in_time = co_await self->changed.wait(after(deadline, grace_for_requests));
        m.require_held(call);
        if (!in_time) {
            throw error(errc::timed_out, self->title() + ", try_upgrade: no answer in time");
        }
    }
    m.require_held(call);
    if (part->ec) {
        m.not_raised(part->left != logic::effect::none);
        if (logic::is_lease_gone(part->ec, part->text)) { // the lease that we put with
            const call_terms how = s.owner->within(s.request_timeout);
            const auto gone = co_await session_impl::look_for_lease(self->session, how);
            m.require_held(call);
            if (!gone) {
                m.throw_refused(call, errc::timed_out, part->text);
            }
        }
        m.throw_refused(call, part->ec, part->text);
    }
    const logic::upgraded how = logic::after_upgrade(part->response, c, revision);
    const bool doubtful = part->left == logic::effect::unresolved;
    if (how.went == logic::upgraded::how::gone) {
        m.not_raised(doubtful);
        (void)co_await explain_missing_key(self, deadline);
        if (self->held()) {
            self->on_key_gone();
        }
        throw self->loss();
    }
    if (how.create_revision == 0) {
        m.not_raised(doubtful);
        co_return false;
    }
    m.raise_ = nullptr;
    self->there.raise_ended(doubtful || how.went == logic::upgraded::how::earlier);
    const bool wanted = stop.cancelled() == cancelled_before;
    if (wanted && m.mode_.upgraded(how.create_revision)) {
        self->there.raised(how.create_revision);
        self->changed.notify_all();
        co_return true;
    }
    m.mode_.not_upgraded();
    m.lower(how.create_revision);
    self->changed.notify_all();
    if (!wanted) {
        throw_aborted();
    }
    co_return false;
}

/// Throws why a request in the middle of a hold has failed.
[[noreturn]] inline void
mode_change::throw_refused(const char* call, const error_code& ec, const std::string& text) const {
    const error_code told = logic::is_transient(ec) ? make_error_code(errc::timed_out) : ec;
    throw error(told, of_.title() + ", " + call + ": " + text + of_.if_denied(ec));
}

} // namespace coetcd::detail
