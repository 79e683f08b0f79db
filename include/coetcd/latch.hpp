// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace coetcd {

namespace detail {
class latch_impl;
} // namespace detail

/// A number that programs count down to 0, once: those who wait for it pass when so many have
/// counted, and from then on at once.
///
/// The number is the key `<name>.total`: the first call of any object stores it, and what is stored
/// counts. Each count is a key `<name>/...`. None of them has a lease: a count lasts although its
/// program ends, and the keys stay until somebody deletes them. Use a name once, such as one with
/// the number of the run in it.
///
/// @par Thread safety
/// As `client`.
class latch {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a latch; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or `count` is not
    ///   positive.
    latch(const session& owner, std::string name, std::int64_t count);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Counts once. One round trip, and one more for the first call of an object.
    /// @returns How many are still to count.
    /// @throws error with
    /// - `errc::outcome_unknown` if no answer came in time, if it was refused after a request that
    ///   had no answer, or if etcd has no space left: it may have been counted, or may still be;
    /// - `errc::session_lost` or `errc::session_closed` if the session had already ended;
    /// - `errc::wrong_kind` if `<name>.total` holds no number;
    /// - otherwise as `client`: it was not counted.
    /// @par Cancellation
    /// `terminal`, at once. It may have been counted.
    boost::asio::awaitable<std::int64_t> count_down();

    /// How many are still to count. One round trip, and one more for the first call of an object.
    /// @throws error with `errc::wrong_kind` as `count_down`; otherwise as `client`.
    boost::asio::awaitable<std::int64_t> remaining() const;

    /// Waits until none is left to count. One round trip if that is so, and one more for the first
    /// call of an object; else also a watch, on the client's connection for those, and one round
    /// trip about every 10 s, since servers have lost events. A count costs a waiter nothing but
    /// its event. It goes on when the session is lost. This object may be destroyed before it
    /// completes.
    /// @throws error with `errc::wrong_kind` as `count_down`; with a `server_errc` if etcd refuses,
    ///   or `errc::revision_regressed` if it was restored from a snapshot. An outage is not an
    ///   error once the first call of an object is answered: the call waits until it is over.
    /// @par Cancellation
    /// `terminal`, at once. Nothing but the number is left in etcd.
    boost::asio::awaitable<void> wait() const;

    /// The same, for no longer than `patience`. If that is not positive, it asks once.
    /// @returns False if some were left to count all the time.
    /// @throws error Also with `errc::timed_out` if etcd has not answered by then.
    boost::asio::awaitable<bool> wait_for(std::chrono::nanoseconds patience) const;

    /// As `wait_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool>
    wait_until(std::chrono::time_point<Clock, Duration> deadline) const {
        return wait_for(detail::logic::time_left(deadline, Clock::now()));
    }

private:
    detail::handle<detail::latch_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/latch.hpp>
#endif
