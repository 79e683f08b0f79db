// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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
using coetcd::lock_mode;
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

/// Three sessions that want the same lock.
struct three {
    explicit three(std::chrono::seconds ttl = 10s)
        : client(w.client())
        , one(w.await(coetcd::session::open(client, ttl)))
        , two(w.await(coetcd::session::open(client, ttl)))
        , three_(w.await(coetcd::session::open(client, ttl)))
        , a(one, "s")
        , b(two, "s")
        , c(three_, "s") {}
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::session three_;
    coetcd::shared_mutex a;
    coetcd::shared_mutex b;
    coetcd::shared_mutex c;

    std::size_t writes() const { return w.etcd->under("s/write/").size(); }
    std::size_t reads() const { return w.etcd->under("s/read/").size(); }
    std::size_t kept() const { return w.etcd->under("s/keep/").size(); }
    std::size_t keys() const { return w.etcd->under("s/").size(); }
    std::size_t calls() const { return w.env->calls.size(); }
};

std::int64_t life(const three& all, const std::string& key) {
    return all.w.etcd->keys.at(key).create_revision;
}

/// Whether etcd takes what this guards.
bool holds(three& all, const coetcd::compare& guard) {
    coetcd::txn look = coetcd::txn().when(guard).then(coetcd::op::put("x", "1"));
    return all.w.await(all.client.txn(std::move(look))).succeeded;
}

} // namespace

TEST_CASE("a reader takes the lock in one round trip, beside others, and gives it back in one",
          "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    const std::size_t before = all.calls();
    w.await(a.lock_shared());
    REQUIRE(all.calls() == before + 1);
    w.await(b.lock_shared());
    REQUIRE(all.calls() == before + 2);
    REQUIRE(w.await(c.try_lock_shared()));
    REQUIRE(all.calls() == before + 3);
    REQUIRE(all.reads() == 3);
    REQUIRE(all.keys() == 3);
    REQUIRE(a.owns_lock_shared());
    REQUIRE_FALSE(a.owns_lock());
    REQUIRE_FALSE(w.await(c.try_lock()));

    REQUIRE(w.await(a.unlock_shared()));
    REQUIRE_FALSE(a.owns_lock_shared());
    REQUIRE_FALSE(w.await(a.unlock_shared()));
    REQUIRE(w.await(b.unlock_shared()));
    REQUIRE(w.await(c.unlock_shared()));
    REQUIRE(all.calls() == before + 7);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("position() counts readers and writers before the session", "[shared_mutex][position]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    CHECK_FALSE(w.await(a.position()).has_value());
    w.await(a.lock_shared());
    w.await(b.lock_shared());
    auto writing = w.start(c.lock());
    w.env->pass(50ms);
    auto reading = w.start(a.lock_shared()); // behind the writer
    w.env->pass(50ms);
    const std::size_t before = all.calls();
    CHECK(w.await(a.position()) == 0U); // the first one of its places
    CHECK(all.calls() == before + 1);
    CHECK(w.await(b.position()) == 1U);
    CHECK(w.await(c.position()) == 2U);
    CHECK(w.await(a.unlock_shared()));
    w.env->pass(50ms);
    CHECK(w.await(a.position()) == 2U);
    CHECK(w.await(b.position()) == 0U);
    CHECK(w.await(c.position()) == 1U);
    CHECK(w.await(b.unlock_shared()));
    w.env->pass(50ms);
    CHECK(w.await(c.position()) == 0U);
    CHECK(writing.succeeded());
    auto cancelled = w.start(a.position());
    cancelled.cancel();
    w.env->pass(0ms);
    CHECK(cancelled.code() == asio::error::operation_aborted);
}

TEST_CASE("a writer takes the lock in one round trip, alone", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    const std::size_t before = all.calls();
    w.await(a.lock());
    REQUIRE(all.calls() == before + 1);
    REQUIRE(a.owns_lock());
    REQUIRE_FALSE(a.owns_lock_shared());
    REQUIRE(all.writes() == 1);
    REQUIRE(all.kept() == 1);
    REQUIRE(a.fencing_token() == life(all, w.etcd->under("s/write/").front()));
    REQUIRE(a.fencing_token() == life(all, w.etcd->under("s/keep/").front()));
    REQUIRE(holds(all, a.is_owner()));
    REQUIRE_FALSE(w.await(b.try_lock()));
    REQUIRE_FALSE(w.await(b.try_lock_shared()));
    REQUIRE_FALSE(w.await(b.try_lock_for(50ms)));
    REQUIRE_FALSE(w.await(b.try_lock_shared_for(50ms)));
    const auto soon = std::chrono::steady_clock::now() + 50ms;
    REQUIRE_FALSE(w.await(b.try_lock_until(soon)));
    REQUIRE_FALSE(w.await(b.try_lock_shared_until(soon)));
    w.env->pass(50ms);
    REQUIRE(all.keys() == 2);
    REQUIRE(w.await(a.unlock()));
    REQUIRE(all.keys() == 0);
    REQUIRE(w.await(b.try_lock_shared_for(1s)));
    REQUIRE(w.await(b.unlock_shared()));
    REQUIRE(w.await(b.try_lock_for(1s)));
}

TEST_CASE("what needs the lock is refused while it is not held to write", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    REQUIRE_THROWS_AS(a.fencing_token(), coetcd::error);
    REQUIRE_THROWS_AS(a.is_owner(), coetcd::error);
    w.await(a.lock_shared());
    REQUIRE_THROWS_AS(a.fencing_token(), coetcd::error);
    REQUIRE_FALSE(w.await(a.unlock()));
    REQUIRE(a.name() == "s");
    REQUIRE(a.get_executor() == client.get_executor());
}

TEST_CASE("a shared_mutex that is empty, or has no good name, is a defect", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    REQUIRE_THROWS_WITH(coetcd::shared_mutex(one, ""), "name: is empty");
    REQUIRE_THROWS_WITH(coetcd::shared_mutex(one, std::string(513, 'x')),
                        "name: is longer than 512 bytes");
    coetcd::shared_mutex moved(std::move(a));
    REQUIRE_THROWS_AS(a.lock(), std::logic_error);
    REQUIRE_THROWS_AS(a.try_lock_shared(), std::logic_error);
    REQUIRE_THROWS_AS(a.unlock_shared(), std::logic_error);
    REQUIRE_THROWS_AS(a.name(), std::logic_error);
    coetcd::held_lock none;
    REQUIRE_THROWS_AS(none.mode(), std::logic_error);
    REQUIRE_THROWS_AS(none.downgrade(), std::logic_error);
    REQUIRE_THROWS_AS(none.try_upgrade(), std::logic_error);
    // A mutex has one mode.
    coetcd::mutex m(one, "m");
    coetcd::held_lock held = w.await(m.scoped_lock());
    REQUIRE(held.mode() == lock_mode::exclusive);
    REQUIRE_THROWS_AS(held.downgrade(), std::logic_error);
    REQUIRE_THROWS_AS(held.try_upgrade(), std::logic_error);
    REQUIRE(held.owns_lock());
}

TEST_CASE("the order is that of arrival, whether one reads or writes", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::session four = w.await(coetcd::session::open(client));
    coetcd::shared_mutex d(four, "s");
    w.await(a.lock_shared());
    auto writing = w.start(b.lock());
    w.env->pass(20ms);
    // A reader does not overtake the writer, though it could.
    auto reading = w.start(c.lock_shared());
    auto also = w.start(d.lock_shared());
    w.env->pass(500ms);
    REQUIRE_FALSE(writing.ended());
    REQUIRE_FALSE(reading.ended());
    REQUIRE_FALSE(w.await(d.try_lock_shared()));
    REQUIRE(w.await(a.unlock_shared()));
    w.env->pass(10ms);
    writing.get();
    REQUIRE_FALSE(reading.ended());
    REQUIRE(w.await(b.unlock()));
    w.env->pass(10ms);
    reading.get(); // both at once
    also.get();
}

TEST_CASE("the readers of one session hold the lock together, each by a key of its own",
          "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    std::vector<background<void>> readers;
    for (int i = 0; i != 20; ++i) {
        readers.push_back(w.start(a.lock_shared()));
    }
    w.env->pass(100ms);
    for (auto& reader : readers) {
        reader.get();
    }
    REQUIRE(all.reads() == 20);
    // An attempt that only tries is not turned away by readers that are still entering.
    auto more = w.start(a.lock_shared());
    auto tries = w.start(a.try_lock_shared());
    w.env->pass(50ms);
    more.get();
    REQUIRE(tries.get());
    REQUIRE(all.reads() == 22);

    // A writer of the same session waits for them in etcd, and readers behind it here.
    auto writing = w.start(a.lock());
    w.env->pass(20ms);
    const std::size_t before = all.calls();
    auto late = w.start(a.lock_shared());
    REQUIRE_FALSE(w.await(a.try_lock_shared()));
    REQUIRE_FALSE(w.await(a.try_lock()));
    REQUIRE(all.calls() == before);
    for (int i = 0; i != 22; ++i) {
        REQUIRE_FALSE(writing.ended());
        REQUIRE(w.await(a.unlock_shared()));
    }
    w.env->pass(20ms);
    writing.get();
    REQUIRE_FALSE(late.ended());
    REQUIRE(w.await(a.unlock()));
    w.env->pass(20ms);
    late.get();
    REQUIRE(w.await(a.unlock_shared()));
    REQUIRE(all.keys() == 0);
}

TEST_CASE("a reader that waits does not keep others of its session waiting here",
          "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    w.await(a.lock());
    auto first = w.start(b.lock_shared());
    auto second = w.start(b.lock_shared());
    w.env->pass(50ms);
    REQUIRE(all.reads() == 2);
    first.cancel();
    w.env->pass(20ms);
    REQUIRE(first.code() == asio::error::operation_aborted);
    REQUIRE(all.reads() == 1);
    REQUIRE(w.await(a.unlock()));
    w.env->pass(10ms);
    second.get();
}

TEST_CASE("unlock_shared() gives back what is lost, before what others may still count on",
          "[shared_mutex]") {
    three all(6s);
    auto& [w, client, one, two, three_, a, b, c] = all;
    w.await(a.lock_shared());
    w.await(a.lock_shared());
    const std::string lost = w.etcd->under("s/read/").back();
    w.await(a.lock_shared());
    w.etcd->erase(lost);
    w.env->pass(3s);
    REQUIRE(all.reads() == 2);
    auto writing = w.start(b.lock());
    REQUIRE_FALSE(w.await(a.unlock_shared())); // the lost one, whichever call ends it
    REQUIRE(all.reads() == 2);
    REQUIRE(a.owns_lock_shared());
    REQUIRE(w.await(a.unlock_shared()));
    REQUIRE_FALSE(writing.ended());
    REQUIRE(w.await(a.unlock_shared()));
    REQUIRE_FALSE(a.owns_lock_shared());
    w.env->pass(20ms);
    writing.get();
    REQUIRE_FALSE(w.await(a.unlock_shared()));
}

TEST_CASE("an upgrade waits for a downgrade that home has not heard of yet", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    std::optional<bool> raised;
    auto both = [&]() -> asio::awaitable<void> {
        w.env->away = true;
        auto lowering = held.downgrade(); // in another thread, which stops here
        w.env->away = false;
        const bool up = co_await held.try_upgrade();
        raised = up;
        try {
            co_await std::move(lowering);
        } catch (const coetcd::error&) {
            // it may tell that it writes again
        }
    };
    w.await(both());
    w.env->pass(1s);
    REQUIRE(raised.has_value());
    REQUIRE(*raised);
    REQUIRE(held.mode() == coetcd::lock_mode::exclusive);
    REQUIRE(all.writes() == 1);
    REQUIRE(holds(all, held.is_owner()));
    auto reading = w.start(b.lock_shared());
    w.env->pass(1s);
    REQUIRE_FALSE(reading.ended());
    REQUIRE(w.await(held.unlock()));
    w.env->pass(10ms);
    reading.get();
}

TEST_CASE("a repeated request to read does not put its key in another life", "[shared_mutex]") {
    for (const bool tries : {false, true}) {
        three all;
        auto& [w, client, one, two, three_, a, b, c] = all;
        lose_answer(w, is_enter);
        std::optional<coetcd::held_lock> held;
        if (tries) {
            REQUIRE(w.await(a.try_lock_shared()));
            REQUIRE(w.await(a.unlock_shared()));
        } else {
            held.emplace(w.await(a.scoped_lock_shared()));
            REQUIRE(held->fencing_token() == life(all, held->key()));
            REQUIRE(holds(all, held->is_owner()));
            REQUIRE(w.await(held->unlock()));
        }
        w.env->pass(1s);
        REQUIRE(all.keys() == 0);
        REQUIRE(w.etcd->under("s.").size() == 1); // the epoch
    }
    // The same holds where the name was free the last time, so that it is taken rather than
    // entered.
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    w.await(a.lock_shared());
    REQUIRE(w.await(a.unlock_shared()));
    lose_answer(w, is_enter);
    coetcd::held_lock held = w.await(a.scoped_lock_shared());
    REQUIRE(held.fencing_token() == life(all, held.key()));
    REQUIRE(w.await(held.unlock()));
}

TEST_CASE("every lost answer on the way to a shared lock is ridden out", "[shared_mutex]") {
    // The n-th transaction from here on loses its request, its answer, or its connection.
    for (int how = 0; how < 3; ++how) {
        for (int victim = 0; victim < 8; ++victim) {
            for (const bool reads : {false, true}) {
                three all(30s);
                auto& [w, client, one, two, three_, a, b, c] = all;
                w.await(a.lock());
                int n = 0;
                w.env->decide = [&](const call_request& r) {
                    scripted_env::fate f;
                    if (r.what == rpc::txn && n++ == victim) {
                        f.arrives = how != 0;
                        f.answered = how != 1;
                        f.breaks = how == 2;
                    }
                    return f;
                };
                auto locking = w.start(reads ? b.lock_shared() : b.lock());
                w.env->pass(50ms);
                auto unlocking = w.start(a.unlock());
                w.env->pass(20s);
                INFO("how " << how << " victim " << victim << " reads " << reads);
                REQUIRE(unlocking.get());
                locking.get();
                REQUIRE(w.await(reads ? b.unlock_shared() : b.unlock()));
                w.env->pass(10s);
                REQUIRE(all.keys() == 0);
            }
        }
    }
}

TEST_CASE("cancelled at any moment, a request to share ends once and leaves no key",
          "[shared_mutex][cancellation]") {
    for (const auto late : {0ms, 7ms, 700ms}) {
        for (const bool busy : {false, true}) {
            for (const bool reads : {false, true}) {
                for (auto when = 0ms; when < 30ms; ++when) {
                    three all;
                    auto& [w, client, one, two, three_, a, b, c] = all;
                    if (busy) {
                        w.await(a.lock());
                    }
                    delay_first(w, is_enter, late);
                    auto locking = w.start(reads ? b.lock_shared() : b.lock());
                    w.env->pass(when);
                    const bool before = locking.ended();
                    locking.cancel();
                    w.env->pass(0ms);
                    INFO("late " << late.count() << " busy " << busy << " reads " << reads << " at "
                                 << when.count());
                    REQUIRE(locking.ended());
                    w.env->pass(1500ms);
                    REQUIRE(locking.completions() == 1);
                    if (before) {
                        REQUIRE(w.await(reads ? b.unlock_shared() : b.unlock()));
                    } else {
                        REQUIRE(locking.code() == asio::error::operation_aborted);
                    }
                    REQUIRE(two.state() == coetcd::session_state::active);
                    REQUIRE(all.keys() == (busy ? 2 : 0));
                    if (busy) {
                        REQUIRE(w.await(a.unlock()));
                    }
                    w.await(c.lock());
                }
            }
        }
    }
}

TEST_CASE("a writer loses the lock with either of its keys, and the other one goes",
          "[shared_mutex]") {
    for (const char* which : {"s/write/", "s/keep/"}) {
        three all(6s);
        auto& [w, client, one, two, three_, a, b, c] = all;
        coetcd::held_lock held = w.await(a.scoped_lock());
        w.etcd->erase(w.etcd->under(which).front());
        INFO(which);
        w.env->pass(2500ms);
        REQUIRE_FALSE(held.owns_lock());
        REQUIRE(one.state() == coetcd::session_state::active);
        REQUIRE(all.keys() == 0); // nothing waits for the rest of it
        REQUIRE_FALSE(w.await(held.unlock()));
        // Noticed by the release alone, it is told, too.
        held = w.await(a.scoped_lock());
        w.etcd->erase(w.etcd->under(which).front());
        REQUIRE_FALSE(w.await(held.unlock()));
        w.env->pass(10ms);
        REQUIRE(all.keys() == 0);
    }
}

TEST_CASE("a waiting writer fails with either of its keys", "[shared_mutex]") {
    for (const char* which : {"s/write/", "s/keep/"}) {
        three all;
        auto& [w, client, one, two, three_, a, b, c] = all;
        w.await(a.lock_shared());
        auto waiting = w.start(b.lock());
        w.env->pass(1s);
        w.etcd->erase(w.etcd->under(which).front());
        w.env->pass(20ms);
        INFO(which);
        REQUIRE(waiting.code() == errc::lock_lost);
        w.env->pass(20ms);
        REQUIRE(all.keys() == 1);
        REQUIRE(a.owns_lock_shared());
    }
}

TEST_CASE("the lock of a session that ends is free, whatever it was", "[shared_mutex]") {
    for (const bool reads : {false, true}) {
        three all;
        auto& [w, client, one, two, three_, a, b, c] = all;
        coetcd::held_lock held = w.await(reads ? a.scoped_lock_shared() : a.scoped_lock());
        auto lost = w.start(held.wait_lost());
        auto waiting = w.start(b.lock());
        w.env->pass(50ms);
        w.etcd->revoke(one.lease());
        w.env->pass(20ms);
        waiting.get();
        w.env->pass(4s);
        REQUIRE(lost.get() == errc::session_lost);
        REQUIRE_FALSE(w.await(held.unlock()));
    }
}

TEST_CASE("the last reader of many hands over, and a waiter wakes at most once for each that goes",
          "[shared_mutex]") {
    constexpr int crowd = 200;
    for (const bool in_order : {true, false}) {
        three all(60s);
        auto& [w, client, one, two, three_, a, b, c] = all;
        std::vector<coetcd::held_lock> readers;
        for (int i = 0; i != crowd; ++i) {
            readers.push_back(w.await(a.scoped_lock_shared()));
        }
        auto writing = w.start(b.lock());
        auto reading = w.start(c.lock_shared());
        w.env->pass(1s);
        const std::size_t confirms = count(w, is_confirm);
        const std::size_t watches = w.etcd->watches();
        REQUIRE(watches <= 8); // four ahead of the writer, one of the reader, and their own keys
        for (int i = 0; i != crowd; ++i) {
            coetcd::held_lock& next =
                readers[static_cast<std::size_t>(in_order ? i : crowd - 1 - i)];
            REQUIRE_FALSE(writing.ended());
            REQUIRE(w.await(next.unlock()));
            w.env->pass(10ms);
        }
        writing.get();
        // In order of their arrival the last four are the ones that were watched. Else it asks when
        // three of four have gone.
        const std::size_t most = in_order ? 1 : crowd / 3 + 1;
        REQUIRE(count(w, is_confirm) - confirms <= most);
        REQUIRE_FALSE(reading.ended());
        REQUIRE(w.await(b.unlock()));
        w.env->pass(10ms);
        reading.get();
        REQUIRE(count(w, is_confirm) - confirms <= most); // one writer is a complete list
    }
}

// Downgrade.

TEST_CASE("downgrade() goes on reading with its place, in one round trip", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    REQUIRE(held.mode() == lock_mode::exclusive);
    const std::int64_t token = held.fencing_token();
    const coetcd::compare wrote = held.is_owner();
    REQUIRE(held.key() == w.etcd->under("s/write/").front());
    auto writing = w.start(b.lock());
    auto reading = w.start(c.lock_shared());
    w.env->pass(400ms);

    const std::size_t before = all.calls();
    w.await(held.downgrade());
    REQUIRE(all.calls() == before + 1);
    REQUIRE(held.mode() == lock_mode::shared);
    REQUIRE(held.owns_lock());
    REQUIRE_FALSE(a.owns_lock()); // to write
    REQUIRE(held.fencing_token() == token);
    REQUIRE(held.key() == w.etcd->under("s/keep/").front());
    REQUIRE_FALSE(holds(all, wrote));
    REQUIRE(holds(all, held.is_owner()));
    // The writer that waits comes first, even if others would read with us.
    w.env->pass(100ms);
    REQUIRE_FALSE(writing.ended());
    REQUIRE_FALSE(reading.ended());
    w.await(held.downgrade()); // nothing is left to do
    REQUIRE(held.mode() == lock_mode::shared);

    REQUIRE(w.await(held.unlock()));
    w.env->pass(10ms);
    writing.get();
    REQUIRE(w.await(b.unlock()));
    w.env->pass(10ms);
    reading.get();
}

TEST_CASE("downgrade() lets readers in, those of the session with the same request",
          "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    auto here = w.start(a.lock_shared());
    w.env->pass(50ms);
    const std::size_t before = all.calls();
    auto lowering = w.start(held.downgrade());
    w.env->pass(2ms);
    lowering.get();
    here.get();
    REQUIRE(all.calls() == before + 1);
    REQUIRE(held.owns_lock());
    REQUIRE(w.await(held.unlock()));
    REQUIRE(w.await(a.unlock_shared()));

    held = w.await(a.scoped_lock());
    auto there = w.start(b.lock_shared());
    w.env->pass(50ms);
    REQUIRE_FALSE(there.ended());
    w.await(held.downgrade());
    w.env->pass(10ms);
    there.get();
    REQUIRE(held.owns_lock());
}

TEST_CASE("downgrade() takes effect at the call, awaited or not", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    (void)held.downgrade();
    REQUIRE(held.mode() == lock_mode::shared);
    w.env->pass(10ms);
    REQUIRE(all.writes() == 0);
    REQUIRE(w.await(b.try_lock_shared()));
}

TEST_CASE("whatever happens to the request, downgrade() leaves a reader and no write key",
          "[shared_mutex]") {
    enum { broken, lost, unanswered, late, cancelled, no_etcd_for_a_while };
    for (const int how : {broken, lost, unanswered, late, cancelled, no_etcd_for_a_while}) {
        for (const bool doubtful : {false, true}) { // about the request to enter
            three all(60s);
            auto& [w, client, one, two, three_, a, b, c] = all;
            if (doubtful) {
                lose_answer(w, is_enter);
            }
            coetcd::held_lock held = w.await(a.scoped_lock());
            bool first = true;
            bool down = how == no_etcd_for_a_while;
            w.env->decide = [&](const call_request& r) {
                scripted_env::fate f;
                if (r.what == rpc::txn && std::exchange(first, false)) {
                    f.breaks = how == broken;
                    f.arrives = how != lost;
                    f.answered = how != unanswered;
                    f.late = how == late ? 8s : 0s;
                }
                f.refused = down && r.what == rpc::txn;
                return f;
            };
            auto lowering = w.start(held.downgrade());
            w.env->pass(1ms);
            if (how == cancelled) {
                lowering.cancel();
            }
            REQUIRE(held.mode() == lock_mode::shared);
            w.env->pass(6s);
            INFO("how " << how << " doubtful " << doubtful);
            REQUIRE(lowering.ended());
            if (how == cancelled) {
                REQUIRE(lowering.code() == asio::error::operation_aborted);
            } else if (how == no_etcd_for_a_while) {
                REQUIRE(lowering.code() == errc::unavailable);
            } else {
                lowering.get();
            }
            down = false;
            w.env->pass(10s);
            REQUIRE(one.state() == coetcd::session_state::active);
            REQUIRE(held.owns_lock());
            REQUIRE(held.mode() == lock_mode::shared);
            REQUIRE(all.writes() == 0);
            REQUIRE(all.kept() == 1);
            REQUIRE(w.await(b.try_lock_shared()));
            REQUIRE(w.await(held.unlock()));
            REQUIRE(w.await(b.unlock_shared()));
            w.env->pass(10s);
            REQUIRE(all.keys() == 0);
        }
    }
}

TEST_CASE("where there is no space the write key goes at once, and the epoch changes later",
          "[shared_mutex]") {
    for (const bool doubtful : {false, true}) {
        three all;
        auto& [w, client, one, two, three_, a, b, c] = all;
        if (doubtful) {
            lose_answer(w, is_enter);
        }
        coetcd::held_lock held = w.await(a.scoped_lock());
        w.etcd->no_space = true;
        auto lowering = w.start(held.downgrade());
        w.env->pass(20ms);
        REQUIRE(all.writes() == 0);
        if (doubtful) {
            REQUIRE(lowering.code() == coetcd::server_errc::resource_exhausted);
        } else {
            lowering.get();
        }
        w.env->pass(30s);
        REQUIRE(one.state() == coetcd::session_state::active);
        w.etcd->no_space = false;
        w.env->pass(1s);
        REQUIRE(w.etcd->under("s.").size() == (doubtful ? 1 : 0));
        REQUIRE(held.owns_lock());
        REQUIRE(w.await(held.try_upgrade()));
        REQUIRE(w.await(held.unlock()));
        REQUIRE(all.keys() == 0);
    }
}

TEST_CASE("to change the mode of what is not held any more is an error", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    (void)held.unlock();
    auto lowering = w.start(held.downgrade());
    auto raising = w.start(held.try_upgrade());
    w.env->pass(10ms);
    REQUIRE(lowering.code() == errc::not_owner);
    REQUIRE(raising.code() == errc::not_owner);

    held = w.await(a.scoped_lock());
    coetcd::held_lock other = w.await(coetcd::shared_mutex(two, "t").scoped_lock_shared());
    (void)one.close();
    (void)two.orphan();
    auto lost = w.start(held.downgrade());
    auto handed_over = w.start(other.try_upgrade());
    w.env->pass(10ms);
    REQUIRE(lost.code() == errc::session_closed);
    REQUIRE(handed_over.code() == errc::session_closed);
}

TEST_CASE("given back or destroyed at any moment of a downgrade, nothing of the lock stays",
          "[shared_mutex]") {
    for (const bool doubtful : {false, true}) {
        for (const bool destroyed : {false, true}) {
            for (const auto late : {0ms, 5ms, 3000ms}) {
                for (auto when = 0ms; when < 8ms; ++when) {
                    three all;
                    auto& [w, client, one, two, three_, a, b, c] = all;
                    if (doubtful) {
                        lose_answer(w, is_enter);
                    }
                    std::optional<coetcd::held_lock> held(w.await(a.scoped_lock()));
                    auto waiting = w.start(b.lock());
                    w.env->pass(20ms);
                    delay_first(w, is_release, late);
                    auto lowering = w.start(held->downgrade());
                    w.env->pass(when);
                    if (destroyed) {
                        held.reset();
                    } else {
                        (void)held->unlock();
                    }
                    w.env->pass(20ms);
                    INFO("doubtful " << doubtful << " destroyed " << destroyed << " late "
                                     << late.count() << " at " << when.count());
                    REQUIRE(lowering.ended());
                    w.env->pass(10s);
                    waiting.get();
                    REQUIRE(all.keys() == 2);
                    // The slot is good for another attempt, whatever comes late.
                    auto again = w.start(a.scoped_lock());
                    w.env->pass(10ms);
                    REQUIRE(w.await(b.unlock()));
                    w.env->pass(20s);
                    REQUIRE(again.get().owns_lock());
                }
            }
        }
    }
}

// Upgrade.

TEST_CASE("try_upgrade() writes if nothing is in the way, in one round trip", "[shared_mutex]") {
    for (const bool lowered : {false, true}) { // it has written before
        three all;
        auto& [w, client, one, two, three_, a, b, c] = all;
        coetcd::held_lock held = w.await(lowered ? a.scoped_lock() : a.scoped_lock_shared());
        if (lowered) {
            w.await(held.downgrade());
        }
        const std::int64_t token = held.fencing_token();
        const coetcd::compare as_reader = held.is_owner();
        auto writing = w.start(b.lock()); // may wait
        w.env->pass(400ms);
        const std::size_t before = all.calls();
        REQUIRE(w.await(held.try_upgrade()));
        REQUIRE(all.calls() == before + 1);
        REQUIRE(held.mode() == lock_mode::exclusive);
        REQUIRE(held.fencing_token() == token);
        REQUIRE(held.key().starts_with("s/write/"));
        REQUIRE(holds(all, held.is_owner()));
        REQUIRE(holds(all, as_reader));       // it has not ended
        REQUIRE(w.await(held.try_upgrade())); // it writes already
        auto reading = w.start(c.lock_shared());
        w.env->pass(400ms);
        REQUIRE_FALSE(writing.ended());
        REQUIRE_FALSE(reading.ended());

        const coetcd::compare as_writer = held.is_owner();
        w.await(held.downgrade());
        REQUIRE(held.mode() == lock_mode::shared);
        REQUIRE_FALSE(holds(all, as_writer));
        w.env->pass(50ms);
        REQUIRE_FALSE(reading.ended()); // behind the writer that waits
        REQUIRE(w.await(held.unlock()));
        w.env->pass(10ms);
        writing.get();
        REQUIRE(w.await(b.unlock()));
        w.env->pass(10ms);
        reading.get();
        REQUIRE(w.await(c.unlock_shared()));
        REQUIRE(all.keys() == 0);
    }
}

TEST_CASE("try_upgrade() is refused by any other reader, and by an older owner", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    // A reader, older or younger; of the same session, too.
    {
        coetcd::held_lock first = w.await(a.scoped_lock_shared());
        coetcd::held_lock second = w.await(b.scoped_lock_shared());
        REQUIRE_FALSE(w.await(first.try_upgrade()));
        REQUIRE_FALSE(w.await(second.try_upgrade()));
        REQUIRE(first.mode() == lock_mode::shared);
        REQUIRE(w.await(second.unlock()));
        coetcd::held_lock third = w.await(a.scoped_lock_shared());
        REQUIRE_FALSE(w.await(first.try_upgrade()));
        REQUIRE(w.await(third.unlock()));
        REQUIRE(w.await(first.try_upgrade()));
    }
    w.env->pass(10ms);
    // One that went on as a reader, and so has no key among the readers.
    {
        coetcd::held_lock first = w.await(a.scoped_lock());
        w.await(first.downgrade());
        coetcd::held_lock second = w.await(b.scoped_lock_shared());
        REQUIRE_FALSE(w.await(second.try_upgrade()));
        REQUIRE_FALSE(w.await(first.try_upgrade()));
        REQUIRE(w.await(first.unlock()));
        REQUIRE(w.await(second.try_upgrade()));
    }
    w.env->pass(10ms);
    // A reader that only waits: it would not see the new key.
    {
        coetcd::held_lock first = w.await(a.scoped_lock_shared());
        auto writing = w.start(b.lock());
        w.env->pass(20ms);
        auto waiting = w.start(c.lock_shared());
        w.env->pass(20ms);
        REQUIRE_FALSE(w.await(first.try_upgrade()));
        waiting.cancel();
        w.env->pass(20ms);
        REQUIRE(w.await(first.try_upgrade()));
        writing.cancel();
        w.env->pass(20ms);
    }
    w.env->pass(10ms);
    // A mutex of this name that is older, which a reader does not see.
    coetcd::mutex m(two, "s");
    w.await(m.lock());
    coetcd::held_lock reader = w.await(a.scoped_lock_shared());
    REQUIRE_FALSE(w.await(reader.try_upgrade()));
    REQUIRE(w.await(m.unlock()));
    REQUIRE(w.await(reader.try_upgrade()));
    REQUIRE_FALSE(w.await(m.try_lock()));
    REQUIRE(w.await(reader.unlock()));
    REQUIRE(all.keys() == 0);
}

TEST_CASE("whatever happens to the request, try_upgrade() tells the truth", "[shared_mutex]") {
    enum { broken, lost, unanswered, late };
    for (const int how : {broken, lost, unanswered, late}) {
        for (const bool free : {false, true}) {
            for (const bool once : {true, false}) { // or for as long as the call may take
                three all(60s);
                auto& [w, client, one, two, three_, a, b, c] = all;
                coetcd::held_lock held = w.await(a.scoped_lock_shared());
                std::optional<coetcd::held_lock> other;
                if (!free) {
                    other.emplace(w.await(b.scoped_lock_shared()));
                }
                bool bad = true;
                w.env->decide = [&](const call_request& r) {
                    scripted_env::fate f;
                    if (bad && is_enter(r)) {
                        bad = !once;
                        f.breaks = how == broken;
                        f.arrives = how != lost;
                        f.answered = how != unanswered;
                        f.late = how == late ? 13s : 0s;
                    }
                    return f;
                };
                auto raising = w.start(held.try_upgrade());
                w.env->pass(8s);
                bad = false;
                INFO("how " << how << " free " << free << " once " << once);
                REQUIRE(raising.ended());
                if (once) {
                    REQUIRE(raising.get() == free);
                } else {
                    REQUIRE(raising.code() == errc::timed_out);
                }
                const bool writes = once && free;
                REQUIRE((held.mode() == lock_mode::exclusive) == writes);
                w.env->pass(1s);
                REQUIRE(all.writes() == (writes ? 1 : 0));
                if (writes) {
                    REQUIRE(holds(all, held.is_owner()));
                    w.await(held.downgrade());
                }
                // What arrives late raises no reader.
                w.env->pass(30s);
                REQUIRE(all.writes() == 0);
                REQUIRE(held.owns_lock());
                REQUIRE(held.mode() == lock_mode::shared);
                REQUIRE(w.await(c.try_lock_shared()));
                REQUIRE_FALSE(w.await(held.try_upgrade()));
                REQUIRE(w.await(c.unlock_shared()));
                other.reset();
                w.env->pass(10ms);
                REQUIRE(w.await(held.try_upgrade()));
                REQUIRE(w.await(held.unlock()));
                w.env->pass(10s);
                REQUIRE(all.keys() == 0);
                REQUIRE(one.state() == coetcd::session_state::active);
            }
        }
    }
}

TEST_CASE("what etcd refuses of an upgrade is reported, and leaves a reader", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock_shared());
    w.etcd->no_space = true;
    auto raising = w.start(held.try_upgrade());
    w.env->pass(50ms);
    REQUIRE(raising.code() == coetcd::server_errc::resource_exhausted);
    REQUIRE(held.mode() == lock_mode::shared);
    w.etcd->no_space = false;
    w.env->pass(1s);
    REQUIRE(all.writes() == 0);
    REQUIRE(w.await(held.try_upgrade()));
    w.await(held.downgrade());

    const std::string base = w.etcd->under("s/read/").front();
    w.etcd->erase(base);
    auto lost = w.start(held.try_upgrade());
    w.env->pass(10ms);
    REQUIRE(lost.code() == errc::lock_lost);
    REQUIRE_FALSE(held.owns_lock());
    REQUIRE_FALSE(w.await(held.unlock()));

    held = w.await(a.scoped_lock_shared());
    w.etcd->revoke(one.lease());
    auto gone = w.start(held.try_upgrade());
    w.env->pass(10ms);
    REQUIRE(gone.code() == errc::session_lost);
}

TEST_CASE("cancelled at any moment, try_upgrade() leaves a reader, and no write key stays",
          "[shared_mutex][cancellation]") {
    for (const auto late : {0ms, 7ms, 3000ms}) {
        for (auto when = 0ms; when < 12ms; ++when) {
            three all(60s);
            auto& [w, client, one, two, three_, a, b, c] = all;
            coetcd::held_lock held = w.await(a.scoped_lock_shared());
            delay_first(w, is_enter, late);
            auto raising = w.start(held.try_upgrade());
            w.env->pass(when);
            const bool before = raising.ended();
            raising.cancel();
            w.env->pass(0ms);
            INFO("late " << late.count() << " at " << when.count());
            REQUIRE(raising.ended());
            REQUIRE((held.mode() == lock_mode::exclusive) == before);
            if (before) {
                REQUIRE(raising.get());
                w.await(held.downgrade());
            } else {
                REQUIRE(raising.code() == asio::error::operation_aborted);
            }
            w.env->pass(20s);
            REQUIRE(held.owns_lock());
            REQUIRE(held.mode() == lock_mode::shared);
            REQUIRE(all.writes() == 0);
            REQUIRE(w.await(b.try_lock_shared()));
            REQUIRE(w.await(b.unlock_shared()));
            REQUIRE(w.await(held.try_upgrade()));
            REQUIRE(w.await(held.unlock()));
            REQUIRE(all.keys() == 0);
            REQUIRE(one.state() == coetcd::session_state::active);
        }
    }
}

TEST_CASE("given back, destroyed or lowered at any moment of an upgrade, no write key stays",
          "[shared_mutex]") {
    enum { given_back, destroyed, lowered };
    for (const int how : {given_back, destroyed, lowered}) {
        for (const auto late : {0ms, 5ms, 3000ms}) {
            for (auto when = 0ms; when < 8ms; ++when) {
                three all(60s);
                auto& [w, client, one, two, three_, a, b, c] = all;
                std::optional<coetcd::held_lock> held(w.await(a.scoped_lock_shared()));
                delay_first(w, is_enter, late);
                auto raising = w.start(held->try_upgrade());
                w.env->pass(when);
                const bool before = raising.ended();
                std::optional<background<void>> lowering;
                if (how == given_back) {
                    (void)held->unlock();
                } else if (how == destroyed) {
                    held.reset();
                } else {
                    lowering.emplace(w.start(held->downgrade()));
                    w.env->pass(0ms);
                    REQUIRE(held->mode() == lock_mode::shared);
                }
                w.env->pass(10s);
                INFO("how " << how << " late " << late.count() << " at " << when.count());
                REQUIRE(raising.ended());
                if (how == lowered) {
                    lowering->get();
                    REQUIRE(raising.get() == before);
                    REQUIRE(held->mode() == lock_mode::shared);
                    REQUIRE(held->owns_lock());
                } else if (!before) {
                    REQUIRE(raising.code() == errc::not_owner);
                }
                REQUIRE(all.writes() == 0);
                REQUIRE(all.reads() == (how == lowered ? 1 : 0));
                REQUIRE(one.state() == coetcd::session_state::active);
                held.reset();
                w.env->pass(10s);
                REQUIRE(all.keys() == 0);
                w.await(a.lock());
            }
        }
    }
}

TEST_CASE("two upgrades at a time end as one", "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::held_lock held = w.await(a.scoped_lock_shared());
    auto first = w.start(held.try_upgrade());
    auto second = w.start(held.try_upgrade());
    w.env->pass(10ms);
    REQUIRE(first.get());
    REQUIRE(second.get());
    REQUIRE(all.writes() == 1);
    // After a downgrade that is not over, likewise.
    (void)held.downgrade();
    REQUIRE(w.await(held.try_upgrade()));
    REQUIRE(held.mode() == lock_mode::exclusive);
    REQUIRE(all.writes() == 1);
    REQUIRE(holds(all, held.is_owner()));
    // One that does not come to its end.
    w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.refused = r.what == rpc::txn;
        return f;
    };
    (void)held.downgrade();
    auto third = w.start(held.try_upgrade());
    w.env->pass(6s);
    REQUIRE(third.code() == errc::timed_out);
    w.env->decide = nullptr;
    w.env->pass(3s);
    REQUIRE(w.await(held.try_upgrade()));
}

TEST_CASE("an upgrade and a reader of the same client never share a request", "[shared_mutex]") {
    // They would get one create_revision, and the reader would not see the writer.
    for (const bool reader_first : {false, true}) {
        three all;
        auto& [w, client, one, two, three_, a, b, c] = all;
        coetcd::held_lock held = w.await(a.scoped_lock_shared());
        w.await(b.lock_shared()); // so that nothing is learned of the name any more
        REQUIRE(w.await(b.unlock_shared()));
        std::optional<background<void>> reading;
        if (reader_first) {
            reading.emplace(w.start(b.lock_shared()));
        }
        auto raising = w.start(held.try_upgrade());
        if (!reader_first) {
            reading.emplace(w.start(b.lock_shared()));
        }
        w.env->pass(50ms);
        const bool writes = raising.get();
        REQUIRE(reading->ended() == !writes);
        REQUIRE(b.owns_lock_shared() == !writes);
    }
}

// with_lock.

TEST_CASE("max_hold ends the hold of a reader, of a writer, and through changes of the mode",
          "[shared_mutex][max_hold]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::shared_mutex_options options;
    options.max_hold = 3s;
    const std::string name = a.name();
    coetcd::shared_mutex limited(one, name, options);
    for (const int way : {0, 1, 2, 3}) {
        INFO("way " << way);
        const bool reads = way == 1 || way == 3;
        coetcd::held_lock held =
            w.await(reads ? limited.scoped_lock_shared() : limited.scoped_lock());
        auto waiting = w.start(b.lock());
        auto lost = w.start(held.wait_lost());
        w.env->pass(2s);
        if (way == 2) {
            w.await(held.downgrade());
        } else if (way == 3) {
            REQUIRE(w.await(held.try_upgrade()));
        }
        w.env->pass(900ms);
        CHECK(held.owns_lock());
        CHECK_FALSE(waiting.ended());
        w.env->pass(120ms);
        CHECK_FALSE(held.owns_lock());
        CHECK(lost.get() == errc::hold_expired);
        waiting.get();
        CHECK(b.owns_lock());
        w.await(b.unlock());
        CHECK(all.keys() == 0);
    }
    options = {};
    options.max_hold = 0s;
    CHECK_THROWS_AS(coetcd::shared_mutex(one, name, options), std::invalid_argument);
}

TEST_CASE("a holder that watches its lock hears at once that it was ended, in whatever mode",
          "[shared_mutex]") {
    three all(60s);
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::shared_mutex_options options;
    options.watch_while_held = true;
    const std::string name = a.name();
    coetcd::shared_mutex watched(one, name, options);
    for (const int way : {0, 1, 2, 3}) {
        INFO("way " << way);
        const bool reads = way == 1 || way == 3;
        coetcd::held_lock held =
            w.await(reads ? watched.scoped_lock_shared() : watched.scoped_lock());
        w.env->pass(50ms);
        if (way == 2) {
            w.await(held.downgrade());
        } else if (way == 3) {
            REQUIRE(w.await(held.try_upgrade()));
        }
        w.env->pass(50ms);
        CHECK(held.owns_lock());
        CHECK(w.await(coetcd::force_unlock(client, name, held.fencing_token())));
        w.env->pass(50ms);
        CHECK_FALSE(held.owns_lock());
        CHECK(all.keys() == 0);
    }
}

TEST_CASE("a holder that watches its lock hears at once that any key of it was deleted",
          "[shared_mutex]") {
    three all(60s);
    auto& [w, client, one, two, three_, a, b, c] = all;
    coetcd::shared_mutex_options options;
    options.watch_while_held = true;
    coetcd::shared_mutex watched(one, a.name(), options);
    enum class way { writes, raised, lowered, raised_again };
    for (const way held_by : {way::writes, way::raised, way::lowered, way::raised_again}) {
        for (const bool write_key : {false, true}) {
            for (const auto when : {0ms, 1ms, 2ms, 3ms, 5ms, 50ms}) {
                INFO("way " << int(held_by) << ", " << (write_key ? "write" : "keep") << " key, "
                            << when.count() << " ms after");
                if (write_key && held_by == way::lowered) {
                    continue; // it has none
                }
                coetcd::held_lock held = w.await(
                    held_by == way::raised ? watched.scoped_lock_shared() : watched.scoped_lock());
                if (held_by == way::lowered || held_by == way::raised_again) {
                    w.env->pass(when);
                    w.await(held.downgrade());
                }
                if (held_by == way::raised || held_by == way::raised_again) {
                    w.env->pass(when);
                    REQUIRE(w.await(held.try_upgrade()));
                }
                w.env->pass(when);
                REQUIRE(held.owns_lock());
                // A reader's lasting key has another place.
                const bool began_reading = held_by == way::raised;
                const std::string lasting = began_reading ? "s/read/" : "s/keep/";
                const auto keys = w.etcd->under(write_key ? "s/write/" : lasting);
                REQUIRE(keys.size() == 1);
                w.etcd->erase(keys.front());
                w.env->pass(30ms);
                REQUIRE_FALSE(held.owns_lock());
                w.env->pass(100ms);
                REQUIRE(all.keys() == 0);
            }
        }
    }
    CHECK(one.state() == coetcd::session_state::active);
}

TEST_CASE("with_lock runs a body under either mode, and cancels it on a loss", "[shared_mutex]") {
    three all(6s);
    auto& [w, client, one, two, three_, a, b, c] = all;
    auto writing = [&]() -> asio::awaitable<int> {
        CHECK(a.owns_lock());
        co_return 7;
    };
    REQUIRE(w.await(coetcd::with_lock(a, writing)) == 7);
    auto reading = [&](const coetcd::held_lock& held) -> asio::awaitable<bool> {
        CHECK(held.mode() == lock_mode::shared);
        const bool also = co_await b.try_lock_shared();
        co_return also;
    };
    REQUIRE(w.await(coetcd::with_lock_shared(a, reading)));
    auto nothing = []() -> asio::awaitable<void> { co_return; };
    REQUIRE_FALSE(w.await(coetcd::with_lock_for(a, 50ms, nothing)));
    REQUIRE(w.await(coetcd::with_lock_shared_for(a, 50ms, nothing)));
    REQUIRE(w.await(coetcd::with_lock_shared_for(a, 0ms, nothing)));
    REQUIRE(w.await(b.unlock_shared()));
    REQUIRE(w.await(coetcd::with_lock_for(a, 50ms, nothing)));
    w.await(b.lock());
    REQUIRE_FALSE(w.await(coetcd::with_lock_shared_for(a, 50ms, nothing)));
    REQUIRE(w.await(b.unlock()));
    w.env->pass(10ms);
    REQUIRE(all.keys() == 0);

    coetcd::detail::notifier never(*w.env);
    auto forever = [&]() -> asio::awaitable<void> { (void)co_await never.wait(); };
    auto read = w.start(coetcd::with_lock_shared(a, forever));
    w.env->pass(50ms);
    w.etcd->erase(w.etcd->under("s/read/").front());
    w.env->pass(3s);
    REQUIRE(read.code() == errc::lock_lost);
}

TEST_CASE("a shared_mutex that is destroyed gives back what nothing else answers for",
          "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    std::optional<coetcd::shared_mutex> dropped(std::in_place, one, "s");
    w.await(dropped->lock_shared());
    w.await(dropped->lock_shared());
    coetcd::held_lock held = w.await(dropped->scoped_lock_shared());
    auto waiting = w.start(dropped->lock());
    w.env->pass(20ms);
    dropped.reset();
    w.env->pass(20ms);
    REQUIRE(all.reads() == 1);
    REQUIRE(held.owns_lock());
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(w.await(held.unlock()));
    w.env->pass(20ms);
    waiting.get(); // and given back, since it has no owner
    w.env->pass(20ms);
    REQUIRE(all.keys() == 0);
}

TEST_CASE("a shared_mutex that is destroyed gives back whatever its calls still get",
          "[shared_mutex]") {
    three all;
    auto& [w, client, one, two, three_, a, b, c] = all;
    std::optional<coetcd::shared_mutex> dropped(std::in_place, one, "s");
    w.await(b.lock());
    auto first = w.start(dropped->lock_shared());
    auto second = w.start(dropped->try_lock_shared_for(1min));
    auto third = w.start(dropped->lock());
    auto fourth = w.start(dropped->lock());
    w.env->pass(20ms);
    dropped.reset();
    REQUIRE(w.await(b.unlock()));
    w.env->pass(1s);
    first.get();
    REQUIRE(second.get());
    third.get();
    fourth.get();
    REQUIRE(all.keys() == 0);
}
