// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/verify.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
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
using coetcd::op;
using coetcd::session;
using coetcd::timed_claim;
using coetcd::txn;
using integration::connect;
using integration::until_waiting;

namespace {

/// Whether etcd still sees the ownership that `m` believes in.
awaitable<bool> is_owner(client c, const coetcd::mutex& m) {
    auto guarded = txn().when(m.is_owner());
    const auto proof = co_await c.txn(std::move(guarded));
    co_return proof.succeeded;
}

} // namespace

TEST_CASE("Hold a lock and tell its sequencer", "[.process]") {
    const std::string url = environment("COETCD_TEST_URL");
    if (url.empty()) {
        return; // not started by another test
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, url);
        session s = co_await open_session(c, 2s);
        coetcd::mutex m(s, environment("COETCD_TEST_NAME"));
        const held_lock held = co_await m.scoped_lock();
        std::cout << "\nsequencer " << held.sequencer().text() << std::endl;
        (void)co_await s.wait_lost();
    });
}

TEST_CASE("force_unlock in a race with a hand-over never hits the next holder", "[admin]") {
    run_test(
        []() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const client c = connect(executor);
            session s1 = co_await open_session(c, 60s);
            session s2 = co_await open_session(c, 60s);
            const std::string name = unique_name("force-race");
            coetcd::mutex one(s1, name);
            coetcd::mutex two(s2, name);
            coetcd::mutex* holder = &one;
            coetcd::mutex* next = &two;
            int hits = 0;
            int misses = 0;
            co_await holder->lock();
            for (int i = 0; i != 400; ++i) {
                const auto token = holder->fencing_token();
                task<void> waiting(executor, next->lock());
                if (i % 2 == 0) {
                    co_await until_waiting(*holder, 1);
                }
                bool forced = false;
                if (i % 4 == 0) { // it was there for certain
                    forced = co_await coetcd::force_unlock(c, name, token);
                    CHECK(forced);
                    const bool ours = co_await holder->unlock();
                    CHECK(!ours);
                } else {
                    task<bool> forcing(executor, coetcd::force_unlock(c, name, token));
                    co_await yield(i % 11);
                    if (i % 4 == 1) {
                        co_await sleep_for(std::chrono::microseconds(i % 13 * 150));
                    }
                    const bool ours = co_await holder->unlock();
                    forced = co_await forcing.result();
                    CHECK((forced || ours)); // one of them ended it
                }
                ++(forced ? hits : misses);
                co_await waiting.result();
                CHECK(next->fencing_token() > token);
                const bool late = co_await coetcd::force_unlock(c, name, token);
                CHECK(!late);
                const bool there = co_await is_owner(c, *next);
                REQUIRE(there);
                std::swap(holder, next);
            }
            CHECK(hits >= 100);
            CHECK(misses > 0);
            (void)co_await holder->unlock();
            co_await until_count(c, name + "/", 0);
            const auto epochs = co_await count(c, name + ".");
            CHECK(epochs <= 4); // two for each session
            co_await s1.close();
            co_await s2.close();
            co_await until_count(c, name, 0);
        },
        {});
}

TEST_CASE("force_unlock ends etcdctl's lock, and the next one gets it", "[admin][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("force-go");
        coetcd::mutex m(s, name);
        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        const auto key = co_await theirs.async_read_line();
        REQUIRE(key);
        const auto holder = co_await m.holder();
        REQUIRE(holder);
        CHECK(holder->key == *key);
        task<void> waiting(executor, m.lock());
        co_await until_waiting(m, 1);
        const auto position = co_await m.position();
        CHECK(position == 1U);
        const bool ended = co_await coetcd::force_unlock(c, name, holder->fencing_token);
        CHECK(ended);
        co_await waiting.result();
        const auto now = co_await m.position();
        CHECK(now == 0U);
        theirs.signal(SIGINT);
        (void)co_await theirs.async_wait();
        const bool still = co_await is_owner(c, m);
        CHECK(still); // its own unlock came too late to hit us
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A holder that watches its lock learns of force_unlock at once", "[admin]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 60s); // renewed every 20 s
        const std::string name = unique_name("force-watched");
        coetcd::lock_options options;
        options.watch_while_held = true;
        coetcd::mutex m(s, name, options);
        const held_lock held = co_await m.scoped_lock();
        task<coetcd::error_code> lost(executor, held.wait_lost());
        co_await sleep_for(200ms);
        CHECK(!lost.done());
        const bool ended = co_await coetcd::force_unlock(c, name, held.fencing_token());
        CHECK(ended);
        const auto before = clock::now();
        const auto why = co_await lost.result();
        CHECK(why == errc::lock_lost);
        CHECK(ms_between(before, clock::now()) < 1000);
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A holder gives way to a session that asks for the lock", "[admin]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const client other = connect(executor);
        session s1 = co_await open_session(c, 30s);
        session s2 = co_await open_session(other, 30s);
        const std::string name = unique_name("asked");
        coetcd::mutex m1(s1, name);
        coetcd::mutex m2(s2, name);
        auto body = []() -> awaitable<void> { co_await sleep_for(1h); };
        task<void> working(executor, coetcd::with_lock(m1, body, coetcd::yield_on_request(50ms)));
        auto held = [&m2]() -> awaitable<bool> {
            const auto holder = co_await m2.holder();
            co_return holder.has_value();
        };
        co_await eventually(held, 5s, "it is held");
        task<void> waiting(executor, m2.lock());
        co_await until_waiting(m2, 1);
        const auto asked = co_await coetcd::request_release(s2, name);
        REQUIRE(asked);
        const auto before = clock::now();
        co_await waiting.result();
        CHECK(ms_between(before, clock::now()) < 2000);
        CHECK(m2.fencing_token() > *asked);
        const ending end = co_await working.how_it_ended();
        CHECK(end.code == asio::error::operation_aborted);
        co_await s1.close();
        co_await s2.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("verify goes through etcd's consensus, and changes nothing", "[sequencer]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        const client c(executor, etcd.url());
        session s = co_await open_session(c, 60s);
        coetcd::mutex m(s, "m");
        const held_lock held = co_await m.scoped_lock();
        const coetcd::sequencer text = held.sequencer();
        const auto committed = [&] {
            return metric(etcd.port(), "etcd_server_proposals_committed_total");
        };
        constexpr int times = 20;
        const auto revision = [&]() -> awaitable<std::int64_t> {
            const auto r = co_await c.range("m");
            co_return r.header.revision;
        };
        const auto before = co_await revision();
        const double at_first = co_await committed();
        for (int i = 0; i != times; ++i) {
            const bool holds = co_await coetcd::verify(c, "m", text);
            REQUIRE(holds);
        }
        const double then = co_await committed();
        CHECK(then - at_first >= times);
        const auto after = co_await revision();
        CHECK(after == before);
        CHECK(held.owns_lock());
        // One that is made up, of a key that is there and is no lock's.
        const auto data = co_await c.put("a/b", "data");
        const coetcd::sequencer forged("coetcd1:exclusive:" + std::to_string(data.header.revision) +
                                       ":YS9i");
        const bool forged_holds = co_await coetcd::verify_of_any_lock(c, forged);
        CHECK(forged_holds);
        const bool of_lock = co_await coetcd::verify(c, "m", forged);
        CHECK(!of_lock);
        const auto still = co_await c.get("a/b");
        CHECK(still);
        co_await s.close();
    });
}

TEST_CASE("verify is false for a holder whose process stood still for longer than its ttl",
          "[sequencer][process]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("stopped");
        process_options options;
        options.environment = {
            "COETCD_TEST_URL=" + shared_etcd().url(), "COETCD_TEST_NAME=" + name, "COETCD_TALLY="};
        options.capture = true;
        background_process holder({"/proc/self/exe", "Hold a lock and tell its sequencer"},
                                  std::move(options));
        std::string text;
        while (text.empty()) {
            const auto line = co_await holder.async_read_line();
            REQUIRE(line);
            if (line->starts_with("sequencer ")) {
                text = line->substr(10);
            }
        }
        const coetcd::sequencer claimed(text);
        const bool first = co_await coetcd::verify(c, name, claimed);
        CHECK(first);
        holder.signal(SIGSTOP);
        co_await until_count(c, name, 0, 10s); // etcd ends the lease
        const bool then = co_await coetcd::verify(c, name, claimed);
        CHECK(!then);
        auto late = txn().when(coetcd::guard(name, claimed)).then(op::put(name + "-data", "late"));
        const auto written = co_await c.txn(std::move(late));
        CHECK(!written.succeeded);
        holder.signal(SIGCONT);
        (void)co_await holder.async_wait();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A claim excludes etcdctl lock and a mutex until its time is over",
          "[timed_claim][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("claim");
        coetcd::mutex m(s, name);

        co_await m.lock();
        const auto none = co_await coetcd::try_claim(c, name, 2s);
        CHECK(!none);
        const auto last = m.fencing_token();
        (void)co_await m.unlock();

        const auto began = clock::now();
        std::optional<timed_claim> claim = co_await coetcd::try_claim(c, name, 2s);
        REQUIRE(claim);
        CHECK(claim->owns_lock());
        CHECK(claim->fencing_token() > last);
        const auto lease = claim->lease();
        CHECK(lists_lease(shared_etcd(), lease));
        claim->keep();
        claim.reset();
        const bool busy = co_await m.try_lock();
        CHECK(!busy);
        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        const auto granted = co_await theirs.async_read_line();
        REQUIRE(granted);
        CHECK(ms_between(began, clock::now()) >= 1900);
        CHECK(ms_between(began, clock::now()) < 6000);

        // An attempt that waits for a claim waits for etcdctl, too.
        task<std::optional<timed_claim>> waiting(executor, coetcd::claim_for(c, name, {5s, 20s}));
        co_await sleep_for(300ms);
        CHECK(!waiting.done());
        theirs.signal(SIGINT);
        (void)co_await theirs.async_wait();
        std::optional<timed_claim> ours = co_await waiting.result();
        REQUIRE(ours);
        auto proof = txn().when(ours->is_owner());
        const auto proved = co_await c.txn(std::move(proof));
        CHECK(proved.succeeded);
        const bool released = co_await ours->release();
        CHECK(released);
        co_await s.close();
        co_await until_count(c, name, 0);
        CHECK(!lists_lease(shared_etcd(), lease));
    });
}

TEST_CASE("A claim that is given back early keeps others away for its minimum",
          "[timed_claim][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("minimum");
        coetcd::claim_times times;
        times.hold = 60s;
        times.min_hold = 3s;
        const auto began = clock::now();
        std::optional<timed_claim> claim = co_await coetcd::claim_for(c, name, times);
        REQUIRE(claim);
        const auto lease = claim->lease();
        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        const bool released = co_await claim->release();
        CHECK(released);
        auto none = co_await coetcd::claim_for(c, name, times);
        CHECK(!none);
        auto proof = txn().when(claim->is_owner());
        const auto proved = co_await c.txn(std::move(proof));
        CHECK(proved.succeeded);
        claim.reset(); // nothing more happens
        const auto granted = co_await theirs.async_read_line();
        REQUIRE(granted);
        CHECK(ms_between(began, clock::now()) >= 3000);
        CHECK(ms_between(began, clock::now()) < 8000);
        CHECK(!lists_lease(shared_etcd(), lease));
        theirs.signal(SIGINT);
        (void)co_await theirs.async_wait();
        co_await until_count(c, name, 0);

        // Given back when it has passed, it is free at once.
        times.min_hold = 1s;
        claim = co_await coetcd::claim_for(c, name, times);
        REQUIRE(claim);
        co_await sleep_for(1100ms); // that time itself is what is tested
        const bool later = co_await claim->release();
        CHECK(later);
        std::optional<timed_claim> next = co_await coetcd::try_claim(c, name, 10s);
        REQUIRE(next);
        const bool ended = co_await next->release();
        CHECK(ended);
    });
}

TEST_CASE("Of many claims at once exactly one is granted, time after time", "[timed_claim]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("claims");
        std::int64_t last = 0;
        for (int round = 0; round != 10; ++round) {
            std::vector<task<std::optional<timed_claim>>> all;
            for (int i = 0; i != 10; ++i) {
                all.emplace_back(executor, coetcd::try_claim(c, name, 10s));
            }
            std::optional<timed_claim> winner;
            int winners = 0;
            for (auto& one : all) {
                auto claim = co_await one.result();
                if (claim) {
                    ++winners;
                    winner.emplace(std::move(*claim));
                }
            }
            REQUIRE(winners == 1);
            CHECK(winner->fencing_token() > last);
            last = winner->fencing_token();
            const bool released = co_await winner->release();
            CHECK(released);
        }
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("After a holder that has vanished the next one waits, and not after others", "[delay]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s1 = co_await open_session(c, 60s);
        session s2 = co_await open_session(c, 60s);
        const std::string name = unique_name("delay");
        coetcd::lock_options options;
        options.delay = 1500ms;
        coetcd::mutex one(s1, name, options);
        coetcd::mutex same(s1, name, options);
        coetcd::mutex two(s2, name, options);
        co_await one.lock();
        task<void> next(executor, same.lock()); // handed over within the session
        co_await yield(10);
        const auto began = clock::now();
        const bool ours = co_await one.unlock();
        CHECK(ours);
        co_await next.result();
        task<void> other(executor, two.lock()); // and to another one
        co_await until_waiting(same, 1);
        const bool still = co_await same.unlock();
        CHECK(still);
        co_await other.result();
        CHECK(ms_between(began, clock::now()) < 1400);
        const auto note = co_await c.get(name + ".own");
        REQUIRE(note);
        CHECK(note->value == two.key());

        task<void> waiting(executor, one.lock());
        co_await until_waiting(two, 1);
        revoke_by_hand(shared_etcd(), s2.lease());
        const auto gone = clock::now();
        co_await waiting.result();
        CHECK(ms_between(gone, clock::now()) >= 1400);
        CHECK(ms_between(gone, clock::now()) < 5000);
        const bool there = co_await is_owner(c, one);
        CHECK(there);
        (void)co_await one.unlock();
        CHECK(s1.state() == coetcd::session_state::active);
        co_await s1.close();
        co_await s2.close();
        co_await until_count(c, name, 0);
    });
}
