// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/recipe/resume.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/version.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
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
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using coetcd::detail::logic::hex;
using support::background;
using support::delay_first;
using support::is_enter;
using support::is_release;
using support::owner;
using support::scripted_env;
using support::world;

namespace {

/// A lock that an orphaned session holds, and a session that has adopted its lease.
struct handed_over : owner {
    handed_over()
        : owner(coetcd::session_options(20s)) {
        w.await(mutex.lock());
        key = mutex.key();
        token = mutex.fencing_token();
        (void)session.orphan();
        heir = w.await(coetcd::session::adopt(client, session.lease())).value();
        own.emplace(heir, "m");
        w.env->calls.clear();
    }
    std::string key;
    std::int64_t token = 0;
    coetcd::session heir;
    std::optional<coetcd::mutex> own;
};

void put(world& w, const coetcd::client& client, const std::string& key, coetcd::lease_id lease) {
    coetcd::put_options with_lease;
    with_lease.lease = lease;
    (void)w.await(client.put(key, "", with_lease));
}

std::string hex_of(coetcd::lease_id lease) {
    return hex(static_cast<std::uint64_t>(lease));
}

} // namespace

TEST_CASE("resume() that is cancelled on its way back leaves the hold as it is",
          "[resume][cancellation]") {
    handed_over all;
    world& w = all.w;
    asio::io_context elsewhere(1);
    background<bool> resuming(elsewhere, all.own->resume());
    elsewhere.poll();
    w.env->pass(1ms);
    resuming.cancel(); // gets there just before what was resumed; with newer Asio, at once
    w.env->pass(20ms);
    const std::size_t calls = w.env->calls.size();
    REQUIRE((calls == 2 || (calls == 1 && BOOST_ASIO_VERSION > 102600)));
    elsewhere.restart();
    elsewhere.poll();
    REQUIRE(resuming.ended());
    REQUIRE(resuming.code() == asio::error::operation_aborted);
    REQUIRE_FALSE(all.own->owns_lock());
    w.env->pass(10s);
    REQUIRE(w.etcd->under("m/") == std::vector<std::string>{all.key});
    REQUIRE(w.await(all.own->resume()));
    REQUIRE(all.own->fencing_token() == all.token);
    REQUIRE(w.await(all.own->unlock()));
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("resume() goes on with what the lease holds", "[resume]") {
    handed_over all;
    world& w = all.w;
    coetcd::mutex& m = *all.own;
    REQUIRE(w.await(m.resume()));
    REQUIRE(w.env->calls.size() == 2);
    REQUIRE(m.owns_lock());
    REQUIRE(m.key() == all.key);
    REQUIRE(m.fencing_token() == all.token);
    coetcd::txn guarded = coetcd::txn().when(m.is_owner()).then(coetcd::op::put("k", "1"));
    REQUIRE(w.await(all.client.txn(guarded)).succeeded);

    coetcd::session rival = w.await(coetcd::session::open(all.client));
    coetcd::mutex theirs(rival, "m");
    coetcd::mutex here(all.heir, "m");
    auto waiting = w.start(theirs.lock());
    w.env->pass(100ms);
    auto queued = w.start(here.lock());
    w.env->pass(60s);
    REQUIRE(m.owns_lock());
    REQUIRE_FALSE(waiting.ended());
    REQUIRE_FALSE(queued.ended());
    REQUIRE(w.await(m.unlock()));
    w.env->pass(20ms);
    waiting.get();
    REQUIRE_FALSE(queued.ended());
    REQUIRE_FALSE(w.await(all.client.txn(guarded)).succeeded);
    REQUIRE(w.await(theirs.unlock()));
    w.env->pass(20ms);
    queued.get();
    REQUIRE(here.fencing_token() > all.token);
    REQUIRE(here.key() != all.key);
}

TEST_CASE("what was resumed is lost and given back as any other lock", "[resume]") {
    for (int how = 0; how != 4; ++how) {
        handed_over all;
        world& w = all.w;
        REQUIRE(w.await(all.own->resume()));
        if (how == 0) {
            w.etcd->erase(all.key);
            w.env->pass(8s);
            REQUIRE_FALSE(all.own->owns_lock());
            REQUIRE_FALSE(w.await(all.own->unlock()));
        } else if (how == 1) {
            all.own.reset();
        } else if (how == 2) {
            coetcd::held_lock held(*all.own, std::adopt_lock);
            REQUIRE(held);
        } else {
            (void)all.heir.orphan(); // on to the next one
            REQUIRE_FALSE(w.await(all.own->unlock()));
            coetcd::session next =
                w.await(coetcd::session::adopt(all.client, all.heir.lease())).value();
            coetcd::mutex theirs(next, "m");
            REQUIRE(w.await(theirs.resume()));
            REQUIRE(theirs.fencing_token() == all.token);
            REQUIRE(w.await(theirs.unlock()));
        }
        w.env->pass(100ms);
        INFO("how " << how);
        REQUIRE(w.etcd->under("m/").empty());
    }
}

TEST_CASE("the observer hears of what is resumed as of any other lock", "[resume]") {
    struct listening final : coetcd::observer {
        void on_lock_wait(const coetcd::lock_wait_report& r) override {
            told += r.acquired ? "+" : r.failure ? "!" : "-";
            told += r.name;
        }
        void on_lock_hold(const coetcd::lock_hold_report& r) override {
            told += "/";
            told += r.name;
        }
        std::string told;
    };
    world w;
    const auto heard = std::make_shared<listening>();
    coetcd::client_options options;
    options.observer = heard;
    const coetcd::client client = w.client(options);
    coetcd::session first = w.await(coetcd::session::open(client));
    coetcd::mutex m(first, "m");
    w.await(m.lock());
    const coetcd::lease_id lease = first.orphan();
    w.env->pass(10ms);
    REQUIRE(std::exchange(heard->told, "") == "+m/m");

    coetcd::session heir = w.await(coetcd::session::adopt(client, lease)).value();
    coetcd::mutex own(heir, "m");
    REQUIRE(w.await(own.resume()));
    REQUIRE_FALSE(w.await(coetcd::mutex(heir, "n").resume()));
    REQUIRE(w.await(own.unlock()));
    REQUIRE(std::exchange(heard->told, "") == "+m-n/m");
    heir.orphan();
    auto refused = w.start(own.resume());
    w.env->pass(1ms);
    REQUIRE(refused.code() == errc::session_closed);
    REQUIRE(heard->told == "!m");
}

TEST_CASE("a late request of the first owner does not bring back what was resumed", "[resume]") {
    owner all(coetcd::session_options(60s));
    auto& [w, client, session, mutex] = all;
    delay_first(w, is_enter, 8s);
    w.await(mutex.lock()); // by the second attempt
    (void)session.orphan();
    coetcd::session heir = w.await(coetcd::session::adopt(client, session.lease())).value();
    coetcd::mutex own(heir, "m");
    REQUIRE(w.await(own.resume()));
    REQUIRE(w.await(own.unlock()));
    REQUIRE(w.etcd->under("m/").empty());
    w.env->pass(20s);
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("resume() finds Go's key, too", "[resume]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::lease_id lease = w.await(client.lease_grant(20s)).id;
    const std::string key = "m/" + hex_of(lease);
    put(w, client, key, lease);
    coetcd::session heir = w.await(coetcd::session::adopt(client, lease)).value();
    coetcd::mutex own(heir, "m");
    REQUIRE(w.await(own.resume()));
    REQUIRE(own.key() == key);
    REQUIRE(w.await(own.unlock()));
    REQUIRE(w.etcd->keys.empty()); // no epoch: Go asks for none
}

TEST_CASE("resume() tells that the lease does not hold the lock", "[resume]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::session rival = w.await(coetcd::session::open(client));
    coetcd::mutex theirs(rival, "m");
    const coetcd::lease_id lease = w.await(client.lease_grant(20s)).id;
    coetcd::session heir = w.await(coetcd::session::adopt(client, lease)).value();
    coetcd::mutex own(heir, "m");

    w.env->calls.clear();
    REQUIRE_FALSE(w.await(own.resume())); // no key is there
    REQUIRE(w.env->calls.size() == 1);
    w.await(theirs.lock());
    REQUIRE_FALSE(w.await(own.resume())); // another owner is there
    REQUIRE(theirs.owns_lock());

    // The lease's earlier owner has waited, and has left something.
    put(w, client, "m/" + hex_of(lease) + "-1-0", lease);
    put(w, client, "m/" + hex_of(lease) + "-1-1", lease);
    REQUIRE_FALSE(w.await(own.resume()));
    w.env->pass(20ms);
    REQUIRE(w.etcd->under("m/") == std::vector<std::string>{theirs.key()});
    auto waiting = w.start(own.lock());
    w.env->pass(20ms);
    REQUIRE(w.await(theirs.unlock()));
    w.env->pass(20ms);
    waiting.get();

    // What the session itself holds is not taken from its owner.
    coetcd::mutex other(heir, "m");
    REQUIRE_FALSE(w.await(other.resume()));
    w.env->pass(1s);
    REQUIRE(own.owns_lock());
    REQUIRE(w.etcd->under("m/") == std::vector<std::string>{own.key()});
}

TEST_CASE("resume() leaves nothing in the queue but what it goes on with", "[resume]") {
    handed_over all;
    world& w = all.w;
    put(w, all.client, "m/" + hex_of(all.heir.lease()) + "-1-0", all.heir.lease());
    put(w, all.client, "m/" + hex_of(all.heir.lease() + 1) + "-1-0", all.heir.lease());
    REQUIRE(w.await(all.own->resume()));
    w.env->pass(20ms);
    REQUIRE(w.etcd->under("m/").size() == 2); // one that only looks like ours is not ours
    REQUIRE(all.own->owns_lock());
}

TEST_CASE("a hold is resumed once", "[resume]") {
    handed_over all;
    world& w = all.w;
    coetcd::mutex other(all.heir, "m");
    auto one = w.start(all.own->resume());
    auto two = w.start(other.resume());
    w.env->pass(20ms);
    REQUIRE(one.get() != two.get());
    coetcd::mutex& has = all.own->owns_lock() ? *all.own : other;
    coetcd::mutex& has_not = all.own->owns_lock() ? other : *all.own;
    REQUIRE_FALSE(w.await(has.resume()));
    REQUIRE(has.owns_lock());
    // Not even while it is given back.
    delay_first(w, is_release, 1s);
    auto unlocking = w.start(has.unlock());
    w.env->pass(10ms);
    REQUIRE_FALSE(w.await(has_not.resume()));
    w.env->pass(2s);
    REQUIRE(unlocking.get());
    REQUIRE(w.etcd->under("m/").empty());
}

TEST_CASE("resume() that is cancelled or fails leaves the hold as it is",
          "[resume][cancellation]") {
    for (auto when = 0ms; when < 6ms; ++when) {
        handed_over all;
        world& w = all.w;
        auto resuming = w.start(all.own->resume());
        w.env->pass(when);
        const bool before = resuming.ended();
        resuming.cancel();
        w.env->pass(0ms);
        INFO("after " << when.count() << " ms");
        REQUIRE(resuming.ended());
        w.env->pass(100ms);
        REQUIRE(w.etcd->under("m/") == std::vector<std::string>{all.key});
        if (before) {
            REQUIRE(resuming.get());
        } else {
            REQUIRE(resuming.code() == asio::error::operation_aborted);
            REQUIRE(w.await(all.own->resume()));
        }
        REQUIRE(all.own->owns_lock());
    }
    for (const auto which : {rpc::range, rpc::txn}) {
        handed_over all;
        world& w = all.w;
        bool down = true;
        w.env->decide = [&](const call_request& r) {
            scripted_env::fate f;
            f.refused = down && r.what == which;
            return f;
        };
        auto resuming = w.start(all.own->resume());
        w.env->pass(6s);
        REQUIRE(resuming.code() == errc::unavailable);
        down = false;
        w.env->pass(2s);
        REQUIRE(w.await(all.own->resume()));
    }
    handed_over all;
    world& w = all.w;
    (void)all.heir.close();
    auto late = w.start(all.own->resume());
    w.env->pass(20ms);
    REQUIRE(late.code() == errc::session_closed);
}
