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
struct named_recipe;
} // namespace detail

/// A gate that anybody can close and open: while it is closed, all who wait for it wait.
///
/// It is the key `<name>`, as with `recipe.Barrier` of Go's client: both sides see the same
/// barrier. The keys that begin with `<name>.` are the barrier's, too: each session that closes it
/// has one, which goes with its lease.
///
/// @par Thread safety
/// As `client`.
class barrier {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a barrier; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    barrier(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Closes it, until somebody calls `release`, whatever becomes of this program. One round trip.
    /// It is done once, even if an answer is lost: it never closes a barrier again that was opened
    /// meanwhile.
    /// @returns False if it was closed already.
    /// @throws error with
    /// - `errc::outcome_unknown` if no answer came in time, or the session was lost meanwhile: it
    ///   may be closed, or be closed until the session closes a barrier of this name again;
    /// - `errc::session_lost` or `errc::session_closed` if the session had already ended;
    /// - otherwise as `client`: nothing was changed.
    /// @par Cancellation
    /// `terminal`, at once. It may be closed.
    boost::asio::awaitable<bool> hold();

    /// The same, for no longer than the session lives: it opens when that is closed or lost.
    boost::asio::awaitable<bool> hold_while_alive();

    /// Opens it, even if somebody else has closed it. Two round trips; one if it is open.
    /// @returns False if it was open.
    /// @throws error as `client`. A repeated call does no harm.
    /// @par Cancellation
    /// `terminal`, at once. It may be open.
    boost::asio::awaitable<bool> release();

    /// Waits until it is open: now, or at any moment since the call began. One round trip if it is
    /// open; else also a watch, on the client's connection for those, and one round trip about
    /// every 10 s, since servers have lost events. All waiters pass at once. It needs no session:
    /// it goes on when that is lost. This object may be destroyed before it completes.
    /// @throws error with a `server_errc` if etcd refuses, or `errc::revision_regressed` if it was
    ///   restored from a snapshot. An outage is not an error: the call waits until it is over.
    /// @par Cancellation
    /// `terminal`, at once. Nothing is left in etcd.
    boost::asio::awaitable<void> wait() const;

    /// The same, for no longer than `patience`. If that is not positive, it asks once.
    /// @returns False if it was closed all the time.
    /// @throws error Also with `errc::timed_out` if etcd has not answered by then.
    boost::asio::awaitable<bool> wait_for(std::chrono::nanoseconds patience) const;

    /// As `wait_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool>
    wait_until(std::chrono::time_point<Clock, Duration> deadline) const {
        return wait_for(detail::logic::time_left(deadline, Clock::now()));
    }

private:
    detail::handle<const detail::named_recipe> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/barrier.hpp>
#endif
