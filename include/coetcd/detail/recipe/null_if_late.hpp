// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <utility>

namespace coetcd::detail {

/// What `waiting` returns; null if it ends because `deadline` came first, and etcd has answered
/// something before.
/// @param answers How many answers there have been. Must outlive the call.
template<class Pointer>
asio::awaitable<Pointer> null_if_late(env& world,
                                      asio::awaitable<Pointer> waiting,
                                      time_point deadline,
                                      const std::uint64_t& answers) {
    const std::uint64_t before = answers;
    Pointer found;
    try {
        found = co_await std::move(waiting);
    } catch (const error& e) {
        const bool is_late = world.now() >= deadline;
        const bool had_none = e.code() == errc::timed_out || e.code() == errc::unavailable;
        if (!is_late || !had_none || answers == before) {
            throw;
        }
    }
    co_return found;
}

} // namespace coetcd::detail
