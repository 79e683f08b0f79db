// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
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
using coetcd::errc;
using coetcd::session;

namespace {

/// Waits until so many keys are in the queue, its holder's included.
awaitable<void> until_queued(client c, std::string name, std::int64_t n) {
    co_await until_count(c, name + "/", n);
}

} // namespace

TEST_CASE("A mutex and the Go client's wait for each other", "[interop][mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("mutex");
        coetcd::mutex m(s, name);
        (void)co_await go.call("open?session=a&ttl=30");

        const entry theirs(co_await go.call("lock?session=a&name=" + name));
        const auto holder = co_await m.holder();
        REQUIRE(holder);
        CHECK(holder->key == theirs.key);
        CHECK(holder->fencing_token == theirs.token);
        const bool busy = co_await m.try_lock();
        CHECK(!busy);
        task<void> ours(executor, m.lock());
        co_await until_queued(c, name, 2);
        CHECK(!ours.done());
        (void)co_await go.call("unlock?session=a&name=" + name);
        co_await ours.result();
        CHECK(m.owns_lock());
        CHECK(m.fencing_token() > theirs.token);

        const std::string in_vain = co_await go.call("try_lock?session=a&name=" + name);
        CHECK(in_vain == "busy");
        task<std::string> again(executor, go.call("lock?session=a&name=" + name));
        co_await until_queued(c, name, 2);
        CHECK(!again.done());
        const auto waiting = co_await m.waiters();
        REQUIRE(waiting.size() == 1);
        const auto token = m.fencing_token();
        (void)co_await m.unlock();
        const entry next(co_await again.result());
        CHECK(next.key == waiting.front().key);
        CHECK(next.token > token);

        // Theirs is given up: ours has it next, at once.
        task<void> last(executor, m.lock());
        co_await until_queued(c, name, 2);
        (void)co_await go.call("close?session=a");
        co_await last.result();
        CHECK(m.owns_lock());
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A lock that its session retains goes to the Go client, and comes back",
          "[interop][mutex][retain]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("retained");
        coetcd::lock_options how;
        how.retain = 60s;
        coetcd::mutex m(s, name, how);
        (void)co_await go.call("open?session=a&ttl=30");
        for (int round = 0; round != 3; ++round) {
            // After a miss the lock is given back for real, the more often the more there were.
            for (int i = 0; i != 8; ++i) {
                co_await m.lock();
                (void)co_await m.unlock();
            }
            co_await until_count(c, name + "/", 1);
            const std::string in_vain = co_await go.call("try_lock?session=a&name=" + name);
            CHECK(in_vain == "busy");
            const auto asked = clock::now();
            const entry theirs(co_await go.call("lock?session=a&name=" + name));
            CHECK(ms_between(asked, clock::now()) < 2000);
            task<void> ours(executor, m.lock());
            co_await until_queued(c, name, 2);
            CHECK(!ours.done());
            (void)co_await go.call("unlock?session=a&name=" + name);
            co_await ours.result();
            CHECK(m.fencing_token() > theirs.token);
            (void)co_await m.unlock();
        }
        (void)co_await go.call("close?session=a");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Mutexes, those of Go and etcdctl lock take turns in the order of their keys",
          "[interop][mutex][etcdctl]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("turns");
        const auto one = [&]() -> awaitable<void> {
            session s = co_await open_session(c, 30s);
            coetcd::mutex m(s, name);
            for (int i = 0; i < 15; ++i) {
                co_await m.lock();
                co_await add_turn(c, name + "-list", m.fencing_token());
                (void)co_await m.unlock();
            }
            co_await s.close();
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(one());
            all.push_back(go_turns(go, "mutex", name, 15));
            all.push_back(etcdctl_turn(name));
            all.push_back(etcdctl_turn(name));
        }
        co_await run_all(std::move(all));
        const auto turns = co_await turns_of(c, name + "-list");
        CHECK(turns.size() == 3 * (15 + 15 + 2));
        CHECK(grow(turns));
        co_await until_count(c, name + "/", 0);
        co_await erase_all(c, name);
    };
    run_test(body);
}

TEST_CASE("A lock that the Go client has taken is resumed under its lease",
          "[interop][mutex][resume]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("resumed");
        const std::string lease = co_await go.call("open?session=a&ttl=30");
        (void)co_await go.call("open?session=b&ttl=30");
        const entry theirs(co_await go.call("lock?session=a&name=" + name));
        task<std::string> rival(executor, go.call("lock?session=b&name=" + name));
        co_await until_queued(c, name, 2);
        (void)co_await go.call("orphan?session=a");

        std::optional<session> heir = co_await session::adopt(c, std::stoll(lease, nullptr, 16));
        REQUIRE(heir);
        coetcd::mutex m(*heir, name);
        const bool resumed = co_await m.resume();
        CHECK(resumed);
        CHECK(m.key() == theirs.key);
        CHECK(m.fencing_token() == theirs.token);
        auto guarded = coetcd::txn().when(m.is_owner());
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(proof.succeeded);
        CHECK(!rival.done());
        const bool ours = co_await m.unlock();
        CHECK(ours);
        const entry next(co_await rival.result());
        CHECK(next.token > theirs.token);
        (void)co_await go.call("close?session=b");
        co_await heir->close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Under one lease a mutex and the Go client's exclude each other", "[interop][mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("one-lease");
        session s = co_await open_session(c, 30s);
        coetcd::mutex m(s, name);
        co_await m.lock();
        (void)co_await go.call("open?session=a&ttl=30&lease=" + hex(s.lease()));
        const std::string in_vain = co_await go.call("try_lock?session=a&name=" + name);
        CHECK(in_vain == "busy");
        CHECK(m.owns_lock());
        (void)co_await m.unlock();
        const std::string free = co_await go.call("try_lock?session=a&name=" + name);
        CHECK(free != "busy");
        const bool busy = co_await m.try_lock();
        CHECK(!busy);
        (void)co_await go.call("unlock?session=a&name=" + name);
        (void)co_await go.call("orphan?session=a");
        co_await m.lock();
        CHECK(m.owns_lock());
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

// What Go does otherwise: see integration/go_scenarios.cpp.

TEST_CASE("A waiter whose lease has ended hears of it at once, that of Go when its turn comes",
          "[interop][mutex][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("dead-waiters");
        session holding = co_await open_session(c, 30s);
        session waiting = co_await open_session(c, 30s);
        coetcd::mutex held(holding, name);
        coetcd::mutex wanted(waiting, name);
        const std::string lease = co_await go.call("open?session=a&ttl=30");
        co_await held.lock();
        task<void> ours(executor, wanted.lock());
        co_await until_queued(c, name, 2);
        task<std::string> theirs(executor, go.call("lock?session=a&name=" + name));
        co_await until_queued(c, name, 3);

        revoke_by_hand(shared_etcd(), std::stoll(lease, nullptr, 16));
        revoke_by_hand(shared_etcd(), waiting.lease());
        const auto before = clock::now();
        const auto e = co_await ours.how_it_ended();
        CHECK(e.code == errc::session_lost);
        CHECK(ms_between(before, e.when) < 1000);
        co_await sleep_for(500ms); // for as long as one likes
        CHECK(!theirs.done());
        (void)co_await held.unlock();
        std::string why;
        try {
            (void)co_await theirs.result();
        } catch (const std::runtime_error& failure) {
            why = failure.what();
        }
        CHECK_THAT(why, contains("session is expired"));
        co_await holding.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Two mutexes of one session exclude each other, those of Go do not", "[interop][mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("one-session");
        (void)co_await go.call("open?session=a&ttl=30");
        const entry first(co_await go.call("lock?session=a&as=1&name=" + name));
        const entry second(co_await go.call("lock?session=a&as=2&name=" + name));
        CHECK(first.key == second.key);
        CHECK(first.token == second.token);
        (void)co_await go.call("close?session=a");

        session s = co_await open_session(c, 30s);
        coetcd::mutex one(s, name);
        coetcd::mutex other(s, name);
        co_await one.lock();
        const bool both = co_await other.try_lock();
        CHECK(!both);
        const auto token = one.fencing_token();
        task<void> next(executor, other.lock());
        (void)co_await one.unlock();
        co_await next.result();
        CHECK(other.fencing_token() > token);
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}
