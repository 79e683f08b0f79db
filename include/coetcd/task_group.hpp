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

/// Coroutines that run by themselves, as those that serve the requests of a server, and their
/// orderly end: no more are taken, those that run may finish until a deadline, and the rest is
/// cancelled.
///
/// Destroying it takes no more and cancels all, and does not wait: what the coroutines refer to
/// must live until they have ended. Await `shutdown` first.
///
/// @par Thread safety
/// As `client`; all functions but moves and the destructor may be called by any thread at any time,
/// and by the coroutines themselves.
class [[nodiscard]] task_group {
public:
    using executor_type = boost::asio::any_io_executor;

    /// @param owner Whose clock and executor it uses; it may be destroyed first.
    explicit task_group(const client& owner);

    task_group(task_group&&) noexcept = default;
    task_group& operator=(task_group&&) noexcept;
    ~task_group();

    /// The client's executor.
    executor_type get_executor() const;

    /// Runs `work` by itself, on `where`; on a strand of its own there, if that is neither a strand
    /// nor an `io_context`, which one thread has to run. It begins after this call. It should
    /// handle its failures: an exception that escapes, other than `operation_aborted`, goes to the
    /// caller of the executor's `run`, and on a thread pool ends the program.
    /// @returns False if no more are taken: `work` is destroyed, and does not begin.
    bool spawn(executor_type where, boost::asio::awaitable<void> work);

    /// How many have not ended.
    std::size_t size() const;

    /// Takes no more, and waits until all have ended. Those that have not after `patience` are
    /// cancelled (`terminal`), and awaited all the same: one that ignores it holds up this call.
    ///
    /// It takes effect at the call. Of several calls at a time each cancels when its patience is
    /// over. Not to be awaited by a coroutine of the group: it would wait for itself.
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
