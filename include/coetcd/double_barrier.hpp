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
class double_barrier_impl;
} // namespace detail

/// Lets groups of a fixed size begin together and end together: nobody comes out of `enter` before
/// its group is whole, nor out of `leave` while another one of its group is still inside.
///
/// One transaction of etcd that finds all members of a group there lets it in: nobody enters with
/// one that has withdrawn, or whose session is lost. More arrivals than a group are the next one,
/// also while the first one is inside. A member whose session ends leaves with its lease.
///
/// The size is the key `<name>.parties`: the first call of any object stores it, and what is stored
/// counts. It has no lease, and stays. Each arrival is a key `<name>/...`, and each member inside a
/// key `<name>.in/...`, with the lease of its session; so are other keys `<name>....` of a session.
/// It is not the `DoubleBarrier` of Go's client, which cannot be used twice.
///
/// An object is one member: use one for each. One that is destroyed leaves in the background.
///
/// @par Thread safety
/// As `client`.
class double_barrier {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a barrier; no I/O. `owner` may be destroyed first: that loses the session.
    /// @param parties The size of a group, from 1 to 60.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or `parties` is
    ///   invalid.
    double_barrier(const session& owner, std::string name, int parties);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Arrives, and waits until its group is whole.
    ///
    /// One round trip to arrive, and one more for the first call of an object. The last one of a
    /// group needs two more, to let it in; the others a watch, on the client's connection for
    /// those, and one round trip when they are in. While it waits it looks every half ttl, at least
    /// every 10 s.
    ///
    /// @throws error with
    /// - `errc::session_lost` or `errc::session_closed` if the session ended: it may have entered
    ///   in its last moment. If the session was orphaned, the arrival stays, and may enter, for as
    ///   long as the lease;
    /// - `errc::lock_lost` if its key was deleted by somebody else;
    /// - `errc::outcome_unknown` if no answer to the arrival came in time: it is withdrawn in the
    ///   background, and may enter, and leave again, before that;
    /// - `errc::wrong_kind` if `<name>.parties` holds no size of a group;
    /// - otherwise as `client`.
    /// An outage while it waits is not an error: it goes on as long as the session lives.
    /// @throws std::logic_error if this object is inside, or another call of it is under way.
    /// @par Cancellation
    /// `terminal`, at once. The arrival is withdrawn in the background; it may enter, and leave
    /// again, before that. If etcd cannot be reached, it goes with the lease.
    boost::asio::awaitable<void> enter();

    /// The same, for no longer than `patience`; then it withdraws, in one round trip.
    /// @returns False if it has withdrawn: it is in no group. True if it is inside, even if that
    ///   happened in the very moment of the withdrawal.
    /// @throws error as `enter`; with `errc::outcome_unknown` also if no answer to the withdrawal
    ///   came in time, which goes on in the background.
    boost::asio::awaitable<bool> enter_for(std::chrono::nanoseconds patience);

    /// As `enter_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool> enter_until(std::chrono::time_point<Clock, Duration> deadline) {
        return enter_for(detail::logic::time_left(deadline, Clock::now()));
    }

    /// Leaves, and waits until all others of the group have left, or their leases have ended. It
    /// has left at the call, whether that is awaited to its end or not.
    ///
    /// One round trip for the last one of a group. The others need one more, and a watch, on the
    /// client's connection for those, and one about every 10 s, since servers have lost events;
    /// each that leaves later costs them an event.
    ///
    /// @throws error with
    /// - `errc::session_lost` or `errc::session_closed` if the session had ended: the others may
    ///   have left without it;
    /// - `errc::outcome_unknown` if no answer came in time: it leaves in the background;
    /// - `errc::revision_regressed` if etcd was restored from a snapshot;
    /// - otherwise as `client`.
    /// Once it has left, it waits on, whatever becomes of the session or the network. After an
    /// error, or a cancellation, a repeated call waits for the others.
    /// @throws std::logic_error if this object has not entered, or all have left already, or
    ///   another call of it is under way.
    /// @par Cancellation
    /// `terminal`, at once. It leaves in the background.
    boost::asio::awaitable<void> leave();

    /// The same; it waits for the others for no longer than `patience`. If that is not positive, it
    /// asks once.
    /// @returns False if some were still inside. It has left all the same, and can wait again.
    /// @throws error Also with `errc::timed_out` if etcd has not answered by then.
    boost::asio::awaitable<bool> leave_for(std::chrono::nanoseconds patience);

    /// As `leave_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool> leave_until(std::chrono::time_point<Clock, Duration> deadline) {
        return leave_for(detail::logic::time_left(deadline, Clock::now()));
    }

private:
    detail::handle<detail::double_barrier_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/double_barrier.hpp>
#endif
