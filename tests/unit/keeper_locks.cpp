// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/keeper_locks.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/timed_claim.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::exclusive;
using coetcd::session_keeper;
using coetcd::session_keeper_options;
using coetcd::shared;
using support::background;
using support::world;

namespace {

/// A body that says when it runs, and goes on until it is told to end.
struct kept_job {
    explicit kept_job(world& w)
        : end(*w.env) {}
    asio::awaitable<int> run() {
        ++begun;
        (void)co_await end.wait();
        co_return 42;
    }
    coetcd::detail::notifier end;
    int begun = 0;
};

/// Each way to take a lock in whichever session there is, without a limit and with one.
struct way {
    std::string title;
    std::function<asio::awaitable<int>(session_keeper&, kept_job&)> take;
    std::function<asio::awaitable<std::optional<int>>(
        session_keeper&, kept_job&, std::chrono::seconds)>
        take_for;
    /// By another session: something that keeps `take` from having it.
    std::function<asio::awaitable<void>(const coetcd::session&, world&)> block;
};

std::vector<way> all_ways() {
    const auto write = [](const coetcd::session& s, world& w) -> asio::awaitable<void> {
        auto m = std::make_shared<coetcd::shared_mutex>(s, "n");
        co_await m->lock();
        coetcd::detail::notifier never(*w.env);
        (void)co_await never.wait();
    };
    const auto permits = [](const coetcd::session& s, world& w) -> asio::awaitable<void> {
        coetcd::semaphore all(s, "n", 2);
        const coetcd::permit held = co_await all.acquire(2);
        coetcd::detail::notifier never(*w.env);
        (void)co_await never.wait();
    };
    return {
        {"with_lock_exclusive",
         [](session_keeper& k, kept_job& j) {
             return coetcd::with_lock_exclusive(k, "n", [&j] { return j.run(); });
         },
         [](session_keeper& k, kept_job& j, std::chrono::seconds most) {
             return coetcd::with_lock_exclusive_for(k, "n", most, [&j] { return j.run(); });
         },
         write},
        {"with_lock_shared",
         [](session_keeper& k, kept_job& j) {
             return coetcd::with_lock_shared(k, "n", [&j] { return j.run(); });
         },
         [](session_keeper& k, kept_job& j, std::chrono::seconds most) {
             return coetcd::with_lock_shared_for(k, "n", most, [&j] { return j.run(); });
         },
         write},
        {"several names",
         [](session_keeper& k, kept_job& j) {
             return coetcd::with_lock(k,
                                      {exclusive("n"), shared("other")},
                                      [&j](const coetcd::held_locks&) { return j.run(); });
         },
         [](session_keeper& k, kept_job& j, std::chrono::seconds most) {
             return coetcd::with_lock_for(
                 k, {exclusive("n"), shared("other")}, most, [&j] { return j.run(); });
         },
         write},
        {"with_permits",
         [](session_keeper& k, kept_job& j) {
             return coetcd::with_permits(
                 k, "n", 2, [&j](const coetcd::permit&) { return j.run(); });
         },
         [](session_keeper& k, kept_job& j, std::chrono::seconds most) {
             return coetcd::with_permits_for(k, "n", 2, most, [&j] { return j.run(); });
         },
         permits},
    };
}

// So that a call may spell them in braces, also with g++ 12.
static_assert(std::is_trivially_destructible_v<coetcd::lock_options>);
static_assert(std::is_trivially_destructible_v<coetcd::shared_mutex_options>);
static_assert(std::is_trivially_destructible_v<coetcd::multi_lock_options>);
static_assert(std::is_trivially_destructible_v<coetcd::claim_times>);

struct kept {
    kept()
        : client(w.client())
        , keeper(client, session_keeper_options(6s)) {
        w.etcd->write("n.limit", "2");
    }
    /// What is there of the lock in etcd.
    std::size_t keys() const { return w.etcd->under("n/").size() + w.etcd->under("other/").size(); }
    world w;
    coetcd::client client;
    session_keeper keeper;
};

} // namespace

TEST_CASE("a body runs under each kind of lock, in whichever session there is", "[keeper_locks]") {
    for (const way& each : all_ways()) {
        INFO(each.title);
        kept k;
        kept_job j(k.w);
        auto running = k.w.start(each.take(k.keeper, j)); // there is no session yet
        k.w.env->pass(20ms);
        REQUIRE(j.begun == 1);
        CHECK(k.keys() >= 1);
        j.end.notify_all();
        k.w.env->pass(20ms);
        CHECK(running.get() == 42);
        CHECK(k.keys() == 0);
    }
}

TEST_CASE("one that waits goes on in the next session; one that runs is not run again",
          "[keeper_locks]") {
    for (const way& each : all_ways()) {
        INFO(each.title);
        kept k;
        const coetcd::session other = k.w.await(coetcd::session::open(k.client, 60s));
        auto blocking = k.w.start(each.block(other, k.w));
        k.w.env->pass(20ms);
        kept_job j(k.w);
        auto running = k.w.start(each.take(k.keeper, j));
        k.w.env->pass(100ms);
        CHECK(j.begun == 0);
        k.w.etcd->revoke(k.keeper.current()->lease()); // it waits in this one
        k.w.env->pass(10s);
        CHECK(j.begun == 0);
        CHECK_FALSE(running.ended());
        k.w.etcd->revoke(other.lease());
        k.w.env->pass(100ms);
        REQUIRE(j.begun == 1);
        k.w.etcd->revoke(k.keeper.current()->lease()); // it runs in this one
        k.w.env->pass(10s);
        REQUIRE(running.ended());
        CHECK(running.code() == errc::session_lost);
        CHECK(j.begun == 1);
        CHECK(k.keys() == 0);
    }
}

TEST_CASE("a time limit covers the wait for the session and for the lock", "[keeper_locks]") {
    for (const way& each : all_ways()) {
        INFO(each.title);
        kept k;
        kept_job j(k.w);
        {
            auto in_time = k.w.start(each.take_for(k.keeper, j, 5s));
            k.w.env->pass(20ms);
            REQUIRE(j.begun == 1);
            k.w.env->pass(6s); // the body may take longer
            j.end.notify_all();
            k.w.env->pass(20ms);
            CHECK(in_time.get() == std::optional<int>(42));
        }
        const coetcd::session other = k.w.await(coetcd::session::open(k.client, 60s));
        auto blocking = k.w.start(each.block(other, k.w));
        k.w.env->pass(20ms);
        auto too_late = k.w.start(each.take_for(k.keeper, j, 2s));
        k.w.env->pass(1990ms);
        CHECK_FALSE(too_late.ended());
        k.w.env->pass(50ms);
        CHECK(too_late.get() == std::nullopt);
        auto at_once = k.w.start(each.take_for(k.keeper, j, 0s));
        k.w.env->pass(50ms);
        CHECK(at_once.get() == std::nullopt);
        CHECK(j.begun == 1);
        auto cancelled = k.w.start(each.take_for(k.keeper, j, 60s));
        k.w.env->pass(50ms);
        cancelled.cancel();
        k.w.env->pass(50ms);
        CHECK(cancelled.code() == asio::error::operation_aborted);
        auto closed = k.w.start(each.take_for(k.keeper, j, 60s));
        k.w.env->pass(50ms);
        k.w.await(k.keeper.close());
        k.w.env->pass(50ms);
        CHECK(closed.code() == errc::session_closed);
        CHECK(j.begun == 1);
    }
}

TEST_CASE("what cannot be locked is refused at the call", "[keeper_locks]") {
    kept k;
    kept_job j(k.w);
    const auto body = [&j] { return j.run(); };
    coetcd::shared_mutex_options no_time;
    no_time.max_hold = 0s;
    coetcd::multi_lock_options none;
    none.max_hold = -1s;
    CHECK_THROWS_AS(coetcd::with_lock_shared(k.keeper, "", body), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_lock_exclusive(k.keeper, "", body), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_lock_shared(k.keeper, "n", body, no_time), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_lock(k.keeper, std::vector<coetcd::lock_part>(), body),
                    std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_lock(k.keeper, {exclusive("")}, body), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_lock(k.keeper, {exclusive("n")}, body, none),
                    std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_permits(k.keeper, "", 1, body), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::with_permits(k.keeper, "n", 0, body), std::invalid_argument);
}

TEST_CASE("options of how a lock is held go along", "[keeper_locks]") {
    kept k;
    kept_job j(k.w);
    coetcd::shared_mutex_options brief;
    brief.max_hold = 1s;
    auto reading = k.w.start(coetcd::with_lock_shared(
        k.keeper, "n", [&j] { return j.run(); }, brief));
    coetcd::multi_lock_options several;
    several.max_hold = 1s;
    auto both = k.w.start(coetcd::with_lock(
        k.keeper, {exclusive("a")}, [&j] { return j.run(); }, several));
    k.w.env->pass(900ms);
    CHECK(j.begun == 2);
    CHECK_FALSE(reading.ended());
    CHECK_FALSE(both.ended());
    k.w.env->pass(200ms);
    CHECK(reading.code() == errc::hold_expired);
    CHECK(both.code() == errc::hold_expired);
}

TEST_CASE("permits of a semaphore that has no limit are refused", "[keeper_locks]") {
    kept k;
    kept_job j(k.w);
    k.w.etcd->erase("n.limit");
    auto running = k.w.start(coetcd::with_permits(k.keeper, "n", 1, [&j] { return j.run(); }));
    k.w.env->pass(50ms);
    CHECK(running.code() == errc::exceeds_limit);
    CHECK(j.begun == 0);
    CHECK_FALSE(k.w.etcd->keys.contains("n.limit"));
}

TEST_CASE("readers run beside each other, and a writer beside nobody", "[keeper_locks]") {
    kept k;
    kept_job reads(k.w), writes(k.w);
    auto one = k.w.start(coetcd::with_lock_shared(k.keeper, "n", [&] { return reads.run(); }));
    auto two =
        k.w.start(coetcd::with_lock_shared_for(k.keeper, "n", 1s, [&] { return reads.run(); }));
    k.w.env->pass(50ms);
    CHECK(reads.begun == 2);
    auto none = k.w.start(
        coetcd::with_lock_exclusive_for(k.keeper, "n", 100ms, [&] { return writes.run(); }));
    auto then = k.w.start(coetcd::with_lock_exclusive(k.keeper, "n", [&] { return writes.run(); }));
    k.w.env->pass(200ms);
    CHECK(none.get() == std::nullopt);
    CHECK(writes.begun == 0);
    reads.end.notify_all();
    k.w.env->pass(50ms);
    CHECK(one.get() == 42);
    CHECK(two.get() == std::optional<int>(42));
    CHECK(writes.begun == 1);
    auto late =
        k.w.start(coetcd::with_lock_shared_for(k.keeper, "n", 100ms, [&] { return reads.run(); }));
    k.w.env->pass(200ms);
    CHECK(late.get() == std::nullopt);
    writes.end.notify_all();
    k.w.env->pass(50ms);
    CHECK(then.get() == 42);
}
