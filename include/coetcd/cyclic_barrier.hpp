// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace coetcd {

namespace detail {
class gathering;
} // namespace detail

/// Lets those who arrive through in groups of a fixed size: each waits until its group is whole.
/// The group after it forms at once, so the barrier can be used again and again.
///
/// A group is let through by one transaction of etcd that finds all of its members there: nobody
/// goes through with one that has withdrawn, or whose session is lost. Others may arrive meanwhile,
/// more than a group: they are the next one.
///
/// The size is the key `<name>.parties`: the first call of any object stores it, and what is stored
/// counts. It and `<name>.bound` have no lease, and stay. Each arrival is a key `<name>/...`, and
/// each session has keys `<name>....`, with its lease. Each arrival leaves a dead key in etcd's
/// index until compaction.
///
/// @par Thread safety
/// As `client`. Each call is an arrival of its own.
class cyclic_barrier {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a barrier; no I/O. `owner` may be destroyed first: that loses the session.
    /// @param parties The size of a group, from 1 to 100.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or `parties` is
    ///   invalid.
    cyclic_barrier(const session& owner, std::string name, int parties);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Arrives, and waits until the group is whole.
    ///
    /// One round trip to arrive, and one more for the first call of an object. The last one of a
    /// group needs two more, to let it through; the others a watch, on the client's connection for
    /// those, and one round trip when they go through. While it waits it looks every half ttl, at
    /// least every 10 s. This object may be destroyed before it completes.
    ///
    /// @throws error with
    /// - `errc::session_lost` or `errc::session_closed` if the session ended: it may have gone
    ///   through in its last moment. If the session was orphaned, the arrival stays, and may go
    ///   through, for as long as the lease;
    /// - `errc::lock_lost` if its key was deleted by somebody else, unless a later group has gone
    ///   through before that was noticed;
    /// - `errc::outcome_unknown` if no answer to the arrival came in time: it is withdrawn in the
    ///   background, and may go through before that;
    /// - `errc::wrong_kind` if `<name>.parties` holds no size of a group;
    /// - otherwise as `client`.
    /// An outage while it waits is not an error: it goes on as long as the session lives.
    /// @par Cancellation
    /// `terminal`, at once. The arrival is withdrawn in the background; it may go through before
    /// that. If etcd cannot be reached, it goes with the lease.
    boost::asio::awaitable<void> arrive_and_wait();

    /// The same, for no longer than `patience`; then it withdraws, in one round trip.
    /// @returns False if it has withdrawn: it is in no group. True if it went through, even if that
    ///   happened in the very moment of the withdrawal.
    /// @throws error as `arrive_and_wait`; with `errc::outcome_unknown` also if no answer to the
    ///   withdrawal came in time, which goes on in the background.
    boost::asio::awaitable<bool> arrive_and_wait_for(std::chrono::nanoseconds patience);

    /// As `arrive_and_wait_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool>
    arrive_and_wait_until(std::chrono::time_point<Clock, Duration> deadline) {
        return arrive_and_wait_for(detail::logic::time_left(deadline, Clock::now()));
    }

private:
    detail::handle<detail::gathering> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/cyclic_barrier.hpp>
#endif
