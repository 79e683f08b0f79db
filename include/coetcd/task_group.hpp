// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>

namespace coetcd {

namespace detail {
class tasks;
} // namespace detail

/// Coroutines that run by themselves, such as those that serve requests, and their orderly end: the
/// group takes no more, lets those that run finish until a deadline, and cancels the rest.
///
/// Destroying it cancels all of them and does not wait: what the coroutines refer to must live
/// until they have ended. Await `shutdown` first.
///
/// @par Thread safety
/// As `client`; all functions but moves and the destructor may be called by any thread at any time,
/// and by the coroutines themselves.
class [[nodiscard]] task_group {
public:
    using executor_type = boost::asio::any_io_executor;

    /// @param owner The client whose clock and executor it uses; it may be destroyed first.
    explicit task_group(const client& owner);

    task_group(task_group&&) noexcept = default;
    task_group& operator=(task_group&&) noexcept;
    ~task_group();

    /// The client's executor.
    executor_type get_executor() const;

    /// Runs `work` by itself, on `where`, or, if that is neither a strand nor the executor of an
    /// `io_context`, on a strand of its own there. Exactly one thread must run such an
    /// `io_context`. `work` begins after this call. It should handle its failures: an exception
    /// that escapes, other than `operation_aborted`, goes to the caller of the executor's `run`,
    /// and on a thread pool ends the program.
    /// @returns False if no more are taken: `work` is destroyed, and does not begin.
    bool spawn(executor_type where, boost::asio::awaitable<void> work);

    /// How many have not ended.
    std::size_t size() const;

    /// Takes no more, and waits until all have ended. Those that have not after `patience` are
    /// cancelled (`terminal`), and awaited all the same: one that ignores it holds up this call.
    ///
    /// It takes effect at the call. If there are several calls at a time, each cancels when its own
    /// `patience` is over. A coroutine of the group must not await it: it would wait for itself.
    ///
    /// @returns How many were cancelled.
    /// @par Cancellation
    /// `terminal`. No more are taken; the others keep running.
    boost::asio::awaitable<std::size_t> shutdown(std::chrono::nanoseconds patience);

private:
    detail::handle<detail::tasks> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/task_group.hpp>
#endif
