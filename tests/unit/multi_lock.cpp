// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/shared_mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
using coetcd::exclusive;
using coetcd::lock_mode;
using coetcd::lock_part;
using coetcd::multi_lock;
using coetcd::shared;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::count;
using support::delay_first;
using support::is_confirm;
using support::is_enter;
using support::is_release;
using support::lose_answer;
using support::scripted_env;
using support::world;

namespace {

using parts = std::vector<lock_part>;

/// Three sessions, one of which wants three names at once.
struct neighbours {
    explicit neighbours(std::chrono::seconds ttl = 10s)
        : client(w.client())
        , one(w.await(coetcd::session::open(client, ttl)))
        , two(w.await(coetcd::session::open(client, ttl)))
        , three(w.await(coetcd::session::open(client, ttl)))
        , all(one, {exclusive("c"), exclusive("a"), shared("b")})
        , a(two, "a")
        , b(two, "b")
        , c(three, "c") {}
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::session three;
    multi_lock all;
    coetcd::mutex a;
    coetcd::shared_mutex b;
    coetcd::mutex c;

    /// The keys of the one that wants all: 2 + 1 + 2.
    std::size_t keys() const {
        return w.etcd->under("a/").size() + w.etcd->under("b/").size() + w.etcd->under("c/").size();
    }
    std::size_t calls() const { return w.env->calls.size(); }
};

bool holds(neighbours& r, const std::vector<coetcd::compare>& guard) {
    coetcd::txn look;
    look.compares = guard;
    look.success.push_back(coetcd::op::put("x", "1"));
    return r.w.await(r.client.txn(std::move(look))).succeeded;
}

} // namespace

TEST_CASE("several locks are taken in one round trip, and given back in one", "[multi_lock]") {
    neighbours r;
    const std::size_t before = r.calls();
    r.w.await(r.all.lock());
    REQUIRE(r.calls() == before + 1);
    REQUIRE(r.all.owns_lock());
    REQUIRE(r.keys() == 5);
    for (const auto& [key, record] : r.w.etcd->keys) {
        INFO(key);
        REQUIRE(record.create_revision == r.all.fencing_token()); // one for all
        REQUIRE(record.lease == r.one.lease());
    }
    REQUIRE(r.all.is_owner().size() == 3);
    REQUIRE(holds(r, r.all.is_owner()));

    REQUIRE_FALSE(r.w.await(r.a.try_lock()));
    REQUIRE_FALSE(r.w.await(r.c.try_lock()));
    REQUIRE_FALSE(r.w.await(r.b.try_lock()));
    REQUIRE(r.w.await(r.b.try_lock_shared())); // may read along
    REQUIRE(r.w.await(r.b.unlock_shared()));

    const std::size_t then = r.calls();
    const std::vector<coetcd::compare> guard = r.all.is_owner();
    REQUIRE(r.w.await(r.all.unlock()));
    REQUIRE(r.calls() == then + 1);
    REQUIRE_FALSE(r.all.owns_lock());
    REQUIRE(r.keys() == 0);
    REQUIRE_FALSE(holds(r, guard));
    REQUIRE_FALSE(r.w.await(r.all.unlock()));
}

TEST_CASE("a name counts once, and the order of the names does not matter", "[multi_lock]") {
    neighbours r;
    const auto text = [](const multi_lock& m) {
        std::string out;
        for (const lock_part& p : m.parts()) {
            out += p.name + (p.mode == lock_mode::exclusive ? "+ " : " ");
        }
        return out;
    };
    REQUIRE(text(r.all) == "a+ b c+ ");
    multi_lock twice(r.two,
                     {shared("z"), exclusive("y"), exclusive("z"), shared("x"), shared("x")});
    REQUIRE(text(twice) == "x y+ z+ ");
    r.w.await(twice.lock());
    REQUIRE(r.w.etcd->under("z/").size() == 2);
    REQUIRE(r.w.await(twice.unlock()));
    REQUIRE(r.w.etcd->keys.empty());
}

TEST_CASE("what no multi_lock can be is refused before anything is sent", "[multi_lock]") {
    neighbours r;
    const std::size_t before = r.calls();
    REQUIRE_THROWS_WITH(multi_lock(r.one, {}), "parts: there is none");
    REQUIRE_THROWS_WITH(multi_lock(r.one, {exclusive("a"), shared("")}), "name: is empty");
    REQUIRE_THROWS_WITH(multi_lock(r.one, {exclusive(std::string(513, 'x'))}),
                        "name: is longer than 512 bytes");
    REQUIRE_THROWS_WITH(multi_lock(r.one, {{"a", static_cast<lock_mode>(7)}}),
                        "parts: a mode is neither exclusive nor shared");
    parts many;
    for (int i = 0; i != 33; ++i) {
        many.push_back(exclusive("n" + std::to_string(i)));
    }
    REQUIRE_THROWS_WITH(multi_lock(r.one, many), "parts: more than 32 names");
    many.back() = many.front();
    REQUIRE_NOTHROW(multi_lock(r.one, many));
    REQUIRE(r.calls() == before);
    REQUIRE_THROWS_AS(r.all.fencing_token(), coetcd::error);
    REQUIRE_THROWS_AS(r.all.is_owner(), coetcd::error);
    REQUIRE(r.all.get_executor() == r.client.get_executor());

    multi_lock moved(std::move(r.all));
    REQUIRE_THROWS_AS(r.all.lock(), std::logic_error);
    REQUIRE_THROWS_AS(r.all.parts(), std::logic_error);
    REQUIRE(moved.parts().size() == 3);
    coetcd::held_locks none;
    REQUIRE_FALSE(none.owns_lock());
    REQUIRE_FALSE(none);
    REQUIRE_FALSE(r.w.await(none.unlock()));
    REQUIRE_THROWS_AS(none.is_owner(), std::logic_error);
    REQUIRE_THROWS_AS(none.fencing_token(), std::logic_error);
    REQUIRE_THROWS_AS(none.wait_lost(), std::logic_error);
    REQUIRE_THROWS_AS(none.get_executor(), std::logic_error);
}

TEST_CASE("32 names fit into one request, whatever is in their queues", "[multi_lock]") {
    neighbours r(60s);
    parts many;
    for (int i = 0; i != 32; ++i) {
        many.push_back(exclusive("n" + std::to_string(i)));
    }
    multi_lock first(r.one, many);
    multi_lock second(r.two, many);
    for (int round = 0; round != 3; ++round) {
        r.w.await(first.lock());
        auto waiting = r.w.start(second.lock());
        r.w.env->pass(500ms);
        REQUIRE_FALSE(waiting.ended());
        REQUIRE(r.w.etcd->keys.size() >= 128);
        const std::size_t before = r.calls();
        auto unlocking = r.w.start(first.unlock());
        r.w.env->pass(10ms);
        REQUIRE(unlocking.get());
        waiting.get();
        REQUIRE(r.calls() <= before + 3); // the end, and a confirm or two
        REQUIRE(r.w.await(second.unlock()));
    }
    REQUIRE_FALSE(r.w.etcd->has_any("n0/"));
}

TEST_CASE("it waits until all are free, and keeps its place in each queue", "[multi_lock]") {
    neighbours r;
    r.w.await(r.a.lock());
    r.w.await(r.c.lock());
    auto waiting = r.w.start(r.all.lock());
    r.w.env->pass(400ms);
    // Behind it, as behind any other.
    coetcd::mutex behind(r.three, "a");
    auto next = r.w.start(behind.lock());
    r.w.env->pass(400ms);
    REQUIRE(r.w.await(r.a.unlock()));
    r.w.env->pass(400ms);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE_FALSE(next.ended());
    REQUIRE(r.w.await(r.c.unlock()));
    r.w.env->pass(10ms);
    waiting.get();
    REQUIRE_FALSE(next.ended());
    REQUIRE(r.w.await(r.all.unlock()));
    r.w.env->pass(10ms);
    next.get();
}

TEST_CASE("whatever the order in which its names are free, the last event is the grant",
          "[multi_lock][hand_over]") {
    std::vector<int> order{0, 1, 2};
    do {
        neighbours r;
        r.w.await(r.a.lock());
        r.w.await(r.b.lock());
        r.w.await(r.c.lock());
        auto waiting = r.w.start(r.all.lock());
        r.w.env->pass(400ms);
        for (const int which : order) {
            REQUIRE_FALSE(waiting.ended());
            auto unlocking = r.w.start(which == 0   ? r.a.unlock()
                                       : which == 1 ? r.b.unlock()
                                                    : r.c.unlock());
            r.w.env->pass(3ms); // nothing else fits in
            REQUIRE(unlocking.get());
        }
        REQUIRE(waiting.ended());
        REQUIRE(count(r.w, is_confirm) == 0);
        r.w.env->pass(1s);
        REQUIRE(r.all.owns_lock());
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("try_lock() takes all of them or none", "[multi_lock]") {
    neighbours r;
    r.w.await(r.c.lock());
    std::size_t before = r.calls();
    REQUIRE_FALSE(r.w.await(r.all.try_lock()));
    REQUIRE(r.calls() == before + 1);
    r.w.env->pass(1s);
    REQUIRE(r.keys() == 1);
    // That this session itself has one of them is known here.
    coetcd::mutex own(r.one, "a");
    r.w.await(own.lock());
    REQUIRE(r.w.await(r.c.unlock()));
    before = r.calls();
    REQUIRE_FALSE(r.w.await(r.all.try_lock()));
    REQUIRE(r.calls() == before);
    REQUIRE(r.w.await(own.unlock()));
    REQUIRE(r.w.await(r.all.try_lock()));
    REQUIRE(r.keys() == 5);
    multi_lock other(r.two, {exclusive("z"), shared("b"), shared("c")});
    REQUIRE_FALSE(r.w.await(other.try_lock_for(300ms)));
    r.w.env->pass(50ms);
    REQUIRE(r.keys() == 5);
    REQUIRE_FALSE(r.w.etcd->has_any("z/"));
    auto patient = r.w.start(other.try_lock_until(std::chrono::steady_clock::now() + 1h));
    r.w.env->pass(50ms);
    REQUIRE(r.w.await(r.all.unlock()));
    r.w.env->pass(20ms);
    REQUIRE(patient.get());
}

TEST_CASE("it excludes any lock of one of its names, whatever kind that is", "[multi_lock]") {
    neighbours r;
    multi_lock other(r.two, {shared("b"), shared("d")});
    r.w.await(r.all.lock());
    r.w.await(other.lock()); // they share what both share
    REQUIRE(r.w.await(other.unlock()));
    coetcd::shared_mutex readers(r.two, "a");
    coetcd::shared_mutex writers(r.two, "b");
    auto reading = r.w.start(readers.lock_shared());
    auto writing = r.w.start(writers.lock());
    auto alone = r.w.start(r.c.lock());
    r.w.env->pass(400ms);
    REQUIRE_FALSE(reading.ended());
    REQUIRE_FALSE(writing.ended());
    REQUIRE_FALSE(alone.ended());
    REQUIRE(r.w.await(r.all.unlock()));
    r.w.env->pass(20ms);
    reading.get();
    writing.get();
    alone.get();
}

TEST_CASE("several that want several names of one session do not lock each other up",
          "[multi_lock]") {
    // Five philosophers at one table, all of one session, and of five sessions.
    for (const bool one_session : {true, false}) {
        neighbours r(60s);
        std::vector<coetcd::session> sessions;
        std::vector<multi_lock> forks;
        std::vector<int> held(5);
        std::vector<int> meals(5);
        for (int i = 0; i != 5; ++i) {
            if (!one_session) {
                sessions.push_back(r.w.await(coetcd::session::open(r.client, 60s)));
            }
            const std::string left = "fork" + std::to_string(i);
            const std::string right = "fork" + std::to_string((i + 1) % 5);
            forks.emplace_back(one_session ? r.one : sessions.back(),
                               parts{exclusive(left), exclusive(right)});
        }
        auto philosopher = [&](std::size_t i) -> asio::awaitable<void> {
            coetcd::detail::notifier pause(*r.w.env);
            while (meals[i] != 20) {
                co_await forks[i].lock();
                REQUIRE(++held[i] == 1);
                REQUIRE(++held[(i + 1) % 5] == 1);
                (void)co_await pause.wait(r.w.env->now() + 3ms);
                --held[i];
                --held[(i + 1) % 5];
                ++meals[i];
                (void)co_await forks[i].unlock();
            }
        };
        std::vector<background<void>> table;
        for (std::size_t i = 0; i != 5; ++i) {
            table.push_back(r.w.start(philosopher(i)));
        }
        r.w.env->pass(30s);
        INFO("one session " << one_session);
        for (auto& seat : table) {
            REQUIRE(seat.ended());
            seat.get();
        }
        REQUIRE_FALSE(r.w.etcd->has_any("fork0/"));
        // The locks of the session know nothing of it afterwards.
        r.w.await(forks[0].lock());
    }
}

TEST_CASE("names that lie in one another's queues do not make it wait for itself", "[multi_lock]") {
    neighbours r;
    multi_lock nested(r.one, {exclusive("n"), exclusive("n/x"), shared("n/x/y")});
    r.w.await(nested.lock());
    coetcd::mutex inner(r.two, "n/x");
    REQUIRE_FALSE(r.w.await(inner.try_lock()));
    REQUIRE(r.w.await(nested.unlock()));
    r.w.await(inner.lock());
    auto waiting = r.w.start(nested.lock());
    r.w.env->pass(400ms);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(r.w.await(inner.unlock()));
    r.w.env->pass(20ms);
    waiting.get();
}

TEST_CASE("every lost answer on the way to several locks is ridden out", "[multi_lock]") {
    for (int how = 0; how < 3; ++how) {
        for (int victim = 0; victim < 8; ++victim) {
            neighbours r(30s);
            r.w.await(r.c.lock());
            int n = 0;
            r.w.env->decide = [&](const call_request& call) {
                scripted_env::fate f;
                if (call.what == rpc::txn && n++ == victim) {
                    f.arrives = how != 0;
                    f.answered = how != 1;
                    f.breaks = how == 2;
                }
                return f;
            };
            auto locking = r.w.start(r.all.lock());
            r.w.env->pass(50ms);
            auto unlocking = r.w.start(r.c.unlock());
            r.w.env->pass(20s);
            INFO("how " << how << " victim " << victim);
            REQUIRE(unlocking.get());
            locking.get();
            REQUIRE(r.w.await(r.all.unlock()));
            r.w.env->pass(10s);
            REQUIRE(r.keys() == 0);
            r.w.await(r.all.lock()); // by the same slots
            REQUIRE(r.keys() == 5);
        }
    }
}

TEST_CASE("cancelled at any moment, a request for several ends once and leaves no key",
          "[multi_lock][cancellation]") {
    for (const auto late : {0ms, 7ms, 700ms}) {
        for (const bool busy : {false, true}) {
            for (auto when = 0ms; when < 30ms; ++when) {
                neighbours r;
                if (busy) {
                    r.w.await(r.c.lock());
                }
                delay_first(r.w, is_enter, late);
                auto locking = r.w.start(r.all.lock());
                r.w.env->pass(when);
                const bool before = locking.ended();
                locking.cancel();
                r.w.env->pass(0ms);
                INFO("late " << late.count() << " busy " << busy << " at " << when.count());
                REQUIRE(locking.ended());
                r.w.env->pass(1500ms);
                if (before) {
                    REQUIRE(r.w.await(r.all.unlock()));
                } else {
                    REQUIRE(locking.code() == asio::error::operation_aborted);
                }
                REQUIRE(r.keys() == (busy ? 1 : 0));
                REQUIRE(r.one.state() == coetcd::session_state::active);
                if (busy) {
                    REQUIRE(r.w.await(r.c.unlock()));
                }
                r.w.await(r.all.lock());
            }
        }
    }
}

TEST_CASE("what cannot be had is an error that names the locks", "[multi_lock]") {
    neighbours r(60s);
    r.w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.arrives = false;
        return f;
    };
    auto trying = r.w.start(r.all.try_lock_for(500ms));
    r.w.env->pass(500ms);
    REQUIRE(trying.code() == errc::timed_out);
    try {
        (void)trying.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("multi_lock \"a\" and 2 more, try_lock_for"));
    }
}

TEST_CASE("a holder of several locks loses all with any of their keys, and the rest goes",
          "[multi_lock]") {
    for (const char* which : {"a/write/", "a/keep/", "b/read/", "c/write/", "c/keep/"}) {
        INFO(which);
        neighbours r(6s);
        coetcd::held_locks held = r.w.await(r.all.scoped_lock());
        REQUIRE(held);
        auto lost = r.w.start(held.wait_lost());
        const std::vector<coetcd::compare> guard = held.is_owner();
        r.w.etcd->erase(r.w.etcd->under(which).front());
        r.w.env->pass(2500ms);
        REQUIRE(lost.get() == errc::lock_lost);
        REQUIRE_FALSE(held.owns_lock());
        REQUIRE(r.keys() == 0);
        REQUIRE_FALSE(holds(r, guard));
        REQUIRE_FALSE(r.w.await(held.unlock()));
        REQUIRE(r.one.state() == coetcd::session_state::active);

        held = r.w.await(r.all.scoped_lock());
        r.w.etcd->erase(r.w.etcd->under(which).front());
        REQUIRE_FALSE(r.w.await(held.unlock()));
        r.w.env->pass(10ms);
        REQUIRE(r.keys() == 0);
    }
}

TEST_CASE("a waiter for several locks fails with any of its keys, and the rest goes",
          "[multi_lock]") {
    for (const char* which : {"a/write/", "a/keep/", "b/read/", "c/write/", "c/keep/"}) {
        INFO(which);
        neighbours r;
        r.w.await(r.c.lock());
        auto waiting = r.w.start(r.all.lock());
        r.w.env->pass(1s);
        r.w.etcd->erase(r.w.etcd->under(which).front());
        r.w.env->pass(20ms);
        REQUIRE(waiting.code() == errc::lock_lost);
        r.w.env->pass(20ms);
        REQUIRE(r.keys() == 1);
    }
}

TEST_CASE("a request that arrives late puts none of several keys again", "[multi_lock]") {
    neighbours r(60s);
    delay_first(r.w, is_enter, 8s);
    r.w.await(r.all.lock()); // by the second attempt
    REQUIRE(r.w.await(r.all.unlock()));
    r.w.env->pass(20s);
    REQUIRE(r.keys() == 0);
    REQUIRE(r.w.etcd->under("a.").size() == 1); // an epoch of each name
    REQUIRE(r.w.etcd->under("b.").size() == 1);
    REQUIRE(r.w.etcd->under("c.").size() == 1);
    r.w.await(r.all.lock());
    REQUIRE(r.w.await(r.all.unlock()));
    // Forgotten by hand, one epoch is learned again, and put anew.
    r.w.etcd->erase(r.w.etcd->under("b.").front());
    auto fails = r.w.start(r.all.lock());
    r.w.env->pass(50ms);
    REQUIRE(fails.code() == errc::lock_lost);
    r.w.env->pass(50ms);
    REQUIRE(r.keys() == 0);
    r.w.await(r.all.lock());
}

TEST_CASE("the end of a session ends several locks at once", "[multi_lock]") {
    neighbours r;
    r.w.await(r.all.lock());
    auto waiting = r.w.start(r.c.lock());
    r.w.env->pass(50ms);
    (void)r.one.close();
    r.w.env->pass(20ms);
    REQUIRE_FALSE(r.all.owns_lock());
    waiting.get();
    REQUIRE_FALSE(r.w.await(r.all.unlock()));
    auto again = r.w.start(r.all.lock());
    r.w.env->pass(1ms);
    REQUIRE(again.code() == errc::session_closed);
}

TEST_CASE("an unlock of several whose answer is lost is repeated until all are free",
          "[multi_lock]") {
    neighbours r(60s);
    r.w.await(r.all.lock());
    lose_answer(r.w, is_release);
    REQUIRE(r.w.await(r.all.unlock()));
    REQUIRE(r.keys() == 0);
    r.w.await(r.all.lock());
    r.w.env->decide = [](const call_request& call) {
        scripted_env::fate f;
        f.refused = is_release(call);
        return f;
    };
    auto unlocking = r.w.start(r.all.unlock());
    r.w.env->pass(6s);
    REQUIRE(unlocking.code() == errc::unavailable);
    REQUIRE(r.keys() == 5);
    r.w.env->decide = nullptr;
    r.w.env->pass(5s);
    REQUIRE(r.keys() == 0);
    REQUIRE(r.one.state() == coetcd::session_state::active);
    r.w.await(r.all.lock());
}

TEST_CASE("with_lock runs a body under several locks", "[multi_lock]") {
    neighbours r(6s);
    auto body = [&](const coetcd::held_locks& held) -> asio::awaitable<std::size_t> {
        CHECK(held.owns_lock());
        CHECK(held.fencing_token() == r.all.fencing_token());
        CHECK(held.get_executor() == r.client.get_executor());
        co_return held.is_owner().size();
    };
    REQUIRE(r.w.await(coetcd::with_lock(r.all, body)) == 3);
    r.w.env->pass(10ms);
    REQUIRE(r.keys() == 0);
    auto nothing = []() -> asio::awaitable<void> { co_return; };
    r.w.await(r.c.lock());
    REQUIRE_FALSE(r.w.await(coetcd::with_lock_for(r.all, 50ms, nothing)));
    REQUIRE_FALSE(r.w.await(coetcd::with_lock_for(r.all, 0ms, nothing)));
    REQUIRE(r.w.await(r.c.unlock()));
    REQUIRE(r.w.await(coetcd::with_lock_for(r.all, 50ms, nothing)));
    r.w.env->pass(10ms);
    REQUIRE(r.keys() == 0);

    coetcd::detail::notifier never(*r.w.env);
    auto forever = [&]() -> asio::awaitable<void> { (void)co_await never.wait(); };
    auto working = r.w.start(coetcd::with_lock(r.all, forever));
    r.w.env->pass(50ms);
    r.w.etcd->erase(r.w.etcd->under("b/read/").front());
    r.w.env->pass(3s);
    REQUIRE(working.code() == errc::lock_lost);
    REQUIRE(r.keys() == 0);
}

TEST_CASE("several locks are shared, and a body runs under them, as one", "[multi_lock]") {
    neighbours r;
    coetcd::held_locks held = r.w.await(r.all.scoped_lock());
    std::optional<coetcd::held_locks> other = held.share();
    CHECK(other->fencing_token() == held.fencing_token());
    auto body = [&](const coetcd::held_locks& under) -> asio::awaitable<std::size_t> {
        CHECK(under.owns_lock());
        co_return under.is_owner().size();
    };
    std::size_t calls = r.calls();
    CHECK(r.w.await(coetcd::with_lock(held, body)) == 3);
    CHECK(r.w.await(held.unlock())); // the other one is left
    CHECK(r.calls() == calls);
    CHECK(r.keys() == 5);
    CHECK_FALSE(held.owns_lock());
    CHECK_THROWS_AS(held.share(), coetcd::error);
    auto late = r.w.start(coetcd::with_lock(held, body));
    r.w.env->pass(10ms);
    CHECK(late.code() == errc::not_owner);
    CHECK(other->owns_lock());
    other.reset();
    r.w.env->pass(10ms);
    CHECK(r.keys() == 0);

    held = r.w.await(r.all.scoped_lock());
    CHECK(r.w.await(coetcd::with_lock(std::move(held), body)) == 3);
    r.w.env->pass(10ms);
    CHECK(r.keys() == 0);

    held = r.w.await(r.all.scoped_lock());
    coetcd::detail::notifier never(*r.w.env);
    auto forever = [&]() -> asio::awaitable<void> { (void)co_await never.wait(); };
    auto working = r.w.start(coetcd::with_lock(held, forever));
    r.w.env->pass(50ms);
    r.w.etcd->erase(r.w.etcd->under("b/read/").front());
    r.w.env->pass(5s);
    CHECK(working.code() == errc::lock_lost);
    CHECK(r.keys() == 0);
    CHECK_THROWS_AS(coetcd::held_locks().share(), std::logic_error);
}

TEST_CASE("force_unlock() of one of several locks ends all of them", "[multi_lock][admin]") {
    neighbours r(6s);
    coetcd::held_locks held = r.w.await(r.all.scoped_lock());
    auto lost = r.w.start(held.wait_lost());
    auto waiting = r.w.start(r.a.lock());
    r.w.env->pass(50ms);
    const std::string name = GENERATE("a", "b");
    CHECK(r.w.await(coetcd::force_unlock(r.client, name, held.fencing_token())));
    r.w.env->pass(20ms);
    CHECK(r.w.etcd->under(name + "/").size() == (name == "a" ? 1 : 0)); // of the waiter
    r.w.env->pass(3s);                                                  // the next renewal
    CHECK(lost.get() == errc::lock_lost);
    CHECK(r.w.etcd->under("b/").empty());
    CHECK(r.w.etcd->under("c/").empty());
    waiting.get();
    CHECK(r.a.owns_lock());
}

TEST_CASE("max_hold ends all of several locks", "[multi_lock][max_hold]") {
    neighbours r;
    coetcd::multi_lock_options options;
    options.max_hold = 3s;
    multi_lock limited(r.one, {exclusive("a"), shared("b")}, options);
    coetcd::held_locks held = r.w.await(limited.scoped_lock());
    auto lost = r.w.start(held.wait_lost());
    r.w.env->pass(2900ms);
    CHECK(held.owns_lock());
    r.w.env->stall(110ms);
    CHECK_FALSE(held.owns_lock());
    r.w.env->pass(20ms);
    CHECK(lost.get() == errc::hold_expired);
    CHECK(r.keys() == 0);
    CHECK_FALSE(r.w.await(held.unlock()));
    options.max_hold = 0s;
    CHECK_THROWS_AS(multi_lock(r.one, {exclusive("a")}, options), std::invalid_argument);
}

TEST_CASE("a multi_lock that is destroyed, or assigned to, gives back", "[multi_lock]") {
    neighbours r;
    r.w.await(r.all.lock());
    r.all = multi_lock(r.one, {exclusive("z")});
    r.w.env->pass(10ms);
    REQUIRE(r.keys() == 0);
    {
        coetcd::held_locks held = r.w.await(r.all.scoped_lock());
        REQUIRE(r.w.etcd->has_any("z/"));
        held = coetcd::held_locks();
        r.w.env->pass(10ms);
        REQUIRE_FALSE(r.w.etcd->has_any("z/"));
        held = r.w.await(r.all.scoped_lock());
    }
    r.w.env->pass(10ms);
    REQUIRE_FALSE(r.w.etcd->has_any("z/"));
}
