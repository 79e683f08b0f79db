// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <exception>
#include <functional>
#include <utility>

namespace coetcd::detail {

/// Takes the end of background work. Cancellation is a regular end; any other exception is a defect
/// or a lack of memory, and goes to the caller of the executor.
struct rethrow_defect {
    void operator()(std::exception_ptr failure) const {
        try {
            if (failure) {
                std::rethrow_exception(failure);
            }
        } catch (const boost::system::system_error& e) {
            if (e.code() != asio::error::operation_aborted) {
                throw;
            }
        }
    }
};

/// The end of work that can be cancelled. It names no executor: otherwise Asio 1.26 would pass each
/// cancellation on by an address that may be gone when it gets there.
struct cancellable_end {
    using cancellation_slot_type = asio::cancellation_slot;
    cancellation_slot_type get_cancellation_slot() const noexcept { return stop; }
    void operator()(std::exception_ptr failure) { at_end(std::move(failure)); }

    asio::cancellation_slot stop;
    std::function<void(std::exception_ptr)> at_end;
};

/// Runs `work`, which owns what it needs, by itself.
/// @param stop Cancels `work`; to be used where that runs.
inline void spawn(const asio::any_io_executor& where,
                  asio::awaitable<void> work,
                  asio::cancellation_slot stop,
                  std::function<void(std::exception_ptr)> at_end) {
    cancellable_end end{stop, std::move(at_end)};
    asio::co_spawn(where, std::move(work), std::move(end));
}
inline void spawn(env& world, asio::awaitable<void> work) {
    spawn(world.executor(), std::move(work), asio::cancellation_slot(), rethrow_defect());
}

/// Like `asio::post`, but compiled once, not for each type of `f`.
inline void post(const asio::any_io_executor& where, std::function<void()> f) {
    asio::post(where, std::move(f));
}

/// Calls `f` when the handler that is running has ended.
inline void defer(env& world, std::function<void()> f) {
    post(world.executor(), std::move(f));
}

} // namespace coetcd::detail
