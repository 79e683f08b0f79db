// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::held_lock;
using coetcd::lock_options;
using coetcd::detail::call_request;
using support::background;
using support::owner;
using support::rivals;
using support::scripted_env;
using support::world;

namespace {

/// Waits for nothing that ever comes.
asio::awaitable<void> never(world& w) {
    coetcd::detail::notifier n(*w.env);
    (void)co_await n.wait();
}

} // namespace

TEST_CASE("a shared ownership is given back by the last of its handles", "[held_lock][share]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    held_lock first = w.await(mutex.scoped_lock());
    std::optional<held_lock> second = first.share();
    std::optional<held_lock> third = second->share();
    CHECK(second->fencing_token() == first.fencing_token());
    CHECK(second->key() == first.key());
    const std::size_t calls = w.env->calls.size();

    CHECK(w.await(first.unlock()));
    CHECK_FALSE(first.owns_lock());
    CHECK_FALSE(w.await(first.unlock()));
    CHECK_THROWS_AS(first.share(), coetcd::error);
    CHECK(second->owns_lock());
    CHECK(mutex.owns_lock());
    second.reset();
    w.env->pass(10ms);
    CHECK(w.env->calls.size() == calls);
    CHECK(third->owns_lock());
    CHECK(w.etcd->under("m/").size() == 1);

    SECTION("by its end") {
        third.reset();
    }
    SECTION("by unlock()") {
        CHECK(w.await(third->unlock()));
    }
    SECTION("by an assignment") {
        *third = held_lock();
    }
    SECTION("by the mutex, for all of them") {
        std::optional<held_lock> fourth = third->share();
        CHECK(w.await(mutex.unlock()));
        CHECK_FALSE(third->owns_lock());
        CHECK_FALSE(fourth->owns_lock());
        CHECK_FALSE(w.await(third->unlock()));
        CHECK_FALSE(w.await(fourth->unlock()));
    }
    w.env->pass(10ms);
    CHECK(w.etcd->under("m/").empty());
    w.await(mutex.lock());
}

TEST_CASE("handles that adopt one lock share it", "[held_lock][share]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    std::optional<held_lock> one(std::in_place, mutex, std::adopt_lock);
    std::optional<held_lock> two(std::in_place, mutex, std::adopt_lock);
    one.reset();
    w.env->pass(10ms);
    CHECK(two->owns_lock());
    two.reset();
    w.env->pass(10ms);
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("what is not held cannot be shared", "[held_lock][share]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    held_lock held;
    CHECK_THROWS_AS(held.share(), std::logic_error);
    held = w.await(mutex.scoped_lock());
    held_lock moved = std::move(held);
    CHECK_THROWS_AS(held.share(), std::logic_error); // NOLINT: that is what is asked
    held_lock other = moved.share();
    w.etcd->revoke(session.lease());
    w.env->pass(5s);
    CHECK_FALSE(other.owns_lock());
    CHECK_THROWS_AS(moved.share(), coetcd::error);
    auto lost = w.start(other.wait_lost());
    w.env->pass(1ms);
    CHECK(lost.get() == errc::session_lost);
    CHECK_FALSE(w.await(other.unlock()));
    CHECK_FALSE(w.await(moved.unlock()));
}

TEST_CASE("with_lock() under what is held makes no request, and leaves it held",
          "[held_lock][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    const held_lock held = w.await(mutex.scoped_lock());
    const std::size_t calls = w.env->calls.size();
    auto number = [&]() -> asio::awaitable<int> {
        CHECK(mutex.owns_lock());
        co_return 7;
    };
    auto token = [&](const held_lock& h) -> asio::awaitable<std::int64_t> {
        co_return h.fencing_token();
    };
    CHECK(w.await(coetcd::with_lock(held, number)) == 7);
    CHECK(w.await(coetcd::with_lock(held, token)) == held.fencing_token());
    auto failing = [&]() -> asio::awaitable<void> {
        throw std::runtime_error("mine");
        co_return;
    };
    CHECK_THROWS_WITH(w.await(coetcd::with_lock(held, failing)), "mine");
    auto inner = [&](const held_lock& h) -> asio::awaitable<int> {
        auto deepest = [&]() -> asio::awaitable<int> { co_return 9; };
        co_return co_await coetcd::with_lock(h, deepest);
    };
    CHECK(w.await(coetcd::with_lock(held, inner)) == 9);
    (void)coetcd::with_lock(held, number); // never begun
    CHECK(held.owns_lock());
    CHECK(w.env->calls.size() == calls);
}

TEST_CASE("with_lock() under what is held passes losses and cancellations on",
          "[held_lock][with_lock][cancellation]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    held_lock held = w.await(mutex.scoped_lock());
    bool ended = false;
    auto body = [&]() -> asio::awaitable<void> {
        try {
            co_await never(w);
        } catch (const boost::system::system_error&) {
            ended = true;
            throw;
        }
    };
    auto working = w.start(coetcd::with_lock(std::as_const(held), body));
    w.env->pass(10ms);
    SECTION("cancelled") {
        working.cancel();
        w.env->pass(10ms);
        CHECK(working.code() == asio::error::operation_aborted);
        CHECK(held.owns_lock());
        CHECK(w.etcd->under("m/").size() == 1);
    }
    SECTION("the lease is lost") {
        w.etcd->revoke(session.lease());
        w.env->pass(3s);
        CHECK(working.code() == errc::session_lost);
    }
    SECTION("the key is deleted") {
        w.etcd->erase(held.key());
        w.env->pass(3s);
        CHECK(working.code() == errc::lock_lost);
    }
    CHECK(ended);
}

TEST_CASE("with_lock() under what everybody else lets go of gives it back at its end",
          "[held_lock][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    std::optional<held_lock> held = w.await(mutex.scoped_lock());
    auto body = [&]() -> asio::awaitable<void> {
        coetcd::detail::notifier pause(*w.env);
        (void)co_await pause.wait(w.env->now() + 100ms);
    };
    auto working = w.start(coetcd::with_lock(std::as_const(*held), body));
    w.env->pass(10ms);
    held.reset();
    w.env->pass(50ms);
    CHECK(w.etcd->under("m/").size() == 1);
    w.env->pass(100ms);
    working.get();
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("with_lock() under what is not held does not begin", "[held_lock][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    bool began = false;
    auto body = [&]() -> asio::awaitable<void> {
        began = true;
        co_return;
    };
    held_lock held;
    CHECK_THROWS_AS(coetcd::with_lock(std::as_const(held), body), std::logic_error);
    held = w.await(mutex.scoped_lock());
    const held_lock other = held.share();
    w.await(held.unlock()); // this handle only
    auto given_back = w.start(coetcd::with_lock(std::as_const(held), body));
    w.env->pass(10ms);
    CHECK(given_back.code() == errc::not_owner);
    coetcd::mutex another(session, "n");
    const held_lock taken_away = w.await(another.scoped_lock());
    REQUIRE(w.await(another.unlock())); // for all handles
    auto none = w.start(coetcd::with_lock(taken_away, body));
    w.env->pass(10ms);
    CHECK(none.code() == errc::not_owner);
    (void)session.orphan();
    auto lost = w.start(coetcd::with_lock(other, body));
    w.env->pass(10ms);
    CHECK(lost.code() == errc::session_closed);
    CHECK_FALSE(began);
}

TEST_CASE("max_hold ends a hold in the same instant, and gives the lock back",
          "[held_lock][max_hold]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    lock_options options;
    options.max_hold = 3s;
    coetcd::mutex limited(one, "m", options);
    held_lock held = w.await(limited.scoped_lock());
    const auto granted = w.env->now();
    auto waiting = w.start(b.lock());
    auto lost = w.start(held.wait_lost());
    SECTION("while the event loop runs") {
        w.env->pass(2900ms);
        CHECK(held.owns_lock());
        CHECK(limited.owns_lock());
        CHECK_FALSE(waiting.ended());
        w.env->pass(110ms);
        CHECK_FALSE(held.owns_lock());
        CHECK_FALSE(limited.owns_lock());
        CHECK(w.env->now() - granted < 3100ms);
        waiting.get();
        CHECK(b.owns_lock());
        CHECK(lost.get() == errc::hold_expired);
        CHECK(lost.get() == coetcd::condition::ownership_lost);
    }
    SECTION("in the first instruction after a stall") {
        w.env->stall(3s);
        CHECK_FALSE(held.owns_lock());
        CHECK(one.state() == coetcd::session_state::active);
        w.env->pass(20ms);
        waiting.get();
        CHECK(lost.get() == errc::hold_expired);
    }
    CHECK_FALSE(w.await(held.unlock()));
    CHECK(one.state() == coetcd::session_state::active);
    w.await(b.unlock());
    held = w.await(limited.scoped_lock()); // anew
    w.env->pass(2s);
    CHECK(held.owns_lock());
    w.await(held.unlock());
    w.env->pass(10s);
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("the first reason for a loss counts", "[held_lock]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    lock_options options;
    options.max_hold = 4s;
    coetcd::mutex limited(session, "m", options);
    held_lock held = w.await(limited.scoped_lock());
    SECTION("its time is over, and then the session is closed") {
        w.env->pass(4010ms);
        w.await(session.close());
        CHECK(w.await(held.wait_lost()) == errc::hold_expired);
    }
    SECTION("its time is over in a stall, and the session is closed before anyone looks") {
        w.env->stall(4s);
        w.await(session.close());
        CHECK(w.await(held.wait_lost()) == errc::hold_expired);
    }
    SECTION("its key is deleted, and then the session is lost") {
        auto lost = w.start(held.wait_lost());
        w.etcd->erase(held.key());
        w.env->pass(3s);
        CHECK(lost.get() == errc::lock_lost);
        w.env->stall(60s);
        CHECK(session.state() == coetcd::session_state::lost);
        CHECK(w.await(held.wait_lost()) == errc::lock_lost);
    }
    SECTION("the session is closed, and then its time is over") {
        w.await(session.close());
        w.env->pass(5s);
        CHECK(w.await(held.wait_lost()) == errc::session_closed);
    }
}

TEST_CASE("unlock() in the first instruction after max_hold says that it came too late",
          "[held_lock][max_hold]") {
    struct : coetcd::observer {
        void on_lock_hold(const coetcd::lock_hold_report& r) override { lost.push_back(r.lost()); }
        std::vector<bool> lost;
    } log;
    world w;
    coetcd::client_options observed;
    observed.observer = std::shared_ptr<coetcd::observer>(&log, [](coetcd::observer*) {});
    coetcd::client client = w.client(observed);
    coetcd::session session = w.await(coetcd::session::open(client, 10s));
    coetcd::mutex limited(session, "m", {.max_hold = 3s});
    w.await(limited.lock());
    w.env->stall(3s);
    CHECK_FALSE(w.await(limited.unlock()));
    CHECK(log.lost == std::vector<bool>{true});
    w.env->pass(10ms);
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("a time that does not fit into nanoseconds is a long one", "[held_lock][max_hold]") {
    world w;
    coetcd::client_options options;
    options.request_timeout = std::chrono::milliseconds::max();
    options.attempt_timeout = std::chrono::milliseconds::max();
    options.connect_timeout = std::chrono::milliseconds::max();
    options.member_refresh = std::chrono::seconds::max();
    const coetcd::client client = w.client(options).with_timeout(std::chrono::milliseconds::max());
    coetcd::session session = w.await(coetcd::session::open(client));
    lock_options for_ever;
    for_ever.max_hold = std::chrono::milliseconds::max();
    for_ever.delay = std::chrono::milliseconds::max();
    coetcd::mutex m(session, "m", for_ever);
    w.await(m.lock());
    w.env->pass(60s);
    CHECK(m.owns_lock());
    CHECK(w.env->calls.size() < 60);
    CHECK(w.await(m.unlock()));
}

TEST_CASE("unlock() that is awaited late does not tell of what went wrong meanwhile",
          "[held_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
    auto unlocking = mutex.unlock();
    w.env->pass(6s);
    CHECK(w.etcd->under("m/").size() == 1);
    w.env->decide = nullptr;
    w.env->pass(3s);
    CHECK(w.etcd->under("m/").empty());
    CHECK(w.await(std::move(unlocking)));
}

TEST_CASE("max_hold counts from the grant, not from the request", "[held_lock][max_hold]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    lock_options options;
    options.max_hold = 3s;
    coetcd::mutex limited(two, "m", options);
    w.await(a.lock());
    auto waiting = w.start(limited.lock());
    w.env->pass(5s);
    w.await(a.unlock());
    w.env->pass(2s);
    waiting.get();
    CHECK(limited.owns_lock());
    w.env->pass(1020ms); // it was granted some milliseconds after the unlock()
    CHECK_FALSE(limited.owns_lock());
    CHECK(w.etcd->under("m/").empty());
    w.await(limited.lock()); // without an unlock() before
    CHECK(limited.owns_lock());
}

TEST_CASE("max_hold counts while the caller's executor stands still", "[held_lock][max_hold]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    lock_options options;
    options.max_hold = 500ms;
    coetcd::mutex limited(session, "m", options);
    asio::io_context elsewhere(1);
    const int how = GENERATE(0, 1);
    auto taking = how == 0 ? limited.try_lock() : limited.try_lock_for(5s);
    support::background<bool> locking(elsewhere, std::move(taking));
    elsewhere.poll();
    w.env->pass(400ms);
    CHECK(w.etcd->under("m/").size() == 1);
    w.env->pass(200ms);
    CHECK(w.etcd->under("m/").empty());
    elsewhere.restart();
    elsewhere.poll();
    CHECK(locking.get());
    CHECK_FALSE(limited.owns_lock());
    CHECK(w.await(mutex.try_lock()));
}

TEST_CASE("max_hold cancels the body of with_lock()", "[held_lock][max_hold]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    lock_options options;
    options.max_hold = 500ms;
    coetcd::mutex limited(session, "m", options);
    auto endless = [&]() -> asio::awaitable<void> { return never(w); };
    auto working = w.start(coetcd::with_lock(limited, endless));
    w.env->pass(490ms);
    CHECK_FALSE(working.ended());
    w.env->pass(30ms);
    CHECK(working.code() == errc::hold_expired);
    CHECK(w.etcd->under("m/").empty());
    auto quick = []() -> asio::awaitable<int> { co_return 7; };
    CHECK(w.await(coetcd::with_lock(limited, quick)) == 7);
    // A body that has stalled is not alone any more, although it has succeeded.
    auto stalls = [&]() -> asio::awaitable<void> {
        w.env->stall(600ms);
        co_return;
    };
    auto late = w.start(coetcd::with_lock(limited, stalls));
    w.env->pass(50ms);
    CHECK(late.code() == errc::hold_expired);
    w.env->pass(50ms);
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("a lock of which nothing is left in etcd is lost, not expired", "[held_lock][max_hold]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    lock_options options;
    options.max_hold = 4s;
    coetcd::mutex limited(session, "m", options);
    w.await(limited.lock());
    held_lock held(limited, std::adopt_lock);
    auto lost = w.start(held.wait_lost());
    w.etcd->erase(held.key());
    w.env->pass(3s);
    CHECK(lost.get() == errc::lock_lost);
    w.env->pass(3s);
    CHECK(session.state() == coetcd::session_state::active);
}

TEST_CASE("an option of a lock that is invalid is refused", "[held_lock][max_hold]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    for (const auto hold : {0ms, -1ms}) {
        lock_options options;
        options.max_hold = hold;
        CHECK_THROWS_WITH(coetcd::mutex(session, "m", options), "max_hold: must be positive");
    }
    CHECK_NOTHROW(coetcd::mutex(session, "m", {.max_hold = 1ms}));
}

TEST_CASE("a watched lock whose key is deleted is lost at once", "[held_lock][watch_while_held]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    lock_options options;
    options.watch_while_held = true;
    coetcd::mutex watched(session, "m", options);
    // The same holds while the watch is not in force yet, and where its event is lost.
    for (auto when = 0ms; when < 20ms; ++when) {
        INFO("after " << when.count() << " ms");
        w.await(watched.lock());
        w.env->pass(when);
        w.etcd->erase(watched.key());
        w.env->pass(30ms);
        REQUIRE_FALSE(watched.owns_lock());
        REQUIRE_FALSE(w.await(watched.unlock()));
    }
    CHECK(session.state() == coetcd::session_state::active);
    w.await(watched.lock());
    w.env->pass(1s);
    w.etcd->tells = false;
    w.etcd->erase(watched.key());
    w.env->pass(21s); // a renewal
    CHECK_FALSE(watched.owns_lock());
    w.etcd->tells = true;
}

TEST_CASE("a watched lock is given back like any other", "[held_lock][watch_while_held]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    lock_options options;
    options.watch_while_held = true;
    coetcd::mutex watched(one, "m", options);
    for (int i = 0; i != 5; ++i) {
        held_lock held = w.await(watched.scoped_lock());
        auto lost = w.start(held.wait_lost());
        w.env->pass(i * 7ms);
        CHECK(w.await(held.unlock()));
        w.env->pass(10ms);
        CHECK(lost.code() == asio::error::operation_aborted); // it is not lost by that
        w.await(b.lock());
        CHECK(w.await(b.unlock()));
    }
    w.env->pass(15s);
    CHECK(w.etcd->watches() == 0);
    held_lock held = w.await(watched.scoped_lock());
    w.env->pass(1s);
    CHECK(w.etcd->watches() == 1);
    w.await(one.close());
    w.env->pass(1s);
    CHECK(w.etcd->watches() == 0);
}

TEST_CASE("position() tells how many are before the session", "[held_lock][position]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    coetcd::session three = w.await(coetcd::session::open(client));
    coetcd::mutex c(three, "m");
    coetcd::mutex same(three, "m");
    CHECK_FALSE(w.await(a.position()).has_value());
    w.await(a.lock());
    const std::size_t calls = w.env->calls.size();
    CHECK(w.await(a.position()) == 0U);
    CHECK(w.env->calls.size() == calls + 1);
    auto second = w.start(b.lock());
    w.env->pass(50ms);
    auto third = w.start(c.lock());
    auto fourth = w.start(same.lock());
    w.env->pass(50ms);
    CHECK(w.await(b.position()) == 1U);
    CHECK(w.await(c.position()) == 2U);
    CHECK(w.await(same.position()) == 2U); // that of the session
    w.await(a.unlock());
    w.env->pass(50ms);
    CHECK_FALSE(w.await(a.position()).has_value());
    CHECK(w.await(b.position()) == 0U);
    CHECK(w.await(c.position()) == 1U);
    auto cancelled = w.start(c.position());
    cancelled.cancel();
    w.env->pass(0ms);
    CHECK(cancelled.code() == asio::error::operation_aborted);
}

TEST_CASE("a place counts once, whatever keys it has", "[held_lock][position]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    coetcd::session three = w.await(coetcd::session::open(client));
    coetcd::shared_mutex both(one, "m"); // a writer has two keys
    coetcd::multi_lock several(
        two, {{"m", coetcd::lock_mode::exclusive}, {"n", coetcd::lock_mode::exclusive}});
    coetcd::mutex last(three, "m");
    w.await(both.lock());
    auto second = w.start(several.lock());
    w.env->pass(50ms);
    auto third = w.start(last.lock());
    w.env->pass(50ms);
    CHECK(w.etcd->under("m/").size() == 5);
    CHECK(w.await(last.position()) == 2U);
    CHECK(w.await(b.position()) == 1U);
    const auto waiters = w.await(last.waiters());
    REQUIRE(waiters.size() == 2);
    CHECK(waiters[0].lease == two.lease());
    CHECK(waiters[1].lease == three.lease());
    CHECK(w.await(last.waiters(1)).size() == 1);
    CHECK(w.await(last.waiters(2)).size() == 2);
}

TEST_CASE("a scoped lock is had at once, in time, or not at all", "[held_lock]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session one = w.await(coetcd::session::open(client, 60s));
    const coetcd::session two = w.await(coetcd::session::open(client, 60s));
    coetcd::mutex a(one, "m");
    coetcd::mutex b(two, "m");
    coetcd::shared_mutex c(one, "s");
    coetcd::shared_mutex d(two, "s");
    coetcd::multi_lock e(one, {coetcd::exclusive("x")});
    coetcd::multi_lock f(two, {coetcd::exclusive("x")});
    const auto check = [&w](auto&& at_once, auto&& in_time, auto&& until, auto&& blocks) {
        {
            auto held = w.await(at_once());
            REQUIRE(held);
            CHECK(held->owns_lock());
        }
        w.env->pass(20ms); // given back
        auto first = w.await(blocks());
        CHECK_FALSE(w.await(at_once()));
        CHECK_FALSE(w.await(in_time(0s)));
        CHECK_FALSE(w.await(in_time(100ms)));
        CHECK_FALSE(w.await(until(std::chrono::system_clock::now() + 50ms)));
        auto waiting = w.start(in_time(10s));
        w.env->pass(1s);
        CHECK_FALSE(waiting.ended());
        w.await(first.unlock());
        w.env->pass(20ms);
        auto second = waiting.get();
        REQUIRE(second);
        CHECK(second->owns_lock());
        w.await(second->unlock());
    };
    check([&] { return b.scoped_try_lock(); },
          [&](auto most) { return b.scoped_lock_for(most); },
          [&](auto then) { return b.scoped_lock_until(then); },
          [&] { return a.scoped_lock(); });
    check([&] { return d.scoped_try_lock(); },
          [&](auto most) { return d.scoped_lock_for(most); },
          [&](auto then) { return d.scoped_lock_until(then); },
          [&] { return c.scoped_lock_shared(); });
    check([&] { return d.scoped_try_lock_shared(); },
          [&](auto most) { return d.scoped_lock_shared_for(most); },
          [&](auto then) { return d.scoped_lock_shared_until(then); },
          [&] { return c.scoped_lock(); });
    check([&] { return f.scoped_try_lock(); },
          [&](auto most) { return f.scoped_lock_for(most); },
          [&](auto then) { return f.scoped_lock_until(then); },
          [&] { return e.scoped_lock(); });
    CHECK(w.etcd->keys.empty());
}
