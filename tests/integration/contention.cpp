// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/io_context.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
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
#include "support/process.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::held_lock;
using coetcd::session;
using integration::connect;
using integration::patient;
using integration::raise;
using integration::read;

TEST_CASE("A thousand coroutines of one session raise a counter without a lost update",
          "[contention]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.request_timeout = 60s;
        const client c(executor, shared_etcd().url(), options);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("counter");
        coetcd::mutex shared(s, name); // half of them share an object, half have their own
        const auto one = [&](int i) -> awaitable<void> {
            if (i % 2 == 0) {
                held_lock held = co_await shared.scoped_lock();
                co_await raise(c, name + "-n");
                const bool ours = co_await held.unlock();
                CHECK(ours);
            } else {
                coetcd::mutex own(s, name);
                co_await own.lock();
                co_await raise(c, name + "-n");
                const bool ours = co_await own.unlock();
                CHECK(ours);
            }
        };
        const auto start = clock::now();
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 1000; ++i) {
            all.push_back(one(i));
        }
        co_await run_all(std::move(all));
        std::cout << "1,000 coroutines of one session, each: lock, get, put, unlock: "
                  << ms_between(start, clock::now()) << " ms\n";
        const int raised = co_await read(c, name + "-n");
        CHECK(raised == 1000);
        const auto left = co_await count(c, name + "/");
        CHECK(left == 0);
        co_await s.close();
        co_await erase_all(c, name);
    };
    run_test(body, patient(180s));
}

TEST_CASE("Two hundred sessions of one client raise a counter without a lost update",
          "[contention]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.request_timeout = 60s;
        const client c(executor, shared_etcd().url(), options);
        const std::string name = unique_name("counter");
        const auto one = [&]() -> awaitable<void> {
            session s = co_await open_session(c, 30s);
            coetcd::mutex m(s, name);
            for (int i = 0; i < 3; ++i) {
                co_await m.lock();
                co_await raise(c, name + "-n");
                const bool ours = co_await m.unlock();
                CHECK(ours);
            }
            co_await s.close();
        };
        const auto start = clock::now();
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 200; ++i) {
            all.push_back(one());
        }
        co_await run_all(std::move(all));
        std::cout << "200 sessions of one client, each 3 times: lock, get, put, unlock: "
                  << ms_between(start, clock::now()) << " ms\n";
        const int raised = co_await read(c, name + "-n");
        CHECK(raised == 600);
        const auto left = co_await count(c, name + "/");
        CHECK(left == 0);
        co_await erase_all(c, name);
    };
    run_test(body, patient(180s));
}

TEST_CASE("Coroutines and etcdctl processes raise a counter without a lost update",
          "[contention][etcdctl]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("mixed");
        const std::string counter = name + "-n";
        const etcd_server& etcd = shared_etcd();
        const std::string ctl = "etcdctl --endpoints=" + etcd.url();
        const std::string script = "n=$(" + ctl + " get --print-value-only " + counter + ") && " +
                                   ctl + " put " + counter + " $((n + 1))";
        std::vector<background_process> processes;
        for (int i = 0; i < 8; ++i) {
            processes.push_back(etcd.background_etcdctl({"lock", name, "--", "sh", "-c", script}));
        }
        const auto one = [&]() -> awaitable<void> {
            session s = co_await open_session(c, 30s);
            coetcd::mutex m(s, name);
            for (int i = 0; i < 10; ++i) {
                co_await m.lock();
                co_await raise(c, counter);
                (void)co_await m.unlock();
            }
            co_await s.close();
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 4; ++i) {
            all.push_back(one());
        }
        co_await run_all(std::move(all));
        for (auto& p : processes) {
            const int code = co_await p.async_wait();
            CHECK(code == 0);
        }
        const int raised = co_await read(c, counter);
        CHECK(raised == 8 + 40);
        co_await erase_all(c, name);
    };
    run_test(body);
}

TEST_CASE("A lock is granted in the order of arrival", "[contention]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("fifo");
        session first = co_await open_session(c, 30s);
        coetcd::mutex gate(first, name);
        co_await gate.lock();

        // By etcd's order among sessions, ...
        std::vector<session> sessions;
        std::vector<coetcd::mutex> mutexes;
        for (int i = 0; i < 40; ++i) {
            session s = co_await open_session(c, 30s);
            mutexes.emplace_back(s, name);
            sessions.push_back(std::move(s));
        }
        std::vector<std::int64_t> tokens;
        const auto one = [&](coetcd::mutex& m) -> awaitable<void> {
            co_await m.lock();
            tokens.push_back(m.fencing_token());
            (void)co_await m.unlock();
        };
        std::vector<task<void>> waiting;
        for (coetcd::mutex& m : mutexes) {
            waiting.emplace_back(executor, one(m));
        }
        co_await until_count(c, name + "/", 41);
        const auto queue = co_await gate.waiters();
        (void)co_await gate.unlock();
        for (auto& t : waiting) {
            co_await t.result();
        }
        std::vector<std::int64_t> expected;
        for (const auto& entry : queue) {
            expected.push_back(entry.fencing_token);
        }
        CHECK(std::is_sorted(expected.begin(), expected.end()));
        CHECK(tokens == expected);

        // ... and by ours within one.
        co_await gate.lock();
        std::vector<int> order;
        const auto member = [&](int i) -> awaitable<void> {
            coetcd::mutex m(first, name);
            co_await m.lock();
            order.push_back(i);
            (void)co_await m.unlock();
        };
        std::vector<task<void>> members;
        for (int i = 0; i < 40; ++i) {
            members.emplace_back(executor, member(i));
        }
        co_await yield(20);
        CHECK(order.empty());
        (void)co_await gate.unlock();
        for (auto& t : members) {
            co_await t.result();
        }
        CHECK(order.size() == 40);
        CHECK(std::is_sorted(order.begin(), order.end()));
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await first.close();
    };
    run_test(body);
}

TEST_CASE("Three thousand cancels at random moments of lock() leave no key", "[contention]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("cancels");
        constexpr std::size_t n_sessions = 4;
        constexpr std::size_t n_workers = 24;
        std::vector<session> sessions;
        for (std::size_t i = 0; i < n_sessions; ++i) {
            session s = co_await open_session(c, 60s);
            sessions.push_back(std::move(s));
        }
        // Half of them compete for three locks, half have one of their own.
        const auto is_alone = [](std::size_t worker) { return worker % 2 == 0; };
        const auto lock_name = [&](std::size_t worker) {
            return name + "/" + std::to_string(is_alone(worker) ? worker : worker % 3) + "/lock";
        };
        std::mt19937 random(1);
        int cancelled = 0;
        int granted = 0;
        const auto one = [&](std::size_t worker) -> awaitable<void> {
            while (cancelled < 3000) {
                coetcd::mutex m(sessions[worker % n_sessions], lock_name(worker));
                task<void> lock(executor, m.lock());
                // From before the first request to long after the lock may be ours.
                if (worker % 4 < 2) {
                    co_await yield(std::uniform_int_distribution<int>(0, 60)(random));
                } else {
                    const double digits = std::uniform_real_distribution<double>(0, 5)(random);
                    co_await sleep_for(
                        std::chrono::microseconds(std::lround(std::pow(10, digits))));
                }
                lock.cancel();
                const auto e = co_await lock.how_it_ended();
                if (e.code) {
                    REQUIRE(e.code == asio::error::operation_aborted);
                    ++cancelled;
                } else {
                    ++granted;
                    (void)co_await m.unlock();
                }
            }
        };
        std::vector<awaitable<void>> all;
        for (std::size_t i = 0; i < n_workers; ++i) {
            all.push_back(one(i));
        }
        co_await run_all(std::move(all));
        std::cout << "cancelled: " << cancelled << ", granted before that: " << granted << '\n';
        CHECK(granted > 50);
        for (std::size_t i = 0; i < n_workers; ++i) {
            co_await until_count(c, lock_name(i) + "/", 0, 10s);
        }
        for (const session& s : sessions) {
            CHECK(s.state() == coetcd::session_state::active);
            for (std::size_t i = 0; i < n_workers; ++i) {
                coetcd::mutex m(s, lock_name(i));
                const bool free = co_await m.try_lock();
                CHECK(free);
                (void)co_await m.unlock();
            }
        }
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, name, 0);
    };
    run_test(body, patient(180s));
}

namespace {

/// Starts all there is to start, and destroys it in some order, at some moment.
awaitable<void> wreck(std::string name, unsigned seed) {
    const auto executor = co_await asio::this_coro::executor;
    // Not counted with what is left: a put may arrive after all else, and has no lease.
    const std::string value = "value of " + name;
    std::mt19937 random(seed);
    const auto up_to = [&](int most) {
        return std::uniform_int_distribution<int>(0, most)(random);
    };

    std::optional<client> c(connect(executor));
    std::optional<session> s1;
    std::optional<session> s2;
    {
        session opened = co_await open_session(*c, 10s);
        s1.emplace(std::move(opened));
        session other = co_await open_session(*c, 10s);
        s2.emplace(std::move(other));
    }
    std::optional<coetcd::mutex> m1(std::in_place, *s1, name);
    std::optional<coetcd::mutex> m2(std::in_place, *s2, name);
    std::optional<coetcd::mutex> m3(std::in_place, *s2, name + "-other");
    std::optional<held_lock> guard;
    {
        held_lock held = co_await m3->scoped_lock();
        guard.emplace(std::move(held));
    }
    std::optional<coetcd::watcher> w;
    {
        coetcd::watcher watching = co_await c->watch(value);
        w.emplace(std::move(watching));
    }
    if (up_to(1) == 0) {
        co_await m1->lock();
    }

    const auto until_cancelled = []() -> awaitable<void> { co_await sleep_for(1h); };
    std::vector<task<void>> under_way;
    const auto start = [&](awaitable<void> work) {
        under_way.emplace_back(executor, std::move(work));
    };
    const std::vector<std::function<void()>> starts{
        [&] { start(m1->lock()); },
        [&] { start(m2->lock()); },
        [&] { start(discard(m2->try_lock())); },
        [&] { start(discard(m2->try_lock_for(1h))); },
        [&] { start(discard(m1->scoped_lock())); },
        [&] { start(discard(m1->unlock())); },
        [&] { start(discard(guard->unlock())); },
        [&] { start(coetcd::with_lock(*m2, until_cancelled)); },
        [&] { start(coetcd::with_lock(*m3, until_cancelled)); },
        [&] { start(discard(m1->holder())); },
        [&] { start(discard(s1->wait_lost())); },
        [&] { start(discard(w->next())); },
        [&] { start(discard(c->put(value, "v"))); },
        [&] { start(discard(c->watch(value))); },
        [&] { start(discard(session::open(*c))); },
    };
    for (int i = up_to(10); i >= 0; --i) {
        starts[static_cast<std::size_t>(up_to(static_cast<int>(starts.size()) - 1))]();
        co_await yield(up_to(3));
    }
    co_await yield(up_to(30));

    std::vector<std::function<void()>> ends{
        [&] { c.reset(); },
        [&] { s1.reset(); },
        [&] { s2.reset(); },
        [&] { m1.reset(); },
        [&] { m2.reset(); },
        [&] { m3.reset(); },
        [&] { guard.reset(); },
        [&] { w.reset(); },
        [&] { under_way[static_cast<std::size_t>(up_to(100)) % under_way.size()].cancel(); },
    };
    std::shuffle(ends.begin(), ends.end(), random);
    for (const auto& end : ends) {
        end();
        co_await yield(up_to(5));
    }
    for (auto& t : under_way) {
        const auto e = co_await t.how_it_ended();
        INFO(e.text);
        CHECK((!e.code || e.code == asio::error::operation_aborted ||
               e.code == coetcd::condition::ownership_lost));
    }
}

} // namespace

TEST_CASE("Everything may be destroyed in any order, at any moment", "[contention][destroy]") {
    const std::string name = unique_name("wreck");
    for (unsigned seed = 1; seed <= 150; ++seed) {
        INFO("seed " << seed);
        const auto body = [&]() -> awaitable<void> {
            co_await wreck(name + "-" + std::to_string(seed), seed);
        };
        run_test(body);
    }
    const auto nothing_left = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        co_await until_count(connect(executor), name, 0, 5s);
    };
    run_test(nothing_left);
}

TEST_CASE("The io_context may be destroyed while everything is under way",
          "[contention][destroy]") {
    const std::string name = unique_name("abandoned");
    int completed = 0;
    const auto everything = [&](std::string lock) -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s1 = co_await open_session(c, 2s);
        session s2 = co_await open_session(c, 2s);
        coetcd::watcher w = co_await c.watch(lock);
        coetcd::mutex m1(s1, lock);
        coetcd::mutex m2(s2, lock);
        co_await m1.lock();
        const auto forever = []() -> awaitable<void> { co_await sleep_for(1h); };
        task<void> waiting(executor, m2.lock());
        task<void> queued(executor, coetcd::with_lock(m2, forever));
        task<void> lost(executor, discard(s1.wait_lost()));
        task<void> next(executor, discard(w.next()));
        (void)co_await m1.unlock();
        co_await waiting.result();
        held_lock held(m2, std::adopt_lock);
        (void)co_await held.unlock();
        task<void> again(executor, m1.lock());
        co_await yield(5);
        ++completed;
    };
    for (int steps = 0; steps < 250; ++steps) {
        asio::io_context context(1);
        const std::string lock =
            name + '-' + std::to_string(steps); // the last one lives on a while
        asio::co_spawn(context, everything(lock), [](std::exception_ptr) {});
        for (int i = 0; i < steps; ++i) {
            if (context.run_one_for(200ms) == 0) {
                break;
            }
        }
    }
    CHECK(completed > 0);
    const auto nothing_left = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        co_await until_count(connect(executor), name, 0, 10s); // their leases expire
    };
    run_test(nothing_left);
}
