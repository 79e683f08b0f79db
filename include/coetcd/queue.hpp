// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coetcd {

namespace detail {
class queue_impl;
} // namespace detail

/// A queue of values for many producers and consumers. **Each item is handed out at most once: it
/// is erased when it is handed out**, and lost with a consumer that dies then. `work_queue` keeps
/// items until their work is done.
///
/// Items are taken in order: one whose `enqueue` was over before that of another began is before
/// it, unless etcd loses the event that tells a waiting consumer of it.
///
/// It is the `Queue` of Go's client: each side takes the items of the other. Go's takes them in the
/// order in which they were put; this one takes its own before Go's, and those in the order of
/// Go's clocks. **Go's takes all keys that begin with the name**: use no name that another key
/// begins with.
///
/// Items are keys `<name>/...`, without a lease: they outlive all sessions. All keys with that
/// prefix belong to the queue. Its other keys go with the lease of their session. So that they do
/// not begin with the name, they have one more `.` before its last part, or `_` if there is one: a
/// queue `app/jobs` has keys that begin with `app/.jobs.`. A user needs to read and write both.
///
/// It may be destroyed at any moment. Calls under way complete.
///
/// Calls throw
/// - `error` with `errc::session_lost` if the session is lost, or gets lost meanwhile, or
///   `errc::session_closed` if this program has ended it; `size` needs no live session;
/// - `error` with a `server_errc` if etcd refuses, for example `permission_denied`.
///
/// @par Thread safety
/// As `client`.
class queue {
public:
    using executor_type = boost::asio::any_io_executor;

    /// The most items that one `enqueue` accepts.
    static constexpr std::size_t max_batch = 60;

    /// Names a queue; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    queue(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Appends an item. One round trip while no other producer appends, otherwise two; two if there
    /// are items of Go's. One more if its request is held up while others append a lot; five while
    /// there are items that were copied from an etcd of more revisions. It is appended once,
    /// however often its request is sent.
    ///
    /// @throws error with
    /// - `errc::outcome_unknown` if it was sent and no answer came in time, or the session was lost
    ///   meanwhile: it may have been appended, or may still be;
    /// - otherwise as above, or as `client`: nothing was appended.
    /// @par Cancellation
    /// `terminal`, at once. If it was sent, the item may or may not be appended.
    boost::asio::awaitable<void> enqueue(std::string value);
    /// Appends items next to each other, in their order; all or none.
    /// @throws std::invalid_argument if there are none, or more than `max_batch`.
    boost::asio::awaitable<void> enqueue(std::vector<std::string> values);

    /// Waits for an item, retrying through network failures for as long as the session lives.
    ///
    /// Two round trips if there is one, or one while this object takes one after the other and
    /// nobody else takes; more if other consumers are faster. While there is none, the consumers
    /// stand in line, and only the first of them watches the queue: an item costs one event and one
    /// round trip from its arrival.
    ///
    /// @throws error with
    /// - `errc::outcome_unknown` if the session ended while a request that takes an item was under
    ///   way: if it has taken one, that is lost; or if etcd refuses to tell what became of that
    ///   request: an item that it has taken is put back as soon as etcd tells;
    /// - `errc::lock_lost` if somebody deleted our place in the line;
    /// - otherwise see above.
    /// @par Cancellation
    /// `terminal`, at once. An item that is taken at that very moment is put back in the
    /// background, before all others. It is lost if the session ends before that.
    boost::asio::awaitable<std::string> dequeue();

    /// Takes an item if there is one now. One round trip if there is none.
    /// @returns Nothing if there is none.
    /// @throws error As `dequeue`; also as `client`, if no endpoint answers in time: then an item
    ///   that was taken is put back as after a cancellation.
    /// @par Cancellation
    /// As `dequeue`.
    boost::asio::awaitable<std::optional<std::string>> try_dequeue();

    /// As `dequeue`, for at most `patience`; if that is not positive, as `try_dequeue`. The answer
    /// to a request that may have taken an item is waited for beyond that.
    /// @returns Nothing if there was none by then, or others were faster.
    /// @throws error Also with `errc::timed_out` or `errc::unavailable` if there was no answer of
    ///   etcd by then.
    boost::asio::awaitable<std::optional<std::string>>
    dequeue_for(std::chrono::nanoseconds patience);

    /// As `dequeue_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<std::string>>
    dequeue_until(std::chrono::time_point<Clock, Duration> deadline) {
        return dequeue_for(detail::logic::time_left(deadline, Clock::now()));
    }

    /// How many items there are. One round trip.
    boost::asio::awaitable<std::int64_t> size() const;

private:
    detail::handle<detail::queue_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/queue.hpp>
#endif
