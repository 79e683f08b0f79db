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
#include <optional>
#include <string>

namespace coetcd {

namespace detail {
class queue_impl;
} // namespace detail

/// A `queue` whose items have priorities: an item of a smaller number is taken first, and those of
/// one number in their order, as in a `queue`. **Each item is handed out at most once: it is erased
/// when it is handed out**, and lost with a consumer that dies then.
///
/// Items are keys `<name>/<priority>/...`, with four hexadecimal digits for the priority, without a
/// lease. All keys that begin with `<name>/` belong to the queue; its other keys are as with
/// `queue`, and so is what calls throw. It is not the `PriorityQueue` of Go's client, whose keys
/// are ordered otherwise.
///
/// To find the first item, etcd walks over all keys of the queue, and those that were erased since
/// the last compaction: do not let it get very long.
///
/// It may be destroyed at any moment. Calls under way complete.
///
/// @par Thread safety
/// As `client`.
class priority_queue {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a queue; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    priority_queue(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Appends an item to those of its priority. Costs, throws and is cancelled as
    /// `queue::enqueue`; only producers of the same priority make it cost more.
    /// @param priority 0 is taken first.
    boost::asio::awaitable<void> enqueue(std::string value, std::uint16_t priority);

    /// Waits for the first item. Two round trips if there is one; otherwise costs, throws and is
    /// cancelled as `queue::dequeue`. An item that is put back is at its old place.
    boost::asio::awaitable<std::string> dequeue();

    /// Takes the first item if there is one now. One round trip if there is none.
    /// @returns Nothing if there is none.
    /// @throws error As `queue::try_dequeue`.
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
#include <coetcd/impl/priority_queue.hpp>
#endif
