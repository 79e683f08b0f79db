// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/strand.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::count;
using support::delay_first;
using support::is_confirm;
using support::is_enter;
using support::is_release;
using support::owner;
using support::rivals;
using support::scripted_env;
using support::world;

TEST_CASE("lock() takes a free lock in one round trip, unlock() gives it back in one", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client, {10s, "me"}));
    coetcd::mutex mutex(session, "orders/42");
    REQUIRE_FALSE(mutex.owns_lock());

    const std::size_t before = w.env->calls.size();
    w.await(mutex.lock());
    REQUIRE(w.env->calls.size() == before + 1);
    REQUIRE(mutex.owns_lock());
    REQUIRE(w.etcd->under("orders/42/") == std::vector<std::string>{mutex.key()});
    const auto& record = w.etcd->keys.at(mutex.key());
    REQUIRE(record.create_revision == mutex.fencing_token());
    REQUIRE(record.lease == session.lease());
    REQUIRE(record.value == "me");

    REQUIRE(w.await(mutex.unlock()));
    REQUIRE(w.env->calls.size() == before + 2);
    REQUIRE_FALSE(mutex.owns_lock());
    REQUIRE(w.etcd->keys.empty());
    REQUIRE_FALSE(w.await(mutex.unlock()));
    REQUIRE(w.env->calls.size() == before + 2);
}

TEST_CASE("what needs the lock is refused while it is not held", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    REQUIRE_THROWS_AS(mutex.fencing_token(), coetcd::error);
    REQUIRE_THROWS_AS(mutex.is_owner(), coetcd::error);
    REQUIRE_THROWS_AS(mutex.key(), coetcd::error);
    REQUIRE_THROWS_AS(coetcd::held_lock(mutex, std::adopt_lock), coetcd::error);
    REQUIRE(mutex.name() == "m");
    try {
        (void)mutex.key();
    } catch (const coetcd::error& e) {
        REQUIRE(e.code() == errc::not_owner);
        REQUIRE(e.code() == coetcd::condition::ownership_lost);
    }
}

TEST_CASE("a name that is empty or too long is refused", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    REQUIRE_THROWS_WITH(coetcd::mutex(session, ""), "name: is empty");
    REQUIRE_THROWS_WITH(coetcd::mutex(session, std::string(513, 'x')),
                        "name: is longer than 512 bytes");
    REQUIRE_NOTHROW(coetcd::mutex(session, std::string(512, 'x')));
}

TEST_CASE("lock() waits for the one before, and has the lock with its end", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session one = w.await(coetcd::session::open(client));
    coetcd::session two = w.await(coetcd::session::open(client));
    coetcd::mutex first(one, "m");
    coetcd::mutex second(two, "m");
    w.await(first.lock());
    auto waiting = w.start(second.lock());
    w.env->pass(500ms);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(w.etcd->watches() == 2); // the one ahead, and our own
    REQUIRE(count(w, is_confirm) == 0);

    auto unlocking = w.start(first.unlock());
    w.env->pass(3ms); // there and back, an event
    REQUIRE(unlocking.get());
    waiting.get();
    REQUIRE(count(w, is_confirm) == 0);
    REQUIRE(second.owns_lock());
    w.env->pass(10ms);
    REQUIRE(w.etcd->watches() == 1);    // the one ahead: it may well be so again
    REQUIRE(w.env->opened.size() == 1); // one stream for all of it
    w.env->pass(15s);
    REQUIRE(w.etcd->watches() == 0);
}

TEST_CASE("fencing tokens grow from owner to owner", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    std::int64_t last = 0;
    for (int i = 0; i < 5; ++i) {
        coetcd::mutex& m = i % 2 == 0 ? a : b;
        w.await(m.lock());
        REQUIRE(m.fencing_token() > last);
        last = m.fencing_token();
        REQUIRE(w.await(m.unlock()));
    }
}

TEST_CASE("the coroutines of one session queue up in it, in order, behind one key", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    std::vector<int> order;
    coetcd::mutex a(session, "m");
    coetcd::mutex b(session, "m");
    w.await(a.lock());
    auto job = [&](coetcd::mutex& m, int n) -> asio::awaitable<bool> {
        coetcd::held_lock held = co_await m.scoped_lock();
        order.push_back(n);
        const bool done = co_await held.unlock();
        co_return done;
    };
    std::vector<background<bool>> jobs;
    for (int i = 0; i < 6; ++i) {
        jobs.push_back(w.start(job(i % 2 == 0 ? a : b, i)));
    }
    w.env->pass(100ms);
    REQUIRE(order.empty());
    REQUIRE(w.etcd->under("m/").size() == 1);
    // `a` has been taken by lock(); its owner gives it back.
    REQUIRE(w.await(a.unlock()));
    w.env->pass(1s);
    REQUIRE(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    for (auto& j : jobs) {
        REQUIRE(j.get());
    }
    REQUIRE(w.etcd->watches() == 0); // none of them had to watch anything
}

TEST_CASE("a waiter that leaves the session's own queue lets the others through", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::mutex holder(session, "m");
    coetcd::mutex impatient(session, "m");
    coetcd::mutex patient(session, "m");
    w.await(holder.lock());
    auto leaves = w.start(impatient.lock());
    auto stays = w.start(patient.lock());
    w.env->pass(10ms);
    leaves.cancel();
    w.env->pass(10ms);
    REQUIRE(leaves.code() == asio::error::operation_aborted);
    REQUIRE(w.await(holder.unlock()));
    w.env->pass(10ms);
    stays.get();
}

TEST_CASE("try_lock() takes a free lock, and leaves nothing of itself if it is not", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    REQUIRE(w.await(a.try_lock()));
    const std::size_t before = w.env->calls.size();
    REQUIRE_FALSE(w.await(b.try_lock()));
    REQUIRE(w.env->calls.size() == before + 1);
    coetcd::mutex same_session(one, "m");
    REQUIRE_FALSE(w.await(same_session.try_lock()));
    REQUIRE(w.env->calls.size() == before + 1); // that one is known here
    w.env->pass(1s);
    REQUIRE(w.etcd->keys.size() == 1);
    REQUIRE(w.await(a.unlock()));
    REQUIRE(w.await(b.try_lock()));
}

TEST_CASE("try_lock() whose answer was lost finds the key that it put", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    bool first = true;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.breaks = is_enter(r) && std::exchange(first, false);
        return f;
    };
    REQUIRE(w.await(mutex.try_lock()));
    REQUIRE(mutex.fencing_token() == w.etcd->keys.at(mutex.key()).create_revision);
    REQUIRE(w.await(mutex.unlock()));
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("try_lock() fails at its deadline when nothing answers, and cleans up", "[mutex]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.answered = !is_enter(r);
        return f;
    };
    const auto began = w.env->now();
    auto trying = w.start(mutex.try_lock());
    w.env->pass(5100ms);
    REQUIRE(trying.code() == errc::timed_out);
    REQUIRE(w.env->now() - began < 6s);
    w.env->pass(1s);
    REQUIRE(w.etcd->under("m/").empty());
    REQUIRE(session.state() == coetcd::session_state::active);
}

TEST_CASE("try_lock() is not refused because of what the session itself gives up", "[mutex]") {
    rivals all({60s}, {60s});
    auto& [w, client, one, two, a, b] = all;
    SECTION("a lock, however late that is") {
        w.await(a.lock());
        delay_first(w, is_release, 1s);
        (void)a.unlock();
        REQUIRE(w.await(a.try_lock()));
    }
    SECTION("a place in the queue") {
        w.await(b.lock());
        auto waiting = w.start(a.lock());
        w.env->pass(50ms);
        delay_first(w, is_release, 10ms);
        waiting.cancel();
        w.env->pass(0ms);
        (void)b.unlock();
        w.env->pass(4ms);
        REQUIRE(w.etcd->under("m/").size() == 1);
        REQUIRE(w.await(a.try_lock()));
    }
    SECTION("and is refused if another session has it as well") {
        auto waiting = w.start(a.lock());
        w.env->pass(50ms);
        waiting.get();
        auto next = w.start(b.lock());
        w.env->pass(50ms);
        delay_first(w, is_release, 10ms);
        (void)a.unlock();
        REQUIRE_FALSE(w.await(a.try_lock()));
    }
    SECTION("what cannot be given up is no refusal") {
        w.await(a.lock());
        w.env->decide = [](const call_request& r) {
            scripted_env::fate f;
            f.arrives = !is_release(r);
            return f;
        };
        (void)a.unlock();
        auto trying = w.start(a.try_lock());
        w.env->pass(6s);
        REQUIRE(trying.code() == errc::timed_out);
        REQUIRE_THROWS_WITH(trying.get(), support::contains("not given back yet"));
    }
}

TEST_CASE("try_lock_for() waits as long as it is told, and leaves the queue", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    const auto began = w.env->now();
    REQUIRE_FALSE(w.await(b.try_lock_for(300ms)));
    REQUIRE(w.env->now() - began >= 300ms);
    REQUIRE(w.env->now() - began < 320ms);
    w.env->pass(20ms);
    REQUIRE(w.etcd->under("m/").size() == 1);
    REQUIRE_FALSE(w.await(b.try_lock_for(-1s)));

    auto trying = w.start(b.try_lock_for(10s));
    w.env->pass(50ms);
    REQUIRE(w.await(a.unlock()));
    w.env->pass(10ms);
    REQUIRE(trying.get());
    REQUIRE(b.owns_lock());
    REQUIRE(w.await(b.unlock()));
    const auto soon = std::chrono::steady_clock::now() + 1h;
    REQUIRE(w.await(b.try_lock_until(soon)));
    // The first and the last time that there are.
    REQUIRE_FALSE(w.await(a.try_lock_until(std::chrono::steady_clock::time_point::min())));
    auto patient = w.start(a.try_lock_until(std::chrono::sys_seconds::max()));
    w.env->pass(1s);
    REQUIRE_FALSE(patient.ended());
    REQUIRE(w.await(b.unlock()));
    w.env->pass(20ms);
    REQUIRE(patient.get());
}

TEST_CASE("try_lock_for() is false only if the lock is taken", "[mutex]") {
    owner all(60s);
    auto& [w, client, session, mutex] = all;
    const auto fails_so = [&](errc expected) {
        const auto began = w.env->now();
        auto trying = w.start(mutex.try_lock_for(500ms));
        w.env->pass(500ms);
        CHECK(trying.code() == expected);
        try {
            (void)trying.get();
        } catch (const coetcd::error& e) {
            CHECK(e.code() == coetcd::condition::retryable);
            CHECK_THAT(e.what(), support::contains("mutex \"m\", try_lock_for"));
        }
        CHECK(w.env->now() - began == 500ms);
    };
    SECTION("no request arrives") {
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        fails_so(errc::timed_out);
    }
    SECTION("no endpoint can be reached") {
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        fails_so(errc::timed_out);
    }
    SECTION("nor does a coroutine of the same session that knows no more") {
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        coetcd::mutex same(session, "m");
        auto before = w.start(same.lock());
        w.env->pass(1ms);
        fails_so(errc::timed_out);
        before.cancel();
        w.env->pass(1ms);
    }
    SECTION("one of the same session that has it says enough") {
        coetcd::mutex same(session, "m");
        w.await(same.lock());
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        CHECK_FALSE(w.await(mutex.try_lock_for(500ms)));
    }
    SECTION("a place in the queue says enough, whatever comes then") {
        coetcd::session other = w.await(coetcd::session::open(client, {60s}));
        coetcd::mutex theirs(other, "m");
        w.await(theirs.lock());
        auto trying = w.start(mutex.try_lock_for(500ms));
        w.env->pass(100ms);
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        w.env->pass(400ms);
        CHECK_FALSE(trying.get());
        w.env->decide = nullptr;
        w.env->pass(10s);
    }
    w.env->decide = nullptr;
    w.env->pass(20s);
    CHECK(session.state() == coetcd::session_state::active);
    CHECK(w.etcd->under("m/").empty());
}

TEST_CASE("try_lock_for() in an outage costs the session nothing", "[mutex]") {
    for (const auto outage : {12s, 35s, 50s}) {
        for (const bool impatient : {false, true}) {
            INFO("for " << outage.count() << " s" << (impatient ? ", impatient" : ""));
            owner all(60s);
            auto& [w, client, session, mutex] = all;
            w.await(mutex.lock());
            coetcd::mutex other(session, "other");
            w.env->decide = [](const call_request&) {
                scripted_env::fate f;
                f.arrives = false;
                return f;
            };
            if (impatient) {
                auto trying = w.start(other.try_lock_for(500ms));
                w.env->pass(500ms);
                REQUIRE(trying.code() == errc::timed_out);
            }
            w.env->pass(outage);
            REQUIRE(session.reason() == coetcd::session_end::none);
            w.env->decide = nullptr;
            w.env->pass(5s);
            REQUIRE(mutex.owns_lock());
            REQUIRE(session.state() == coetcd::session_state::active);
            REQUIRE(w.etcd->under("other/").empty());
        }
    }
    // It is lost when a quiet one is: 0.9 ttl after its last renewal.
    owner all(60s);
    auto& [w, client, session, mutex] = all;
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.arrives = false;
        return f;
    };
    auto trying = w.start(mutex.try_lock_for(500ms));
    w.env->pass(53900ms);
    REQUIRE(session.reason() == coetcd::session_end::none);
    w.env->pass(100ms);
    REQUIRE(session.reason() == coetcd::session_end::deadline);
    REQUIRE(trying.ended());
}

TEST_CASE("a lost event does not keep a waiter from the lock", "[mutex]") {
    rivals all({}, {10s});
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(400ms);
    w.etcd->tells = false;
    REQUIRE(w.await(a.unlock()));
    w.env->pass(2s);
    REQUIRE_FALSE(waiting.ended());
    w.env->pass(4s); // half the ttl at the most
    waiting.get();
}

TEST_CASE("a release between the look and the watch is not missed", "[mutex]") {
    // The one ahead goes away at every moment of the other's way into the wait.
    for (auto when = 0ms; when < 20ms; ++when) {
        rivals all;
        auto& [w, client, one, two, a, b] = all;
        w.await(a.lock());
        auto waiting = w.start(b.lock());
        w.env->pass(when);
        auto unlocking = w.start(a.unlock());
        w.env->pass(40ms);
        INFO("after " << when.count() << " ms");
        REQUIRE(unlocking.get());
        waiting.get();
    }
}

TEST_CASE("a broken stream is replaced, and what it missed is read", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(100ms);
    w.etcd->tells = false;
    REQUIRE(w.await(a.unlock()));
    w.etcd->tells = true;
    w.env->break_streams();
    w.env->pass(500ms);
    waiting.get();
}

TEST_CASE("a watch that etcd ends is begun anew with the next look", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    std::shared_ptr<scripted_env::server_stream> stream;
    int begun = 0;
    w.env->on_open = [&, serve = w.env->on_open](const call_request& request, auto opened) {
        stream = opened;
        ++begun;
        serve(request, opened);
    };
    w.env->on_message = [&, serve = w.env->on_message](auto from, const std::string& lines) {
        begun += lines.find("create_request") != std::string::npos ? 1 : 0;
        serve(from, lines);
    };
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(100ms);
    const int before = begun;
    stream->push(
        R"({"result":{"header":{"cluster_id":"14841639068965178418"},"watch_id":"1","canceled":true,"cancel_reason":)"
        R"("etcdserver: permission denied"}})");
    w.env->pass(100ms);
    REQUIRE(begun == before); // nothing insists on it
    w.env->pass(200ms);
    REQUIRE(begun == before + 2); // with the one of its own key, to which belongs a look
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(w.await(a.unlock()));
    w.env->pass(20ms);
    waiting.get();
}

TEST_CASE("behind a proxy that completes requests a lock is handed over by its watches",
          "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.env->duplex = scripted_env::way::buffered;
    coetcd::mutex* from = &a;
    coetcd::mutex* to = &b;
    w.await(from->lock());
    for (auto settling = 3100ms; settling != 0ms; settling = settling > 20ms ? 20ms : 0ms) {
        auto waiting = w.start(to->lock());
        w.env->pass(settling); // what lies in the way is found out only once
        REQUIRE(w.etcd->watches() >= 1);
        REQUIRE(w.etcd->watching_streams() == w.etcd->watches());
        auto unlocking = w.start(from->unlock());
        w.env->pass(10ms);
        REQUIRE(unlocking.get());
        waiting.get();
        std::swap(from, to);
    }
}

TEST_CASE("a waiter whose lease is revoked fails at once, while another holds the lock",
          "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(2s);
    w.etcd->revoke(two.lease());
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::session_lost);
    REQUIRE(two.reason() == coetcd::session_end::expired);
    REQUIRE(a.owns_lock());
}

TEST_CASE("a waiter whose key is deleted by hand fails at once", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(2s);
    const std::string held = a.key();
    for (const std::string& key : w.etcd->under("m/")) {
        if (key != held) {
            w.etcd->erase(key);
        }
    }
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::lock_lost);
    REQUIRE(two.state() == coetcd::session_state::active);
    REQUIRE(a.owns_lock());
}

TEST_CASE("a holder whose key is deleted by hand learns it with the next renewal", "[mutex]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    const coetcd::compare mine = mutex.is_owner();
    w.etcd->erase(mutex.key());
    w.env->pass(2500ms);
    REQUIRE_FALSE(mutex.owns_lock());
    REQUIRE(session.state() == coetcd::session_state::active);
    const auto transactions = [&, all = &w.env->calls] {
        return std::count_if(
            all->begin(), all->end(), [](const call_request& r) { return r.what == rpc::txn; });
    };
    const auto before = transactions();
    w.env->pass(20s);
    REQUIRE(transactions() == before); // what is lost is not looked after any more
    REQUIRE_FALSE(w.await(mutex.unlock()));
}

TEST_CASE("who may no longer see what it holds loses it with its session", "[mutex]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    coetcd::mutex another(session, "another");
    w.await(mutex.lock());
    w.await(another.lock());
    w.etcd->denied = "m/";
    w.etcd->erase(mutex.key());
    w.env->pass(3s);
    SECTION("the session ends at the latest a ttl after the last renewal before that") {
        REQUIRE(mutex.owns_lock()); // it cannot know
        w.env->pass(4s);
        REQUIRE(session.state() == coetcd::session_state::suspect);
        w.env->pass(2s);
        REQUIRE_FALSE(mutex.owns_lock());
        REQUIRE_FALSE(another.owns_lock());
        REQUIRE(session.reason() == coetcd::session_end::deadline);
        auto locking = w.start(mutex.lock());
        w.env->pass(10ms);
        const std::string why = failure_of(locking).what();
        CHECK_THAT(why, support::contains("what it holds cannot be looked at"));
        CHECK_THAT(why, support::contains("permission denied"));
    }
    SECTION("with its rights it has its time back, and learns what was deleted") {
        w.env->pass(2s);
        w.etcd->denied.reset();
        w.env->pass(1s);
        REQUIRE(session.state() == coetcd::session_state::active);
        REQUIRE_FALSE(mutex.owns_lock());
        w.env->pass(20s);
        REQUIRE(session.state() == coetcd::session_state::active);
        REQUIRE(another.owns_lock());
    }
    SECTION("what it gives back itself is not looked at") {
        w.env->pass(1s);
        w.etcd->denied = "something else";
        REQUIRE_FALSE(w.await(mutex.unlock()));
        w.etcd->denied = "m/";
        w.env->pass(20s);
        REQUIRE(session.state() == coetcd::session_state::active);
        REQUIRE(another.owns_lock());
    }
}

TEST_CASE("what is held is looked after with each renewal, whatever asks for that", "[mutex]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    w.etcd->erase(mutex.key());
    w.env->pass(1s);
    REQUIRE(mutex.owns_lock());
    // As a waiter does whose key is not there.
    REQUIRE(w.await(coetcd::detail::session_impl::renew(coetcd::detail::access::impl(session))));
    w.env->pass(20ms);
    REQUIRE_FALSE(mutex.owns_lock());
}

TEST_CASE("a read from before the lock was taken does not cost its holder the lock", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    w.etcd->stale_by = 1;
    w.env->pass(20s); // several rounds of renewal
    REQUIRE(mutex.owns_lock());
    w.etcd->stale_by = 0;
    REQUIRE(w.await(mutex.unlock()));
}

TEST_CASE("unlock() tells if the lock was not ours any more", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    w.etcd->erase(mutex.key());
    REQUIRE_FALSE(w.await(mutex.unlock()));
    w.await(mutex.lock());
    w.etcd->revoke(session.lease());
    REQUIRE_FALSE(w.await(mutex.unlock()));
}

TEST_CASE("a stalled process knows in its first instruction that the lock is lost", "[mutex]") {
    owner all(coetcd::session_options(10s));
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    w.env->stall(9500ms);
    REQUIRE_FALSE(mutex.owns_lock());
    REQUIRE(session.state() == coetcd::session_state::lost);
    REQUIRE(session.reason() == coetcd::session_end::deadline);
    REQUIRE_THROWS_AS(mutex.is_owner(), coetcd::error);
}

TEST_CASE("a stall at any point of lock() never ends in a lock that is not certain", "[mutex]") {
    for (auto when = 0ms; when < 30ms; ++when) {
        rivals all({20s}, {10s});
        auto& [w, client, one, two, a, b] = all;
        w.await(a.lock());
        auto waiting = w.start(b.lock());
        auto unlocking = w.start(a.unlock());
        w.env->pass(when);
        const bool before = waiting.ended();
        w.env->stall(9500ms);
        w.env->pass(100ms);
        INFO("after " << when.count() << " ms");
        REQUIRE(waiting.ended());
        if (!before) {
            REQUIRE(waiting.code() == errc::session_lost);
        }
        REQUIRE_FALSE(b.owns_lock());
    }
}

TEST_CASE("lock() rides out an outage that the session survives", "[mutex]") {
    owner all(coetcd::session_options(30s));
    auto& [w, client, session, mutex] = all;
    bool down = true;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.refused = down && r.what == rpc::txn;
        return f;
    };
    auto locking = w.start(mutex.lock());
    w.env->pass(12s); // longer than any one call may take
    REQUIRE_FALSE(locking.ended());
    down = false;
    w.env->pass(2s);
    locking.get();
}

TEST_CASE("what etcd refuses is reported at once, and leaves no place", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.etcd->no_space = true;
    auto locking = w.start(mutex.lock());
    w.env->pass(100ms);
    REQUIRE(locking.code() == coetcd::server_errc::resource_exhausted);
    REQUIRE(session.state() == coetcd::session_state::active); // a delete was enough
    w.etcd->no_space = false;
    w.await(mutex.lock());
    w.etcd->no_space = true;
    REQUIRE(w.await(mutex.unlock()));     // works without space
    REQUIRE(w.etcd->under("m/").empty()); // an epoch may have found space meanwhile
}

TEST_CASE("lock() on a session that has ended says so, and why", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::mutex mutex(session, "orders/42");
    (void)session.orphan();
    auto locking = w.start(mutex.lock());
    auto trying = w.start(mutex.try_lock());
    w.env->pass(1ms);
    REQUIRE(locking.code() == errc::session_closed);
    REQUIRE(trying.code() == errc::session_closed);
    try {
        locking.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("orders/42"));
        REQUIRE_THAT(e.what(), support::contains("orphaned"));
    }
}

TEST_CASE("a waiter for a lock is told that its own program has closed the session", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(50ms);
    auto closing = w.start(two.close());
    w.env->pass(10ms);
    closing.get();
    REQUIRE(waiting.code() == errc::session_closed);
    REQUIRE(waiting.code() == coetcd::condition::ownership_lost);
    REQUIRE(a.owns_lock());
}

TEST_CASE("cancelled at any moment, lock() ends once and leaves no key", "[mutex][cancellation]") {
    // The same holds where the request that puts the key arrives long after the cancellation.
    for (const auto late : {0ms, 7ms, 700ms}) {
        for (const bool busy : {false, true}) {
            for (auto when = 0ms; when < 30ms; ++when) {
                rivals all;
                auto& [w, client, one, two, a, b] = all;
                if (busy) {
                    w.await(a.lock());
                }
                delay_first(w, is_enter, late);
                auto locking = w.start(b.lock());
                w.env->pass(when);
                const bool before = locking.ended();
                locking.cancel();
                w.env->pass(0ms);
                INFO("late " << late.count() << " busy " << busy << " at " << when.count());
                REQUIRE(locking.ended()); // within one turn of the loop
                w.env->pass(1500ms);
                REQUIRE(locking.completions() == 1);
                REQUIRE(two.state() == coetcd::session_state::active);
                if (before) {
                    locking.get();
                    REQUIRE(w.await(b.unlock()));
                } else {
                    REQUIRE(locking.code() == asio::error::operation_aborted);
                }
                REQUIRE(w.etcd->under("m/").size() == (busy ? 1 : 0));
                REQUIRE(w.etcd->watches() <= 1); // one is kept for a while
                // The lock is of use to others and to the same session.
                if (busy) {
                    REQUIRE(w.await(a.unlock()));
                }
                w.await(b.lock());
            }
        }
    }
}

TEST_CASE("other kinds of cancellation do nothing", "[mutex][cancellation]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto locking = w.start(b.lock());
    w.env->pass(50ms);
    locking.cancel(asio::cancellation_type::partial);
    locking.cancel(asio::cancellation_type::total);
    w.env->pass(50ms);
    REQUIRE_FALSE(locking.ended());
    REQUIRE(w.await(a.unlock()));
    w.env->pass(50ms);
    locking.get();
}

TEST_CASE("every lost answer on the way to the lock is ridden out", "[mutex]") {
    // The n-th call from here on loses its request, its answer, or its connection.
    for (int how = 0; how < 3; ++how) {
        for (int victim = 0; victim < 8; ++victim) {
            rivals all({30s}, {30s});
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
            auto unlocking = w.start(a.unlock());
            w.env->pass(20s);
            INFO("how " << how << " victim " << victim);
            REQUIRE(unlocking.get());
            locking.get();
            REQUIRE(w.await(b.unlock()));
            w.env->pass(10s);
            REQUIRE(w.etcd->under("m/").empty());
        }
    }
}

TEST_CASE("an unlock that arrives late does not touch a newer lock", "[mutex]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    const std::int64_t old_token = mutex.fencing_token();
    delay_first(w, is_release, 4s); // the caller has given up on it by then, and asked again
    REQUIRE(w.await(mutex.unlock()));
    w.await(mutex.lock());
    REQUIRE(mutex.fencing_token() > old_token);
    const std::string key = mutex.key();
    w.env->pass(10s);
    REQUIRE(w.etcd->under("m/") == std::vector<std::string>{key});
    REQUIRE(mutex.owns_lock());
}

TEST_CASE("an enter that arrives after its lock was released does not come back to life",
          "[mutex]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    delay_first(w, is_enter, 8s);
    w.await(mutex.lock()); // by the second attempt
    REQUIRE(w.await(mutex.unlock()));
    w.env->pass(20s);
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("an enter that arrives after its key was deleted by hand does not put it again",
          "[mutex]") {
    owner all(coetcd::session_options(12s));
    auto& [w, client, session, mutex] = all;
    delay_first(w, is_enter, 20s);
    w.await(mutex.lock()); // by the second attempt
    REQUIRE(w.etcd->under("m/").size() == 1);
    w.etcd->erase(mutex.key());
    w.env->pass(30s); // it is neither given back nor let go of
    REQUIRE_FALSE(mutex.owns_lock());
    REQUIRE(session.reason() == coetcd::session_end::none);
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("unlock() after the lease has ended says so, whatever came before", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    // An answer to the request for the lock is lost, so that its end puts an epoch.
    bool first = true;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.breaks = is_enter(r) && std::exchange(first, false);
        return f;
    };
    w.await(mutex.lock());
    w.etcd->revoke(session.lease());
    REQUIRE_FALSE(w.await(mutex.unlock()));
    REQUIRE(session.reason() == coetcd::session_end::expired);
}

TEST_CASE("unlock() that fails is made good in the background", "[mutex]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    bool down = true;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.refused = down && r.what == rpc::txn;
        return f;
    };
    auto unlocking = w.start(mutex.unlock());
    w.env->pass(6s);
    REQUIRE(unlocking.code() == errc::unavailable);
    REQUIRE_FALSE(mutex.owns_lock());
    REQUIRE_FALSE(w.etcd->under("m/").empty());
    down = false;
    w.env->pass(3s);
    REQUIRE(w.etcd->under("m/").empty());
    REQUIRE(session.state() == coetcd::session_state::active);
    w.await(mutex.lock());
}

TEST_CASE("unlock() that is cancelled gives the lock back all the same",
          "[mutex][held_lock][cancellation]") {
    for (auto when = 0ms; when < 4ms; ++when) {
        rivals all;
        auto& [w, client, one, two, a, b] = all;
        coetcd::held_lock held = w.await(a.scoped_lock());
        auto waiting_here = w.start(a.lock());
        auto unlocking = w.start(held.unlock());
        w.env->pass(when);
        unlocking.cancel();
        w.env->pass(50ms);
        INFO("after " << when.count() << " ms");
        REQUIRE(unlocking.ended());
        waiting_here.get(); // though the guard is still there
        REQUIRE(w.etcd->under("m/").size() == 1);
        REQUIRE_FALSE(held.owns_lock());
        REQUIRE(w.await(a.unlock()));
    }
}

TEST_CASE("unlock() takes effect in a coroutine that is cancelled already, too",
          "[mutex][cancellation]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    auto work = [&]() -> asio::awaitable<void> {
        co_await a.lock();
        coetcd::detail::notifier never(*w.env);
        try {
            (void)co_await never.wait();
        } catch (const boost::system::system_error&) {
        }
        (void)co_await a.unlock();
    };
    auto working = w.start(work());
    w.env->pass(50ms);
    REQUIRE(a.owns_lock());
    working.cancel();
    w.env->pass(0ms);
    REQUIRE(working.code() == asio::error::operation_aborted);
    REQUIRE_FALSE(a.owns_lock());
    w.env->pass(10ms);
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("what an orphaned session holds stays in etcd, what it waits for does not", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    std::optional<coetcd::mutex> dropped(std::in_place, one, "dropped");
    coetcd::mutex guarded(one, "guarded");
    std::optional<coetcd::held_lock> guard;
    coetcd::mutex left(one, "left");
    w.await(a.lock());
    w.await(dropped->lock());
    guard.emplace(w.await(guarded.scoped_lock()));
    w.await(left.lock());
    coetcd::mutex ahead(two, "waited for");
    coetcd::mutex behind(one, "waited for");
    w.await(ahead.lock());
    auto waiting = w.start(behind.lock());
    w.env->pass(50ms);
    REQUIRE(w.etcd->keys.size() == 6);

    auto leaving = w.start(left.unlock()); // before, and under way
    (void)one.orphan();
    REQUIRE_FALSE(a.owns_lock());
    REQUIRE_FALSE(w.await(a.unlock()));
    dropped.reset();
    guard.reset();
    w.env->pass(1s);
    REQUIRE(waiting.code() == errc::session_closed);
    REQUIRE(leaving.get());
    REQUIRE(w.etcd->under("m/").size() == 1);
    REQUIRE(w.etcd->under("dropped/").size() == 1);
    REQUIRE(w.etcd->under("guarded/").size() == 1);
    REQUIRE(w.etcd->under("left/").empty());
    REQUIRE(w.etcd->under("waited for/") == std::vector<std::string>{ahead.key()});
}

TEST_CASE("what is given back when the lease is orphaned is given back all the same", "[mutex]") {
    // Whether the request to enter, or the one to leave, is under way, lost, or not even sent.
    for (int lost = 0; lost < 3; ++lost) {
        for (auto when = 0ms; when < 6ms; ++when) {
            owner all;
            auto& [w, client, session, mutex] = all;
            w.env->decide = [n = 0, lost](const call_request& r) mutable {
                scripted_env::fate f;
                f.breaks = r.what == rpc::txn && ++n == lost;
                return f;
            };
            auto locking = w.start(mutex.lock());
            w.env->pass(when);
            const bool held = mutex.owns_lock();
            auto unlocking = w.start(mutex.unlock());
            const coetcd::lease_id lease = session.orphan();
            w.env->pass(2s);
            INFO("request " << lost << " after " << when.count() << " ms");
            REQUIRE(locking.ended());
            REQUIRE(locking.succeeded() == held);
            REQUIRE(unlocking.get() == held);
            REQUIRE(w.etcd->under("m/").empty());
            REQUIRE(w.etcd->has_lease(lease));
        }
    }
}

TEST_CASE("what is given back elsewhere before the lease is orphaned is not for the heir",
          "[mutex]") {
    for (const bool by_guard : {false, true}) {
        owner all;
        auto& [w, client, session, mutex] = all;
        std::optional<coetcd::held_lock> held(w.await(mutex.scoped_lock()));
        w.env->away = true; // home hears of it later
        if (by_guard) {
            held.reset();
        } else {
            (void)held->unlock();
        }
        const coetcd::lease_id lease = session.orphan();
        w.env->away = false;
        w.env->pass(1s);
        REQUIRE(w.etcd->under("m/").empty());
        REQUIRE(w.etcd->has_lease(lease));
    }
}

TEST_CASE("a mutex that outlives its session keeps nothing open", "[mutex]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(50ms);
    REQUIRE(w.await(a.unlock()));
    w.env->pass(50ms);
    waiting.get();
    w.await(one.close());
    w.await(two.close());
    w.env->pass(5s);
    // Nothing waits for anything any more: the context runs out of work.
    w.context->restart();
    (void)w.context->run_for(1s);
    REQUIRE(w.context->stopped());
}

TEST_CASE("a key that cannot be deleted costs the session its lease", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client, {20s}));
    {
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
        w.env->decide = [&](const call_request& r) {
            scripted_env::fate f;
            f.refused = r.what == rpc::txn;
            return f;
        };
    }
    w.env->pass(19s); // a whole ttl, although renewals succeed
    REQUIRE(session.state() == coetcd::session_state::active);
    w.env->pass(7s);
    REQUIRE(session.state() == coetcd::session_state::lost);
    REQUIRE(session.reason() == coetcd::session_end::cleanup_failed);
    REQUIRE(w.etcd->leases() == 0);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("a password that is changed under way does not cost the session its lease", "[mutex]") {
    world w;
    w.etcd->require_user("root", "old");
    coetcd::client_options options;
    auto password = std::make_shared<std::string>("old");
    options.credentials.emplace("root", [password] { return *password; });
    options.insecure_plain_text_credentials = true;
    const coetcd::client client = w.client(options);
    coetcd::session session = w.await(coetcd::session::open(client, {20s}));
    {
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
        w.etcd->require_user("root", "new");
        w.etcd->expire_tokens();
    }
    w.env->pass(5s); // to give the lock back may take half the ttl
    REQUIRE(session.state() != coetcd::session_state::lost);
    *password = "new";
    w.env->pass(6s);
    REQUIRE(w.etcd->under("m/").empty());
    REQUIRE(session.state() == coetcd::session_state::active);
}

TEST_CASE("an epoch that is forbidden costs the session its lease", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.env->decide = [first = true](const call_request& r) mutable {
        scripted_env::fate f;
        f.breaks = is_enter(r) && std::exchange(first, false); // a copy may still be under way
        return f;
    };
    w.await(mutex.lock());
    w.etcd->forbidden.insert("m." + mutex.key().substr(2));
    auto unlocking = w.start(mutex.unlock());
    w.env->pass(50ms);
    REQUIRE(unlocking.code() == coetcd::server_errc::permission_denied);
    REQUIRE(session.state() == coetcd::session_state::active); // it may have been a slip
    w.env->pass(100ms);
    REQUIRE(session.reason() == coetcd::session_end::cleanup_failed);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("scoped_lock() gives the lock back when the guard goes", "[mutex][held_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    {
        coetcd::held_lock held = w.await(mutex.scoped_lock());
        REQUIRE(held);
        REQUIRE(held.owns_lock());
        REQUIRE(mutex.owns_lock());
        REQUIRE(held.key() == mutex.key());
        REQUIRE(held.fencing_token() == mutex.fencing_token());
        coetcd::held_lock moved = std::move(held);
        REQUIRE(moved);
        w.env->pass(10ms);
        REQUIRE(w.etcd->keys.size() == 1);
    }
    REQUIRE_FALSE(mutex.owns_lock());
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
    // It may be taken over by hand, too.
    w.await(mutex.lock());
    {
        const coetcd::held_lock held(mutex, std::adopt_lock);
        REQUIRE(held);
    }
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
    // And given up early; the guard's end then does nothing.
    {
        coetcd::held_lock held = w.await(mutex.scoped_lock());
        REQUIRE(w.await(held.unlock()));
        REQUIRE_FALSE(held);
        w.await(mutex.lock());
        REQUIRE_FALSE(w.await(held.unlock()));
    }
    w.env->pass(10ms);
    REQUIRE(mutex.owns_lock());
    REQUIRE(w.await(mutex.unlock()));
}

TEST_CASE("a guard outlives its mutex, and a lock does not", "[mutex][held_lock]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    std::optional<coetcd::held_lock> held;
    {
        coetcd::mutex mutex(session, "m");
        held.emplace(w.await(mutex.scoped_lock()));
    }
    w.env->pass(10ms);
    REQUIRE(held->owns_lock());
    REQUIRE(w.etcd->keys.size() == 1);
    held.reset();
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
    {
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
    }
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("a mutex that is destroyed gives back whatever its calls still get",
          "[mutex][held_lock]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    std::optional<coetcd::mutex> gone(std::in_place, two, "m");
    SECTION("several that wait for another") {
        w.await(a.lock());
        auto first = w.start(gone->lock());
        auto second = w.start(gone->try_lock_for(1min));
        auto third = w.start(gone->scoped_lock());
        w.env->pass(50ms);
        gone.reset();
        (void)a.unlock();
        w.env->pass(1s);
        first.get();
        REQUIRE(second.get());
        const coetcd::held_lock held = third.get();
        REQUIRE(held.owns_lock()); // that one has an owner of its own
    }
    SECTION("one that waits for a guard of the same mutex") {
        coetcd::held_lock held = w.await(gone->scoped_lock());
        auto waiting = w.start(gone->lock());
        w.env->pass(50ms);
        gone.reset();
        REQUIRE(w.await(held.unlock()));
        w.env->pass(50ms);
        waiting.get();
        REQUIRE(w.etcd->under("m/").empty()); // although the guard is still there
    }
    w.env->pass(50ms);
    REQUIRE(w.etcd->under("m/").empty());
    REQUIRE(w.await(a.try_lock()));
}

TEST_CASE("assignment gives back what was held", "[mutex][held_lock]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client));
    coetcd::mutex mutex(session, "a");
    w.await(mutex.lock());
    mutex = coetcd::mutex(session, "b");
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
    coetcd::held_lock held = w.await(mutex.scoped_lock());
    coetcd::mutex other(session, "c");
    held = w.await(other.scoped_lock());
    w.env->pass(10ms);
    REQUIRE(w.etcd->under("b/").empty());
    REQUIRE(w.etcd->under("c/").size() == 1);
    REQUIRE(held.key() == other.key());
}

TEST_CASE("everything may be destroyed while lock() is under way", "[mutex]") {
    for (int what = 0; what < 3; ++what) {
        for (auto when = 0ms; when < 12ms; ++when) {
            world w;
            std::optional<coetcd::client> client(w.client());
            std::optional<coetcd::session> one(w.await(coetcd::session::open(*client)));
            std::optional<coetcd::session> two(w.await(coetcd::session::open(*client)));
            coetcd::mutex a(*one, "m");
            std::optional<coetcd::mutex> b(std::in_place, *two, "m");
            w.await(a.lock());
            auto locking = w.start(b->lock());
            w.env->pass(when);
            INFO("what " << what << " at " << when.count());
            if (what == 0) {
                client.reset();
            } else if (what == 1) {
                two.reset();
            } else {
                b.reset();
            }
            w.env->pass(50ms);
            if (what == 1) {
                REQUIRE(locking.code() == errc::session_closed);
            }
            REQUIRE(w.await(a.unlock()));
            w.env->pass(50ms);
            if (what != 1) {
                locking.get();
                REQUIRE(w.etcd->under("m/").size() == (what == 2 ? 0 : 1));
            }
        }
    }
}

TEST_CASE("the whole world may end while lock() is under way", "[mutex]") {
    for (auto when = 0ms; when < 12ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        std::optional<coetcd::session> one(w.await(coetcd::session::open(client)));
        std::optional<coetcd::session> two(w.await(coetcd::session::open(client)));
        coetcd::mutex a(*one, "m");
        coetcd::mutex b(*two, "m");
        w.await(a.lock());
        const auto locking = w.start(b.lock());
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}

TEST_CASE("holder() and waiters() tell who holds the lock and who waits", "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session one = w.await(coetcd::session::open(client, {10s, "one"}));
    coetcd::session two = w.await(coetcd::session::open(client, {10s, "two"}));
    coetcd::session three = w.await(coetcd::session::open(client, {10s, "three"}));
    coetcd::mutex a(one, "m");
    coetcd::mutex b(two, "m");
    coetcd::mutex c(three, "m");
    REQUIRE_FALSE(w.await(a.holder()));
    REQUIRE(w.await(a.waiters()).empty());
    w.await(a.lock());
    auto second = w.start(b.lock());
    w.env->pass(10ms);
    auto third = w.start(c.lock());
    w.env->pass(10ms);
    const std::optional<coetcd::lock_entry> holder = w.await(c.holder());
    REQUIRE(holder);
    REQUIRE(holder->label == "one");
    REQUIRE(holder->lease == one.lease());
    REQUIRE(holder->fencing_token == a.fencing_token());
    REQUIRE(holder->key == a.key());
    const std::vector<coetcd::lock_entry> waiters = w.await(a.waiters());
    REQUIRE(waiters.size() == 2);
    REQUIRE(waiters[0].label == "two");
    REQUIRE(waiters[1].label == "three");
    const std::vector<coetcd::lock_entry> next = w.await(a.waiters(1));
    REQUIRE(next.size() == 1);
    REQUIRE(next[0].label == "two");
    REQUIRE(w.await(a.waiters(~std::size_t{0})).size() == 2);
    // The middle one leaves; the last one waits for the first then.
    second.cancel();
    w.env->pass(50ms);
    REQUIRE(w.await(a.waiters()).size() == 1);
    REQUIRE_FALSE(third.ended());
    REQUIRE(w.await(a.unlock()));
    w.env->pass(20ms);
    third.get();
}

TEST_CASE("is_owner() guards a transaction", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.await(mutex.lock());
    const coetcd::compare mine = mutex.is_owner();
    coetcd::txn good = coetcd::txn().when(mine).then(coetcd::op::put("k", "1"));
    REQUIRE(w.await(client.txn(good)).succeeded);
    REQUIRE(w.await(mutex.unlock()));
    REQUIRE_FALSE(w.await(client.txn(good)).succeeded);
    w.await(mutex.lock());
    REQUIRE_FALSE(w.await(client.txn(good)).succeeded); // a newer ownership is another one
}

TEST_CASE("with_lock() runs its body under the lock and returns what it returns",
          "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    bool held = false;
    auto number = [&]() -> asio::awaitable<int> {
        held = mutex.owns_lock();
        co_return 7;
    };
    REQUIRE(w.await(coetcd::with_lock(mutex, number)) == 7);
    REQUIRE(held);
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());
    auto token = [&](const coetcd::held_lock& l) -> asio::awaitable<std::int64_t> {
        co_return l.fencing_token();
    };
    REQUIRE(w.await(coetcd::with_lock(mutex, token)) > 0);
    auto failing = []() -> asio::awaitable<int> {
        throw std::runtime_error("out of stock");
        co_return 0;
    };
    auto failed = w.start(coetcd::with_lock(mutex, failing));
    w.env->pass(20ms);
    REQUIRE_THROWS_WITH(failed.get(), "out of stock");
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("with_lock() that is destroyed with its executor ends its body before its caller",
          "[mutex][with_lock]") {
    for (const auto when : {20ms, 2000ms}) { // in its first wait, and in its second
        for (const bool on_strand : {false, true}) {
            std::vector<std::string> ended;
            struct told_at_end {
                std::vector<std::string>& all;
                const char* who;
                ~told_at_end() { all.push_back(who); }
            };
            world w;
            const coetcd::client client = w.client();
            bool begun = false;
            auto body = [&]() -> asio::awaitable<void> {
                const told_at_end inner{ended, "body"};
                begun = true;
                coetcd::detail::notifier never(*w.env);
                (void)co_await never.wait(w.env->now() + 1s);
                (void)co_await never.wait();
            };
            auto caller = [&]() -> asio::awaitable<void> {
                const told_at_end outer{ended, "caller"};
                const coetcd::session session = co_await coetcd::session::open(client);
                coetcd::mutex mutex(session, "m");
                co_await coetcd::with_lock(mutex, body);
            };
            if (on_strand) {
                asio::co_spawn(asio::make_strand(*w.context), caller(), asio::detached);
            } else {
                asio::co_spawn(*w.context, caller(), asio::detached);
            }
            w.env->pass(when);
            REQUIRE(begun);
            REQUIRE(ended.empty());
            w.context.reset();
            REQUIRE(ended == std::vector<std::string>{"body", "caller"});
        }
    }
}

TEST_CASE("with_lock() cancels its body when the lock is lost, and reports the loss",
          "[mutex][with_lock]") {
    for (const bool by_hand : {false, true}) {
        owner all(coetcd::session_options(6s));
        auto& [w, client, session, mutex] = all;
        bool aborted = false;
        auto body = [&]() -> asio::awaitable<int> {
            coetcd::detail::notifier never(*w.env);
            try {
                (void)co_await never.wait();
            } catch (const boost::system::system_error& e) {
                aborted = e.code() == asio::error::operation_aborted;
                throw;
            }
            co_return 0;
        };
        auto working = w.start(coetcd::with_lock(mutex, body));
        w.env->pass(20ms);
        REQUIRE(mutex.owns_lock());
        if (by_hand) {
            w.etcd->erase(mutex.key());
        } else {
            w.etcd->revoke(session.lease());
        }
        w.env->pass(2500ms); // a renewal
        REQUIRE(aborted);
        REQUIRE(working.code() == (by_hand ? errc::lock_lost : errc::session_lost));
        REQUIRE(working.code() == coetcd::condition::ownership_lost);
    }
}

TEST_CASE("with_lock() reports a loss even if its body succeeded", "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    auto body = [&]() -> asio::awaitable<int> {
        w.env->stall(20s);
        co_return 1;
    };
    auto working = w.start(coetcd::with_lock(mutex, body));
    w.env->pass(50ms);
    REQUIRE(working.code() == errc::session_lost);
}

TEST_CASE("with_lock() reports a loss that its body itself brings about", "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    auto body = [&]() -> asio::awaitable<int> {
        (void)session.orphan();
        co_return 1;
    };
    auto working = w.start(coetcd::with_lock(mutex, body));
    w.env->pass(50ms);
    REQUIRE(working.code() == errc::session_closed);
    auto failing = [&]() -> asio::awaitable<int> {
        (void)session.orphan();
        throw std::runtime_error("and this");
        co_return 1;
    };
    session = w.await(coetcd::session::open(client));
    coetcd::mutex other(session, "n"); // "m" is still held by the lease
    auto failed = w.start(coetcd::with_lock(other, failing));
    w.env->pass(50ms);
    REQUIRE(failed.code() == errc::session_closed);
}

TEST_CASE("with_lock() whose body closes the session leaves no lease", "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    auto body = [&]() -> asio::awaitable<void> {
        co_await session.close(); // by which it is cancelled itself
    };
    auto working = w.start(coetcd::with_lock(mutex, body));
    w.env->pass(50ms);
    REQUIRE(working.code() == errc::session_closed);
    REQUIRE(w.etcd->leases() == 0);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("with_lock() does not wait until etcd knows, and the next one takes its release along",
          "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    coetcd::mutex other(session, "other");
    auto nothing = []() -> asio::awaitable<void> { co_return; };
    auto in_turn = [&](int rounds) -> asio::awaitable<void> {
        for (int i = 0; i != rounds; ++i) {
            co_await coetcd::with_lock(mutex, nothing);
            co_await coetcd::with_lock(other, nothing);
        }
    };
    const std::size_t before = w.env->calls.size();
    w.await(in_turn(5));
    w.env->pass(10ms);
    REQUIRE(w.env->calls.size() == before + 11);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("with_lock() whose body has ended is over, whatever becomes of its release",
          "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    SECTION("its key was deleted, and nobody knows") {
        auto body = [&]() -> asio::awaitable<int> {
            w.etcd->erase(mutex.key());
            co_return 1;
        };
        REQUIRE(w.await(coetcd::with_lock(mutex, body)) == 1);
    }
    SECTION("etcd does not answer") {
        auto body = [&]() -> asio::awaitable<int> {
            w.env->decide = [](const call_request&) {
                scripted_env::fate f;
                f.refused = true;
                return f;
            };
            co_return 1;
        };
        REQUIRE(w.await(coetcd::with_lock(mutex, body)) == 1);
        w.env->decide = nullptr;
    }
    w.env->pass(3s);
    REQUIRE(w.etcd->keys.empty());
    REQUIRE(session.state() == coetcd::session_state::active);
}

TEST_CASE("with_lock() passes a cancellation on, awaits the body, and unlocks",
          "[mutex][with_lock][cancellation]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    bool tidied = false;
    auto body = [&]() -> asio::awaitable<int> {
        co_await asio::this_coro::throw_if_cancelled(false);
        coetcd::detail::notifier never(*w.env);
        try {
            (void)co_await never.wait();
        } catch (const boost::system::system_error&) {
        }
        coetcd::detail::notifier pause(*w.env);
        (void)co_await pause.wait(w.env->now() + 100ms);
        tidied = true;
        co_return 3;
    };
    auto working = w.start(coetcd::with_lock(mutex, body));
    w.env->pass(20ms);
    working.cancel();
    w.env->pass(50ms);
    REQUIRE_FALSE(working.ended());
    REQUIRE(w.etcd->under("m/").size() == 1); // the body is not done: no other may start
    w.env->pass(100ms);
    REQUIRE(tidied);
    REQUIRE(working.get() == 3); // it was done after all
    REQUIRE(w.etcd->under("m/").empty());

    auto waiting = w.start(coetcd::with_lock(mutex, body));
    waiting.cancel();
    w.env->pass(50ms);
    REQUIRE(waiting.code() == asio::error::operation_aborted);
}

TEST_CASE("with_lock() that is cancelled in the very moment of the grant cancels its body",
          "[mutex][with_lock][cancellation]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    std::optional<background<void>> working;
    auto body = [&]() -> asio::awaitable<void> {
        working->cancel(); // nothing of with_lock() is waiting for anything yet
        coetcd::detail::notifier never(*w.env);
        (void)co_await never.wait();
    };
    working.emplace(w.start(coetcd::with_lock(mutex, body)));
    w.env->pass(50ms);
    REQUIRE(working->code() == asio::error::operation_aborted);
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("with_lock() in a coroutine that was cancelled before goes on, and unlocks",
          "[mutex][with_lock][cancellation]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    coetcd::detail::notifier never(*w.env);
    int tidied = 0;
    auto body = [&]() -> asio::awaitable<void> {
        (void)co_await never.wait(w.env->now() + 100ms);
        ++tidied;
    };
    auto user = [&]() -> asio::awaitable<void> {
        co_await asio::this_coro::throw_if_cancelled(false);
        try {
            (void)co_await never.wait();
        } catch (const boost::system::system_error&) {
        }
        auto tidying = coetcd::with_lock(mutex, body);
        co_await std::move(tidying);
    };
    auto working = w.start(user());
    w.env->pass(10ms);
    working.cancel();
    w.env->pass(50ms);
    REQUIRE(mutex.owns_lock());
    w.env->pass(1s);
    working.get();
    REQUIRE(tidied == 1);
    REQUIRE(w.etcd->under("m/").empty());
    REQUIRE_FALSE(w.await(mutex.unlock())); // it was given back
}

TEST_CASE("with_lock() runs its body under a lock that is held already", "[mutex][with_lock]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    auto number = [&]() -> asio::awaitable<int> {
        REQUIRE(mutex.owns_lock());
        co_return 7;
    };
    coetcd::held_lock held = w.await(mutex.scoped_lock());
    REQUIRE(w.await(coetcd::with_lock(std::move(held), number)) == 7);
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());

    SECTION("never begun, it gives the lock back") {
        held = w.await(mutex.scoped_lock());
        (void)coetcd::with_lock(std::move(held), number);
        w.env->pass(10ms);
        REQUIRE(w.etcd->keys.empty());
    }
    SECTION("a lock that is not held is refused, and the body does not begin") {
        bool began = false;
        auto body = [&]() -> asio::awaitable<void> {
            began = true;
            co_return;
        };
        REQUIRE_THROWS_AS(coetcd::with_lock(coetcd::held_lock(), body), std::logic_error);
        held = w.await(mutex.scoped_lock());
        w.await(held.unlock());
        auto given_back = w.start(coetcd::with_lock(std::move(held), body));
        held = w.await(mutex.scoped_lock());
        (void)session.orphan();
        auto lost = w.start(coetcd::with_lock(std::move(held), body));
        w.env->pass(10ms);
        REQUIRE(given_back.code() == errc::not_owner);
        REQUIRE(lost.code() == errc::session_closed);
        REQUIRE(lost.code() == coetcd::condition::ownership_lost);
        REQUIRE_FALSE(began);
    }
}

TEST_CASE("with_lock_for() runs its body if the lock can be had in time", "[mutex][with_lock]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    int ran = 0;
    auto nothing = [&]() -> asio::awaitable<void> {
        ++ran;
        co_return;
    };
    auto token = [&](const coetcd::held_lock& l) -> asio::awaitable<std::int64_t> {
        ++ran;
        co_return l.fencing_token();
    };
    REQUIRE(w.await(coetcd::with_lock_for(a, 2s, nothing)));
    const std::optional<std::int64_t> first = w.await(coetcd::with_lock_for(a, 2s, token));
    REQUIRE(first);
    REQUIRE(*first > 0);
    REQUIRE(w.await(coetcd::with_lock_for(a, 0s, nothing))); // as try_lock()
    REQUIRE(ran == 3);
    w.env->pass(10ms);
    REQUIRE(w.etcd->keys.empty());

    w.await(b.lock());
    const auto began = w.env->now();
    REQUIRE_FALSE(w.await(coetcd::with_lock_for(a, 2s, nothing)));
    REQUIRE(w.env->now() - began >= 2s);
    REQUIRE_FALSE(w.await(coetcd::with_lock_for(a, 2s, token)).has_value());
    REQUIRE_FALSE(w.await(coetcd::with_lock_for(a, 0s, token)).has_value());
    REQUIRE(ran == 3);
    REQUIRE(w.etcd->under("m/").size() == 1);

    auto waiting = w.start(coetcd::with_lock_for(a, 2s, nothing));
    w.env->pass(100ms);
    REQUIRE(w.await(b.unlock()));
    w.env->pass(100ms);
    REQUIRE(waiting.get());
    REQUIRE(ran == 4);
}

TEST_CASE("with_lock_for() reports a loss, an outage and a cancellation as with_lock() does",
          "[mutex][with_lock][cancellation]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    auto body = [&]() -> asio::awaitable<int> {
        coetcd::detail::notifier never(*w.env);
        (void)co_await never.wait();
        co_return 0;
    };
    SECTION("cancelled while it waits, or works") {
        for (const auto when : {0ms, 1ms, 20ms}) {
            auto working = w.start(coetcd::with_lock_for(mutex, 2s, body));
            w.env->pass(when);
            working.cancel();
            w.env->pass(20ms);
            REQUIRE(working.code() == asio::error::operation_aborted);
            REQUIRE(w.etcd->under("m/").empty());
        }
    }
    SECTION("lost") {
        auto working = w.start(coetcd::with_lock_for(mutex, 2s, body));
        w.env->pass(20ms);
        w.etcd->erase(mutex.key());
        w.env->pass(2500ms);
        REQUIRE(working.code() == errc::lock_lost);
    }
    SECTION("nothing answers") {
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.arrives = false;
            return f;
        };
        auto working = w.start(coetcd::with_lock_for(mutex, 1s, body));
        w.env->pass(1s);
        REQUIRE(working.code() == errc::timed_out);
    }
}

TEST_CASE("held_lock::wait_lost() tells of the loss of that lock", "[mutex][held_lock]") {
    owner all(coetcd::session_options(6s));
    auto& [w, client, session, mutex] = all;
    std::optional<coetcd::held_lock> held(w.await(mutex.scoped_lock()));
    auto waiting = w.start(held->wait_lost());
    w.env->pass(10s);
    REQUIRE_FALSE(waiting.ended());

    SECTION("the key is deleted by hand") {
        w.etcd->erase(held->key());
        w.env->pass(2500ms);
        REQUIRE(waiting.get() == errc::lock_lost);
        REQUIRE(w.await(held->wait_lost()) == errc::lock_lost);
        held.reset();
        REQUIRE(session.state() == coetcd::session_state::active);
    }
    SECTION("the lease is revoked") {
        w.etcd->revoke(session.lease());
        w.env->pass(2500ms);
        REQUIRE(waiting.get() == errc::session_lost);
    }
    SECTION("the process stands still") {
        w.env->stall(20s);
        w.env->pass(0s);
        REQUIRE(waiting.get() == errc::session_lost);
    }
    SECTION("no renewal succeeds") {
        w.env->renews = false;
        w.env->pass(6s);
        REQUIRE(waiting.get() == errc::session_lost);
    }
    SECTION("a loss counts, although the lock is given back in that moment") {
        (void)session.orphan();
        held.reset();
        w.env->pass(1ms);
        REQUIRE(waiting.get() == errc::session_closed);
    }
    SECTION("it is given back") {
        w.await(held->unlock());
        REQUIRE(waiting.code() == asio::error::operation_aborted);
        w.await(mutex.lock()); // what comes later is no concern of its
        auto again = w.start(held->wait_lost());
        w.env->pass(1ms);
        REQUIRE(again.code() == asio::error::operation_aborted);
    }
    SECTION("it is destroyed") {
        held.reset();
        w.env->pass(1ms);
        REQUIRE(waiting.code() == asio::error::operation_aborted);
    }
    SECTION("the wait is cancelled") {
        waiting.cancel();
        w.env->pass(1ms);
        REQUIRE(waiting.code() == asio::error::operation_aborted);
        REQUIRE(held->owns_lock());
    }
}

TEST_CASE("sec.blame: one member's word that the lease is gone ends no session",
          "[mutex][security]") {
    for (const char* const text :
         {"etcdserver: requested lease not found", "no route matched", "something"}) {
        for (const bool by_all : {false, true}) {
            CAPTURE(text, by_all);
            world w;
            const coetcd::client client =
                w.client(coetcd::endpoints("http://a", "http://b", "http://c"));
            coetcd::session session = w.await(coetcd::session::open(client, {60s}));
            coetcd::mutex mutex(session, "m");
            std::string bad;
            int refused = 0;
            w.env->on_call = [&, serve = w.env->on_call](const call_request& r,
                                                         coetcd::detail::reply& a) {
                bad = bad.empty() && r.what == rpc::txn ? r.to.host : bad;
                if (r.what == rpc::txn && (by_all || r.to.host == bad)) {
                    ++refused;
                    a.status = 404;
                    a.body = std::string(R"({"code":5,"message":")") + text + "\"}";
                } else {
                    serve(r, a);
                }
            };
            auto locking = w.start(mutex.lock());
            w.env->pass(3s);
            CHECK(session.state() == coetcd::session_state::active);
            REQUIRE(locking.ended());
            if (by_all) {
                CHECK(locking.code().category() == coetcd::server_category());
                continue;
            }
            CHECK(mutex.owns_lock());
            CHECK(refused == 1);
        }
    }
}

TEST_CASE("a lease that is gone ends the session of an attempt to lock, after one renewal",
          "[mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client, {60s}));
    coetcd::mutex mutex(session, "m");
    w.etcd->revoke(session.lease());
    w.env->calls.clear();
    auto locking = w.start(mutex.lock());
    w.env->pass(10ms);
    CHECK(locking.code() == errc::session_lost);
    CHECK(session.reason() == coetcd::session_end::expired);
    REQUIRE(w.env->calls.size() == 2);
    CHECK(w.env->calls[1].what == rpc::lease_keep_alive);
}

TEST_CASE("a lock that was refused leaves no key, even if it was put", "[mutex][security]") {
    struct {
        unsigned status;
        const char* body;
    } const rows[] = {
        {400, R"({"code":3,"message":"etcdserver: odd"})"},
        {409, R"({"code":6,"message":"etcdserver: odd"})"},
        {403, R"({"code":7,"message":"etcdserver: permission denied"})"},
        {429, R"({"code":8,"message":"etcdserver: odd"})"},
        {400, R"({"code":9,"message":"etcdserver: odd"})"},
        {400, R"({"code":11,"message":"etcdserver: odd"})"},
        {401, R"({"code":16,"message":"etcdserver: invalid auth token"})"},
    };
    for (const auto& row : rows) {
        for (const bool tries : {false, true}) {
            CAPTURE(row.body, tries);
            rivals all;
            world& w = all.w;
            w.env->on_call = [&, serve = w.env->on_call](const call_request& r,
                                                         coetcd::detail::reply& a) {
                serve(r, a);
                if (is_enter(r)) { // it was applied, and then refused
                    a.status = row.status;
                    a.body = row.body;
                }
            };
            const std::size_t before = w.env->calls.size();
            if (tries) {
                auto locking = w.start(all.a.try_lock());
                w.env->pass(100ms);
                CHECK(locking.code().category() == coetcd::server_category());
            } else {
                auto locking = w.start(all.a.lock());
                w.env->pass(100ms);
                CHECK(locking.code().category() == coetcd::server_category());
            }
            CHECK(w.etcd->under("m/").empty());
            CHECK(w.env->calls.size() == before + 2);
            CHECK(all.one.state() == coetcd::session_state::active);
        }
    }
}

TEST_CASE("a lock that was refused among others, and has no time left, leaves no key",
          "[mutex][security]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    coetcd::mutex other(session, "n");
    w.env->decide = [first = true](const call_request& r) mutable {
        scripted_env::fate f;
        f.late = is_enter(r) && std::exchange(first, false) ? 100ms : 0ms;
        return f;
    };
    w.env->on_call = [first = true, serve = w.env->on_call](const call_request& r,
                                                            coetcd::detail::reply& a) mutable {
        serve(r, a);
        if (is_enter(r) && std::exchange(first, false)) { // it was applied, and then refused
            a.status = 400;
            a.body = R"({"code":9,"message":"etcdserver: odd"})";
        }
    };
    const std::size_t before = w.env->calls.size();
    auto limited = w.start(mutex.try_lock_for(50ms));
    auto locking = w.start(other.lock());
    w.env->pass(60ms);
    CHECK(w.env->calls.size() == before + 1); // for both
    CHECK(limited.code() == errc::timed_out);
    w.env->pass(1s);
    locking.get();
    CHECK(w.etcd->under("m/").empty());
    CHECK(w.etcd->under("n/").size() == 1);
    CHECK(session.state() == coetcd::session_state::active);
}

TEST_CASE("what was put before a refusal is erased when the user may do that again", "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    bool denies = true;
    std::size_t asked = 0;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        if (!denies || r.what != rpc::txn || is_enter(r)) {
            serve(r, a);
        }
        asked += r.what == rpc::txn ? 1 : 0;
        if (denies && r.what == rpc::txn) { // the copy that is answered comes after the first
            a.status = 403;
            a.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        }
    };
    auto locking = w.start(mutex.lock());
    w.env->pass(50ms);
    REQUIRE(locking.code() == coetcd::server_errc::permission_denied);
    REQUIRE(w.etcd->under("m/").size() == 1);

    SECTION("soon") {
        w.env->pass(1min);
        CHECK(w.etcd->under("m/").size() == 1);
        CHECK(asked < 16);
        denies = false;
        w.env->pass(10s);
        CHECK(w.etcd->under("m/").empty());
        const std::size_t before = asked;
        w.env->pass(1min);
        CHECK(asked == before);
        auto again = w.start(mutex.lock());
        w.env->pass(50ms);
        again.get();
    }
    SECTION("but not for many at once: they go with the session") {
        for (int i = 0; i != 50; ++i) {
            coetcd::mutex other(session, "n" + std::to_string(i));
            auto another = w.start(other.lock());
            w.env->pass(50ms);
            REQUIRE(another.code() == coetcd::server_errc::permission_denied);
        }
        w.env->pass(10s);
        const std::size_t before = asked;
        w.env->pass(1min);
        CHECK(asked - before <= 16 * 12);
        CHECK(asked - before >= 16 * 5);
        w.await(session.close());
        w.env->pass(1ms);
        denies = false;
        const std::size_t calls = w.env->calls.size();
        w.env->pass(1min);
        CHECK(w.env->calls.size() == calls);
        CHECK(w.etcd->under("m/").empty());
    }
    SECTION("though etcd answers with something else meanwhile") {
        w.env->on_call = [serve = w.env->on_call, n = 0](const call_request& r,
                                                         coetcd::detail::reply& a) mutable {
            if (r.what != rpc::txn || ++n % 3 == 0) {
                serve(r, a);
            } else {
                a.status = n % 3 == 1 ? 200 : 503;
                a.body = "{}";
            }
        };
        denies = false;
        w.env->pass(30s);
        CHECK(w.etcd->under("m/").empty());
        CHECK(session.state() == coetcd::session_state::active);
    }
}

TEST_CASE("an attempt that may not lock may not clean up, either, and keeps its session",
          "[mutex]") {
    owner all;
    auto& [w, client, session, mutex] = all;
    w.env->on_call = [serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        if (r.what == rpc::txn) {
            a.status = 403;
            a.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        } else {
            serve(r, a);
        }
    };
    for (int i = 0; i != 5; ++i) { // its slots come back
        const std::size_t before = w.env->calls.size();
        auto locking = w.start(mutex.lock());
        w.env->pass(50ms);
        REQUIRE(locking.code() == coetcd::server_errc::permission_denied);
        REQUIRE(w.env->calls.size() == before + 2);
    }
    CHECK(session.state() == coetcd::session_state::active);
}

TEST_CASE("sec.spin: ends that are none do not keep a waiter asking", "[mutex][security]") {
    // Of four in a queue the last one, by itself, is told that the one before it goes.
    rivals all;
    world& w = all.w;
    coetcd::session three = w.await(coetcd::session::open(all.client));
    coetcd::mutex c(three, "m");
    w.await(all.a.lock());
    auto second = w.start(all.b.lock());
    w.env->pass(100ms);
    auto third = w.start(c.lock());
    w.env->pass(1s);
    const coetcd::client apart = w.client();
    coetcd::session four = w.await(coetcd::session::open(apart));
    coetcd::mutex d(four, "m");
    std::shared_ptr<scripted_env::server_stream> stream;
    w.env->on_open = [&, serve = w.env->on_open](const call_request& r, auto opened) {
        stream = opened;
        serve(r, opened);
    };
    auto waiting = w.start(d.lock());
    w.env->pass(1s); // its own key is watched, too
    REQUIRE(stream);
    std::int64_t revision = 9'000'000'000'000'000'000; // that no store has reached
    const auto tell_ends = [&] {
        ++revision;
        std::string key;
        coetcd::detail::wire::append_base64(key, all.a.key());
        for (const int id : {1, 2, 3, 4}) {
            stream->push(
                R"({"result":{"header":{"cluster_id":"14841639068965178418"},"watch_id":")" +
                std::to_string(id) + R"(","events":[{"type":"DELETE","kv":{"key":")" + key +
                R"(","mod_revision":")" + std::to_string(revision) + R"("}}]}})");
        }
    };
    const auto asked_in = [&](std::chrono::nanoseconds time) {
        const std::size_t before = w.env->calls.size();
        w.env->pass(time);
        return w.env->calls.size() - before;
    };
    tell_ends();
    CHECK(asked_in(1s) <= 12);
    std::size_t asked = 0;
    for (int i = 0; i != 1000; ++i) { // again and again
        tell_ends();
        asked += asked_in(10ms);
    }
    CHECK(asked <= 60);
    CHECK_FALSE(waiting.ended());
    // It hears of the ends that there are.
    for (coetcd::mutex* each : {&all.a, &all.b, &c}) {
        CHECK_FALSE(waiting.ended());
        w.await(each->unlock());
        w.env->pass(3s);
    }
    CHECK(waiting.ended());
    CHECK(d.owns_lock());
}
