// SPDX-License-Identifier: BSL-1.0
// Deadlines, and what is told of what did not happen in time.
#include <coetcd/detail/logic/once.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/shared_mutex.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_state;
using coetcd::detail::call_request;
using coetcd::detail::reply;
using coetcd::detail::rpc;
using coetcd::detail::time_point;
using support::scripted_env;
using support::world;

namespace {

struct contenders {
    explicit contenders(world& of, const coetcd::client& c)
        : w(of)
        , one(w.await(coetcd::session::open(c, {60s})))
        , two(w.await(coetcd::session::open(c, {60s})))
        , a(one, "m")
        , b(two, "m") {}
    world& w;
    coetcd::session one;
    coetcd::session two;
    coetcd::mutex a;
    coetcd::mutex b;
};

/// The network loses all requests from now on.
void lose_all(world& w) {
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.arrives = false;
        return f;
    };
}
void lose(world& w, rpc kind) {
    w.env->decide = [kind](const call_request& q) {
        scripted_env::fate f;
        f.arrives = q.what != kind;
        return f;
    };
}

/// An operation that is under way.
template<class T>
void cancel(world& w, support::background<T>& operation) {
    w.env->pass(10ms);
    operation.cancel();
    w.env->pass(10ms);
}

/// An operation that has ended, and says what the user of a lock needs.
template<class T>
void check_denied(support::background<T>& operation,
                  const std::string& name,
                  const std::string& more = "") {
    REQUIRE(operation.ended());
    REQUIRE(operation.code() == coetcd::server_errc::permission_denied);
    try {
        (void)operation.get();
    } catch (const coetcd::error& e) {
        CAPTURE(e.what());
        CHECK_THAT(e.what(),
                   support::contains("read and write the keys from \"" + name +
                                     ".\" up to, but not including, \"" + name + "0\"" + more));
    }
}

} // namespace

TEST_CASE("a wait whose key was deleted ends by its deadline, although nothing says why",
          "[deadlines][mutex]") {
    world w;
    const coetcd::client client = w.client();
    contenders r(w, client);
    w.await(r.a.lock());
    const time_point began = w.env->now();
    auto waiting = w.start(r.b.try_lock_for(1s));
    w.env->pass(500ms);
    w.env->renews = false;
    std::string own;
    for (const std::string& key : w.etcd->under("m/")) {
        own = key == r.a.key() ? own : key;
    }
    (void)w.await(client.erase(own));
    w.env->pass(began + 1s - w.env->now());
    REQUIRE(waiting.ended());
    REQUIRE_FALSE(waiting.get());
    // A wait without a deadline is told why, as soon as that can be known.
    auto patient = w.start(r.b.lock());
    w.env->pass(500ms);
    for (const std::string& key : w.etcd->under("m/")) {
        own = key == r.a.key() ? own : key;
    }
    (void)w.await(client.erase(own));
    w.env->pass(5s);
    REQUIRE_FALSE(patient.ended());
    w.env->renews = true;
    w.env->pass(5s);
    REQUIRE(patient.code() == errc::lock_lost);
}

TEST_CASE("the timeout of a handle counts for its sessions and their locks", "[deadlines]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::client hasty = client.with_timeout(700ms);
    contenders usual(w, client);
    contenders quick(w, hasty);
    w.await(usual.a.lock());
    const auto took = [&](auto operation) {
        const time_point began = w.env->now();
        while (!operation.ended()) {
            w.env->pass(1ms);
        }
        CHECK(operation.code());
        return w.env->now() - began;
    };
    const auto about = [](std::chrono::nanoseconds time, std::chrono::nanoseconds expected) {
        return time >= expected && time <= expected + 110ms; // with the grace of `unlock`
    };
    coetcd::mutex other(quick.one, "other");
    w.await(other.lock());
    lose_all(w);
    CHECK(about(took(w.start(coetcd::session::open(client))), 5s));
    CHECK(about(took(w.start(coetcd::session::open(hasty))), 700ms));
    CHECK(about(took(w.start(coetcd::session::adopt(hasty, 7))), 700ms));
    CHECK(about(took(w.start(usual.a.holder())), 5s));
    CHECK(about(took(w.start(quick.a.holder())), 700ms));
    CHECK(about(took(w.start(quick.a.waiters())), 700ms));
    coetcd::mutex free(quick.two, "free");
    CHECK(about(took(w.start(free.try_lock())), 700ms));
    CHECK(about(took(w.start(other.unlock())), 700ms));
    w.env->decide = nullptr;
}

TEST_CASE("the timeout of a handle counts if it is longer than the client's, too", "[deadlines]") {
    world w;
    coetcd::client_options o;
    o.request_timeout = 1s;
    const coetcd::client client = w.client(o);
    const coetcd::client patient = client.with_timeout(30s);
    coetcd::session session = w.await(coetcd::session::open(patient, {60s}));
    // Nothing gets through for a time that only the handle's patience outlasts.
    const auto rides_out = [&w](auto operation) {
        lose(w, rpc::txn);
        w.env->pass(10s);
        CHECK_FALSE(operation.ended());
        w.env->decide = nullptr;
        w.env->pass(3s);
        REQUIRE(operation.ended());
        return operation.get();
    };
    SECTION("unlock()") {
        coetcd::mutex m(session, "m");
        w.await(m.lock());
        CHECK(rides_out(w.start(m.unlock())));
    }
    SECTION("try_lock()") {
        coetcd::mutex m(session, "m");
        CHECK(rides_out(w.start(m.try_lock())));
    }
    SECTION("another mode") {
        coetcd::shared_mutex m(session, "m");
        coetcd::held_lock held = w.await(m.scoped_lock_shared());
        CHECK(rides_out(w.start(held.try_upgrade())));
        lose(w, rpc::txn);
        auto lowering = w.start(held.downgrade());
        w.env->pass(10s);
        CHECK_FALSE(lowering.ended());
        w.env->decide = nullptr;
        w.env->pass(3s);
        CHECK(lowering.succeeded());
    }
    SECTION("resume()") {
        coetcd::mutex m(session, "m");
        w.await(m.lock());
        (void)session.orphan();
        const coetcd::session heir =
            w.await(coetcd::session::adopt(patient, session.lease())).value();
        coetcd::mutex own(heir, "m");
        CHECK(rides_out(w.start(own.resume())));
    }
    SECTION("but not of a handle that is no longer") {
        const coetcd::session hasty = w.await(coetcd::session::open(client, {60s}));
        coetcd::mutex m(hasty, "m");
        w.await(m.lock());
        lose(w, rpc::txn);
        auto unlocking = w.start(m.unlock());
        w.env->pass(1200ms);
        CHECK(unlocking.code() == errc::outcome_unknown);
    }
}

TEST_CASE("once all handles are gone nothing goes on for long, whatever request_timeout is",
          "[deadlines]") {
    world w;
    coetcd::client_options o;
    o.request_timeout = std::chrono::milliseconds(1h);
    std::chrono::nanoseconds most = 5s; // to revoke a lease

    SECTION("a login") {
        o.credentials = coetcd::credentials("root", "secret");
        o.insecure_plain_text_credentials = true;
        lose_all(w);
        auto getting = w.start(w.client(o).get("k"));
        cancel(w, getting);
        most = o.attempt_timeout;
    }
    SECTION("a login for a transaction that is not wanted any more") {
        o.credentials = coetcd::credentials("root", "secret");
        o.insecure_plain_text_credentials = true;
        bool valid = true;
        w.env->on_call = [&, serve = w.env->on_call](const call_request& q, reply& r) {
            if (q.what == rpc::authenticate) {
                r.status = 200;
                r.body = R"({"header":{"cluster_id":"14841639068965178418"},"token":"t.1"})";
            } else if (valid) {
                serve(q, r);
            } else {
                r.status = 401;
                r.body = R"({"code":16,"message":"etcdserver: invalid auth token"})";
            }
        };
        const coetcd::client client = w.client(o);
        const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
        coetcd::mutex mutex(session, "m");
        w.await(mutex.lock());
        valid = false;
        lose(w, rpc::authenticate);
        auto unlocking = w.start(mutex.unlock());
        cancel(w, unlocking);
        most = 10s; // the second login begins before the session gives up
    }
    SECTION("the refresh of members, of which one is asked after the other") {
        o.member_refresh = 10s;
        const coetcd::client client = w.client({"http://a", "http://b", "http://c"}, o);
        w.env->pass(2s);
        lose(w, rpc::member_list);
        (void)w.await(client.get("k"));
        most = o.attempt_timeout;
    }
    SECTION("the refresh of members, whichever of them answers") {
        o.member_refresh = 10s;
        const coetcd::client client = w.client(o);
        w.env->pass(2s);
        lose(w, rpc::member_list);
        (void)w.await(client.get("k"));
        w.env->pass(3s);
    }
    SECTION("a place in a queue") {
        const coetcd::client client = w.client(o);
        const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
        coetcd::mutex mutex(session, "m");
        lose_all(w);
        auto locking = w.start(mutex.lock());
        w.env->pass(10ms);
        SECTION("that is given up before the session") {
            cancel(w, locking);
        }
        SECTION("that is given up with the session") {}
    }
    SECTION("a lock") {
        const coetcd::client client = w.client(o);
        contenders r(w, client);
        w.await(r.a.lock());
        auto waiting = w.start(r.b.lock());
        w.env->pass(100ms);
        SECTION("that is given back before the session ends") {
            lose_all(w);
            auto unlocking = w.start(r.a.unlock());
            cancel(w, unlocking);
        }
        SECTION("while its next owner looks whether it is") {
            w.await(r.a.unlock());
            lose_all(w);
            w.env->pass(10ms);
        }
        cancel(w, waiting);
    }
    SECTION("a lock whose key is to go from an etcd that is full") {
        const coetcd::client client = w.client(o);
        const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
        coetcd::mutex mutex(session, "m");
        int calls = 0;
        w.env->decide = [&](const call_request& q) {
            calls += q.what == rpc::txn;
            scripted_env::fate f;
            f.breaks = calls == 1; // so that unlock() writes, too: see departure.cpp
            return f;
        };
        w.await(mutex.lock());
        calls = 0;
        w.etcd->no_space = true;
        w.env->decide = [&](const call_request& q) {
            calls += q.what == rpc::txn;
            scripted_env::fate f;
            f.arrives = calls == 1; // and is refused
            return f;
        };
        auto unlocking = w.start(mutex.unlock());
        w.env->pass(10ms);
        REQUIRE(calls == 2);
        lose_all(w);
        cancel(w, unlocking);
    }
    SECTION("the erasing of what marked a write long ago") {
        const coetcd::client client = w.client(o);
        const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
        const auto write = [&](std::size_t which) {
            const coetcd::exactly_once once(session, std::to_string(which));
            (void)w.await(once.txn(coetcd::txn().then(coetcd::op::put("k", "v"))));
        };
        const std::size_t kept = coetcd::detail::logic::marker_table::most_idle;
        for (std::size_t i = 0; i != kept; ++i) {
            write(i);
        }
        int calls = 0;
        w.env->decide = [&](const call_request&) {
            scripted_env::fate f;
            f.arrives = ++calls == 1; // the write; then another marker is to go
            return f;
        };
        write(kept);
        w.env->pass(10ms);
        REQUIRE(calls == 2);
        lose_all(w);
    }
    w.env->pass(most + 100ms);
    CHECK(w.env.use_count() == 1); // nothing else uses it
}

TEST_CASE("a call that shares a request with others ends by its own deadline",
          "[deadlines][mutex]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
    coetcd::mutex first(session, "1");
    coetcd::mutex second(session, "2");
    lose_all(w);
    const time_point began = w.env->now();
    auto patient = w.start(first.lock());
    auto hasty = w.start(second.try_lock_for(1s));
    w.env->pass(1s - 1ns);
    REQUIRE(w.env->calls.back().what == rpc::txn);
    REQUIRE_FALSE(hasty.ended());
    w.env->pass(1ns);
    REQUIRE(hasty.ended());
    CHECK(hasty.code() == errc::timed_out);
    CHECK(w.env->now() == began + 1s);
    REQUIRE_FALSE(patient.ended());
    w.env->decide = nullptr;
    w.env->pass(10s);
    REQUIRE(patient.succeeded());
    REQUIRE(w.etcd->under("2/").empty());
}

TEST_CASE("a lease whose grant cannot be told has one outcome", "[deadlines]") {
    world w;
    const coetcd::client client = w.client();
    w.env->decide = [first = true](const call_request& q) mutable {
        scripted_env::fate f;
        f.answered = q.what == rpc::lease_grant && !std::exchange(first, false);
        return f;
    };
    auto granting = w.start(client.lease_grant(60s));
    w.env->pass(6s);
    REQUIRE(granting.ended());
    REQUIRE(granting.code() == errc::outcome_unknown);
    try {
        (void)granting.get();
    } catch (const coetcd::error& e) {
        CAPTURE(e.what());
        CHECK_THAT(e.what(), support::contains("may have been applied"));
        CHECK_THAT(e.what(), !support::contains("nothing was changed"));
    }
}

TEST_CASE("an attempt that is denied a lock is told what its user needs", "[deadlines][mutex]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session session = w.await(coetcd::session::open(client, {60s}));
    coetcd::mutex mutex(session, "orders/42");
    w.env->on_call = [serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        serve(q, r);
        if (q.what == rpc::txn) {
            r.status = 403;
            r.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        }
    };
    auto locking = w.start(mutex.lock());
    w.env->pass(1s);
    check_denied(locking, "orders/42");
}

TEST_CASE("a holder that is denied its own lock is told what its user needs, too",
          "[deadlines][mutex]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session session = w.await(coetcd::session::open(client, {60s}));
    coetcd::shared_mutex mutex(session, "m");
    coetcd::held_lock held = w.await(mutex.scoped_lock());
    rpc denied = rpc::txn;
    bool denies = false;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        serve(q, r);
        if (denies && q.what == denied) {
            r.status = 403;
            r.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        }
    };
    SECTION("unlock()") {
        denies = true;
        auto unlocking = w.start(held.unlock());
        w.env->pass(50ms);
        check_denied(unlocking, "m");
    }
    SECTION("downgrade()") {
        denies = true;
        auto lowering = w.start(held.downgrade());
        w.env->pass(50ms);
        check_denied(lowering, "m");
    }
    SECTION("try_upgrade()") {
        w.await(held.downgrade());
        denies = true;
        auto raising = w.start(held.try_upgrade());
        w.env->pass(50ms);
        check_denied(raising, "m");
    }
    SECTION("several names") {
        std::vector<coetcd::lock_part> names;
        names.emplace_back("a");
        names.emplace_back("b");
        coetcd::multi_lock several(session, std::move(names));
        coetcd::held_locks both = w.await(several.scoped_lock());
        denies = true;
        auto unlocking = w.start(both.unlock());
        w.env->pass(50ms);
        check_denied(unlocking, "a", ", and so on for each name");
    }
    SECTION("resume()") {
        coetcd::mutex m(session, "r");
        w.await(m.lock());
        (void)session.orphan();
        const coetcd::session heir =
            w.await(coetcd::session::adopt(client, session.lease())).value();
        coetcd::mutex own(heir, "r");
        for (const rpc which : {rpc::range, rpc::txn}) {
            denied = which;
            denies = true;
            auto resuming = w.start(own.resume());
            w.env->pass(50ms);
            check_denied(resuming, "r");
        }
        denies = false;
        CHECK(w.await(own.resume()));
    }
    denies = false;
    w.env->pass(1s);
}

TEST_CASE("the checks of ten thousand held locks delay no renewal", "[deadlines][session]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session session = w.await(coetcd::session::open(client, {10s}));
    std::vector<std::unique_ptr<coetcd::mutex>> all;
    std::vector<support::background<void>> locking;
    for (int i = 0; i != 10'000; ++i) {
        all.push_back(std::make_unique<coetcd::mutex>(session, "m" + std::to_string(i)));
        locking.push_back(w.start(all.back()->lock()));
    }
    w.env->pass(5s);
    REQUIRE(
        std::all_of(locking.begin(), locking.end(), [](const auto& l) { return l.succeeded(); }));
    w.env->round_trip = 150ms; // etcd is well, and far away
    std::vector<time_point> renewals{w.env->now()};
    std::size_t checks = 0;
    w.env->decide = [&](const call_request& q) {
        if (q.what == rpc::lease_keep_alive) {
            renewals.push_back(w.env->now());
        }
        checks += q.what == rpc::txn;
        return scripted_env::fate();
    };
    w.env->pass(60s);
    REQUIRE(session.state() == session_state::active);
    REQUIRE(checks > 10'000 / 60); // each was looked at
    renewals.push_back(w.env->now());
    for (std::size_t i = 1; i != renewals.size(); ++i) {
        CHECK(renewals[i] - renewals[i - 1] < 3700ms); // a third of the ttl, and its jitter
    }
    // One that goes missing meanwhile is noticed, however many there are.
    w.etcd->erase(all[5000]->key());
    w.env->pass(60s);
    CHECK_FALSE(all[5000]->owns_lock());
    CHECK(all[5001]->owns_lock());
}
