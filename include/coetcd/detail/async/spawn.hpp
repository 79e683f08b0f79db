// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <exception>
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
inline void spawn(env& world, asio::awaitable<void> work) {
    asio::co_spawn(world.executor(), std::move(work), rethrow_defect());
}

/// Calls `f` when the handler that is running has ended.
template<class F>
void defer(env& world, F f) {
    asio::post(world.executor(), std::move(f));
}

} // namespace coetcd::detail
