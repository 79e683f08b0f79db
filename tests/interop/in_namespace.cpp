// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <chrono>
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
using coetcd::session;

TEST_CASE("A mutex in a namespace, one of Go's clientv3/namespace and one with the whole name "
          "wait for each other",
          "[interop][namespace][mutex]") {
    const std::string end = GENERATE("/", "\xff");
    const auto body = [end]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string named = unique_name("namespace");
        const std::string prefix = named + end;
        const client app = c.in_namespace(prefix);
        session s = co_await open_session(app, 30s);
        session other = co_await open_session(c, 30s);
        coetcd::mutex m(s, "m");
        coetcd::mutex whole(other, prefix + "m");
        const std::string escaped = named + (end == "/" ? "/" : "%ff");
        (void)co_await go.call("open?session=a&ttl=30&namespace=" + escaped);

        // Theirs first.
        const entry theirs(co_await go.call("lock?session=a&name=m"));
        CHECK(theirs.key.starts_with("m/"));
        const auto holder = co_await m.holder();
        REQUIRE(holder);
        CHECK(holder->key == theirs.key);
        CHECK(holder->fencing_token == theirs.token);
        const auto seen = co_await whole.holder();
        REQUIRE(seen);
        CHECK(seen->key == prefix + theirs.key);
        bool busy = co_await m.try_lock();
        CHECK(!busy);
        task<void> ours(executor, m.lock());
        co_await until_count(c, prefix + "m/", 2);
        CHECK(!ours.done());
        (void)co_await go.call("unlock?session=a&name=m");
        co_await ours.result();
        CHECK(m.fencing_token() > theirs.token);

        // Then ours.
        const std::string in_vain = co_await go.call("try_lock?session=a&name=m");
        CHECK(in_vain == "busy");
        busy = co_await whole.try_lock();
        CHECK(!busy);
        task<std::string> again(executor, go.call("lock?session=a&name=m"));
        co_await until_count(c, prefix + "m/", 2);
        CHECK(!again.done());
        const auto waiting = co_await m.waiters();
        REQUIRE(waiting.size() == 1);
        const auto token = m.fencing_token();
        (void)co_await m.unlock();
        const entry next(co_await again.result());
        CHECK(next.key == waiting.front().key);
        CHECK(next.token > token);

        // Theirs is given up: the one with the whole name has it next.
        task<void> last(executor, whole.lock());
        co_await until_count(c, prefix + "m/", 2);
        (void)co_await go.call("close?session=a");
        co_await last.result();
        CHECK(whole.owns_lock());
        co_await other.close();
        co_await s.close();
        co_await until_count(c, prefix, 0);
    };
    run_test(body);
}

TEST_CASE("Mutexes in a namespace, those of Go's clientv3/namespace and etcdctl lock take turns",
          "[interop][namespace][mutex][etcdctl]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string prefix = unique_name("turns-in") + "/";
        const std::string list = prefix + "m-list";
        const auto one = [&]() -> awaitable<void> {
            const client app = c.in_namespace(prefix);
            session s = co_await open_session(app, 30s);
            coetcd::mutex m(s, "m");
            for (int i = 0; i < 15; ++i) {
                co_await m.lock();
                co_await add_turn(app, "m-list", m.fencing_token());
                (void)co_await m.unlock();
            }
            co_await s.close();
        };
        const auto theirs = [&](std::string called) -> awaitable<void> {
            (void)co_await go.call("open?ttl=30&session=" + called + "&namespace=" + prefix);
            (void)co_await go.call("enter_mutex?name=m&times=15&session=" + called +
                                   "&list=" + list);
            (void)co_await go.call("close?session=" + called);
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(one());
            all.push_back(theirs(std::to_string(i)));
            all.push_back(etcdctl_turn(prefix + "m"));
        }
        co_await run_all(std::move(all));
        const auto turns = co_await turns_of(c, list);
        CHECK(turns.size() == 3 * (15 + 15 + 1));
        CHECK(grow(turns));
        co_await until_count(c, prefix + "m/", 0);
        co_await erase_all(c, prefix);
    };
    run_test(body);
}
