// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstdint>
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
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::delay_first;
using support::has;
using support::is_enter;
using support::is_release;
using support::owner;
using support::rivals;
using support::scripted_env;

namespace {

/// The second request of `force_unlock`: it erases, and puts an epoch.
bool is_force(const call_request& r) {
    return has(r, "request_delete_range") && has(r, "request_put");
}

} // namespace

TEST_CASE("force_unlock() ends an ownership whose key has lost its lease meanwhile", "[admin]") {
    support::world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::mutex mutex(session, "m");
    w.await(mutex.lock());
    const std::string key = mutex.key();
    const std::int64_t token = mutex.fencing_token();
    // Somebody writes to it by hand after the first look, and the session ends.
    w.env->on_call = [&, serve = w.env->on_call, looked = false](const call_request& r,
                                                                 coetcd::detail::reply& a) mutable {
        serve(r, a);
        if (r.what == coetcd::detail::rpc::range && !std::exchange(looked, true)) {
            w.etcd->write(key, "by hand");
            w.etcd->revoke(session.lease());
        }
    };
    CHECK(w.await(coetcd::force_unlock(client, "m", token)));
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("force_unlock() ends the ownership with that token, in two round trips", "[admin]") {
    rivals all({6s}, {6s});
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    const auto token = a.fencing_token();
    auto waiting = w.start(b.lock());
    w.env->pass(500ms);
    const coetcd::compare mine = a.is_owner();
    const std::size_t calls = w.env->calls.size();
    CHECK(w.await(coetcd::force_unlock(client, "m", token)));
    CHECK(w.env->calls.size() - calls <= 3); // with the confirm of the next one
    w.env->pass(20ms);
    waiting.get();
    CHECK(b.owns_lock());
    CHECK_FALSE(w.await(client.txn(coetcd::txn().when(mine))).succeeded);

    // It cannot hit the next one.
    CHECK_FALSE(w.await(coetcd::force_unlock(client, "m", token)));
    CHECK_FALSE(w.await(coetcd::force_unlock(client, "n", b.fencing_token())));
    w.env->pass(3s);
    CHECK(b.owns_lock());
    CHECK_FALSE(a.owns_lock()); // the holder has learnt it
    CHECK(one.state() == coetcd::session_state::active);
    CHECK_FALSE(w.await(a.unlock()));
    w.await(b.unlock());
    w.await(a.lock()); // its slot is of use again
    CHECK(a.fencing_token() > token);
    w.await(a.unlock());
    CHECK(w.etcd->under("m/").empty());
    CHECK(w.etcd->under("m.").size() <= 1); // an epoch, which goes with the lease
    w.await(one.close());
    CHECK(w.etcd->under("m.").empty());
}

TEST_CASE("force_unlock() of a waiter ends its wait", "[admin]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(500ms);
    const auto queue = w.await(a.waiters());
    REQUIRE(queue.size() == 1);
    CHECK(w.await(coetcd::force_unlock(client, "m", queue[0].fencing_token)));
    w.env->pass(20ms);
    CHECK(waiting.code() == errc::lock_lost);
    CHECK(a.owns_lock());
    w.await(a.unlock());
    w.await(b.lock());
}

TEST_CASE("an enter that arrives after force_unlock() does not put the key again", "[admin]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    delay_first(w, is_enter, 10s); // before the holder is told by a renewal
    w.await(mutex.lock());         // by the second copy
    CHECK(w.await(coetcd::force_unlock(client, "m", mutex.fencing_token())));
    CHECK(w.etcd->under("m/").empty());
    w.env->pass(9s);
    CHECK(w.etcd->under("m/").empty());
    w.env->pass(30s);
    CHECK_FALSE(mutex.owns_lock());
    CHECK(session.state() == coetcd::session_state::active);
    w.await(mutex.unlock());
    w.await(mutex.lock());
    CHECK(w.etcd->under("m/").size() == 1);
}

TEST_CASE("an unlock and a force_unlock() in any order give the lock back once", "[admin]") {
    // The same holds where the answer to the request for the lock was lost, so that its end bumps
    // the epoch.
    for (const bool unresolved : {false, true}) {
        for (auto late = 0ms; late < 6ms; ++late) {
            for (auto later = 0ms; later < 6ms; ++later) {
                INFO("unresolved " << unresolved << ", " << late.count() << " " << later.count());
                owner all(coetcd::session_options(60s));
                auto& [w, client, session, mutex] = all;
                w.env->decide = [first = unresolved](const call_request& r) mutable {
                    scripted_env::fate f;
                    f.breaks = is_enter(r) && std::exchange(first, false);
                    return f;
                };
                w.await(mutex.lock());
                const auto token = mutex.fencing_token();
                w.env->pass(late);
                auto unlocking = w.start(mutex.unlock());
                w.env->pass(later);
                auto forcing = w.start(coetcd::force_unlock(client, "m", token));
                w.env->pass(late);
                auto locking = w.start(mutex.lock());
                w.env->pass(1s);
                unlocking.get();
                forcing.get();
                locking.get();
                REQUIRE(mutex.owns_lock());
                REQUIRE(w.etcd->under("m/") == std::vector<std::string>{mutex.key()});
                w.env->pass(30s);
                REQUIRE(mutex.owns_lock());
                REQUIRE(w.await(mutex.unlock()));
                REQUIRE(w.etcd->under("m/").empty());
                REQUIRE(w.etcd->under("m.").size() <= 2);
            }
        }
    }
}

TEST_CASE("a force_unlock() that arrives late touches nothing newer", "[admin]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    delay_first(w, is_force, 4s);
    CHECK(w.await(coetcd::force_unlock(client, "m", mutex.fencing_token()))); // the second copy
    (void)w.await(mutex.unlock());
    w.await(mutex.lock());
    const std::string key = mutex.key();
    w.env->pass(10s);
    CHECK(w.etcd->under("m/") == std::vector<std::string>{key});
    CHECK(mutex.owns_lock());
}

TEST_CASE("force_unlock() ends a writer that becomes a reader in the same moment", "[admin]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    coetcd::shared_mutex both(session, "s");
    coetcd::held_lock held = w.await(both.scoped_lock());
    w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.late = is_force(r) ? 1s : 0s;
        return f;
    };
    auto forcing = w.start(coetcd::force_unlock(client, "s", held.fencing_token()));
    w.env->pass(500ms); // it knows of both keys of the writer, and one of them goes
    w.await(held.downgrade());
    w.env->pass(3s);
    CHECK(forcing.get());
    CHECK(w.etcd->under("s/").empty());
}

TEST_CASE("force_unlock() whose answer is lost asks again", "[admin]") {
    for (int how = 0; how < 3; ++how) {
        for (int victim = 0; victim < 2; ++victim) {
            INFO("how " << how << " victim " << victim);
            owner all(coetcd::session_options(60s));
            auto& [w, client, session, mutex] = all;
            w.await(mutex.lock());
            w.env->decide = [&, n = 0](const call_request&) mutable {
                scripted_env::fate f;
                if (n++ == victim) {
                    f.arrives = how != 0;
                    f.answered = how != 1;
                    f.breaks = how == 2;
                }
                return f;
            };
            CHECK(w.await(coetcd::force_unlock(client, "m", mutex.fencing_token())));
            CHECK(w.etcd->under("m/").empty());
        }
    }
}

TEST_CASE("force_unlock() of an owner that is gone with its lease has nothing to do", "[admin]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    const auto token = mutex.fencing_token();
    SECTION("before") {
        w.etcd->revoke(session.lease());
        CHECK_FALSE(w.await(coetcd::force_unlock(client, "m", token)));
    }
    SECTION("between its two requests") {
        auto forcing = w.start(coetcd::force_unlock(client, "m", token));
        w.env->pass(2ms); // the first is answered, the second is on its way
        w.etcd->revoke(session.lease());
        w.env->pass(10ms);
        CHECK_FALSE(forcing.get());
    }
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("force_unlock() removes a stray key, and one of Go's", "[admin]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.etcd->write("m/by hand", "");
    const auto stray = w.etcd->keys.at("m/by hand").create_revision;
    CHECK(w.await(coetcd::force_unlock(client, "m", stray)));
    CHECK(w.etcd->keys.empty());
    w.etcd->write("m/deeper/x", "");
    const auto deeper = w.etcd->keys.at("m/deeper/x").create_revision;
    CHECK_FALSE(w.await(coetcd::force_unlock(client, "m", deeper))); // of another lock
    CHECK(w.await(coetcd::force_unlock(client, "m/deeper", deeper)));
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("force_unlock() says what stands in its way, and changes nothing then", "[admin]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    const auto token = mutex.fencing_token();
    const std::string epoch = "m." + mutex.key().substr(2);
    SECTION("no permission") {
        w.etcd->forbidden.insert(epoch);
        try {
            (void)w.await(coetcd::force_unlock(client, "m", token));
            FAIL("it is forbidden");
        } catch (const coetcd::error& e) {
            CHECK(e.code() == coetcd::server_errc::permission_denied);
            CHECK_THAT(e.what(), support::contains("from \"m.\" up to"));
        }
    }
    SECTION("no space for the epoch") {
        w.etcd->no_space = true;
        auto forcing = w.start(coetcd::force_unlock(client, "m", token));
        w.env->pass(10ms);
        CHECK(forcing.code() == coetcd::server_errc::resource_exhausted);
    }
    SECTION("no etcd") {
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        auto forcing = w.start(coetcd::force_unlock(client, "m", token));
        w.env->pass(6s);
        CHECK(forcing.code() == coetcd::condition::retryable);
    }
    SECTION("a cancellation") {
        auto forcing = w.start(coetcd::force_unlock(client, "m", token));
        forcing.cancel();
        w.env->pass(10ms);
        CHECK(forcing.code() == asio::error::operation_aborted);
    }
    CHECK(w.etcd->under("m/").size() == 1);
    CHECK(mutex.owns_lock());
}

TEST_CASE("what names no lock and no ownership is refused", "[admin]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    const std::size_t calls = w.env->calls.size();
    CHECK_THROWS_WITH(coetcd::force_unlock(client, "", 1), "name: is empty");
    CHECK_THROWS_WITH(coetcd::force_unlock(client, "m", 0), "token: must be positive");
    CHECK_THROWS_AS(coetcd::force_unlock(client, std::string(513, 'x'), 1), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::request_release(session, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::request_release(coetcd::session(), "m"), std::logic_error);
    CHECK(w.env->calls.size() == calls);
}

TEST_CASE("a holder hears of a request for the lock", "[admin][request_release]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    CHECK_FALSE(w.await(coetcd::request_release(two, "m")).has_value()); // it has no holder
    coetcd::held_lock held = w.await(a.scoped_lock());
    auto listening = w.start(held.release_requested());
    w.env->pass(1s);
    CHECK_FALSE(listening.ended());
    CHECK(w.await(coetcd::request_release(two, "m")) == held.fencing_token());
    w.env->pass(10ms);
    listening.get();
    CHECK(held.owns_lock()); // nothing forces it

    SECTION("it hears so at once, later on") {
        w.await(held.release_requested());
    }
    SECTION("two may listen, and nothing of that stays") {
        auto again = w.start(held.release_requested());
        auto too = w.start(held.release_requested());
        w.env->pass(20ms);
        again.get();
        too.get();
        CHECK(w.etcd->watches() == 0);
    }
    SECTION("the next ownership is not asked for") {
        w.await(held.unlock());
        held = w.await(a.scoped_lock());
        auto next = w.start(held.release_requested());
        w.env->pass(1s);
        CHECK_FALSE(next.ended());
        CHECK(w.await(coetcd::request_release(two, "m")) == held.fencing_token());
        CHECK(w.etcd->under("m.ask/").size() == 1); // the same key
        w.env->pass(10ms);
        next.get();
    }
    SECTION("the request goes with the session that made it") {
        w.await(two.close());
        CHECK(w.etcd->under("m.ask/").empty());
        auto next = w.start(held.release_requested());
        w.env->pass(1s);
        CHECK_FALSE(next.ended());
    }
    SECTION("the request blocks no lock") {
        w.await(held.unlock());
        w.await(b.lock());
    }
}

TEST_CASE("listening ends with the hold", "[admin][request_release]") {
    rivals all({6s}, {6s});
    auto& [w, client, one, two, a, b] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    auto listening = w.start(held.release_requested());
    auto cancelled = w.start(held.release_requested());
    w.env->pass(50ms);
    CHECK(w.etcd->watches() == 2);
    cancelled.cancel();
    w.env->pass(10ms);
    CHECK(cancelled.code() == asio::error::operation_aborted);
    CHECK(w.etcd->watches() == 1);
    SECTION("given back") {
        w.await(held.unlock());
        CHECK(listening.code() == asio::error::operation_aborted);
        auto late = w.start(held.release_requested());
        w.env->pass(10ms);
        CHECK(late.code() == asio::error::operation_aborted);
    }
    SECTION("its session is lost") {
        w.etcd->revoke(one.lease());
        w.env->pass(3s);
        CHECK(listening.code() == errc::session_lost);
    }
    SECTION("its key is deleted") {
        w.etcd->erase(held.key());
        w.env->pass(3s);
        CHECK(listening.code() == errc::lock_lost);
    }
    SECTION("its handle is destroyed") {
        { const coetcd::held_lock gone = std::move(held); }
        w.env->pass(10ms);
        CHECK(listening.code() == asio::error::operation_aborted);
    }
    w.env->pass(20s);
    CHECK(w.etcd->watches() == 0);
}

TEST_CASE("a request is heard through an outage and a compaction", "[admin][request_release]") {
    rivals all({60s}, {60s});
    auto& [w, client, one, two, a, b] = all;
    coetcd::held_lock held = w.await(a.scoped_lock());
    auto listening = w.start(held.release_requested());
    w.env->pass(50ms);
    bool down = false;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.refused = down && r.what == rpc::watch;
        return f;
    };
    down = true;
    w.env->break_streams();
    w.env->pass(1s);
    CHECK(w.await(coetcd::request_release(two, "m")).has_value());
    for (int i = 0; i != 5; ++i) {
        w.etcd->write("other", std::to_string(i));
    }
    w.etcd->compact(w.etcd->revision);
    w.env->pass(3s);
    CHECK_FALSE(listening.ended());
    down = false;
    w.env->pass(5s);
    CHECK(listening.ended());
    listening.get();
}

TEST_CASE("request_release() follows the lock to its next holder", "[admin][request_release]") {
    for (auto when = 0ms; when < 8ms; ++when) {
        INFO("after " << when.count() << " ms");
        rivals all;
        auto& [w, client, one, two, a, b] = all;
        coetcd::session three = w.await(coetcd::session::open(client));
        w.await(a.lock());
        auto next = w.start(b.lock());
        w.env->pass(100ms);
        auto asking = w.start(coetcd::request_release(three, "m"));
        w.env->pass(when);
        const auto first = a.fencing_token();
        auto unlocking = w.start(a.unlock());
        w.env->pass(50ms);
        next.get();
        const std::optional<std::int64_t> asked = asking.get();
        REQUIRE(asked);
        CHECK((*asked == first || *asked == b.fencing_token()));
    }
}

TEST_CASE("request_release() of a session that is lost says so", "[admin][request_release]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    w.etcd->revoke(two.lease());
    auto asking = w.start(coetcd::request_release(two, "m"));
    w.env->pass(10ms);
    CHECK(asking.code() == errc::session_lost);
    w.await(one.close());
    auto closed = w.start(coetcd::request_release(one, "m"));
    w.env->pass(10ms);
    CHECK(closed.code() == errc::session_closed);
}

TEST_CASE("with_lock() gives way to a request for the lock, some time later",
          "[admin][request_release]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    auto body = [&]() -> asio::awaitable<void> {
        coetcd::detail::notifier never(*w.env);
        (void)co_await never.wait();
    };
    auto working = w.start(coetcd::with_lock(a, body, coetcd::yield_on_request(200ms)));
    w.env->pass(1s);
    CHECK_FALSE(working.ended());
    auto waiting = w.start(b.lock());
    w.env->pass(50ms);
    CHECK(w.await(coetcd::request_release(two, "m")).has_value());
    w.env->pass(150ms);
    CHECK_FALSE(working.ended());
    w.env->pass(100ms);
    CHECK(working.code() == asio::error::operation_aborted);
    waiting.get();
    w.await(b.unlock());
    w.env->pass(15s);
    CHECK(w.etcd->watches() == 0);
}

TEST_CASE("a body may ignore a request for the lock, end before, or lose the lock",
          "[admin][request_release]") {
    rivals all({6s}, {6s});
    auto& [w, client, one, two, a, b] = all;
    SECTION("ignored") {
        auto body = [&]() -> asio::awaitable<int> {
            co_await asio::this_coro::throw_if_cancelled(false);
            const auto end = w.env->now() + 2s;
            while (w.env->now() < end) {
                coetcd::detail::notifier pause(*w.env);
                try {
                    (void)co_await pause.wait(end);
                } catch (const boost::system::system_error&) {
                }
            }
            co_return 7;
        };
        auto working = w.start(coetcd::with_lock(a, body, coetcd::yield_on_request()));
        w.env->pass(50ms);
        CHECK(w.await(coetcd::request_release(two, "m")).has_value());
        w.env->pass(1s);
        CHECK_FALSE(working.ended());
        CHECK(a.owns_lock());
        w.env->pass(1s);
        CHECK(working.get() == 7);
    }
    SECTION("over before") {
        auto body = []() -> asio::awaitable<int> { co_return 7; };
        CHECK(w.await(coetcd::with_lock(a, body, coetcd::yield_on_request())) == 7);
        auto pause = [&]() -> asio::awaitable<int> {
            coetcd::detail::notifier moment(*w.env);
            (void)co_await moment.wait(w.env->now() + 100ms);
            co_return 8;
        };
        CHECK(w.await(coetcd::with_lock(a, pause, coetcd::yield_on_request())) == 8);
    }
    SECTION("lost") {
        auto body = [&]() -> asio::awaitable<void> {
            coetcd::detail::notifier never(*w.env);
            (void)co_await never.wait();
        };
        auto working = w.start(coetcd::with_lock(a, body, coetcd::yield_on_request()));
        w.env->pass(50ms);
        w.etcd->revoke(one.lease());
        w.env->pass(3s);
        CHECK(working.code() == errc::session_lost);
    }
    SECTION("cancelled") {
        auto body = [&]() -> asio::awaitable<void> {
            coetcd::detail::notifier never(*w.env);
            (void)co_await never.wait();
        };
        auto working = w.start(coetcd::with_lock(a, body, coetcd::yield_on_request()));
        w.env->pass(50ms);
        working.cancel();
        w.env->pass(50ms);
        CHECK(working.code() == asio::error::operation_aborted);
    }
    w.env->pass(100ms);
    CHECK(w.etcd->under("m/").empty());
    CHECK(w.etcd->watches() == 0);
}
