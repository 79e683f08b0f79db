// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/reopening.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/cancellation_signal.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Opens a session, and another one whenever it is lost, until it is stopped.
class session_keeper_impl : public std::enable_shared_from_this<session_keeper_impl> {
public:
    using shared_session = std::shared_ptr<const session>;

    /// @param timeout For each attempt to open one.
    session_keeper_impl(std::shared_ptr<client_impl> c,
                        std::chrono::nanoseconds timeout,
                        session_options each,
                        logic::reopening openings)
        : owner(std::move(c))
        , world(*owner->world)
        , timeout_(timeout)
        , each_(std::move(each))
        , openings_(openings)
        , changed_(world) {}

    const std::shared_ptr<client_impl> owner;
    env& world;

    /// For each attempt to open a session.
    std::chrono::nanoseconds timeout() const { return timeout_; }

    // These may be called from anywhere.

    void begin() {
        at_home(world, [self = shared_from_this()] { self->start(); });
    }

    /// Null if there is no live session.
    shared_session current() const {
        shared_session last;
        {
            const std::lock_guard alone(access_);
            if (stopped_) {
                return nullptr;
            }
            last = session_;
        }
        return last && last->state() != session_state::lost ? last : nullptr;
    }

    /// Why there is no session now.
    std::optional<error> trouble() const {
        if (current()) {
            return std::nullopt;
        }
        const std::lock_guard alone(access_);
        return stopped_ ? closed() : openings_.told();
    }

    /// Opens no more sessions from now on, and wakes all waiters.
    /// @returns The last session, if it is not known to be lost. The caller is to end it.
    std::shared_ptr<session_impl> stop() {
        shared_session last;
        {
            const std::lock_guard alone(access_);
            stopped_ = true;
            last = session_;
        }
        at_home(world, [self = shared_from_this()] {
            self->stop_.emit(asio::cancellation_type::terminal);
            self->changed_.notify_all();
        });
        return impl_of(last);
    }

    /// What its owner does in the end, if nobody needs the result.
    static void end(session_impl& s) {
        s.lose(session_end::closed);
        s.revoke();
    }

    // At home.

    /// Waits for a live session.
    static asio::awaitable<shared_session> wait_live(std::shared_ptr<session_keeper_impl> self,
                                                     time_point deadline) {
        for (bool in_time = true;;) {
            shared_session live = self->current();
            if (live) {
                co_return live;
            }
            self->check(in_time);
            in_time = co_await self->changed_.wait(deadline);
        }
    }

    /// Waits until what `current` returns is not `seen`.
    static asio::awaitable<shared_session> wait_changed(std::shared_ptr<session_keeper_impl> self,
                                                        shared_session seen) {
        for (;;) {
            shared_session now = self->current();
            if (now != seen) {
                co_return now;
            }
            self->check_open();
            (void)co_await self->changed_.wait();
        }
    }

    /// Waits until there is a session in that state, and returns it.
    static asio::awaitable<std::shared_ptr<session_impl>>
    wait_for(std::shared_ptr<session_keeper_impl> self, session_state wanted) {
        for (;;) {
            const std::shared_ptr<session_impl> live = impl_of(self->current());
            if (live) {
                const session_state now = co_await session_impl::until(live, wanted);
                if (now == wanted) {
                    co_return live;
                }
            } else {
                self->check_open();
                (void)co_await self->changed_.wait();
            }
        }
    }
    static asio::awaitable<std::chrono::nanoseconds>
    wait_suspect(std::shared_ptr<session_keeper_impl> self) {
        const auto found = co_await wait_for(std::move(self), session_state::suspect);
        co_return found->remaining();
    }
    static asio::awaitable<void> wait_active(std::shared_ptr<session_keeper_impl> self) {
        (void)co_await wait_for(std::move(self), session_state::active);
    }

    /// Waits until nothing is under way any more, including the end of `last`.
    static asio::awaitable<void> until_ended(std::shared_ptr<session_keeper_impl> self,
                                             asio::awaitable<void> last) {
        while (!self->ended_) {
            (void)co_await self->changed_.wait();
        }
        co_await std::move(last);
    }
    static asio::awaitable<void> nothing() { co_return; }

private:
    static std::shared_ptr<session_impl> impl_of(const shared_session& s) {
        return s ? access::impl(*s) : nullptr;
    }
    static error closed() { return {errc::session_closed, "the session_keeper was closed"}; }

    bool stopped() const {
        const std::lock_guard alone(access_);
        return stopped_;
    }

    /// @throws error if there will be no more sessions.
    void check_open() const {
        if (stopped()) {
            throw closed();
        }
    }
    /// @throws error also if waiting longer is of no use.
    void check(bool in_time) const {
        check_open();
        if (!in_time || !openings_.may_pass()) {
            throw openings_.told();
        }
    }

    void start() {
        if (stopped()) {
            ended();
            return;
        }
        auto at_end = [self = shared_from_this()](std::exception_ptr defect) {
            self->ended();
            rethrow_defect()(std::move(defect));
        };
        spawn(world.executor(), keep(shared_from_this()), stop_.slot(), std::move(at_end));
    }
    void ended() {
        ended_ = true;
        note([this] { stopped_ = true; }); // already true, unless there is a defect
    }

    /// Notes what became of a session.
    template<class F>
    void note(F what) {
        {
            const std::lock_guard alone(access_);
            what();
        }
        changed_.notify_all();
    }
    void opened(const std::shared_ptr<session_impl>& s) {
        auto shown = std::make_shared<const session>(access::make<session>(s));
        bool too_late = false;
        note([&] {
            session_ = std::move(shown);
            openings_.opened();
            too_late = stopped_;
        });
        if (too_late) {
            end(*s);
        }
    }
    void lost(session_end why) {
        shared_session last; // goes when the lock is given back
        note([&] {
            openings_.lost(why);
            if (!stopped_) { // else `stop` has taken it
                last.swap(session_);
            }
        });
    }
    std::chrono::nanoseconds pause() {
        const std::lock_guard alone(access_);
        return openings_.pause(world.random());
    }

    static asio::awaitable<void> keep(std::shared_ptr<session_keeper_impl> self) {
        const std::function<void(const std::string&)> tried = [&k = *self](const std::string& how) {
            k.note([&] { k.openings_.tried(how); });
        };
        while (!self->stopped()) {
            std::shared_ptr<session_impl> now;
            try {
                now = co_await session_impl::open(self->owner, self->timeout_, self->each_, &tried);
            } catch (const error& e) {
                self->note([&] { self->openings_.failed(e); });
            }
            if (now) {
                self->opened(now);
                const session_end why = co_await session_impl::wait_lost(std::move(now));
                self->lost(why);
            }
            co_await sleep_until(self->world, after(self->world.now(), self->pause()));
        }
    }

    const std::chrono::nanoseconds timeout_;
    const session_options each_;

    mutable std::mutex access_; // for what is read from anywhere; written at home, but for `stop`
    shared_session session_;    // the last one, alive or lost
    logic::reopening openings_;
    bool stopped_ = false;

    notifier changed_;
    asio::cancellation_signal stop_;
    bool ended_ = false; // nothing is under way any more
};

} // namespace coetcd::detail
