// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <signal.h>
#include <stdexcept>
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
using coetcd::election;
using coetcd::errc;
using coetcd::leader;
using coetcd::leadership;
using coetcd::session;
using integration::connect;

namespace {

/// The value that is proclaimed; "nobody" if there is no leader.
std::string value_of(const std::optional<leader>& l) {
    return l ? l->value : "nobody";
}

/// The next state that a feed tells, as its value.
awaitable<std::string> next_value(coetcd::leader_feed& news) {
    const std::optional<leader> next = co_await news.next();
    co_return value_of(next);
}

/// Waits until a feed tells this.
awaitable<void> until_told(coetcd::leader_feed& news, std::string expected) {
    for (std::string told; told != expected;) {
        told = co_await next_value(news);
    }
}

/// A line that etcdctl has written.
awaitable<std::string> line_of(background_process& etcdctl) {
    const auto line = co_await etcdctl.async_read_line();
    if (!line) {
        throw std::runtime_error("etcdctl has ended");
    }
    co_return *line;
}

} // namespace

TEST_CASE("Candidates lead one after the other, and are observed", "[election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session one = co_await session::open(c);
        session two = co_await session::open(c);
        const std::string name = unique_name("election");
        election a(one, name);
        election b(two, name);
        coetcd::leader_feed news = coetcd::observe(c, name);
        const std::string nobody = co_await next_value(news);
        CHECK(nobody == "nobody");

        leadership first = co_await a.campaign("a");
        CHECK(first.leads());
        const auto kv = co_await c.get(first.key());
        REQUIRE(kv);
        CHECK(kv->value == "a");
        CHECK(kv->create_revision == first.term());
        CHECK(kv->lease == one.lease());
        co_await until_told(news, "a");

        task<leadership> waiting(executor, b.campaign("b"));
        co_await until_count(c, name + "/", 2);
        const auto busy = co_await b.try_campaign("c");
        CHECK(!busy);
        for (int i = 0; i != 20; ++i) {
            co_await first.proclaim("a" + std::to_string(i));
        }
        co_await until_told(news, "a19");
        const auto now = co_await coetcd::leader_of(c, name);
        REQUIRE(now);
        CHECK(now->value == "a19");
        CHECK(now->term == first.term());

        const auto began = clock::now();
        const bool ours = co_await first.resign();
        CHECK(ours);
        leadership second = co_await waiting.result();
        CHECK(ms_between(began, clock::now()) < 500);
        CHECK(second.term() > now->term);
        co_await until_told(news, "b");
        auto guarded = coetcd::txn().when(second.is_leader());
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(proof.succeeded);
        (void)co_await second.resign();
        co_await until_told(news, "nobody");
        co_await one.close();
        co_await two.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A term that is ended by hand is noticed at once", "[election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 60s);
        const std::string name = unique_name("ended");
        election e(s, name);
        for (const bool by_hand : {true, false}) {
            leadership mine = co_await e.campaign("a");
            co_await sleep_for(200ms);
            CHECK(mine.leads());
            task<coetcd::error_code> losing(executor, mine.wait_lost());
            const auto began = clock::now();
            if (by_hand) {
                REQUIRE(shared_etcd().etcdctl({"del", mine.key()}).output == "1\n");
            } else {
                revoke_by_hand(shared_etcd(), s.lease());
            }
            const auto why = co_await losing.result();
            CHECK(why == (by_hand ? errc::lock_lost : errc::session_lost));
            CHECK(ms_between(began, clock::now()) < 1000);
            CHECK(!mine.leads());
        }
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A candidate whose lease is revoked never leads", "[election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        for (const bool leader_stays : {true, false}) {
            session one = co_await open_session(c, 60s);
            session two = co_await open_session(c, 60s);
            const std::string name = unique_name("phantom");
            election a(one, name);
            election b(two, name);
            leadership mine = co_await a.campaign("a");
            task<leadership> waiting(executor, b.campaign("b"));
            co_await until_count(c, name + "/", 2);
            co_await sleep_for(500ms); // it watches its own key now
            revoke_by_hand(shared_etcd(), two.lease());
            const auto began = clock::now();
            if (!leader_stays) {
                (void)co_await mine.resign();
            }
            const ending end = co_await waiting.how_it_ended();
            CHECK(end.code == errc::session_lost);
            CHECK(ms_between(began, end.when) < 1000);
            co_await one.close();
            co_await until_count(c, name, 0);
        }
    });
}

TEST_CASE("An election and etcdctl elect take turns", "[election][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("go");
        election e(s, name);
        coetcd::leader_feed news = e.observe();

        auto theirs = shared_etcd().background_etcdctl({"elect", name, "theirs"});
        const std::string key = co_await line_of(theirs);
        const std::string value = co_await line_of(theirs);
        CHECK(value == "theirs");
        const auto now = co_await e.leader();
        REQUIRE(now);
        CHECK(now->key == key);
        CHECK(now->value == "theirs");
        co_await until_told(news, "theirs");
        const auto busy = co_await e.try_campaign("ours");
        CHECK(!busy);
        task<leadership> waiting(executor, e.campaign("ours"));
        co_await until_count(c, name + "/", 2);
        CHECK(!waiting.done());
        const auto began = clock::now();
        theirs.signal(SIGINT); // it resigns
        leadership mine = co_await waiting.result();
        CHECK(ms_between(began, clock::now()) < 1000);
        CHECK(mine.leads());
        co_await until_told(news, "ours");

        auto listening = shared_etcd().background_etcdctl({"elect", "-l", name});
        const std::string seen_key = co_await line_of(listening);
        const std::string seen_value = co_await line_of(listening);
        CHECK(seen_key == mine.key());
        CHECK(seen_value == "ours");
        for (const char* const text : {"ours, still", "for the last time"}) {
            co_await mine.proclaim(text);
            (void)co_await line_of(listening); // the key
            const std::string told = co_await line_of(listening);
            CHECK(told == text);
        }
        auto next = shared_etcd().background_etcdctl({"elect", name, "theirs again"});
        co_await until_count(c, name + "/", 2);
        CHECK(mine.leads());
        (void)co_await mine.resign();
        const std::string next_key = co_await line_of(next);
        const std::string again = co_await line_of(next);
        CHECK(again == "theirs again");
        (void)co_await line_of(listening);
        const std::string told = co_await line_of(listening);
        CHECK(told == "theirs again");
        co_await until_told(news, "theirs again");
        const auto then = co_await coetcd::leader_of(c, name);
        REQUIRE(then);
        CHECK(then->key == next_key);
        next.signal(SIGINT);
        listening.signal(SIGINT);
        (void)co_await theirs.async_wait();
        (void)co_await next.async_wait();
        (void)co_await listening.async_wait();
        co_await until_told(news, "nobody");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A term of etcdctl elect is taken over with its lease", "[election][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        for (const bool by_term : {false, true}) {
            const std::string name = unique_name("taken-over");
            auto theirs = shared_etcd().background_etcdctl({"elect", name, "theirs"});
            const std::string key = co_await line_of(theirs);
            const auto before = co_await coetcd::leader_of(c, name);
            REQUIRE(before);
            theirs.signal(SIGKILL);
            (void)co_await theirs.async_wait();
            std::optional<session> heir = co_await session::adopt(c, before->lease);
            REQUIRE(heir);
            election e(*heir, name);
            std::optional<leadership> mine;
            if (by_term) {
                auto resuming = e.resume(key, before->term);
                mine = co_await std::move(resuming);
            } else {
                mine = co_await e.resume();
            }
            REQUIRE(mine);
            CHECK(mine->key() == key);
            CHECK(mine->term() == before->term);
            co_await mine->proclaim("ours");
            const auto now = co_await e.leader();
            REQUIRE(now);
            CHECK(now->value == "ours");
            CHECK(now->term == before->term);
            const bool resigned = co_await mine->resign();
            CHECK(resigned);
            co_await heir->close();
            co_await until_count(c, name, 0);
        }
    });
}

TEST_CASE("What is observed is right in the end, whatever happens to the server", "[election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server server;
        const client c(executor, server.url());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("restarts");
        election e(s, name);
        std::string last;
        std::vector<std::int64_t> revisions;
        auto follow = [&]() -> awaitable<void> {
            coetcd::leader_feed news = coetcd::observe(c, name);
            for (;;) {
                const std::optional<leader> next = co_await news.next();
                last = value_of(next);
                if (next) {
                    revisions.push_back(next->revision);
                }
            }
        };
        task<void> following(executor, follow());
        int proclaimed = 0;
        for (int round = 0; round != 2; ++round) {
            leadership mine = co_await e.campaign("round " + std::to_string(round));
            for (int i = 0; i != 20; ++i) {
                ++proclaimed;
                co_await mine.proclaim(std::to_string(proclaimed));
                const auto now = co_await c.get(mine.key());
                REQUIRE(now);
                (void)co_await c.compact(now->mod_revision);
                co_await sleep_for(20ms);
            }
            auto restart = [&server] { server.restart(); };
            co_await in_thread(std::move(restart));
            co_await mine.proclaim("after " + std::to_string(round));
            const std::string expected = "after " + std::to_string(round);
            auto told = [&]() -> awaitable<bool> { co_return last == expected; };
            co_await eventually(told, 12s, expected + " is told");
            (void)co_await mine.resign();
            auto gone = [&]() -> awaitable<bool> { co_return last == "nobody"; };
            co_await eventually(gone, 12s, "nobody leads");
        }
        CHECK(std::is_sorted(revisions.begin(), revisions.end()));
        following.cancel();
        const ending end = co_await following.how_it_ended();
        CHECK(end.code == asio::error::operation_aborted);
        co_await s.close();
    });
}

TEST_CASE("lead runs one body at a time, through restarts and lost sessions", "[election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server server;
        const std::string name = unique_name("office");
        struct {
            int inside[2] = {};
            int most = 0; // at a time, of one of them
            std::vector<std::int64_t> terms;
            coetcd::lease_id lease = 0; // the leader's, once that is known
        } seen;
        const client c(executor, server.url());
        const auto body_of = [&](std::size_t who) {
            return [&, who](const leadership& l) -> awaitable<void> {
                struct stay {
                    int& inside;
                    ~stay() { --inside; }
                };
                seen.most = std::max(seen.most, ++seen.inside[who]);
                const stay here{seen.inside[who]};
                seen.terms.push_back(l.term());
                seen.lease = 0;
                const auto now = co_await coetcd::leader_of(c, name);
                seen.lease = now ? now->lease : 0;
                co_await sleep_for(1h);
            };
        };
        coetcd::lead_options how;
        how.ttl = 3s;
        how.again = coetcd::again::always;
        std::vector<task<void>> both;
        for (std::size_t who = 0; who != 2; ++who) {
            auto leading = coetcd::lead(c, name, std::to_string(who), body_of(who), how);
            both.emplace_back(executor, std::move(leading));
        }
        const auto leads = [&](std::size_t terms) {
            return [&seen, terms]() -> awaitable<bool> {
                const bool one = seen.inside[0] + seen.inside[1] == 1;
                const bool known = seen.terms.size() >= terms && seen.lease != 0;
                co_return one&& known;
            };
        };
        co_await eventually(leads(1), 5s, "somebody leads");
        revoke_by_hand(server, seen.lease);
        co_await eventually(leads(2), 5s, "somebody leads after a lost session");
        REQUIRE(server.etcdctl({"del", "--prefix", name + "/"}).exit_code == 0);
        co_await eventually(leads(3), 5s, "somebody leads after keys were deleted");
        auto outage = [&server] {
            server.kill();
            server.start();
        };
        co_await in_thread(std::move(outage));
        const auto asked = [&]() -> awaitable<bool> { // the leader is the same in etcd and here
            const auto now = co_await coetcd::leader_of(c, name);
            co_return now && now->term == seen.terms.back() && now->lease == seen.lease;
        };
        co_await eventually(asked, 15s, "somebody leads after a restart");
        const std::size_t before = seen.terms.size();
        revoke_by_hand(server, seen.lease);
        co_await eventually(leads(before + 1), 15s, "somebody leads after a restart, and a loss");
        CHECK(seen.most == 1);
        for (task<void>& one : both) {
            one.cancel();
        }
        for (task<void>& one : both) {
            const ending end = co_await one.how_it_ended();
            CHECK(end.code == asio::error::operation_aborted);
        }
        CHECK(seen.inside[0] + seen.inside[1] == 0);
        co_await until_count(c, name, 0);
    });
}
