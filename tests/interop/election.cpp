// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <signal.h>
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
using coetcd::election;
using coetcd::errc;
using coetcd::leader;
using coetcd::leader_feed;
using coetcd::leadership;
using coetcd::session;

namespace {

/// What a feed tells next: a value, or "nobody".
awaitable<std::string> next_value(leader_feed& feed) {
    const std::optional<leader> now = co_await feed.next();
    co_return now ? now->value : "nobody";
}

/// What a feed tells, until it is this.
awaitable<void> until_told(leader_feed& feed, std::string value) {
    for (;;) {
        const std::string told = co_await next_value(feed);
        if (told == value) {
            co_return;
        }
    }
}

} // namespace

TEST_CASE("An election and the Go client's wait for each other", "[interop][election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("election");
        const std::string who = "?session=a&name=" + name;
        election e(s, name);
        (void)co_await go.call("open?session=a&ttl=30");

        const std::string empty = co_await go.call("leader" + who);
        CHECK(empty == "nobody");
        const entry theirs(co_await go.call("campaign" + who + "&value=go"));
        const std::optional<leader> seen = co_await e.leader();
        REQUIRE(seen);
        CHECK(seen->value == "go");
        CHECK(seen->key == theirs.key);
        CHECK(seen->term == theirs.token);
        const auto in_vain = co_await e.try_campaign("ours");
        CHECK(!in_vain);
        task<leadership> ours(executor, e.campaign("ours"));
        co_await until_count(c, name + "/", 2);
        CHECK(!ours.done());
        (void)co_await go.call("resign" + who);
        leadership led = co_await ours.result();
        CHECK(led.leads());
        CHECK(led.term() > theirs.token);

        const std::string told = co_await go.call("leader" + who);
        CHECK(told == "ours " + led.key() + ' ' + std::to_string(led.term()));
        task<std::string> again(executor, go.call("campaign" + who + "&value=again"));
        co_await until_count(c, name + "/", 2);
        CHECK(!again.done());
        const auto term = led.term();
        const bool resigned = co_await led.resign();
        CHECK(resigned);
        const entry next(co_await again.result());
        CHECK(next.token > term);
        (void)co_await go.call("close?session=a");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Elections, those of Go and etcdctl elect lead in the order of their keys",
          "[interop][election][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("leaders");
        const auto one = [&]() -> awaitable<void> {
            session s = co_await open_session(c, 30s);
            election e(s, name);
            for (int i = 0; i < 15; ++i) {
                leadership led = co_await e.campaign("ours");
                co_await add_turn(c, name + "-list", led.term());
                const bool ours = co_await led.resign();
                CHECK(ours);
            }
            co_await s.close();
        };
        const auto etcdctl = [&]() -> awaitable<void> {
            auto process = shared_etcd().background_etcdctl({"elect", name, "etcdctl"});
            const auto key = co_await process.async_read_line();
            REQUIRE(key);
            const auto found = co_await c.get(*key);
            REQUIRE(found);
            CHECK(found->value == "etcdctl");
            co_await add_turn(c, name + "-list", found->create_revision);
            process.signal(SIGINT); // it resigns
            (void)co_await process.async_wait();
        };
        std::vector<awaitable<void>> all;
        for (int i = 0; i < 3; ++i) {
            all.push_back(one());
            all.push_back(go_turns(go, "election", name, 15));
            all.push_back(etcdctl());
        }
        co_await run_all(std::move(all));
        const auto turns = co_await turns_of(c, name + "-list");
        CHECK(turns.size() == 3 * (15 + 15 + 1));
        CHECK(grow(turns));
        co_await until_count(c, name + "/", 0);
        co_await erase_all(c, name);
    });
}

TEST_CASE("Feeds of an election and those of Go tell of each other's leaders",
          "[interop][election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("observed");
        const std::string who = "?session=a&name=" + name;
        election e(s, name);
        leader_feed feed = e.observe();
        const std::string nobody = co_await next_value(feed);
        CHECK(nobody == "nobody");
        (void)co_await go.call("open?session=a&ttl=30");

        // We see theirs, ...
        (void)co_await go.call("campaign" + who + "&value=one");
        const std::string one = co_await next_value(feed);
        CHECK(one == "one");
        (void)co_await go.call("proclaim" + who + "&value=two");
        const std::string two = co_await next_value(feed);
        CHECK(two == "two");
        (void)co_await go.call("resign" + who);
        const std::string none = co_await next_value(feed);
        CHECK(none == "nobody");

        // ... they see ours, but not that there is no leader.
        auto etcdctl = shared_etcd().background_etcdctl({"elect", "-l", name});
        (void)co_await go.call("observe" + who);
        leadership led = co_await e.campaign("three");
        const std::string three = co_await go.told();
        CHECK(three == "three");
        co_await until_told(feed, "three"); // else that there is no leader is no news to it
        co_await led.proclaim("four");
        const std::string four = co_await go.told();
        CHECK(four == "four");
        (void)co_await led.resign();
        co_await until_told(feed, "nobody");
        leadership again = co_await e.campaign("five");
        const std::string five = co_await go.told();
        CHECK(five == "five");
        for (;;) { // a key, and the value in the next line; what came before its start it does not
                   // tell
            const auto line = co_await etcdctl.async_read_line();
            REQUIRE(line);
            if (*line == "five") {
                break;
            }
        }
        (void)co_await again.resign();
        (void)co_await go.call("close?session=a");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A leadership of the Go client is resumed, and one of ours by that",
          "[interop][election][resume]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("resumed");
        const std::string who = "?session=a&name=" + name;
        leader_feed feed = coetcd::observe(c, name);

        const std::string lease = co_await go.call("open?session=a&ttl=30");
        const entry theirs(co_await go.call("campaign" + who + "&value=go"));
        (void)co_await go.call("orphan?session=a");
        std::optional<session> heir = co_await session::adopt(c, std::stoll(lease, nullptr, 16));
        REQUIRE(heir);
        election e(*heir, name);
        std::optional<leadership> led = co_await e.resume();
        REQUIRE(led);
        CHECK(led->key() == theirs.key);
        CHECK(led->term() == theirs.token);
        co_await led->proclaim("ours");
        co_await until_told(feed, "ours");

        // The other way: it has our lease, and is told key and term.
        (void)co_await go.call("open?session=b&ttl=30&lease=" + lease);
        const std::string other = "?session=b&name=" + name;
        (void)co_await go.call("resume" + other + "&key=" + led->key() +
                               "&revision=" + std::to_string(led->term()));
        (void)co_await go.call("proclaim" + other + "&value=theirs");
        co_await until_told(feed, "theirs");
        co_await led->proclaim("ours again"); // although the other one has written the key
        co_await until_told(feed, "ours again");
        CHECK(led->leads());
        (void)co_await go.call("resign" + other);
        const auto lost = co_await led->wait_lost();
        CHECK(lost == errc::lock_lost);
        co_await until_told(feed, "nobody");
        (void)co_await go.call("orphan?session=b");
        co_await heir->close();
        co_await until_count(c, name, 0);
    });
}

// What Go does otherwise: see integration/go_scenarios.cpp.

TEST_CASE("A candidate whose lease has ended hears of it at once, that of Go leads without a key",
          "[interop][election][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("dead-candidates");
        const std::string who = "?session=a&name=" + name;
        session leading = co_await open_session(c, 30s);
        session waiting = co_await open_session(c, 30s);
        election held(leading, name);
        election wanted(waiting, name);
        leadership led = co_await held.campaign("first");
        const std::string lease = co_await go.call("open?session=a&ttl=30");
        task<leadership> ours(executor, wanted.campaign("ours"));
        co_await until_count(c, name + "/", 2);
        task<std::string> theirs(executor, go.call("campaign" + who + "&value=go"));
        co_await until_count(c, name + "/", 3);

        revoke_by_hand(shared_etcd(), std::stoll(lease, nullptr, 16));
        revoke_by_hand(shared_etcd(), waiting.lease());
        const auto before = clock::now();
        const auto e = co_await ours.how_it_ended();
        CHECK(e.code == errc::session_lost);
        CHECK(ms_between(before, e.when) < 1000);
        CHECK(!theirs.done());
        (void)co_await led.resign();
        std::string why;
        try {
            (void)co_await theirs.result();
        } catch (const std::runtime_error& failure) {
            why = failure.what();
        }
        // Campaign has said that it leads: it is our program that has looked for the key.
        CHECK_THAT(why, contains("has the lease of"));
        co_await leading.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Two candidates of one session lead in turn, those of Go at the same time",
          "[interop][election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        const std::string name = unique_name("one-session");
        (void)co_await go.call("open?session=a&ttl=30");
        const entry first(co_await go.call("campaign?session=a&as=1&value=a&name=" + name));
        const entry second(co_await go.call("campaign?session=a&as=2&value=b&name=" + name));
        CHECK(first.token == second.token);
        (void)co_await go.call("close?session=a");

        session s = co_await open_session(c, 30s);
        election one(s, name);
        election other(s, name);
        leadership led = co_await one.campaign("a");
        const auto both = co_await other.try_campaign("b");
        CHECK(!both);
        task<leadership> next(executor, other.campaign("b"));
        const auto term = led.term();
        (void)co_await led.resign();
        leadership successor = co_await next.result();
        CHECK(successor.term() > term);
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}
