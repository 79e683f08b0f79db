// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/mutex.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::lock_options;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::scripted_env;
using support::world;

namespace {

/// Two sessions, and a lock with a delay of 3 s.
struct delayed {
    delayed()
        : client(w.client())
        , one(w.await(coetcd::session::open(client, {6s})))
        , two(w.await(coetcd::session::open(client, {60s})))
        , a(one, "m", {.delay = 3s})
        , b(two, "m", {.delay = 3s}) {}
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::mutex a;
    coetcd::mutex b;
};

bool replaces_note(const call_request& r) {
    return r.what == rpc::txn && r.body.find("\"target\":\"MOD\"") != std::string::npos &&
           r.body.find("request_txn") == std::string::npos;
}

} // namespace

TEST_CASE("a lock that is given back is taken without delay, at no more requests", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    const std::size_t calls = w.env->calls.size();
    w.await(a.lock());
    CHECK(w.env->calls.size() == calls + 1);
    CHECK(w.etcd->keys.at("m.own").value == a.key());
    CHECK(w.etcd->keys.at("m.own").lease == 0);
    auto waiting = w.start(b.lock());
    w.env->pass(500ms);
    CHECK(w.etcd->keys.at("m.own").value == a.key());
    auto unlocking = w.start(a.unlock());
    w.env->pass(10ms);
    CHECK(unlocking.get());
    waiting.get();
    CHECK(w.etcd->keys.at("m.own").value == b.key());
    CHECK(w.await(b.unlock()));
    CHECK(w.etcd->keys.empty());
    CHECK(w.await(a.try_lock()));
    CHECK(w.etcd->keys.at("m.own").value == a.key());
    CHECK_FALSE(w.await(b.try_lock()));
    CHECK(w.await(a.unlock()));
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("within a session a lock with a delay is handed over", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    coetcd::mutex same(one, "m", {.delay = 3s});
    auto waiting = w.start(same.lock());
    w.env->pass(50ms);
    auto unlocking = w.start(a.unlock());
    w.env->pass(20ms);
    CHECK(unlocking.get());
    waiting.get();
    CHECK(w.etcd->keys.at("m.own").value == same.key());
    CHECK(w.await(same.unlock()));
    CHECK(w.etcd->keys.empty());
    CHECK(one.state() == coetcd::session_state::active);
}

TEST_CASE("a waiter that takes over in the request of one without a delay leaves a note",
          "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    coetcd::mutex plain(one, "m");
    w.await(plain.lock());
    auto waiting = w.start(a.lock()); // of the same session
    w.env->pass(50ms);
    CHECK(w.await(plain.unlock()));
    w.env->pass(10ms);
    waiting.get();
    CHECK(w.etcd->keys.at("m.own").value == a.key());
    auto next = w.start(b.lock());
    w.env->pass(50ms);
    w.etcd->revoke(one.lease());
    w.env->pass(2900ms);
    CHECK_FALSE(next.ended());
    w.env->pass(200ms);
    CHECK(next.succeeded());
}

TEST_CASE("after a holder that has vanished the next one waits", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    const auto token = a.fencing_token();
    auto waiting = w.start(b.lock());
    w.env->pass(500ms);
    SECTION("its lease is gone") {
        w.etcd->revoke(one.lease());
    }
    SECTION("its key is deleted, and it does not know") {
        w.etcd->erase(a.key());
        w.env->decide = [lease = std::to_string(one.lease())](const call_request& r) {
            scripted_env::fate f;
            f.arrives = r.body.find(lease) == r.body.npos; // a look follows a renewal
            return f;
        };
    }
    SECTION("its session is closed under it") {
        w.await(one.close());
    }
    w.env->pass(2900ms);
    CHECK_FALSE(waiting.ended());
    CHECK_FALSE(b.owns_lock());
    w.env->pass(200ms);
    waiting.get();
    CHECK(b.fencing_token() > token);
    CHECK(w.etcd->keys.at("m.own").value == b.key());
    CHECK(w.await(b.unlock()));
    CHECK_FALSE(w.etcd->keys.contains("m.own"));
}

TEST_CASE("a holder that notices the end of its key takes its note away, so that none waits for it",
          "[delay]") {
    for (const bool watches : {false, true}) {
        for (const bool forced : {false, true}) {
            for (const bool awaited : {false, true}) {
                INFO("watches " << watches << " forced " << forced << " awaited " << awaited);
                delayed all;
                auto& [w, client, one, two, a, b] = all;
                coetcd::mutex held(one, "m", {.delay = 3s, .watch_while_held = watches});
                w.await(held.lock());
                const auto token = held.fencing_token();
                const std::string key = held.key();
                std::optional<support::background<void>> waiting;
                if (awaited) {
                    waiting.emplace(w.start(b.lock()));
                }
                w.env->pass(500ms);
                if (forced) {
                    REQUIRE(w.await(coetcd::force_unlock(client, "m", token)));
                } else {
                    w.etcd->erase(key);
                }
                while (held.owns_lock()) {
                    w.env->pass(1ms);
                }
                w.env->pass(30ms);
                if (awaited) {
                    REQUIRE(waiting->ended());
                    waiting->get();
                    REQUIRE(w.etcd->keys.at("m.own").value == b.key());
                    REQUIRE_FALSE(w.await(held.unlock()));
                    REQUIRE(w.etcd->keys.at("m.own").value == b.key());
                    REQUIRE(w.await(b.unlock()));
                }
                REQUIRE_FALSE(w.etcd->keys.contains("m.own"));
                REQUIRE_FALSE(w.await(held.unlock()));
                REQUIRE(w.await(held.try_lock())); // with another epoch
                REQUIRE(w.await(held.unlock()));
                w.env->pass(1s);
                REQUIRE(w.etcd->under("m/").empty());
                REQUIRE_FALSE(w.etcd->keys.contains("m.own"));
            }
        }
    }
}

TEST_CASE("a holder that notices the end of its key as it gives it back takes its note away",
          "[delay]") {
    for (const bool loses_answer : {false, true}) {
        delayed all;
        auto& [w, client, one, two, a, b] = all;
        w.await(a.lock());
        auto waiting = w.start(b.lock());
        w.env->pass(500ms);
        w.etcd->erase(a.key());
        if (loses_answer) {
            support::lose_answer(w, support::is_release);
        }
        auto unlocking = w.start(a.unlock());
        w.env->pass(1s);
        REQUIRE(waiting.ended());
        waiting.get();
        if (!loses_answer) {
            REQUIRE_FALSE(unlocking.get());
        }
        REQUIRE(w.await(b.unlock()));
        w.env->pass(1s);
        REQUIRE(w.etcd->under("m/").empty());
        REQUIRE_FALSE(w.etcd->keys.contains("m.own"));
    }
}

TEST_CASE("the note of a holder that has vanished counts for those that come later", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    w.etcd->revoke(one.lease());
    w.env->pass(10s);
    CHECK(w.etcd->keys.contains("m.own"));
    CHECK_FALSE(w.await(b.try_lock())); // it does not wait
    CHECK_FALSE(w.await(b.try_lock_for(1s)));
    w.env->pass(20ms);
    CHECK(w.etcd->under("m/").empty());
    const auto began = w.env->now();
    w.await(b.lock());
    CHECK(w.env->now() - began >= 3s);
    CHECK(w.env->now() - began < 3100ms);
    CHECK(w.await(b.unlock()));
    CHECK(w.await(b.try_lock()));
}

TEST_CASE("a successor that dies in the delay leaves it to the next one", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    coetcd::session three = w.await(coetcd::session::open(client, {60s}));
    coetcd::mutex c(three, "m", {.delay = 3s});
    w.await(a.lock());
    w.etcd->revoke(one.lease());
    auto second = w.start(b.lock());
    w.env->pass(50ms);
    auto third = w.start(c.lock());
    w.env->pass(1s);
    SECTION("its lease") {
        w.etcd->revoke(two.lease());
        w.env->pass(500ms);
        CHECK(second.code() == errc::session_lost);
    }
    SECTION("its key") {
        for (const std::string& key : w.etcd->under("m/")) {
            if (w.etcd->keys.at(key).lease == two.lease()) {
                w.etcd->erase(key);
            }
        }
        w.env->pass(500ms);
        CHECK(second.code() == errc::lock_lost);
    }
    SECTION("its caller") {
        second.cancel();
        w.env->pass(500ms);
        CHECK(second.code() == asio::error::operation_aborted);
    }
    w.env->pass(2s);
    CHECK_FALSE(third.ended());
    w.env->pass(1s);
    third.get();
    CHECK(w.await(c.unlock()));
    CHECK_FALSE(w.etcd->keys.contains("m.own"));
}

TEST_CASE("a note that is deleted by hand costs a delay, and no more", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    w.etcd->erase("m.own");
    CHECK(w.await(a.unlock()));
    w.await(a.lock());
    w.etcd->revoke(one.lease());
    auto waiting = w.start(b.lock());
    w.env->pass(1s);
    w.etcd->erase("m.own"); // in the midst of the delay
    w.env->pass(2100ms);
    waiting.get();
    CHECK(w.etcd->keys.at("m.own").value == b.key());
    CHECK(w.await(b.unlock()));
}

TEST_CASE("every lost answer on the way to a delayed lock is ridden out", "[delay]") {
    for (int how = 0; how < 3; ++how) {
        for (int victim = 0; victim < 8; ++victim) {
            for (const bool vanishes : {false, true}) {
                INFO("how " << how << " victim " << victim << " vanishes " << vanishes);
                delayed all;
                auto& [w, client, one, two, a, b] = all;
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
                auto locking = w.start(b.lock());
                w.env->pass(50ms);
                std::optional<support::background<bool>> unlocking;
                if (vanishes) {
                    w.etcd->revoke(one.lease());
                } else {
                    unlocking.emplace(w.start(a.unlock()));
                }
                w.env->pass(25s);
                locking.get();
                REQUIRE(w.etcd->keys.at("m.own").value == b.key());
                REQUIRE(w.await(b.unlock()));
                w.env->pass(10s);
                REQUIRE(w.etcd->under("m/").empty());
                REQUIRE_FALSE(w.etcd->keys.contains("m.own"));
            }
        }
    }
}

TEST_CASE("cancelled at any moment, a wait for a delayed lock leaves the note as it was",
          "[delay][cancellation]") {
    for (const bool vanishes : {false, true}) {
        for (auto when = 0ms; when < 20ms; ++when) {
            INFO("vanishes " << vanishes << " at " << when.count());
            delayed all;
            auto& [w, client, one, two, a, b] = all;
            w.await(a.lock());
            auto locking = w.start(b.lock());
            w.env->pass(when / 2);
            std::optional<support::background<bool>> unlocking;
            if (vanishes) {
                w.etcd->revoke(one.lease());
            } else {
                unlocking.emplace(w.start(a.unlock()));
            }
            w.env->pass(when - when / 2);
            const bool before = locking.ended();
            locking.cancel();
            w.env->pass(2s);
            if (before) {
                locking.get();
                REQUIRE(w.await(b.unlock()));
            }
            REQUIRE(w.etcd->under("m/").empty());
            REQUIRE(w.etcd->keys.contains("m.own") == vanishes);
            const auto began = w.env->now();
            w.await(b.lock());
            REQUIRE((w.env->now() - began > 2s) == vanishes);
        }
    }
}

TEST_CASE("a waiter that gives up leaves the note of an earlier life of its own key", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(b.lock());
    const std::string key = b.key();
    REQUIRE(w.await(b.unlock()));
    (void)w.await(client.put("m.own", key)); // of a life that has vanished
    auto locking = w.start(b.lock());
    w.env->pass(1s);
    REQUIRE(w.etcd->under("m/") == std::vector<std::string>{key}); // the same one again
    locking.cancel();
    w.env->pass(1s);
    REQUIRE(w.etcd->under("m/").empty());
    REQUIRE(w.etcd->keys.contains("m.own"));
    const auto began = w.env->now();
    w.await(a.lock());
    REQUIRE(w.env->now() - began > 2s);
}

TEST_CASE("a request to replace a note that comes late replaces nothing", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    w.etcd->revoke(one.lease());
    support::delay_first(w, replaces_note, 20s);
    auto locking = w.start(b.lock());
    w.env->pass(15s); // by a second copy
    locking.get();
    CHECK(w.await(b.unlock()));
    CHECK_FALSE(w.etcd->keys.contains("m.own"));
    w.env->pass(30s);
    CHECK_FALSE(w.etcd->keys.contains("m.own"));
}

TEST_CASE("a lock without a delay neither leaves a note nor heeds one", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    coetcd::mutex hasty(two, "m");
    w.await(a.lock());
    w.etcd->revoke(one.lease());
    const auto began = w.env->now();
    w.await(hasty.lock());
    CHECK(w.env->now() - began < 100ms);
    CHECK(w.await(hasty.unlock()));
    CHECK_THROWS_WITH(coetcd::mutex(two, "m", {.delay = 0ms}), "delay: must be positive");
}

TEST_CASE("a delayed lock that is resumed keeps its note", "[delay]") {
    delayed all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    const auto lease = one.orphan();
    std::optional<coetcd::session> heir = w.await(coetcd::session::adopt(client, lease));
    REQUIRE(heir);
    coetcd::mutex m(*heir, "m", {.delay = 3s});
    CHECK(w.await(m.resume()));
    CHECK(w.etcd->keys.at("m.own").value == m.key());
    CHECK(w.await(m.unlock()));
    CHECK_FALSE(w.etcd->keys.contains("m.own"));
    CHECK(w.await(b.try_lock()));
}
