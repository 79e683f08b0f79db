// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "go_client.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "turns.hpp"

using namespace std::chrono_literals;
using namespace interop;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::held_lock;
using coetcd::session;

TEST_CASE("A shared_mutex and Go's RWMutex wait for each other", "[interop][shared_mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("shared");
        const std::string a = "?session=a&name=" + name;
        const std::string b = "?session=b&name=" + name;
        coetcd::shared_mutex m(s, name);
        (void)co_await go.call("open?session=a&ttl=30");
        (void)co_await go.call("open?session=b&ttl=30");

        // Readers of both kinds read together; a writer waits for all of them, and the next reader
        // for it.
        (void)co_await go.call("read" + a);
        held_lock reading = co_await m.scoped_lock_shared();
        task<std::string> writer(executor, go.call("write" + b));
        co_await until_count(c, name + "/", 3);
        const bool barged = co_await m.try_lock_shared();
        CHECK(!barged);
        CHECK(!writer.done());
        (void)co_await go.call("end_read" + a);
        co_await sleep_for(100ms);
        CHECK(!writer.done()); // we still read
        (void)co_await reading.unlock();
        const entry wrote(co_await writer.result());

        // Our writer waits for theirs, our reader, too; then it is the other way.
        task<void> ours(executor, m.lock());
        co_await until_count(c, name + "/write/", 2);
        CHECK(!ours.done());
        (void)co_await go.call("end_write" + b);
        co_await ours.result();
        CHECK(m.owns_lock());
        CHECK(m.fencing_token() > wrote.token);
        task<std::string> reader(executor, go.call("read" + a));
        co_await until_count(c, name + "/read/", 1);
        task<std::string> next(executor, go.call("write" + b));
        co_await until_count(c, name + "/write/", 2);
        CHECK(!reader.done());
        (void)co_await m.unlock();
        (void)co_await reader.result();
        co_await sleep_for(100ms);
        CHECK(!next.done());
        (void)co_await go.call("end_read" + a);
        (void)co_await next.result();
        const bool busy = co_await m.try_lock_shared();
        CHECK(!busy);
        (void)co_await go.call("end_write" + b);
        (void)co_await go.call("close?session=a");
        (void)co_await go.call("close?session=b");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Readers of Go go on beside a writer that has stepped down, its writers wait",
          "[interop][shared_mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("stepped-down");
        const std::string a = "?session=a&name=" + name;
        const std::string b = "?session=b&name=" + name;
        coetcd::shared_mutex m(s, name);
        (void)co_await go.call("open?session=a&ttl=30");
        (void)co_await go.call("open?session=b&ttl=30");
        held_lock held = co_await m.scoped_lock();
        task<std::string> reader(executor, go.call("read" + a));
        co_await until_count(c, name + "/read/", 1);
        task<std::string> writer(executor, go.call("write" + b));
        co_await until_count(c, name + "/write/", 2);
        CHECK(!reader.done());
        co_await held.downgrade();
        (void)co_await reader.result();
        CHECK(held.owns_lock());
        (void)co_await go.call("end_read" + a);
        co_await sleep_for(100ms);
        CHECK(!writer.done()); // we still read
        (void)co_await held.unlock();
        (void)co_await writer.result();
        (void)co_await go.call("close?session=a");
        (void)co_await go.call("close?session=b");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Writers of both kinds write in the order of their keys, and readers see no change",
          "[interop][shared_mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("writers");
        const std::string list = name + "-list";
        const auto writer = [&]() -> awaitable<void> {
            session s = co_await open_session(c, 30s);
            coetcd::shared_mutex m(s, name);
            for (int i = 0; i < 10; ++i) {
                co_await m.lock();
                co_await add_turn(c, list, m.fencing_token());
                (void)co_await m.unlock();
            }
            co_await s.close();
        };
        const auto reader = [&]() -> awaitable<void> {
            session s = co_await open_session(c, 30s);
            coetcd::shared_mutex m(s, name);
            for (int i = 0; i < 10; ++i) {
                co_await m.lock_shared();
                const auto before = co_await turns_of(c, list);
                co_await sleep_for(2ms);
                const auto after = co_await turns_of(c, list);
                CHECK(before == after);
                (void)co_await m.unlock_shared();
            }
            co_await s.close();
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(writer());
            all.push_back(reader());
            all.push_back(go_turns(go, "write", name, 10));
            all.push_back(go_turns(go, "look", name, 10));
        }
        co_await run_all(std::move(all));
        const auto turns = co_await turns_of(c, list);
        CHECK(turns.size() == 3 * (10 + 10));
        CHECK(grow(turns));
        co_await until_count(c, name + "/", 0);
        co_await erase_all(c, name);
    });
}
