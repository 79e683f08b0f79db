// SPDX-License-Identifier: BSL-1.0
#include <coetcd/barrier.hpp>
#include <coetcd/bulk.hpp>
#include <coetcd/client.hpp>
#include <coetcd/latch.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
