// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/barrier.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/until_told.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace coetcd::detail {

/// @param lease 0 for a barrier that outlives the session.
inline asio::awaitable<bool> hold_barrier(std::shared_ptr<const named_recipe> by, lease_id lease) {
    once_writer writer(by->session, by->name, by->title);
    txn closes = logic::close_barrier(by->name, lease);
    const once_end end =
        co_await writer.apply(std::move(closes), once_writer::form::plain, by->within());
    co_return end.applied;
}

/// If the key is not there any more when it is to be erased, somebody else has opened the barrier
/// meanwhile.
inline asio::awaitable<bool> release_barrier(std::shared_ptr<const named_recipe> by) {
    const call_terms how = by->within();
    const range_request look(by->name, logic::transactions::keys_only());
    const outcome<range_response> seen = co_await call(by->session->owner, look, how);
    seen.check();
    const std::int64_t life = logic::life_in(seen.response);
    if (life == 0) {
        co_return false;
    }
    const txn opens = logic::open_barrier(by->name, life);
    const outcome<txn_response> opened =
        co_await call(by->session->owner, opens, how.as(impact::idempotent));
    opened.check();
    co_return true;
}

inline asio::awaitable<bool> wait_at_barrier_until(std::shared_ptr<const named_recipe> by,
                                                   time_point deadline) {
    logic::barrier_watcher watcher;
    std::function<bool(const std::int64_t&)> may_pass = [&watcher](const std::int64_t& life) {
        return watcher.may_pass(life);
    };
    auto question = logic::barrier_now(by->title, by->name);
    auto waiting = until_told(by->session->owner,
                              by->session->request_timeout,
                              std::move(question),
                              std::move(may_pass),
                              deadline);
    const bool passed = co_await std::move(waiting);
    co_return passed;
}

inline asio::awaitable<void> wait_at_barrier(std::shared_ptr<const named_recipe> by) {
    (void)co_await wait_at_barrier_until(std::move(by), time_point::max());
}

} // namespace coetcd::detail
