// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <boost/asio/error.hpp>

#include <list>
#include <memory>

namespace coetcd::detail {

[[noreturn]] inline void throw_aborted() {
    throw boost::system::system_error(asio::error::operation_aborted);
}

/// A condition variable for coroutines. No wake-up is lost as long as nothing is awaited between
/// the look at the condition and the call of `wait`.
class notifier {
public:
    /// `world` must live for as long as anything waits.
    explicit notifier(env& world)
        : env_(world) {}

    /// Waits for a notification; false if `deadline` came first.
    /// Must outlive the wait. Cancelled: throws `operation_aborted`.
    asio::awaitable<bool> wait(time_point deadline = time_point::max()) {
        waiter self(*this);
        const error_code ec = co_await self.alarm->sleep_until(deadline);
        if (self.notified) {
            co_return true;
        }
        if (ec) {
            throw_aborted();
        }
        co_return false;
    }

    /// Wakes all that wait now.
    void notify_all() {
        while (notify_one()) {
        }
    }

    /// Wakes the waiter that has waited longest. Its `wait` returns true, whatever else happens.
    /// @returns False if nobody waits.
    bool notify_one() {
        if (waiters_.empty()) {
            return false;
        }
        waiter& first = *waiters_.front();
        waiters_.pop_front();
        first.notified = true;
        first.alarm->wake();
        return true;
    }

private:
    struct waiter {
        explicit waiter(notifier& n)
            : owner(n)
            , alarm(n.env_.make_sleeper()) {
            place = owner.waiters_.insert(owner.waiters_.end(), this);
        }
        ~waiter() {
            if (!notified) {
                owner.waiters_.erase(place);
            }
        }
        waiter(const waiter&) = delete;
        waiter& operator=(const waiter&) = delete;

        notifier& owner;
        std::unique_ptr<sleeper> alarm;
        std::list<waiter*>::iterator place;
        bool notified = false;
    };

    env& env_;
    std::list<waiter*> waiters_; // in order of arrival
};

/// Waits until `then`, whatever happens meanwhile. Cancelled: throws `operation_aborted`.
inline asio::awaitable<void> sleep_until(env& world, time_point then) {
    notifier nobody(world);
    (void)co_await nobody.wait(then);
}

} // namespace coetcd::detail
