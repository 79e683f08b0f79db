// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "support/async.hpp"
#include "support/etcd_server.hpp"
#include "support/run_test.hpp"

/// What the tests against the etcd that they share begin with.
namespace integration {

inline coetcd::client connect(const boost::asio::any_io_executor& executor,
                              coetcd::client_options options = {}) {
    return coetcd::client(executor, support::shared_etcd().url(), std::move(options));
}

/// For a body that takes longer than most.
inline support::run_options patient(std::chrono::seconds timeout) {
    support::run_options options;
    options.timeout = timeout;
    return options;
}

/// Waits until so many wait for the lock, besides its holder.
inline boost::asio::awaitable<void> until_waiting(const coetcd::mutex& m, std::size_t n) {
    auto there = [&m, n]() -> boost::asio::awaitable<bool> {
        const auto waiting = co_await m.waiters();
        co_return waiting.size() == n;
    };
    co_await support::eventually(
        there, std::chrono::seconds(5), std::to_string(n) + " wait for " + m.name());
}

/// Not atomic: if two run at the same time, one of their updates is lost.
inline boost::asio::awaitable<void> raise(coetcd::client c, std::string counter) {
    const auto before = co_await c.get(counter);
    const int value = before ? std::stoi(before->value) : 0;
    (void)co_await c.put(counter, std::to_string(value + 1));
}

inline boost::asio::awaitable<int> read(coetcd::client c, std::string counter) {
    const auto kv = co_await c.get(counter);
    co_return kv ? std::stoi(kv->value) : 0;
}

} // namespace integration
