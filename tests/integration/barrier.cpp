// SPDX-License-Identifier: BSL-1.0
#include <coetcd/barrier.hpp>
#include <coetcd/bulk.hpp>
#include <coetcd/client.hpp>
#include <coetcd/cyclic_barrier.hpp>
#include <coetcd/double_barrier.hpp>
#include <coetcd/latch.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
using coetcd::key_range;
using coetcd::session;
using integration::connect;

TEST_CASE("Everybody passes a barrier when it is opened, and nobody before", "[barrier]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("barrier");
        coetcd::barrier b(s, name);
        co_await b.wait(); // it is open
        const bool held = co_await b.hold();
        CHECK(held);
        std::vector<task<void>> waiting;
        for (int i = 0; i != 50; ++i) {
            waiting.emplace_back(executor, b.wait());
        }
        const bool passed = co_await b.wait_for(300ms);
        CHECK(!passed);
        for (const auto& one : waiting) {
            CHECK(!one.done());
        }
        const bool released = co_await b.release();
        CHECK(released);
        for (auto& one : waiting) {
            co_await one.result();
        }
        // One that is held for no longer than its session lives
        session other = co_await open_session(c, 30s);
        coetcd::barrier theirs(other, name);
        const bool again = co_await theirs.hold_while_alive();
        CHECK(again);
        task<void> last(executor, b.wait());
        const bool open = co_await b.wait_for(100ms);
        CHECK(!open);
        co_await other.close();
        co_await last.result();
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A barrier stays closed to its waiters while etcd is away", "[barrier]") {
    run_test([]() -> awaitable<void> {
        etcd_server own;
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, own.url());
        session s = co_await open_session(c, 60s);
        coetcd::barrier b(s, "b");
        (void)co_await b.hold();
        task<void> waiting(executor, b.wait());
        const bool passed = co_await b.wait_for(300ms);
        CHECK(!passed);
        own.kill();
        co_await sleep_for(500ms); // an outage takes time
        CHECK(!waiting.done());
        own.start();
        const bool still_closed = co_await b.wait_for(300ms);
        CHECK(!still_closed);
        CHECK(!waiting.done());
        const bool released = co_await b.release();
        CHECK(released);
        co_await waiting.result();
    });
}

TEST_CASE("A latch opens with the last count of many", "[latch]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("latch");
        coetcd::latch l(s, name, 40);
        std::vector<task<void>> waiting;
        for (int i = 0; i != 10; ++i) {
            waiting.emplace_back(executor, l.wait());
        }
        std::vector<task<std::int64_t>> counts;
        for (int i = 0; i != 39; ++i) {
            counts.emplace_back(executor, l.count_down());
        }
        std::int64_t least = 40;
        for (auto& one : counts) {
            const std::int64_t left = co_await one.result();
            least = std::min(least, left);
        }
        CHECK(least == 1);
        const bool open = co_await l.wait_for(200ms);
        CHECK(!open);
        for (const auto& one : waiting) {
            CHECK(!one.done());
        }
        const std::int64_t none = co_await l.count_down();
        CHECK(none == 0);
        for (auto& one : waiting) {
            co_await one.result();
        }
        co_await l.wait();
        co_await s.close();
        coetcd::bulk erases = coetcd::erase_range(c, key_range(name + ".", name + "0"));
        const std::size_t erased = co_await erases.run();
        CHECK(erased == 41);
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Groups go through a cyclic barrier whole, in round after round", "[cyclic_barrier]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("cyclic");
        std::vector<session> sessions;
        std::vector<coetcd::cyclic_barrier> all;
        for (int i = 0; i != 5; ++i) {
            sessions.push_back(co_await open_session(c, 30s));
            all.emplace_back(sessions.back(), name, 5);
        }
        int finished = 0; // rounds of all of them together
        auto take_part = [&](coetcd::cyclic_barrier b) -> awaitable<void> {
            for (int round = 0; round != 20; ++round) {
                co_await b.arrive_and_wait();
                ++finished;
                // Nobody is more than a round ahead of anybody.
                CHECK(finished > 5 * round);
                CHECK(finished <= 5 * (round + 2));
            }
        };
        std::vector<task<void>> running;
        for (const auto& b : all) {
            running.emplace_back(executor, take_part(b));
        }
        for (auto& one : running) {
            co_await one.result();
        }
        CHECK(finished == 100);
        // One that leaves is in no group, and the others wait for another one.
        task<bool> one(executor, all[0].arrive_and_wait_for(300ms));
        std::vector<task<void>> others;
        for (std::size_t i = 1; i != 5; ++i) {
            if (i == 4) {
                const bool went = co_await one.result();
                CHECK(!went);
            }
            others.emplace_back(executor, all[i].arrive_and_wait());
        }
        co_await until_count(c, name + "/", 4);
        co_await all[0].arrive_and_wait();
        for (auto& other : others) {
            co_await other.result();
        }
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, name, 2); // the size, and the bound
        (void)co_await c.erase(key_range(name + ".", name + "0"));
    });
}

TEST_CASE("A group does not go through with one whose lease has ended, nor before it is whole",
          "[cyclic_barrier]") {
    run_test([]() -> awaitable<void> {
        etcd_server own;
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, own.url());
        session a = co_await open_session(c, 60s);
        session b = co_await open_session(c, 60s);
        session d = co_await open_session(c, 60s);
        coetcd::cyclic_barrier first(a, "b", 2);
        coetcd::cyclic_barrier second(b, "b", 2);
        coetcd::cyclic_barrier third(d, "b", 2);
        task<bool> dying(executor, first.arrive_and_wait_for(60s));
        co_await until_count(c, "b/", 1);
        (void)co_await c.lease_revoke(a.lease());
        co_await until_count(c, "b/", 0);
        task<bool> waiting(executor, second.arrive_and_wait_for(60s));
        co_await until_count(c, "b/", 1);
        own.kill();
        own.start();
        co_await until_count(c, "b/", 1);
        CHECK(!waiting.done());
        const bool went = co_await third.arrive_and_wait_for(60s);
        CHECK(went);
        const bool too = co_await waiting.result();
        CHECK(too);
        bool lost = false;
        try {
            (void)co_await dying.result();
        } catch (const coetcd::error& e) {
            lost = e.code() == coetcd::errc::session_lost;
        }
        CHECK(lost);
    });
}

TEST_CASE("Groups begin together and end together, in round after round", "[double_barrier]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("double");
        constexpr int parties = 5;
        constexpr int rounds = 20;
        std::vector<session> sessions;
        std::vector<coetcd::double_barrier> all;
        for (int i = 0; i != parties; ++i) {
            sessions.push_back(co_await open_session(c, 30s));
            all.emplace_back(sessions.back(), name, parties);
        }
        int began = 0; // rounds of all of them together
        int ended = 0;
        auto take_part = [&](coetcd::double_barrier b) -> awaitable<void> {
            for (int round = 1; round <= rounds; ++round) {
                ++began;
                co_await b.enter();
                CHECK(began == parties * round);
                ++ended;
                co_await b.leave();
                CHECK(ended == parties * round);
            }
        };
        std::vector<task<void>> running;
        for (auto& b : all) {
            running.emplace_back(executor, take_part(std::move(b)));
        }
        for (auto& one : running) {
            co_await one.result();
        }
        CHECK(ended == parties * rounds);
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, name, 1); // the size
        (void)co_await c.erase(name + ".parties");
    });
}

TEST_CASE("A member that dies inside leaves with its lease, and one that waits survives an outage",
          "[double_barrier]") {
    run_test([]() -> awaitable<void> {
        etcd_server own;
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, own.url());
        session a = co_await open_session(c, 60s);
        session b = co_await open_session(c, 60s);
        coetcd::double_barrier one(a, "b", 2);
        std::optional<coetcd::double_barrier> other(std::in_place, b, "b", 2);
        for (const bool dies : {false, true}) {
            task<void> first(executor, one.enter());
            co_await until_count(c, "b/", 1);
            co_await other->enter();
            co_await first.result();
            co_await until_count(c, "b.in/", 2);
            task<void> leaving(executor, one.leave());
            co_await until_count(c, "b.in/", 1);
            own.kill();
            own.start();
            co_await until_count(c, "b.in/", 1);
            CHECK(!leaving.done());
            if (dies) {
                (void)co_await c.lease_revoke(b.lease());
            } else {
                co_await other->leave();
            }
            co_await leaving.result();
            co_await until_count(c, "b.in/", 0);
        }
        const ending late = co_await ending_of(other->leave());
        CHECK(late.code == coetcd::errc::session_lost);
        co_await a.close();
    });
}
