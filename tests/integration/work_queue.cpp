// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/session.hpp>
#include <coetcd/work_queue.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <random>
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
using coetcd::errc;
using coetcd::job;
using coetcd::session;
using coetcd::work_queue;
using integration::patient;

namespace {

client connect_to_work(const asio::any_io_executor& executor) {
    coetcd::client_options options;
    options.request_timeout = 60s;
    return client(executor, shared_etcd().url(), options);
}

} // namespace

TEST_CASE("An item goes through all that can happen to it", "[work_queue]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_to_work(executor);
        const std::string name = unique_name("work");
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(c, 30s);
        coetcd::work_options options;
        options.max_attempts = 2;
        work_queue a(one, name, options);
        work_queue b(two, name, options);
        std::optional<job> none = co_await a.try_take();
        CHECK_FALSE(none);
        task<job> waiting(executor, b.take());
        co_await until_count(c, name + ".line/", 1);
        std::vector<std::string> values = {"one", "two", "three"};
        co_await a.enqueue(std::move(values));
        job first = co_await waiting.result();
        CHECK(first.value() == "one");
        CHECK(first.attempt() == 1);
        job second = co_await a.take();
        CHECK(second.value() == "two");
        bool ok = co_await first.retry();
        CHECK(ok);
        job again = co_await a.take();
        CHECK(again.value() == "one");
        CHECK(again.attempt() == 2);
        CHECK(again.token() > first.token());
        ok = co_await first.ack();
        CHECK_FALSE(ok);
        ok = co_await again.retry();
        CHECK(ok);
        const auto dead = co_await b.dead();
        REQUIRE(dead.size() == 1);
        CHECK(dead[0].value == "one");
        CHECK(dead[0].attempts == 2);
        coetcd::work_state now = co_await b.state();
        CHECK(now.ready == 1);
        CHECK(now.busy == 1);
        CHECK(now.dead == 1);
        ok = co_await b.revive(dead[0]);
        CHECK(ok);
        ok = co_await b.erase_dead(dead[0]);
        CHECK_FALSE(ok);
        auto effect = coetcd::txn()
                          .when(coetcd::compare::version(name + ".effect") == 7)
                          .then(coetcd::op::put(name + ".effect", "x"));
        ok = co_await second.ack(std::move(effect));
        CHECK_FALSE(ok);
        CHECK(second.owns());
        effect = coetcd::txn().when(second.is_mine()).then(coetcd::op::put(name + ".effect", "x"));
        ok = co_await second.ack(std::move(effect));
        CHECK(ok);
        for (const char* value : {"three", "one"}) {
            job next = co_await b.take();
            CHECK(next.value() == value);
            ok = co_await next.ack();
            CHECK(ok);
        }
        now = co_await b.state();
        CHECK(now.ready + now.busy + now.dead == 0);
        co_await one.close();
        co_await two.close();
        co_await until_count(c, name, 1); // the effect: nothing else stays
        co_await erase_all(c, name);
    };
    run_test(body, patient(120s));
}

TEST_CASE("Ten thousand items are drained in a time that grows as they do", "[work_queue]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_to_work(executor);
        const std::string name = unique_name("drain");
        session s = co_await open_session(c, 60s);
        work_queue q(s, name);
        constexpr int items = 10'020;
        for (int i = 0; i != items;) {
            std::vector<std::string> batch;
            for (std::size_t k = 0; k != work_queue::max_batch; ++k) {
                batch.push_back(std::to_string(i++));
            }
            co_await q.enqueue(std::move(batch));
        }
        constexpr int parts = 6;
        std::vector<double> took;
        for (int i = 0, part = 1; part <= parts; ++part) {
            const auto begin = clock::now();
            for (; i != items * part / parts; ++i) {
                job next = co_await q.take();
                CHECK(next.value() == std::to_string(i));
                const bool ok = co_await next.ack();
                CHECK(ok);
            }
            took.push_back(static_cast<double>(ms_between(begin, clock::now())));
        }
        std::cout << items << " items drained by one consumer; ms for each sixth:";
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

TEST_CASE("Consumers die, and each effect happens once", "[work_queue]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_to_work(executor);
        const std::string name = unique_name("deadly");
        constexpr int items = 300;
        int done = 0;
        int died = 0;
        int late_acks = 0;
        const auto consumer = [&](unsigned seed) -> awaitable<void> {
            std::mt19937 random(seed);
            coetcd::work_options options;
            options.max_attempts = 1000;
            while (done != items) {
                session s = co_await open_session(c, 60s);
                work_queue q(s, name, options);
                bool lives = true;
                while (lives && done != items) {
                    std::optional<job> next = co_await q.take_for(200ms);
                    if (!next) {
                        continue;
                    }
                    const auto chance = random() % 20;
                    lives = died > 40 || chance != 0;
                    if (!lives) { // and does not know
                        ++died;
                        revoke_by_hand(shared_etcd(), s.lease());
                    } else if (chance == 1) {
                        continue; // nobody says anything about it
                    }
                    const std::string effect = name + ".effect/" + next->value();
                    auto with = coetcd::txn().then(coetcd::op::put(effect, ""));
                    try {
                        const bool ok = co_await next->ack(std::move(with));
                        done += ok ? 1 : 0;
                        late_acks += ok ? 0 : 1;
                        CHECK(ok == lives);
                    } catch (const coetcd::error& e) {
                        CHECK_FALSE(lives);
                        ++late_acks;
                    }
                }
                co_await s.close();
            }
        };
        session producing = co_await open_session(c, 60s);
        work_queue to(producing, name);
        std::vector<awaitable<void>> all;
        for (unsigned i = 0; i != 8; ++i) {
            all.push_back(consumer(i));
        }
        const auto producer = [&]() -> awaitable<void> {
            for (int i = 0; i != items; ++i) {
                co_await to.enqueue(std::to_string(i));
            }
        };
        all.push_back(producer());
        co_await run_all(std::move(all));
        std::cout << items << " items, " << died << " consumers died with one\n";
        CHECK(died > 5);
        CHECK(late_acks == died);
        const coetcd::range_response effects =
            co_await c.range(coetcd::key_range::prefix(name + ".effect/"));
        CHECK(effects.kvs.size() == items);
        CHECK(std::all_of(effects.kvs.begin(), effects.kvs.end(), [](const auto& kv) {
            return kv.version == 1;
        }));
        const coetcd::work_state now = co_await to.state();
        CHECK(now.ready + now.busy + now.dead == 0);
        co_await producing.close();
        co_await erase_all(c, name);
    };
    run_test(body, patient(300s));
}

TEST_CASE("Producers and consumers of several sessions keep the order", "[work_queue]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_to_work(executor);
        const std::string name = unique_name("order");
        constexpr int each = 60;
        constexpr int producers = 5;
        std::vector<session> sessions;
        std::vector<work_queue> queues;
        for (int i = 0; i != producers; ++i) {
            session s = co_await open_session(c, 60s);
            queues.emplace_back(s, name);
            sessions.push_back(std::move(s));
        }
        int taken = 0;
        std::map<std::string, std::int64_t> token_of;
        const auto produce = [&](int by) -> awaitable<void> {
            for (int i = 0; i != each; ++i) {
                co_await queues[static_cast<std::size_t>(by)].enqueue(
                    std::to_string(by * each + i));
            }
        };
        const auto consume = [&](int by) -> awaitable<void> {
            work_queue& q = queues[static_cast<std::size_t>(by)];
            while (taken != each * producers) {
                std::optional<job> next = co_await q.take_for(50ms);
                if (next) {
                    ++taken;
                    CHECK(next->attempt() == 1);
                    token_of[next->value()] = next->token();
                    const bool ok = co_await next->ack();
                    CHECK(ok);
                }
            }
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i != producers; ++i) {
            all.push_back(produce(i));
            all.push_back(consume(i));
        }
        const auto begin = clock::now();
        co_await run_all(std::move(all));
        std::cout << each * producers << " items of 5 producers, taken by 5 consumers: "
                  << ms_between(begin, clock::now()) << " ms\n";
        CHECK(token_of.size() == each * producers);
        for (int by = 0; by != producers; ++by) {
            for (int i = 1; i != each; ++i) {
                // The producer had begun this one when the one before was there.
                CHECK(token_of[std::to_string(by * each + i - 1)] <
                      token_of[std::to_string(by * each + i)]);
            }
        }
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, name, 0);
    };
    run_test(body, patient(120s));
}
