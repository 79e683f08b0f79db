// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/timed_claim.hpp>

#include <chrono>
#include <cstddef>
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
using coetcd::timed_claim;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::rivals;
using support::scripted_env;
using support::world;

namespace {

bool is_claim(const call_request& r) {
    return r.what == rpc::txn && r.body.find("request_put") != std::string::npos;
}

/// etcd's own time goes on.
void pass(world& w, std::chrono::nanoseconds time) {
    for (auto passed = 0ns; passed < time; passed += 500ms) {
        w.env->pass(std::min<std::chrono::nanoseconds>(500ms, time - passed));
        w.etcd->expire();
        w.env->pass(1ms);
    }
}

} // namespace

TEST_CASE("try_claim() claims a name for a time, in two round trips", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<timed_claim> claim = w.await(coetcd::try_claim(client, "job", 10s));
    REQUIRE(claim);
    CHECK(w.env->calls.size() == 2);
    CHECK(claim->owns_lock());
    CHECK(claim->left() > 8900ms);
    CHECK(claim->left() <= 9s);
    CHECK(w.etcd->under("job/") == std::vector<std::string>{claim->key()});
    CHECK(w.etcd->keys.at(claim->key()).create_revision == claim->fencing_token());
    CHECK(w.etcd->keys.at(claim->key()).lease == claim->lease());
    CHECK_FALSE(w.await(coetcd::try_claim(client, "job", 10s)).has_value());
    pass(w, 100ms);
    CHECK(w.etcd->leases() == 1);

    SECTION("it is valid for that time less the margin, counted from when it was asked for") {
        w.env->stall(9s);
        CHECK_FALSE(claim->owns_lock());
        CHECK(claim->left() == 0s);
    }
    SECTION("it ends by itself, since it is not renewed") {
        pass(w, 12s);
        CHECK(w.etcd->keys.empty());
        CHECK(w.etcd->leases() == 0);
        CHECK_FALSE(w.await(claim->release()));
    }
    SECTION("it is given back before") {
        auto releasing = w.start(claim->release());
        CHECK_FALSE(claim->owns_lock()); // at the call
        w.env->pass(10ms);
        CHECK(releasing.get());
        CHECK(w.etcd->keys.empty());
        CHECK_FALSE(w.await(claim->release()));
        CHECK(w.await(coetcd::try_claim(client, "job", 10s)).has_value());
    }
    SECTION("its destruction gives it back") {
        claim.reset();
        pass(w, 100ms);
        CHECK(w.etcd->keys.empty());
        CHECK(w.etcd->leases() == 0);
    }
    SECTION("unless it is kept") {
        claim->keep();
        CHECK(claim->owns_lock());
        claim.reset();
        pass(w, 8s);
        CHECK(w.etcd->under("job/").size() == 1);
        pass(w, 4s);
        CHECK(w.etcd->keys.empty());
    }
    SECTION("assigned to, it gives back what it was") {
        std::optional<timed_claim> other = w.await(coetcd::try_claim(client, "other", 10s));
        *claim = std::move(*other);
        pass(w, 100ms);
        CHECK(w.etcd->under("job/").empty());
        CHECK(w.etcd->under("other/").size() == 1);
        CHECK_FALSE(other->owns_lock());
    }
    SECTION("it proves itself only as long as it lasts") {
        coetcd::compare mine = claim->is_owner();
        CHECK(w.await(client.txn(coetcd::txn().when(mine))).succeeded);
        w.etcd->revoke(claim->lease());
        CHECK_FALSE(w.await(client.txn(coetcd::txn().when(mine))).succeeded);
    }
}

TEST_CASE("a claim and a mutex exclude each other", "[timed_claim]") {
    rivals all;
    auto& [w, client, one, two, a, b] = all;
    w.await(a.lock());
    CHECK_FALSE(w.await(coetcd::try_claim(client, "m", 10s)).has_value());
    const auto last = a.fencing_token();
    w.await(a.unlock());
    std::optional<timed_claim> claim = w.await(coetcd::try_claim(client, "m", 10s));
    REQUIRE(claim);
    CHECK(claim->fencing_token() > last);
    CHECK_FALSE(w.await(a.try_lock()));
    auto waiting = w.start(b.lock());
    w.env->pass(100ms);
    CHECK_FALSE(waiting.ended());
    auto releasing = w.start(claim->release());
    w.env->pass(20ms);
    CHECK(releasing.get());
    waiting.get();
    w.env->pass(2s);
    CHECK(w.etcd->leases() == 2); // of the sessions
}

TEST_CASE("a lost answer on the way to a claim is ridden out", "[timed_claim]") {
    for (int how = 0; how < 3; ++how) {
        for (int victim = 0; victim < 2; ++victim) {
            INFO("how " << how << " victim " << victim);
            world w;
            const coetcd::client client = w.client();
            int n = 0;
            w.env->decide = [&](const call_request&) {
                scripted_env::fate f;
                if (n++ == victim) {
                    f.arrives = how != 0;
                    f.answered = how != 1;
                    f.breaks = how == 2;
                }
                return f;
            };
            std::optional<timed_claim> claim = w.await(coetcd::try_claim(client, "job", 20s));
            REQUIRE(claim);
            CHECK(claim->fencing_token() == w.etcd->keys.at(claim->key()).create_revision);
            CHECK(w.await(claim->release()));
            CHECK(w.etcd->keys.empty());
            CHECK(w.etcd->leases() == 0);
        }
    }
}

TEST_CASE("a request for a claim that arrives after force_unlock() does not put it again",
          "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    support::delay_first(w, is_claim, 10s);
    std::optional<timed_claim> claim = w.await(coetcd::try_claim(client, "job", 60s));
    REQUIRE(claim); // by the second copy
    CHECK(w.await(coetcd::force_unlock(client, "job", claim->fencing_token())));
    CHECK(w.etcd->under("job/").empty());
    w.env->pass(12s);
    CHECK(w.etcd->under("job/").empty());
    CHECK(claim->owns_lock()); // it is not watched: see is_owner()
    CHECK(w.await(coetcd::try_claim(client, "job", 10s)).has_value());
    CHECK(w.await(claim->release()));
    w.env->pass(1s);
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("a claim that fails leaves neither key nor lease", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    SECTION("no answer to the request for the key") {
        w.env->decide = [&](const call_request& r) {
            scripted_env::fate f;
            f.answered = !is_claim(r);
            return f;
        };
        auto trying = w.start(coetcd::try_claim(client, "job", 60s));
        w.env->pass(6s);
        CHECK(trying.code() == errc::timed_out);
    }
    SECTION("that request comes late") {
        support::delay_first(w, is_claim, 20s);
        auto trying = w.start(coetcd::try_claim(client, "job", 60s));
        w.env->pass(50ms);
        trying.cancel();
        w.env->pass(0ms);
        CHECK(trying.code() == asio::error::operation_aborted);
        w.env->pass(30s);
    }
    SECTION("no space") {
        w.etcd->no_space = true;
        auto trying = w.start(coetcd::try_claim(client, "job", 60s));
        w.env->pass(100ms);
        CHECK(trying.code() == coetcd::server_errc::resource_exhausted);
    }
    SECTION("etcd has ended the lease meanwhile") {
        support::delay_first(w, is_claim, 100ms);
        auto trying = w.start(coetcd::try_claim(client, "job", 60s));
        w.env->pass(50ms);
        w.etcd->revoke(w.etcd->lease_ids().at(0));
        w.env->pass(1s);
        CHECK(trying.code() == errc::timed_out);
    }
    SECTION("etcd has ended the lease meanwhile, and there is time for another one") {
        support::delay_first(w, is_claim, 100ms);
        auto trying = w.start(coetcd::claim_for(client, "job", {60s, 10s}));
        w.env->pass(50ms);
        w.etcd->revoke(w.etcd->lease_ids().at(0));
        w.env->pass(3s);
        const std::optional<timed_claim> claim = trying.get();
        REQUIRE(claim);
        CHECK(claim->owns_lock());
    }
    SECTION("the answer comes when it is not certain any more") {
        w.env->decide = [&, first = true](const call_request& r) mutable {
            scripted_env::fate f;
            if (is_claim(r) && std::exchange(first, false)) {
                w.env->at(w.env->now() + 1500us, [&] { w.env->stall(1900ms); });
            }
            return f;
        };
        auto trying = w.start(coetcd::try_claim(client, "job", 2s));
        w.env->pass(5s);
        CHECK(trying.code() == errc::timed_out);
    }
    w.env->decide = nullptr;
    w.env->pass(3s);
    CHECK(w.etcd->keys.empty());
    CHECK(w.etcd->leases() == 0);
}

TEST_CASE("cancelled at any moment, a claim leaves nothing", "[timed_claim][cancellation]") {
    for (const bool busy : {false, true}) {
        for (auto when = 0ms; when < 80ms; when += 1ms) {
            INFO("busy " << busy << " at " << when.count());
            world w;
            const coetcd::client client = w.client();
            if (busy) {
                w.etcd->write("job/x", "");
            }
            auto claiming = w.start(coetcd::claim_for(client, "job", {20s, 1h}));
            w.env->pass(when / 2);
            if (busy) {
                w.etcd->erase("job/x");
            }
            w.env->pass(when - when / 2);
            const bool before = claiming.ended();
            claiming.cancel();
            w.env->pass(0ms);
            REQUIRE(claiming.ended());
            CHECK(claiming.completions() == 1);
            if (before) {
                CHECK(claiming.get()->owns_lock());
            } else {
                CHECK(claiming.code() == asio::error::operation_aborted);
            }
            w.env->pass(2s);
            CHECK(w.etcd->keys.empty());
            CHECK(w.etcd->leases() == 0);
            CHECK(w.etcd->watches() == 0);
        }
    }
}

TEST_CASE("claim_for() waits for its time, and is no stampede", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    w.etcd->write("job/x", "");
    const auto began = w.env->now();
    CHECK_FALSE(w.await(coetcd::claim_for(client, "job", {10s, 300ms})).has_value());
    CHECK(w.env->now() - began >= 300ms);
    CHECK(w.env->now() - began < 320ms);
    CHECK_FALSE(w.await(coetcd::claim_for(client, "job", {10s, 0s})).has_value());
    CHECK_FALSE(w.await(coetcd::claim_for(client, "job", {10s, -1s})).has_value());

    std::vector<background<std::optional<timed_claim>>> all;
    for (int i = 0; i != 20; ++i) {
        all.push_back(w.start(coetcd::claim_for(client, "job", {10s, 1min})));
    }
    w.env->pass(1s);
    const std::size_t before = w.env->calls.size();
    w.etcd->erase("job/x");
    w.env->pass(100ms);
    std::size_t have = 0;
    for (auto& one : all) {
        have += one.ended() ? 1U : 0U;
    }
    CHECK(have == 1);
    CHECK(w.env->calls.size() - before < 50); // most of them look before they try
    CHECK(w.etcd->under("job/").size() == 1);
    for (auto& one : all) {
        one.cancel();
    }
    w.env->pass(2s);
}

TEST_CASE("claim_for() hears of an end that no event tells, and rides outages out",
          "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    w.etcd->write("job/x", "");
    auto claiming = w.start(coetcd::claim_for(client, "job", {10s, 1min}));
    w.env->pass(1s);
    SECTION("a lost event") {
        w.etcd->tells = false;
        w.etcd->erase("job/x");
        w.env->pass(5500ms); // half of what it wants to hold
        CHECK(claiming.ended());
    }
    SECTION("an outage") {
        w.etcd->erase("job/x");
        w.env->decide = [](const call_request&) {
            scripted_env::fate f;
            f.refused = true;
            return f;
        };
        w.env->break_streams();
        w.env->pass(20s);
        CHECK_FALSE(claiming.ended());
        w.env->decide = nullptr;
        w.env->pass(6s);
        CHECK(claiming.ended());
    }
    CHECK(claiming.get()->owns_lock());
}

TEST_CASE("claim_for() fails if etcd has told nothing in its time", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
    const auto began = w.env->now();
    auto claiming = w.start(coetcd::claim_for(client, "job", {10s, 700ms}));
    w.env->pass(800ms);
    CHECK(claiming.code() == coetcd::condition::retryable);
    CHECK(w.env->now() - began == 800ms);
}

TEST_CASE("a claim whose answers are lost says only that nothing was changed", "[timed_claim]") {
    const auto what_of = [](auto& failed) -> std::string {
        try {
            (void)failed.get();
        } catch (const coetcd::error& e) {
            CHECK(e.code() == errc::timed_out);
            return e.what();
        }
        return "it has not failed";
    };
    for (const rpc lost : {rpc::lease_grant, rpc::txn}) {
        world w;
        const coetcd::client client = w.client();
        w.env->decide = [lost](const call_request& r) {
            scripted_env::fate f;
            f.answered = r.what != lost;
            return f;
        };
        auto trying = w.start(coetcd::try_claim(client, "job", 60s));
        auto waiting = w.start(coetcd::claim_for(client, "job", {60s, 5s}));
        w.env->pass(11s);
        for (const std::string& what : {what_of(trying), what_of(waiting)}) {
            CAPTURE(what);
            CHECK_THAT(what, support::contains("nothing was changed"));
            CHECK_THAT(what, !support::contains("may have been applied"));
            CHECK_THAT(what, !support::contains("may have done it"));
        }
        w.env->decide = nullptr;
        w.env->pass(10s);
        CHECK(w.etcd->keys.empty());
        CHECK(w.etcd->leases() == 0);
    }
}

TEST_CASE("a claim that could not be given back says so, and can be asked again", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    std::optional<timed_claim> claim = w.await(coetcd::try_claim(client, "job", 60s));
    REQUIRE(claim);
    w.env->decide = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
    auto failing = w.start(claim->release());
    w.env->pass(6s);
    CHECK(failing.code() == coetcd::condition::retryable);
    w.env->decide = nullptr;
    CHECK(w.await(claim->release()));
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("what cannot be claimed is refused", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    CHECK_THROWS_WITH(coetcd::try_claim(client, "", 10s), "name: is empty");
    CHECK_THROWS_AS(coetcd::try_claim(client, std::string(513, 'x'), 10s), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::try_claim(client, "job", 0s), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::claim_for(client, "", {10s, 1s}), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::claim_for(client, "job", {-1s, 1s}), std::invalid_argument);
    CHECK(w.env->calls.empty());
    timed_claim none;
    CHECK_FALSE(none.owns_lock());
    CHECK_THROWS_AS(none.keep(), std::logic_error);
    CHECK_THROWS_AS(none.release(), std::logic_error);
}

TEST_CASE("sec.ttl: a claim is valid for no longer than was asked for", "[timed_claim][security]") {
    world w;
    const coetcd::client client = w.client();
    w.env->on_call = [serve = w.env->on_call](const call_request& r, coetcd::detail::reply& a) {
        serve(r, a);
        if (r.what == rpc::lease_grant) {
            a.body.replace(a.body.find("TTL") + 6, 1, "60");
        }
    };
    const std::optional<timed_claim> claim = w.await(coetcd::try_claim(client, "c", 5s));
    REQUIRE(claim);
    CHECK(claim->left() <= 4500ms);
    CHECK(claim->left() > 4400ms);
}

namespace {

/// A claim that lasts for 20 s at least, taken just now.
struct minimum {
    minimum() { claim = take(); }
    std::optional<timed_claim> take(std::chrono::nanoseconds wait = 0s) {
        coetcd::claim_times times;
        times.hold = 60s;
        times.min_hold = 20s;
        times.wait = wait;
        return w.await(coetcd::claim_for(client, "job", times));
    }
    bool is_taken() { return !w.etcd->under("job/").empty(); }
    /// From now on, for so long.
    void check_taken_for(std::chrono::nanoseconds time) {
        pass(w, time);
        CHECK(is_taken());
        CHECK_FALSE(take());
        pass(w, 3s);
        CHECK_FALSE(is_taken());
        CHECK(w.etcd->keys.empty());
    }

    world w;
    coetcd::client client = w.client();
    std::optional<timed_claim> claim;
};

} // namespace

TEST_CASE("a claim with a minimum costs no more to take, and lasts for it", "[timed_claim]") {
    minimum m;
    REQUIRE(m.claim);
    CHECK(m.w.env->calls.size() == 2);
    const auto token = m.claim->fencing_token();
    const auto lease = m.claim->lease();

    SECTION("given back at once, in two round trips") {
        pass(m.w, 5s);
        m.w.env->calls.clear();
        auto releasing = m.w.start(m.claim->release());
        CHECK_FALSE(m.claim->owns_lock()); // at the call
        m.w.env->pass(4ms);
        REQUIRE(releasing.ended());
        CHECK(releasing.get());
        CHECK(m.w.env->calls.size() == 3); // the last one is not waited for
        m.w.env->pass(10ms);
        CHECK_FALSE(m.w.etcd->has_lease(lease));
        CHECK(m.w.etcd->leases() == 1);
        CHECK(m.w.etcd->keys.at(m.claim->key()).create_revision == token);
        CHECK_FALSE(m.w.await(m.claim->release())); // a second time
        CHECK(m.is_taken());
        m.check_taken_for(14s);
        CHECK(m.w.etcd->leases() == 0);
    }
    SECTION("destroyed at once") {
        m.claim.reset();
        m.check_taken_for(19s);
        CHECK(m.w.etcd->leases() == 0);
    }
    SECTION("given back when the minimum has passed, in one round trip") {
        pass(m.w, 20500ms);
        m.w.env->calls.clear();
        CHECK(m.w.await(m.claim->release()));
        CHECK(m.w.env->calls.size() == 1);
        CHECK(m.w.etcd->keys.empty());
        CHECK(m.w.etcd->leases() == 0);
    }
    SECTION("the program goes away") {
        m.claim->keep(); // nothing more is sent, as if it were
        m.claim.reset();
        m.check_taken_for(58s);
    }
    SECTION("a waiter comes next, and not before") {
        m.claim.reset();
        auto waiting = m.w.start(coetcd::claim_for(m.client, "job", {10s, 60s}));
        pass(m.w, 19s);
        CHECK_FALSE(waiting.ended());
        pass(m.w, 4s);
        REQUIRE(waiting.ended());
        const auto next = waiting.get();
        REQUIRE(next);
        CHECK(next->fencing_token() > token);
    }
    SECTION("a waiter of the mutex, too") {
        const auto session = m.w.await(coetcd::session::open(m.client, {60s}));
        coetcd::mutex mutex(session, "job");
        auto waiting = m.w.start(mutex.lock());
        m.w.env->pass(10ms);
        m.claim.reset();
        pass(m.w, 19s);
        CHECK_FALSE(waiting.ended());
        pass(m.w, 4s);
        CHECK(waiting.ended());
    }
    SECTION("it was deleted by hand") {
        m.w.etcd->erase(m.claim->key());
        CHECK_FALSE(m.w.await(m.claim->release()));
        m.w.env->pass(100ms);
        CHECK(m.w.etcd->keys.empty());
        CHECK(m.w.etcd->leases() == 0);
    }
    SECTION("it was ended by force, and does not come back") {
        CHECK(m.w.await(coetcd::force_unlock(m.client, "job", token)));
        CHECK_FALSE(m.w.await(m.claim->release()));
        CHECK_FALSE(m.is_taken());
    }
    SECTION("it is ended by force after it was given back") {
        CHECK(m.w.await(m.claim->release()));
        CHECK(m.w.await(coetcd::force_unlock(m.client, "job", token)));
        CHECK_FALSE(m.is_taken());
        CHECK(m.take());
    }
    SECTION("etcd has ended its lease") {
        m.w.etcd->revoke(lease);
        CHECK_FALSE(m.w.await(m.claim->release()));
        m.w.env->pass(100ms);
        CHECK(m.w.etcd->leases() == 0);
    }
}

TEST_CASE("whatever is lost when a claim is given back, its minimum passes first",
          "[timed_claim]") {
    for (int how = 0; how != 4; ++how) {
        for (int victim = 0; victim != 3; ++victim) {
            INFO("how " << how << " victim " << victim);
            minimum m;
            int n = 0;
            m.w.env->decide = [&](const call_request&) {
                scripted_env::fate f;
                if (n++ == victim) {
                    f.arrives = how != 0;
                    f.answered = how != 1;
                    f.breaks = how == 2;
                    f.late = how == 3 ? 8s : 0s;
                }
                return f;
            };
            const auto began = m.w.env->now();
            CHECK(m.w.await(m.claim->release()));
            m.w.env->decide = nullptr;
            pass(m.w, began + 19s - m.w.env->now());
            CHECK(m.is_taken());
            CHECK_FALSE(m.take());
            pass(m.w, 15s);
            CHECK(m.w.etcd->keys.empty());
            CHECK(m.w.etcd->leases() == 0);
        }
    }
}

TEST_CASE("a claim with a minimum that cannot be given back lasts for its hold", "[timed_claim]") {
    minimum m;
    const auto outage = [](const call_request&) {
        scripted_env::fate f;
        f.refused = true;
        return f;
    };
    SECTION("etcd cannot be reached") {
        m.w.env->decide = outage;
        auto failing = m.w.start(m.claim->release());
        m.w.env->pass(6s);
        CHECK(failing.code() == coetcd::condition::retryable);
        CHECK_FALSE(m.claim->owns_lock());
        m.w.env->decide = nullptr;
        SECTION("and is asked again") {
            CHECK(m.w.await(m.claim->release()));
            m.check_taken_for(12s);
        }
        SECTION("and is not") {
            m.check_taken_for(52s);
        }
    }
    SECTION("it has no space") {
        m.w.etcd->no_space = true;
        auto failing = m.w.start(m.claim->release());
        m.w.env->pass(1s);
        CHECK(failing.code() == coetcd::server_errc::resource_exhausted);
        CHECK(m.is_taken());
    }
    SECTION("no request for the change arrives") {
        m.w.env->decide = [](const call_request& r) {
            scripted_env::fate f;
            if (is_claim(r)) {
                f.answered = false;
                f.arrives = false;
            }
            return f;
        };
        auto failing = m.w.start(m.claim->release());
        m.w.env->pass(6s);
        CHECK(failing.code() == errc::outcome_unknown);
        m.w.env->decide = nullptr;
        pass(m.w, 20s);
        CHECK(m.is_taken()); // its own lease goes on
        CHECK(m.w.await(m.claim->release()));
        CHECK_FALSE(m.is_taken());
    }
}

TEST_CASE("a claim that was taken too late for its minimum is none", "[timed_claim]") {
    world w;
    const coetcd::client client = w.client();
    support::delay_first(w, is_claim, 1100ms);
    auto trying = w.start(coetcd::claim_for(client, "job", {10s, 0s, 9s}));
    w.env->pass(3s);
    CHECK(trying.code() == errc::timed_out);
    w.env->pass(1s);
    CHECK(w.etcd->keys.empty());
    CHECK(w.etcd->leases() == 0);
    auto again = w.start(coetcd::claim_for(client, "job", {10s, 0s, 9s}));
    w.env->pass(100ms);
    CHECK(again.get());
    CHECK_THROWS_AS(coetcd::claim_for(client, "job", {10s, 0s, 10s}), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::claim_for(client, "job", {10s, 0s, -1s}), std::invalid_argument);
}
