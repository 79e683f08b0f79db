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
