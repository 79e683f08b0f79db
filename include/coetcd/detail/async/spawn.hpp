// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <exception>
#include <functional>
#include <utility>

namespace coetcd::detail {

/// Takes the end of background work. Cancellation is a regular end; what else escapes is a defect
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

/// Runs `work` by itself. It owns what it needs.
/// @param stop Cancels it.
inline void spawn(const asio::any_io_executor& where,
                  asio::awaitable<void> work,
                  asio::cancellation_slot stop,
                  std::function<void(std::exception_ptr)> at_end) {
    auto token = asio::bind_cancellation_slot(stop, std::move(at_end));
    asio::co_spawn(where, std::move(work), std::move(token));
}
inline void spawn(env& world, asio::awaitable<void> work) {
    spawn(world.executor(), std::move(work), asio::cancellation_slot(), rethrow_defect());
}

/// As `asio::post`, but compiled once, not for each type of `f`.
inline void post(const asio::any_io_executor& where, std::function<void()> f) {
    asio::post(where, std::move(f));
}

/// Calls `f` when the handler that is running has ended.
inline void defer(env& world, std::function<void()> f) {
    post(world.executor(), std::move(f));
}

} // namespace coetcd::detail
