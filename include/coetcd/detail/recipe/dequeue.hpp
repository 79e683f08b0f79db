// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/recipe/queue.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// What the public queues do to take an item.
namespace coetcd::detail {

inline asio::awaitable<queue_impl::taken>
keep_until_handed_over(const queue_impl& q, asio::awaitable<queue_impl::taken> taking) {
    std::function<void(queue_impl::taken)> put_back = [](const queue_impl::taken& item) {
        if (item) {
            item_taking::drop(item);
        }
    };
    return go_home_and_back<queue_impl::taken>(
        q.of->session().world.executor(), std::move(taking), std::move(put_back));
}

inline asio::awaitable<std::optional<std::string>>
value_if_any(asio::awaitable<queue_impl::taken> taking) {
    const queue_impl::taken item = co_await std::move(taking);
    std::optional<std::string> value;
    if (item) {
        value = item->what.value;
    }
    co_return value;
}
inline asio::awaitable<std::string> value_of(asio::awaitable<queue_impl::taken> taking) {
    const queue_impl::taken item = co_await std::move(taking);
    co_return item->what.value;
}

inline asio::awaitable<std::string> dequeue(const std::shared_ptr<queue_impl>& from) {
    return value_of(keep_until_handed_over(*from, queue_impl::take(from, time_point::max())));
}
inline asio::awaitable<std::optional<std::string>>
try_dequeue(const std::shared_ptr<queue_impl>& from) {
    return value_if_any(keep_until_handed_over(*from, queue_impl::try_take(from)));
}
inline asio::awaitable<std::optional<std::string>>
dequeue_for(const std::shared_ptr<queue_impl>& from, std::chrono::nanoseconds patience) {
    if (patience.count() <= 0) {
        return try_dequeue(from);
    }
    const time_point deadline = after(from->of->session().world.now(), patience);
    return value_if_any(keep_until_handed_over(*from, queue_impl::take(from, deadline)));
}

} // namespace coetcd::detail
