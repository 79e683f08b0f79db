// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
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
using coetcd::exclusive;
using coetcd::lock_part;
using coetcd::multi_lock;
using coetcd::session;
using coetcd::shared;
using integration::connect;
using integration::patient;
using integration::raise;
using integration::read;

TEST_CASE("Dining philosophers eat beside others that want single forks, and none starves",
          "[multi_lock][etcdctl]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string table = unique_name("table");
        const auto fork = [&](int i) { return table + "/fork" + std::to_string(i % 5); };
        const auto counter = [&](int i) { return fork(i) + "-n"; };
        constexpr int meals = 20;
        constexpr int others = 3; // times that etcdctl takes each fork
        const etcd_server& etcd = shared_etcd();
        const std::string ctl = "etcdctl --endpoints=" + etcd.url();
        std::vector<background_process> processes;
        for (int i = 0; i < 5; ++i) {
            const std::string script = "n=$(" + ctl + " get --print-value-only " + counter(i) +
                                       ") && " + ctl + " put " + counter(i) + " $((n + 1))";
            for (int k = 0; k < others; ++k) {
                processes.push_back(
                    etcd.background_etcdctl({"lock", fork(i), "--", "sh", "-c", script}));
            }
        }
        // Each fork has a counter, which only its holder may raise. The philosophers share four
        // sessions. An inspector reads the counters and keeps them all from eating meanwhile.
        std::vector<session> sessions;
        for (int i = 0; i < 4; ++i) {
            session s = co_await open_session(c, 30s);
            sessions.push_back(std::move(s));
        }
        const auto philosopher = [&](int i) -> awaitable<void> {
            std::vector<lock_part> both;
            both.push_back(exclusive(fork(i + 1)));
            both.push_back(exclusive(fork(i)));
            multi_lock forks(sessions[static_cast<std::size_t>(i) % 4], std::move(both));
            for (int k = 0; k < meals; ++k) {
                co_await forks.lock();
                co_await raise(c, counter(i));
                co_await raise(c, counter(i + 1));
                const bool ours = co_await forks.unlock();
                CHECK(ours);
            }
        };
        int inspections = 0;
        const auto inspector = [&]() -> awaitable<void> {
            std::vector<lock_part> all;
            for (int i = 0; i < 5; ++i) {
                all.push_back(shared(fork(i)));
            }
            multi_lock forks(sessions[3], std::move(all));
            for (int k = 0; k < meals; ++k) {
                co_await forks.lock();
                const int before = co_await read(c, counter(0));
                co_await sleep_for(1ms);
                const int after = co_await read(c, counter(0));
                inspections += before == after ? 1 : 0;
                const bool ours = co_await forks.unlock();
                CHECK(ours);
            }
        };
        const auto start = clock::now();
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 5; ++i) {
            all.push_back(philosopher(i));
        }
        all.push_back(inspector());
        co_await run_all(std::move(all));
        std::cout << "5 philosophers, 20 meals each: " << ms_between(start, clock::now())
                  << " ms\n";
        for (auto& p : processes) {
            const int code = co_await p.async_wait();
            CHECK(code == 0);
        }
        CHECK(inspections >= meals - 5 * others); // etcdctl does not see readers
        for (int i = 0; i < 5; ++i) {
            const int raised = co_await read(c, counter(i));
            CHECK(raised == 2 * meals + others);
            co_await until_count(c, fork(i) + "/", 0);
        }
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await erase_all(c, table);
    };
    run_test(body, patient(180s));
}

TEST_CASE("Two multi_locks of the same 32 names take turns", "[multi_lock]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(c, 30s);
        const std::string name = unique_name("many");
        const auto parts = [&](bool backwards) {
            std::vector<lock_part> all;
            for (int i = 0; i < 32; ++i) {
                const std::string n = name + "/" + std::to_string(backwards ? 31 - i : i);
                all.push_back(i % 2 == 0 ? exclusive(n) : shared(n));
            }
            return all;
        };
        int inside = 0;
        int turns = 0;
        const auto take_turns = [&](const session& s, bool backwards) -> awaitable<void> {
            multi_lock all(s, parts(backwards));
            for (int i = 0; i < 25; ++i) {
                co_await all.lock();
                CHECK(++inside == 1); // half of the names are exclusive, for each of both
                ++turns;
                co_await yield(3);
                --inside;
                const bool ours = co_await all.unlock();
                CHECK(ours);
            }
        };
        std::vector<awaitable<void>> both;
        both.push_back(take_turns(one, false));
        both.push_back(take_turns(two, true));
        co_await run_all(std::move(both));
        CHECK(turns == 50);
        co_await until_count(c, name, 0);
        co_await one.close();
        co_await two.close();
    };
    run_test(body, patient(120s));
}

TEST_CASE("What waits for several names is killed with its session, and the others go on",
          "[multi_lock]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(c, 30s);
        const std::string name = unique_name("multi");
        coetcd::mutex a(one, name + "/a");
        coetcd::mutex b(one, name + "/b");
        co_await a.lock();
        std::vector<lock_part> both;
        both.push_back(exclusive(name + "/a"));
        both.push_back(exclusive(name + "/b"));
        multi_lock waits(two, std::move(both));
        task<void> waiting(executor, waits.lock());
        co_await until_count(c, name, 5);
        const bool busy = co_await b.try_lock(); // behind it
        CHECK(!busy);
        revoke_by_hand(shared_etcd(), two.lease());
        const auto end = co_await waiting.how_it_ended();
        CHECK(end.code == coetcd::errc::session_lost);
        co_await b.lock();
        co_await one.close();
        co_await until_count(c, name, 0);
    };
    run_test(body);
}
