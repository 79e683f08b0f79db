// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"

namespace support {

/// A lock with the name `herd`, or something like it, that one session can have at a time.
template<class Lock, class Held>
struct herd {
    std::function<Lock(const coetcd::session&)> make;
    std::function<boost::asio::awaitable<Held>(Lock&)> take;
    std::function<boost::asio::awaitable<bool>(Held&)> give_back;
    std::string keys;    ///< Where the keys of those are that wait.
    std::size_t ours;    ///< How many keys the one that has it has there.
    double watches;      ///< Of each waiter.
    double more_watches; ///< Than these.
    double events;       ///< That one end tells, and one grant, at most.
};

/// Five hundred sessions wait for what another one has. When that gives it back, one of them has
/// it, and etcd tells at most one other.
template<class Lock, class Held>
boost::asio::awaitable<void> one_of_a_herd_wakes(const etcd_server& etcd, herd<Lock, Held> all) {
    using namespace std::chrono_literals;
    const auto executor = co_await boost::asio::this_coro::executor;
    coetcd::client_options options;
    options.request_timeout = 60s;
    const coetcd::client c(executor, etcd.url(), options);
    constexpr std::size_t crowd = 500;
    const std::string watched = "etcd_debugging_mvcc_watcher_total";
    const double others = co_await metric(etcd.port(), watched);
    const coetcd::session first = co_await open_session(c, 60s);
    Lock gate = all.make(first);
    Held held = co_await all.take(gate);
    std::vector<coetcd::session> sessions;
    std::vector<Lock> locks;
    for (std::size_t i = 0; i != crowd; ++i) {
        coetcd::session s = co_await open_session(c, 60s);
        locks.push_back(all.make(s));
        sessions.push_back(std::move(s));
    }
    std::vector<task<Held>> waiting;
    for (Lock& l : locks) {
        waiting.emplace_back(executor, all.take(l));
    }
    co_await until_count(c, all.keys, static_cast<std::int64_t>(crowd + all.ours), 30s);
    const auto watchers = [&]() -> boost::asio::awaitable<bool> {
        const double now = co_await metric(etcd.port(), watched);
        co_return now == others + all.watches* crowd + all.more_watches;
    };
    co_await eventually(watchers, 30s, "all watch");
    const std::string events = "etcd_debugging_mvcc_events_total";
    const double before = co_await metric(etcd.port(), events);
    const bool was_ours = co_await all.give_back(held);
    CHECK(was_ours);
    const auto granted = [&]() -> boost::asio::awaitable<bool> {
        co_return std::any_of(
            waiting.begin(), waiting.end(), [](const auto& t) { return t.done(); });
    };
    co_await eventually(granted, 5s, "one of them has it");
    co_await sleep_for(500ms); // what else may happen
    const double after = co_await metric(etcd.port(), events);
    CHECK(after - before <= all.events);
    const auto n =
        std::count_if(waiting.begin(), waiting.end(), [](const auto& t) { return t.done(); });
    CHECK(n == 1);
    for (auto& t : waiting) {
        t.cancel();
    }
    for (auto& t : waiting) {
        (void)co_await t.how_it_ended();
    }
    co_await until_count(c, all.keys, 0, 30s);
}

} // namespace support
