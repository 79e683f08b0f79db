// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/priority_queue.hpp>
#include <coetcd/queue.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::queue;
using coetcd::session;
using integration::connect;
using integration::patient;

TEST_CASE("Values go through a queue in order, and nothing else stays", "[queue]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("queue");
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(c, 30s);
        queue a(one, name);
        queue b(two, name);
        std::optional<std::string> none = co_await a.try_dequeue();
        CHECK(!none);
        task<std::string> waiting(executor, b.dequeue());
        co_await until_count(c, "." + name + ".line/", 1);
        std::vector<std::string> values = {"1", "2", "3"};
        co_await a.enqueue(std::move(values));
        co_await b.enqueue(std::string("4"));
        const std::string first = co_await waiting.result();
        CHECK(first == "1");
        const auto size = co_await a.size();
        CHECK(size == 3);
        for (const char* value : {"2", "3", "4"}) {
            const std::string next = co_await a.dequeue();
            CHECK(next == value);
        }
        none = co_await b.dequeue_for(100ms);
        CHECK(!none);
        co_await one.close();
        co_await two.close();
        co_await until_count(c, name, 0);
        co_await until_count(c, "." + name, 0);
    });
}

TEST_CASE("Each item of a queue is handed out once, while etcd dies and calls are cancelled",
          "[queue]") {
    const auto body = []() -> awaitable<void> {
        etcd_server own;
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.request_timeout = 60s;
        const client c(executor, own.url(), options);
        constexpr int items = 300;
        std::map<std::string, int> seen;
        int handed_out = 0;
        int cancelled = 0;
        std::vector<session> sessions;
        std::vector<queue> all;
        for (int i = 0; i != 4; ++i) {
            sessions.push_back(co_await open_session(c, 60s));
            all.emplace_back(sessions.back(), "q");
        }
        const auto consumer = [&](queue& q, int every) -> awaitable<void> {
            for (int round = 0; handed_out != items; ++round) {
                task<std::optional<std::string>> taking(executor, q.dequeue_for(200ms));
                if (round % every == 0) {
                    co_await yield(round % 40); // at another moment each time
                    cancelled += taking.done() ? 0 : 1;
                    taking.cancel();
                }
                std::optional<std::string> value;
                try {
                    value = co_await taking.result();
                } catch (const boost::system::system_error& e) {
                    const bool was_away = e.code() == coetcd::condition::retryable; // all the time
                    const bool was_cancelled = e.code() == asio::error::operation_aborted;
                    CHECK((was_away || was_cancelled));
                }
                if (value) {
                    ++seen[*value];
                    ++handed_out;
                }
            }
        };
        std::vector<task<void>> running;
        for (int i = 0; i != 3; ++i) {
            running.emplace_back(executor, consumer(all[static_cast<std::size_t>(i)], 2 + i));
        }
        for (int i = 0; i != items; ++i) {
            if (i % 100 == 50) {
                own.kill();
                own.start();
            }
            co_await all.back().enqueue(std::to_string(i));
        }
        for (auto& each : running) {
            co_await each.result();
        }
        std::cout << cancelled << " calls were cancelled\n";
        CHECK(cancelled > 0);
        CHECK(seen.size() == items);
        for (const auto& [value, times] : seen) {
            CHECK(times == 1);
        }
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, "q", 0);
    };
    run_test(body, patient(120s));
}

TEST_CASE("A long queue is drained in a time that grows as it does", "[queue]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("long");
        session s = co_await open_session(c, 60s);
        queue q(s, name);
        constexpr int items = 10'020;
        for (int i = 0; i != items;) {
            std::vector<std::string> batch;
            for (std::size_t k = 0; k != queue::max_batch; ++k) {
                batch.push_back(std::to_string(i++));
            }
            co_await q.enqueue(std::move(batch));
        }
        constexpr int parts = 6;
        std::vector<double> took;
        for (int i = 0, part = 1; part <= parts; ++part) {
            const auto begin = clock::now();
            for (; i != items * part / parts; ++i) {
                const std::string next = co_await q.dequeue();
                CHECK(next == std::to_string(i));
            }
            took.push_back(static_cast<double>(ms_between(begin, clock::now())));
        }
        std::cout << items << " values drained by one consumer; ms for each sixth:";
        for (const double ms : took) {
            std::cout << " " << ms;
        }
        std::cout << "\n";
        // It would be 11 times the fastest one if the time grew with the square.
        const auto [least, most] = std::minmax_element(took.begin(), took.end());
        CHECK(*most < 4 * *least);
        co_await s.close();
        co_await until_count(c, name, 0);
    };
    run_test(body, patient(300s));
}

TEST_CASE("A priority queue gives the most urgent item first, and each once", "[priority_queue]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("urgent");
        session one = co_await open_session(c, 60s);
        session two = co_await open_session(c, 60s);
        coetcd::priority_queue a(one, name);
        coetcd::priority_queue b(two, name);
        task<std::string> waiting(executor, b.dequeue());
        co_await until_count(c, "." + name + ".line/", 1);
        co_await a.enqueue("first", 9);
        const std::string first = co_await waiting.result();
        CHECK(first == "first");
        constexpr int items = 120;
        for (int i = 0; i != items; ++i) {
            const int priority = i * 37 % 10; // 12 of each
            coetcd::priority_queue& by = i % 3 == 0 ? a : b;
            co_await by.enqueue(std::to_string(priority), static_cast<std::uint16_t>(priority));
        }
        for (int i = 0; i != items / 2; ++i) {
            coetcd::priority_queue& by = i % 2 == 0 ? a : b;
            const std::string next = co_await by.dequeue();
            CHECK(next == std::to_string(i / 12));
        }
        co_await b.enqueue("now", 0);
        const std::string now = co_await a.dequeue();
        CHECK(now == "now");
        int taken = 0;
        const auto take_all = [&](coetcd::priority_queue q) -> awaitable<void> {
            std::string last;
            for (;;) {
                const std::optional<std::string> next = co_await q.try_dequeue();
                if (!next) {
                    break;
                }
                CHECK(*next >= last);
                last = *next;
                ++taken;
            }
        };
        std::vector<awaitable<void>> both;
        both.push_back(take_all(std::move(a)));
        both.push_back(take_all(std::move(b)));
        co_await run_all(std::move(both));
        CHECK(taken == items / 2);
        co_await one.close();
        co_await two.close();
        co_await until_count(c, name, 0);
        co_await until_count(c, "." + name, 0);
    };
    run_test(body, patient(120s));
}
