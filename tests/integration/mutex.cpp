// SPDX-License-Identifier: BSL-1.0
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <iostream>
#include <mutex>
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
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::held_lock;
using coetcd::op;
using coetcd::session;
using coetcd::session_end;
using coetcd::txn;
using integration::connect;
using integration::until_waiting;

namespace {

/// What most tests begin with: a session, and a mutex of it.
struct beginning {
    client c;
    session s;
    std::string name;
    coetcd::mutex m;
};
awaitable<beginning> begin(std::string what) {
    const auto executor = co_await asio::this_coro::executor;
    const client c = connect(executor);
    session s = co_await open_session(c, 30s);
    const std::string name = unique_name(what);
    coetcd::mutex m(s, name);
    beginning all{c, std::move(s), name, std::move(m)};
    co_return all;
}

/// And those of two sessions, which both have a mutex of the same name.
struct rivalry {
    client c;
    session s1;
    session s2;
    std::string name;
    coetcd::mutex one;
    coetcd::mutex two;
};
awaitable<rivalry> begin_two(std::string what) {
    beginning first = co_await begin(std::move(what));
    session second = co_await open_session(first.c, 30s);
    coetcd::mutex two(second, first.name);
    rivalry all{std::move(first.c),
                std::move(first.s),
                std::move(second),
                std::move(first.name),
                std::move(first.m),
                std::move(two)};
    co_return all;
}

awaitable<void> sleep_until_cancelled(bool& began, bool& ended) {
    began = true;
    try {
        co_await sleep_for(1h);
    } catch (const boost::system::system_error&) {
        ended = true;
        throw;
    }
}

/// A bound of the specification, and what a busy machine may add to it.
constexpr auto slack = 1s;

/// This program again, as another process that runs one test: one of the hidden ones below.
background_process
another_process(const std::string& test, const std::string& name, std::chrono::seconds ttl) {
    process_options options;
    options.environment = {"COETCD_TEST_URL=" + shared_etcd().url(),
                           "COETCD_TEST_NAME=" + name,
                           "COETCD_TEST_TTL=" + std::to_string(ttl.count()),
                           "COETCD_TALLY="};
    options.capture = true;
    return background_process({"/proc/self/exe", test}, std::move(options));
}

awaitable<void> until_it_says(background_process& process, std::string expected) {
    std::string said;
    for (;;) {
        const auto line = co_await process.async_read_line();
        if (!line) {
            throw std::runtime_error("it ended without saying \"" + expected + "\", but: " + said);
        }
        if (*line == expected) {
            co_return;
        }
        said += *line + '\n';
    }
}

} // namespace

TEST_CASE("Hold a lock until killed", "[.process]") {
    const std::string url = environment("COETCD_TEST_URL");
    if (url.empty()) {
        return; // not started by another test
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, url);
        session s = co_await open_session(
            c, std::chrono::seconds(std::stoi(environment("COETCD_TEST_TTL"))));
        coetcd::mutex m(s, environment("COETCD_TEST_NAME"));
        co_await m.lock();
        std::cout << "\nholding" << std::endl;
        (void)co_await s.wait_lost();
    });
}

TEST_CASE("Hold a lock until it is lost and write then", "[.process]") {
    const std::string url = environment("COETCD_TEST_URL");
    if (url.empty()) {
        return; // not started by another test
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, url);
        session s = co_await open_session(
            c, std::chrono::seconds(std::stoi(environment("COETCD_TEST_TTL"))));
        coetcd::mutex m(s, environment("COETCD_TEST_NAME"));
        co_await m.lock();
        auto write = txn().when(m.is_owner()).then(op::put(m.name() + "-data", "stale"));
        std::cout << "\nholding" << std::endl;
        while (m.owns_lock()) {
            co_await sleep_for(10ms);
        }
        std::cout << "lost: " << describe(s.reason()) << std::endl;
        const auto written = co_await c.txn(std::move(write));
        std::cout << (written.succeeded ? "written" : "refused") << std::endl;
    });
}

TEST_CASE("A lock is taken, proved and given back", "[mutex]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await begin("lock");
        auto& [c, s, name, m] = all;
        CHECK(m.name() == name);
        CHECK(!m.owns_lock());
        const auto not_held = [&](auto call) {
            try {
                call();
                FAIL("it is not held");
            } catch (const coetcd::error& e) {
                CHECK(e.code() == errc::not_owner);
                CHECK(e.code() == coetcd::condition::ownership_lost);
            }
        };
        not_held([&] { (void)m.fencing_token(); });
        not_held([&] { (void)m.is_owner(); });
        not_held([&] { (void)m.key(); });
        not_held([&] { (void)held_lock(m, std::adopt_lock); });
        const bool nothing = co_await m.unlock();
        CHECK(!nothing);

        co_await m.lock();
        CHECK(m.owns_lock());
        CHECK_THAT(m.key(), Catch::Matchers::StartsWith(name + "/" + hex(s.lease())));
        const auto kv = co_await c.get(m.key());
        REQUIRE(kv);
        CHECK(kv->create_revision == m.fencing_token());
        CHECK(kv->lease == s.lease());
        auto guarded = txn().when(m.is_owner()).then(op::range(m.key()));
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(proof.succeeded);

        const auto first = m.fencing_token();
        const bool ours = co_await m.unlock();
        CHECK(ours);
        CHECK(!m.owns_lock());
        const bool twice = co_await m.unlock();
        CHECK(!twice);
        CHECK(shared_etcd().etcdctl({"get", "--prefix", name}).output.empty());

        co_await m.lock();
        CHECK(m.fencing_token() > first);
        (void)co_await m.unlock();
        co_await s.close();
    });
}

TEST_CASE("A guard gives the lock back, also one that adopted it", "[mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await session::open(c);
        const std::string name = unique_name("guard");
        {
            coetcd::mutex m(s, name);
            held_lock held = co_await m.scoped_lock();
            CHECK(held.owns_lock());
            CHECK(m.owns_lock());
            CHECK(held.fencing_token() == m.fencing_token());
            CHECK(held.key() == m.key());
            const auto there = co_await count(c, name + "/");
            CHECK(there == 1);
        }
        co_await until_count(c, name, 0);
        coetcd::mutex kept(s, name);
        { const held_lock held = co_await kept.scoped_lock(); }
        CHECK(!kept.owns_lock());
        co_await until_count(c, name, 0);
        {
            coetcd::mutex m(s, name);
            co_await m.lock();
            held_lock held(m, std::adopt_lock);
            CHECK(held);
            held_lock moved = std::move(held);
            CHECK(moved);
            CHECK(!held); // NOLINT: a guard that was moved from holds nothing
            const bool ours = co_await moved.unlock();
            CHECK(ours);
            CHECK(!moved);
            CHECK(!m.owns_lock());
            const bool twice = co_await moved.unlock();
            CHECK(!twice);
        }
        // A guard outlives its mutex, and holds on.
        std::optional<held_lock> held;
        {
            coetcd::mutex m(s, name);
            held_lock taken = co_await m.scoped_lock();
            held.emplace(std::move(taken));
        }
        coetcd::mutex other(s, name);
        const bool busy = co_await other.try_lock();
        CHECK(!busy);
        CHECK(held->owns_lock());
        held.reset();
        co_await other.lock();
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A mutex that is destroyed gives its lock back", "[mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await session::open(c);
        const std::string name = unique_name("mutex");
        {
            coetcd::mutex m(s, name);
            co_await m.lock();
        }
        co_await until_count(c, name, 0);
        coetcd::mutex one(s, name);
        co_await one.lock();
        coetcd::mutex other(s, name + "-other");
        co_await other.lock();
        one = std::move(other);
        CHECK(one.owns_lock());
        CHECK(one.name() == name + "-other");
        co_await until_count(c, name + "/", 0);
        co_await s.close();
    });
}

TEST_CASE("try_lock takes a lock that is free, and leaves nothing if it is not", "[mutex]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await begin_two("try");
        auto& [c, s1, s2, name, one, other] = all;
        coetcd::mutex same_session(s1, name);

        const bool first = co_await one.try_lock();
        CHECK(first);
        CHECK(one.owns_lock());
        auto guarded = txn().when(one.is_owner());
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(proof.succeeded);
        const bool second = co_await other.try_lock();
        CHECK(!second);
        const bool third = co_await same_session.try_lock();
        CHECK(!third);
        const bool again = co_await one.try_lock(); // it is not recursive
        CHECK(!again);
        CHECK(one.owns_lock());
        co_await until_count(c, name, 1);

        (void)co_await one.unlock();
        const bool after = co_await other.try_lock();
        CHECK(after);
        co_await s1.close();
        co_await s2.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("try_lock_for waits for so long, and try_lock_until until then", "[mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin_two("timed");
        auto& [c, s1, s2, name, one, other] = all;
        coetcd::mutex same_session(s1, name);
        co_await one.lock();

        const std::vector<coetcd::mutex*> both{&same_session, &other};
        for (coetcd::mutex* m : both) {
            const auto start = clock::now();
            const bool in_vain = co_await m->try_lock_for(300ms);
            CHECK(!in_vain);
            CHECK(ms_between(start, clock::now()) >= 300);
            CHECK(ms_between(start, clock::now()) < 300 + 1000);
            const auto then = std::chrono::system_clock::now() + 200ms;
            const bool again = co_await m->try_lock_until(then);
            CHECK(!again);
            CHECK(std::chrono::system_clock::now() >= then);
            const bool at_once = co_await m->try_lock_for(0s);
            CHECK(!at_once);
            const bool past = co_await m->try_lock_until(clock::now() - 1h);
            CHECK(!past);
        }
        co_await until_count(c, name + "/", 1); // an epoch lives with its session

        const std::vector<coetcd::mutex*> in_turn{&other, &same_session};
        for (coetcd::mutex* m : in_turn) {
            task<bool> waiting(executor, m->try_lock_for(std::chrono::nanoseconds::max()));
            co_await yield(20);
            CHECK(!waiting.done());
            (void)co_await one.unlock();
            const bool got = co_await waiting.result();
            CHECK(got);
            CHECK(m->owns_lock());
            (void)co_await m->unlock();
            co_await one.lock();
        }
        co_await s1.close();
        co_await s2.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Of many attempts at once exactly one gets the lock", "[mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        std::vector<session> sessions;
        for (int i = 0; i < 30; ++i) {
            session s = co_await session::open(c);
            sessions.push_back(std::move(s));
        }
        for (int round = 0; round < 5; ++round) {
            const std::string name = unique_name("race");
            std::vector<coetcd::mutex> all;
            for (const session& s : sessions) {
                all.emplace_back(s, name);
                all.emplace_back(s, name);
            }
            std::vector<task<bool>> racers;
            for (std::size_t i = 0; i < all.size(); ++i) {
                racers.emplace_back(executor,
                                    i % 2 == 0 ? all[i].try_lock() : all[i].try_lock_for(1ms));
            }
            int winners = 0;
            for (std::size_t i = 0; i < all.size(); ++i) {
                auto running = racers[i].result();
                const auto ended = co_await coetcd::as_result(std::move(running));
                const bool won = ended.has_value() && *ended;
                CHECK(won == all[i].owns_lock());
                // 1 ms can be too short for any answer.
                CHECK((ended.has_value() || ended.error().code() == errc::timed_out));
                winners += won ? 1 : 0;
            }
            // Those with patience may all be in a queue, behind one that leaves it.
            CHECK(winners <= 1);
        }
        for (int round = 0; round < 5; ++round) {
            const std::string name = unique_name("race");
            std::vector<coetcd::mutex> all;
            for (const session& s : sessions) {
                all.emplace_back(s, name);
                all.emplace_back(s, name);
            }
            std::vector<task<bool>> racers;
            for (coetcd::mutex& m : all) {
                racers.emplace_back(executor, m.try_lock());
            }
            int winners = 0;
            for (auto& racer : racers) {
                const bool won = co_await racer.result();
                winners += won ? 1 : 0;
            }
            CHECK(winners == 1);
        }
        for (session& s : sessions) {
            co_await s.close();
        }
    });
}

TEST_CASE("holder and waiters tell who has the lock and who is next", "[mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s1 = co_await open_session(c, 10s, "till 1");
        session s2 = co_await open_session(c, 10s, "till 2");
        session s3 = co_await open_session(c, 10s, std::string("till\0\xff", 6));
        const std::string name = unique_name("queue");
        coetcd::mutex m1(s1, name);
        coetcd::mutex m2(s2, name);
        coetcd::mutex m3(s3, name);

        const auto nobody = co_await m1.holder();
        CHECK(!nobody);
        co_await m1.lock();
        task<void> second(executor, m2.lock());
        co_await until_waiting(m1, 1);
        task<void> third(executor, m3.lock());
        co_await until_waiting(m1, 2);

        const auto holder = co_await m3.holder();
        REQUIRE(holder);
        CHECK(holder->key == m1.key());
        CHECK(holder->label == "till 1");
        CHECK(holder->lease == s1.lease());
        CHECK(holder->fencing_token == m1.fencing_token());
        const auto waiting = co_await m3.waiters();
        REQUIRE(waiting.size() == 2);
        CHECK(waiting[0].label == "till 2");
        CHECK(waiting[0].lease == s2.lease());
        CHECK(waiting[1].label == std::string("till\0\xff", 6));
        CHECK(waiting[0].fencing_token < waiting[1].fencing_token);

        (void)co_await m1.unlock();
        co_await second.result();
        const auto next = co_await m1.holder();
        REQUIRE(next);
        CHECK(next->label == "till 2");
        (void)co_await m2.unlock();
        co_await third.result();
        co_await s1.close();
        co_await s2.close();
        co_await s3.close();
    });
}

TEST_CASE("A waiter whose lease is revoked ends its wait, while the holder holds on",
          "[mutex][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin_two("revoked");
        auto& [c, holding, waiting, name, held, wanted] = all;
        coetcd::mutex same_session(waiting, name);
        co_await held.lock();
        task<void> lock(executor, wanted.lock());
        task<void> queued_here(executor, same_session.lock());
        co_await until_waiting(held, 1);

        revoke_by_hand(shared_etcd(), waiting.lease());
        const auto before = clock::now();
        const auto e = co_await lock.how_it_ended();
        CHECK(e.code == errc::session_lost);
        CHECK(e.code == coetcd::condition::ownership_lost);
        CHECK_THAT(e.text, contains(name));
        CHECK(ms_between(before, e.when) < 1000);
        const auto other = co_await queued_here.how_it_ended();
        CHECK(other.code == errc::session_lost);
        CHECK(ms_between(before, other.when) < 1000);
        CHECK(waiting.reason() == session_end::expired);

        CHECK(held.owns_lock());
        auto guarded = txn().when(held.is_owner());
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(proof.succeeded);
        const auto after = co_await ending_of(wanted.lock());
        CHECK(after.code == errc::session_lost);
        co_await holding.close();
    });
}

TEST_CASE("A lock goes on under the session that adopts its lease", "[mutex][resume]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin_two("resumed");
        auto& [c, first, rival, name, before, theirs] = all;
        co_await before.lock();
        const auto token = before.fencing_token();
        task<void> waiting(executor, theirs.lock());
        co_await until_waiting(theirs, 1);

        const coetcd::lease_id lease = first.orphan();
        std::optional<session> heir = co_await session::adopt(c, lease);
        REQUIRE(heir);
        coetcd::mutex after(*heir, name);
        const bool resumed = co_await after.resume();
        CHECK(resumed);
        CHECK(after.fencing_token() == token);
        auto guarded = txn().when(after.is_owner());
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(proof.succeeded);
        const bool again = co_await after.resume();
        CHECK_FALSE(again);
        CHECK_FALSE(waiting.done());

        const bool given_back = co_await after.unlock();
        CHECK(given_back);
        co_await waiting.result();
        CHECK(theirs.fencing_token() > token);
        co_await heir->close();
        co_await rival.close();
    });
}

TEST_CASE("A waiter whose key is deleted by hand ends its wait", "[mutex][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin_two("deleted");
        auto& [c, holding, waiting, name, held, wanted] = all;
        co_await held.lock();
        task<void> lock(executor, wanted.lock());
        co_await until_waiting(held, 1);
        const auto queue = co_await held.waiters();

        REQUIRE(shared_etcd().etcdctl({"del", queue.at(0).key}).output == "1\n");
        const auto before = clock::now();
        const auto e = co_await lock.how_it_ended();
        CHECK(e.code == errc::lock_lost);
        CHECK(e.code == coetcd::condition::ownership_lost);
        CHECK(ms_between(before, e.when) < 1000);
        CHECK(waiting.state() == coetcd::session_state::active);
        CHECK(held.owns_lock());

        // The session is as good as ever.
        task<void> again(executor, wanted.lock());
        co_await until_waiting(held, 1);
        (void)co_await held.unlock();
        co_await again.result();
        CHECK(wanted.owns_lock());
        co_await holding.close();
        co_await waiting.close();
    });
}

TEST_CASE("A holder whose key is deleted by hand is told with the next renewal", "[mutex][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 6s);
        const std::string name = unique_name("deleted");
        coetcd::mutex lost(s, name + "-lost");
        coetcd::mutex kept(s, name + "-kept");
        co_await lost.lock();
        co_await kept.lock();
        const auto guard = lost.is_owner();
        REQUIRE(shared_etcd().etcdctl({"del", lost.key()}).output == "1\n");
        auto told = [&]() -> awaitable<bool> { co_return !lost.owns_lock(); };
        co_await eventually(told, 2s + slack, "the loss is told");
        CHECK(kept.owns_lock());
        CHECK(s.state() == coetcd::session_state::active);
        auto guarded = txn().when(guard);
        const auto proof = co_await c.txn(std::move(guarded));
        CHECK(!proof.succeeded);
        const bool ours = co_await lost.unlock();
        CHECK(!ours);
        co_await lost.lock(); // anew
        CHECK(lost.owns_lock());
        co_await s.close();
    });
}

TEST_CASE("What is guarded by is_owner is not written after a loss", "[mutex][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin_two("guarded");
        auto& [c, s1, s2, name, first, second] = all;
        co_await first.lock();
        task<void> next(executor, second.lock());
        co_await until_waiting(first, 1);

        const std::string data = name + "-data";
        const auto write = [&](const coetcd::compare& guard, const char* value) {
            return c.txn(txn().when(guard).then(op::put(data, value)));
        };
        auto early = write(first.is_owner(), "first");
        const auto written = co_await std::move(early);
        CHECK(written.succeeded);

        const auto stale = first.is_owner();
        revoke_by_hand(shared_etcd(), s1.lease());
        co_await next.result();
        CHECK(first.owns_lock()); // it does not know yet
        auto late = write(stale, "stale");
        const auto refused = co_await std::move(late);
        CHECK(!refused.succeeded);
        auto good = write(second.is_owner(), "second");
        const auto accepted = co_await std::move(good);
        CHECK(accepted.succeeded);
        const auto left = co_await c.get(data);
        REQUIRE(left);
        CHECK(left->value == "second");

        const bool ours = co_await first.unlock();
        CHECK(!ours);
        CHECK(second.owns_lock());
        (void)co_await c.erase(data);
        co_await s2.close();
    });
}

TEST_CASE("A holder whose process is killed is succeeded within its ttl", "[mutex][process]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("killed");
        const auto ttl = 3s;
        auto holder = another_process("Hold a lock until killed", name, ttl);
        co_await until_it_says(holder, "holding");

        session s = co_await open_session(c, 30s);
        coetcd::mutex m(s, name);
        const bool busy = co_await m.try_lock();
        CHECK(!busy);
        task<void> next(executor, m.lock());
        co_await until_waiting(m, 1);
        co_await sleep_for(ttl); // it goes on holding
        CHECK(!next.done());

        holder.signal(SIGKILL);
        const auto before = clock::now();
        co_await next.result();
        const auto took = ms_between(before, next.ended());
        std::cout << "succession to a holder that was killed: " << took << " ms, with a ttl of "
                  << ttl.count() << " s\n";
        CHECK(took < std::chrono::duration<double, std::milli>(ttl + 2s).count());
        CHECK(m.owns_lock());
        co_await s.close();
    });
}

TEST_CASE("A holder whose process stood still learns that it is not the owner any more",
          "[mutex][process]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("stopped");
        auto holder = another_process("Hold a lock until it is lost and write then", name, 2s);
        co_await until_it_says(holder, "holding");
        session s = co_await open_session(c, 30s);
        coetcd::mutex m(s, name);
        task<void> next(executor, m.lock());
        co_await until_waiting(m, 1);

        holder.signal(SIGSTOP);
        const auto before = clock::now();
        co_await next.result();
        CHECK(next.ended() - before < 2s + 2s);
        holder.signal(SIGCONT);
        co_await until_it_says(holder, "lost: no renewal succeeded in time");
        co_await until_it_says(holder, "refused");
        CHECK(m.owns_lock());
        (void)co_await holder.async_wait();
        co_await s.close();
    });
}

TEST_CASE("A lock that its session retains costs no request, and goes to etcdctl lock",
          "[mutex][retain][etcdctl]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await begin("retained");
        auto& [c, s, name, m] = all;
        coetcd::lock_options how;
        how.retain = 60s;
        coetcd::mutex kept(s, name, how);
        co_await kept.lock();
        const auto token = kept.fencing_token();
        for (int i = 0; i != 1000; ++i) {
            const bool was_ours = co_await kept.unlock();
            REQUIRE(was_ours);
            co_await kept.lock();
        }
        CHECK(kept.fencing_token() == token);
        (void)co_await kept.unlock();
        co_await until_count(c, name + "/", 1);

        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        const auto key = co_await theirs.async_read_line();
        REQUIRE(key);
        const auto holder = co_await kept.holder();
        REQUIRE(holder);
        CHECK(holder->key == *key);
        theirs.signal(SIGINT);
        co_await kept.lock();
        CHECK(kept.fencing_token() > token);
        (void)co_await kept.unlock();
        (void)co_await theirs.async_wait();
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A mutex and etcdctl lock exclude each other", "[mutex][etcdctl]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin("go");
        auto& [c, s, name, m] = all;

        auto theirs = shared_etcd().background_etcdctl({"lock", name});
        const auto key = co_await theirs.async_read_line();
        REQUIRE(key);
        const auto holder = co_await m.holder();
        REQUIRE(holder);
        CHECK(holder->key == *key);
        const bool busy = co_await m.try_lock();
        CHECK(!busy);
        task<void> next(executor, m.lock());
        co_await until_waiting(m, 1);
        CHECK(!next.done());
        theirs.signal(SIGINT);
        const auto before = clock::now();
        co_await next.result();
        CHECK(ms_between(before, clock::now()) < 1000);
        CHECK(m.owns_lock());

        auto waiting = shared_etcd().background_etcdctl({"lock", name});
        co_await until_waiting(m, 1);
        const auto queue = co_await m.waiters();
        (void)co_await m.unlock();
        const auto granted = co_await waiting.async_read_line();
        REQUIRE(granted);
        CHECK(*granted == queue.at(0).key);
        const bool again = co_await m.try_lock();
        CHECK(!again);
        waiting.signal(SIGINT);
        (void)co_await waiting.async_wait();
        (void)co_await theirs.async_wait();
        co_await m.lock();
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("An unlock whose answer is lost, and that is repeated, spares the next owner",
          "[mutex][late]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        coetcd::client_options options;
        options.attempt_timeout = 700ms;
        options.request_timeout = 20s;
        const client c(executor, proxy.url(), options);
        const client direct = connect(executor);
        session s1 = co_await open_session(c, 30s);
        session s2 = co_await open_session(direct, 30s);
        const std::string name = unique_name("late-unlock");
        coetcd::mutex first(s1, name);
        coetcd::mutex second(s2, name);
        coetcd::mutex third(s1, name);
        co_await first.lock();
        task<void> next(executor, second.lock());
        co_await until_waiting(second, 1);

        // Its first attempt succeeds, and the answer to it is lost.
        proxy.answers(traffic::lose);
        task<bool> unlock(executor, first.unlock());
        CHECK(!first.owns_lock());
        co_await next.result();
        const auto answered = proxy.count().received_answers;
        const auto connections = proxy.count().accepted;
        CHECK(!unlock.done());
        auto repeated = [&]() -> awaitable<bool> {
            co_return (proxy.count().accepted > connections) &&
                (proxy.count().received_answers > answered);
        };
        co_await eventually(repeated, 10s, "the unlock is repeated, and answered");
        proxy.answers(traffic::pass);
        const bool ours = co_await unlock.result();
        CHECK(ours);

        const auto is_untouched = [&](const coetcd::mutex& m) -> awaitable<bool> {
            auto guarded = txn().when(m.is_owner());
            const auto proof = co_await direct.txn(std::move(guarded));
            co_return proof.succeeded&& m.owns_lock();
        };
        const bool untouched = co_await is_untouched(second);
        CHECK(untouched);
        (void)co_await second.unlock();

        // The first attempt is delayed, and arrives when the same session has the lock again.
        co_await third.lock();
        proxy.present_requests(traffic::hold); // connections to come are not held up
        task<bool> delayed(executor, third.unlock());
        const bool released = co_await delayed.result();
        CHECK(released);
        CHECK(proxy.held_requests() > 0);
        co_await first.lock();
        const auto so_far = proxy.count().received_answers;
        proxy.present_requests(traffic::pass);
        auto arrived = [&]() -> awaitable<bool> {
            co_return proxy.count().received_answers > so_far;
        };
        co_await eventually(arrived, 5s, "the late unlock is answered");
        const bool still = co_await is_untouched(first);
        CHECK(still);
        co_await s1.close();
        co_await s2.close();
    });
}

TEST_CASE("A lock is taken once although the answers are lost", "[mutex][late]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        coetcd::client_options options;
        options.attempt_timeout = 300ms;
        const client c(executor, proxy.url(), options);
        const client direct = connect(executor);
        session s1 = co_await open_session(c, 30s);
        session s2 = co_await open_session(direct, 30s);
        const std::string name = unique_name("lost-answers");
        coetcd::mutex m(s1, name);
        coetcd::mutex other(s2, name);
        const auto answers_again = [&](std::size_t connections) -> awaitable<void> {
            auto repeated = [&]() -> awaitable<bool> {
                co_return proxy.count().accepted >= connections + 2;
            };
            co_await eventually(repeated, 10s, "it is tried again");
            proxy.answers(traffic::pass);
        };

        // The answers to the request to enter an empty queue are lost.
        proxy.answers(traffic::lose);
        task<void> lock(executor, m.lock());
        co_await answers_again(proxy.count().accepted);
        co_await lock.result();
        CHECK(m.owns_lock());
        const auto n = co_await count(direct, name + "/");
        CHECK(n == 1);
        auto guarded = txn().when(m.is_owner());
        const auto proof = co_await direct.txn(std::move(guarded));
        CHECK(proof.succeeded);
        (void)co_await m.unlock();

        // The same with a queue that is held, so that the request leads to a wait.
        co_await other.lock();
        proxy.answers(traffic::lose);
        task<void> behind(executor, m.lock());
        co_await answers_again(proxy.count().accepted);
        co_await until_waiting(other, 1);
        CHECK(!behind.done());
        (void)co_await other.unlock();
        co_await behind.result();
        CHECK(m.owns_lock());

        // The same with a try.
        (void)co_await m.unlock();
        proxy.answers(traffic::lose);
        task<bool> attempt(executor, m.try_lock());
        co_await answers_again(proxy.count().accepted);
        const bool got = co_await attempt.result();
        CHECK(got);
        const auto one = co_await count(direct, name + "/");
        CHECK(one == 1);
        co_await s1.close();
        co_await s2.close();
    });
}

TEST_CASE("A request to enter that arrives after its lock() was cancelled leaves no key",
          "[mutex][late]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        const client c(executor, proxy.url());
        const client direct = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("late-enter");
        coetcd::mutex m(s, name);
        coetcd::mutex other(s, unique_name("other"));
        std::int64_t epoch = 0;
        for (int round = 0; round < 10; ++round) {
            co_await other.lock(); // so that locks have a connection to be held up
            (void)co_await other.unlock();
            proxy.present_requests(traffic::hold);
            task<void> lock(executor, m.lock());
            auto held = [&]() -> awaitable<bool> { co_return proxy.held_requests() > 0; };
            co_await eventually(held, 5s, "the request is under way");
            lock.cancel();
            const auto e = co_await lock.how_it_ended();
            CHECK(e.code == asio::error::operation_aborted);
            // Another copy goes another way, and so does the clean-up: there is another epoch.
            auto cleaned = [&]() -> awaitable<bool> {
                const coetcd::range_response found =
                    co_await direct.range(coetcd::key_range::prefix(name + "."));
                std::int64_t newest = 0;
                for (const auto& kv : found.kvs) {
                    newest = std::max(newest, kv.mod_revision);
                }
                const bool another = newest > epoch;
                epoch = std::max(epoch, newest);
                co_return another;
            };
            co_await eventually(cleaned, 5s, "the clean-up is done");
            const auto so_far = proxy.count().received_answers;
            proxy.present_requests(traffic::pass);
            auto arrived = [&]() -> awaitable<bool> {
                co_return proxy.count().received_answers > so_far;
            };
            co_await eventually(arrived, 5s, "the late request is answered");
            const auto left = co_await count(direct, name + "/");
            CHECK(left == 0);
        }
        CHECK(s.state() == coetcd::session_state::active);
        co_await m.lock();
        CHECK(m.owns_lock());
        co_await s.close();
        co_await until_count(direct, name, 0);
    });
}

TEST_CASE("A lock that is given back while the waiter is cut off is handed over", "[mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        const client direct = connect(executor);
        const client c(executor, proxy.url());
        session s1 = co_await open_session(direct, 60s);
        session s2 = co_await open_session(c, 60s);
        const std::string name = unique_name("cut-off");
        coetcd::mutex first(s1, name);
        coetcd::mutex second(s2, name);
        co_await first.lock();
        task<void> next(executor, second.lock());
        co_await until_waiting(first, 1);
        proxy.refuse(true);
        proxy.cut();
        (void)co_await first.unlock(); // an event that no watch tells of
        co_await yield(20);
        CHECK(!next.done());
        proxy.refuse(false);
        const auto before = clock::now();
        co_await next.result();
        CHECK(ms_between(before, next.ended()) < 3000); // far sooner than it looks by itself
        CHECK(second.owns_lock());
        co_await s1.close();
        co_await s2.close();
    });
}

TEST_CASE("A lock is waited for across a restart of etcd", "[mutex][restart]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct(executor, etcd.url());
        const client c(executor, etcd.url());
        session s1 = co_await open_session(direct, 30s);
        session s2 = co_await open_session(c, 30s);
        coetcd::mutex first(s1, "m");
        coetcd::mutex second(s2, "m");
        co_await first.lock();
        task<void> next(executor, second.lock());
        co_await until_waiting(first, 1);
        const std::function<void()> restart = [&] {
            etcd.kill();
            etcd.start();
        };
        co_await in_thread(restart);
        CHECK(!next.done());
        CHECK(first.owns_lock());
        (void)co_await first.unlock();
        const auto before = clock::now();
        co_await next.result();
        CHECK(ms_between(before, clock::now()) < 5000);
        CHECK(second.owns_lock());
        co_await s1.close();
        co_await s2.close();
    };
    run_test(body);
}

TEST_CASE("with_lock runs its body under the lock, and gives it back", "[mutex][with_lock]") {
    run_test([]() -> awaitable<void> {
        auto all = co_await begin("with");
        auto& [c, s, name, m] = all;
        const auto is_free = [&]() -> awaitable<bool> {
            const auto n = co_await count(c, name + "/");
            co_return n == 0;
        };

        const auto plain = [&]() -> awaitable<int> {
            const auto n = co_await count(c, name + "/");
            co_return m.owns_lock() && n == 1 ? 42 : 0;
        };
        const int answer = co_await coetcd::with_lock(m, plain);
        CHECK(answer == 42);
        co_await eventually(is_free, 5s, "the lock is free");

        const auto guarded = [&](const held_lock& held) -> awaitable<std::int64_t> {
            co_return held.fencing_token();
        };
        const auto token = co_await coetcd::with_lock(m, guarded);
        CHECK(token > 0);

        const auto throwing = [&]() -> awaitable<void> {
            co_await yield(3);
            throw std::runtime_error("out of stock");
        };
        std::string thrown;
        try {
            co_await coetcd::with_lock(m, throwing);
        } catch (const std::runtime_error& e) {
            thrown = e.what();
        }
        CHECK(thrown == "out of stock");
        co_await eventually(is_free, 5s, "the lock is free again");
        co_await s.close();
    });
}

TEST_CASE("with_lock cancels its body when the lock is lost", "[mutex][with_lock][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("with-loss");
        for (int by_revoke = 0; by_revoke < 2; ++by_revoke) {
            session s = co_await open_session(c, 6s);
            coetcd::mutex m(s, name);
            bool began = false;
            bool ended = false;
            const auto body = [&]() -> awaitable<void> {
                co_await sleep_until_cancelled(began, ended);
            };
            task<void> work(executor, coetcd::with_lock(m, body));
            auto is_at_work = [&]() -> awaitable<bool> { co_return began; };
            co_await eventually(is_at_work, 5s, "the body runs");
            if (by_revoke != 0) {
                revoke_by_hand(shared_etcd(), s.lease());
            } else {
                REQUIRE(shared_etcd().etcdctl({"del", m.key()}).output == "1\n");
            }
            const auto before = clock::now();
            bool nested = false;
            try {
                co_await work.result();
                FAIL("the loss is not reported");
            } catch (const coetcd::error& e) {
                CHECK(e.code() == (by_revoke != 0 ? errc::session_lost : errc::lock_lost));
                try {
                    std::rethrow_if_nested(e);
                } catch (const boost::system::system_error& inner) {
                    nested = inner.code() == asio::error::operation_aborted;
                }
            }
            CHECK(ended);
            CHECK(nested);
            CHECK(ms_between(before, work.ended()) < 2000 + 1000); // ttl/3, and a busy machine
            co_await s.close();
        }
    });
}

TEST_CASE("with_lock reports a loss although its body succeeded", "[mutex][with_lock][loss]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        coetcd::mutex m(s, unique_name("with-late-loss"));
        const auto body = [&]() -> awaitable<int> {
            (void)s.orphan();
            co_return 1;
        };
        const auto e = co_await ending_of(coetcd::with_lock(m, body));
        CHECK(e.code == errc::session_closed);
        revoke_by_hand(shared_etcd(), s.lease());
    });
}

TEST_CASE("with_lock that is cancelled cancels its body, and gives the lock back",
          "[mutex][with_lock]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        auto all = co_await begin("with-cancel");
        auto& [c, s, name, m] = all;
        bool began = false;
        bool ended = false;
        const auto body = [&]() -> awaitable<void> {
            co_await sleep_until_cancelled(began, ended);
        };
        task<void> work(executor, coetcd::with_lock(m, body));
        auto is_at_work = [&]() -> awaitable<bool> { co_return began; };
        co_await eventually(is_at_work, 5s, "the body runs");
        work.cancel();
        const auto e = co_await work.how_it_ended();
        CHECK(e.code == asio::error::operation_aborted);
        CHECK(ended);
        co_await until_count(c, name, 0);

        // Before the body has begun, too.
        coetcd::mutex other(s, name);
        co_await other.lock();
        began = false;
        task<void> waiting(executor, coetcd::with_lock(m, body));
        co_await yield(20);
        waiting.cancel();
        const auto early = co_await waiting.how_it_ended();
        CHECK(early.code == asio::error::operation_aborted);
        CHECK(!began);
        co_await s.close();
    });
}
