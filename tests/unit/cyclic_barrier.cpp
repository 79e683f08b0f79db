// SPDX-License-Identifier: BSL-1.0
#include <coetcd/cyclic_barrier.hpp>

#include <boost/system/system_error.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::cyclic_barrier;
using coetcd::errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::scripted_env;
using support::world;

namespace {

/// Three sessions, and a barrier for three.
struct cyclic_trio {
    cyclic_trio()
        : client(w.client()) {
        for (int i = 0; i != 3; ++i) {
            sessions.push_back(w.await(coetcd::session::open(client, {60s})));
            all.emplace_back(sessions.back(), "b", 3);
        }
        w.env->calls.clear();
    }
    std::size_t arrived() { return w.etcd->under("b/").size(); }
    background<bool> arrive(std::size_t i, std::chrono::nanoseconds patience = 1h) {
        return w.start(all[i].arrive_and_wait_for(patience));
    }
    /// How many have gone through.
    static int through(std::vector<background<bool>*> calls) {
        int n = 0;
        for (background<bool>* b : calls) {
            n += b->ended() && b->get() ? 1 : 0;
        }
        return n;
    }

    world w;
    coetcd::client client;
    std::vector<coetcd::session> sessions;
    std::vector<cyclic_barrier> all;
};

bool is_of_cyclic(const call_request& r) {
    return r.what == rpc::txn;
}

} // namespace

TEST_CASE("a group goes through when it is whole, and not before", "[cyclic_barrier]") {
    cyclic_trio t;
    CHECK(t.all[0].name() == "b");
    CHECK(t.all[0].get_executor() == t.client.get_executor());
    for (int round = 0; round != 3; ++round) { // again and again
        auto one = t.arrive(0);
        auto two = t.arrive(1);
        t.w.env->pass(1min);
        CHECK_FALSE(one.ended());
        CHECK_FALSE(two.ended());
        CHECK(t.arrived() == 2);
        t.w.env->calls.clear();
        t.w.await(t.all[2].arrive_and_wait());
        t.w.env->pass(10ms);
        CHECK(one.get());
        CHECK(two.get());
        CHECK(t.arrived() == 0);
        // The last one arrives and trips, which takes three; each of the others looks once.
        CHECK(t.w.env->calls.size() == (round == 0 ? 6 : 5));
    }
    CHECK(t.w.etcd->keys.at("b.parties").value == "3");
    CHECK(t.w.etcd->keys.at("b.parties").lease == 0);
    CHECK(t.w.etcd->keys.at("b.bound").lease == 0);
    for (auto& s : t.sessions) {
        t.w.await(s.close());
    }
    CHECK(t.w.etcd->keys.size() == 2);
}

TEST_CASE("more than a group are the next one", "[cyclic_barrier]") {
    cyclic_trio t;
    std::vector<std::unique_ptr<background<bool>>> calls;
    for (std::size_t i = 0; i != 8; ++i) {
        calls.push_back(
            std::make_unique<background<bool>>(*t.w.context, t.all[i % 3].arrive_and_wait_for(1h)));
    }
    t.w.env->pass(1s);
    int passed = 0;
    for (const auto& call : calls) {
        passed += call->ended() ? 1 : 0;
    }
    CHECK(passed == 6);
    CHECK(t.arrived() == 2);
    CHECK(t.w.await(t.all[0].arrive_and_wait_for(1h)));
    t.w.env->pass(10ms);
    for (const auto& call : calls) {
        CHECK(call->ended());
    }
    cyclic_barrier alone(t.sessions[0], "alone", 1);
    t.w.await(alone.arrive_and_wait());
    t.w.await(alone.arrive_and_wait());
}

TEST_CASE("what is stored is the size of the groups", "[cyclic_barrier]") {
    cyclic_trio t;
    auto one = t.arrive(0);
    t.w.env->pass(10ms);
    cyclic_barrier other(t.sessions[1], "b", 2);
    auto two = t.w.start(other.arrive_and_wait_for(1h));
    t.w.env->pass(1s);
    CHECK_FALSE(two.ended());
    auto three = t.arrive(2);
    t.w.env->pass(1s);
    CHECK(cyclic_trio::through({&one, &two, &three}) == 3);
    for (const char* wrong : {"x", "101", "0"}) {
        t.w.etcd->write("c.parties", wrong);
        cyclic_barrier c(t.sessions[0], "c", 2);
        auto none = t.w.start(c.arrive_and_wait());
        t.w.env->pass(1s);
        CHECK(none.code() == errc::wrong_kind);
    }
}

TEST_CASE("one that has waited for long enough leaves, and is in no group", "[cyclic_barrier]") {
    cyclic_trio t;
    auto one = t.arrive(0, 5s);
    auto two = t.arrive(1);
    t.w.env->pass(6s);
    CHECK_FALSE(one.get());
    CHECK(t.arrived() == 1);
    auto three = t.arrive(2);
    t.w.env->pass(1s);
    CHECK_FALSE(two.ended());
    CHECK_FALSE(three.ended());
    auto four = t.arrive(0);
    t.w.env->pass(1s);
    CHECK(two.get());
    CHECK(three.get());
    // At any moment: all of them, or none.
    int whole = 0;
    for (auto when = 0us; when < 16ms; when += 250us) {
        cyclic_trio r;
        auto a = r.arrive(0, 1s);
        auto b = r.arrive(1, 1h);
        r.w.env->pass(1s - 12ms + when);
        auto c = r.arrive(2, 1h);
        r.w.env->pass(1s);
        REQUIRE(a.ended());
        const bool went = a.get();
        INFO("at " << when.count());
        CHECK(b.ended() == went);
        CHECK(c.ended() == went);
        CHECK(r.arrived() == (went ? 0 : 2));
        whole += went ? 1 : 0;
    }
    CHECK(whole > 0);
    CHECK(whole < 64);
}

TEST_CASE("whatever is lost, each arrival counts once", "[cyclic_barrier]") {
    using namespace support;
    for (const auto& fate : {broken(), lost(), unanswered(), late(8s)}) {
        for (int victim = 0; victim != 8; ++victim) {
            INFO("victim " << victim);
            cyclic_trio t;
            int n = 0;
            t.w.env->decide = [&](const call_request& r) {
                return is_of_cyclic(r) && n++ == victim ? fate : scripted_env::fate();
            };
            auto one = t.arrive(0);
            auto two = t.arrive(1);
            t.w.env->pass(20s);
            CHECK_FALSE(one.ended());
            CHECK_FALSE(two.ended());
            CHECK(t.arrived() == 2);
            auto three = t.arrive(2);
            t.w.env->pass(30s);
            CHECK(cyclic_trio::through({&one, &two, &three}) == 3);
            CHECK(t.arrived() == 0); // no ghost
        }
    }
}

TEST_CASE("a group goes through as soon as there are answers", "[cyclic_barrier]") {
    cyclic_trio t;
    for (std::size_t i = 0; i != 3; ++i) { // the size is known from now on
        CHECK_FALSE(t.w.await(t.all[i].arrive_and_wait_for(0s)));
    }
    CHECK(t.w.etcd->watches() == 0); // which has not waited
    auto one = t.arrive(0);
    auto two = t.arrive(1);
    t.w.env->pass(1s);
    SECTION("the last one is not told that it has arrived") {
        support::fate_of_copies(t.w, {support::broken()});
        auto three = t.arrive(2);
        t.w.env->pass(1s); // long before the next look
        CHECK(cyclic_trio::through({&one, &two, &three}) == 3);
    }
    SECTION("nobody can read for a while") {
        t.w.env->decide = [](const call_request& r) {
            return support::is_write(r) ? scripted_env::fate() : support::lost();
        };
        auto three = t.arrive(2);
        t.w.env->pass(20s);
        CHECK(cyclic_trio::through({&one, &two, &three}) == 0);
        t.w.env->decide = nullptr;
        t.w.env->pass(20s);
        CHECK(cyclic_trio::through({&one, &two, &three}) == 3);
    }
}

TEST_CASE("cancelled at any moment, an arrival is withdrawn", "[cyclic_barrier][cancellation]") {
    for (auto when = 0us; when < 300ms; when += (when < 10ms ? 500us : 29ms)) {
        cyclic_trio t;
        auto one = t.arrive(0);
        auto two = t.arrive(1);
        t.w.env->pass(when);
        one.cancel();
        t.w.env->pass(0ms);
        INFO("at " << when.count());
        CHECK(one.code() == asio::error::operation_aborted);
        t.w.env->pass(1s);
        CHECK(t.arrived() == 1);
        auto three = t.arrive(2);
        auto again = t.arrive(0);
        t.w.env->pass(1s);
        CHECK(cyclic_trio::through({&two, &three, &again}) == 3);
        CHECK(t.arrived() == 0);
        for (auto& s : t.sessions) { // each keeps a few watches for a while
            t.w.await(s.close());
        }
        t.w.env->pass(1s);
        CHECK(t.w.etcd->watches() == 0);
    }
}

TEST_CASE("a request of a cancelled arrival that comes late makes no ghost", "[cyclic_barrier]") {
    cyclic_trio t;
    t.w.await([&]() -> asio::awaitable<void> {
        auto none = t.all[0].arrive_and_wait_for(0s); // the size is known from now on
        (void)co_await std::move(none);
    }());
    support::fate_of_copies(t.w, {support::late(8s)});
    auto one = t.arrive(0);
    t.w.env->pass(10ms);
    one.cancel();
    t.w.env->pass(20s);
    CHECK(t.arrived() == 0);
}

TEST_CASE("an outage ends no wait, and lets nobody through", "[cyclic_barrier]") {
    cyclic_trio t;
    auto one = t.arrive(0);
    auto two = t.arrive(1);
    t.w.env->pass(1s);
    t.w.env->decide = [](const call_request&) { return support::lost(); };
    t.w.env->break_streams();
    t.w.env->pass(20s);
    CHECK_FALSE(one.ended());
    CHECK_FALSE(two.ended());
    t.w.env->decide = nullptr;
    t.w.env->pass(20s);
    auto three = t.arrive(2);
    t.w.env->pass(20s);
    CHECK(cyclic_trio::through({&one, &two, &three}) == 3);
}

TEST_CASE("a group whose last one dies is let through by the others", "[cyclic_barrier]") {
    cyclic_trio t;
    auto one = t.arrive(0);
    auto two = t.arrive(1);
    t.w.env->pass(1s);
    t.w.etcd->write("b/third", ""); // it has arrived, and does nothing more
    t.w.env->pass(12s);
    CHECK(cyclic_trio::through({&one, &two}) == 2);
    CHECK(t.arrived() == 0);
}

TEST_CASE("one whose session is lost is in no group", "[cyclic_barrier]") {
    cyclic_trio t;
    auto one = t.arrive(0);
    auto two = t.arrive(1);
    t.w.env->pass(1s);
    SECTION("closed") {
        t.w.await(t.sessions[0].close());
        t.w.env->pass(10ms);
        CHECK(one.code() == errc::session_closed);
    }
    SECTION("lost") {
        t.w.etcd->revoke(t.sessions[0].lease());
        t.w.env->pass(25s);
        CHECK(one.code() == errc::session_lost);
    }
    CHECK(t.arrived() == 1);
    const auto fresh = t.w.await(coetcd::session::open(t.client, {60s}));
    cyclic_barrier next(fresh, "b", 3);
    auto three = t.arrive(2);
    t.w.env->pass(1s);
    CHECK_FALSE(two.ended());
    auto four = t.w.start(next.arrive_and_wait_for(1h));
    t.w.env->pass(1s);
    CHECK(cyclic_trio::through({&two, &three, &four}) == 3);
}

TEST_CASE("one whose key is deleted by hand is told", "[cyclic_barrier]") {
    cyclic_trio t;
    auto one = t.arrive(0);
    t.w.env->pass(1s);
    t.w.etcd->erase(t.w.etcd->under("b/").front());
    t.w.env->pass(1s);
    CHECK(one.code() == errc::lock_lost);
}

TEST_CASE("an arrival that is refused, or without an answer, is withdrawn", "[cyclic_barrier]") {
    cyclic_trio t;
    SECTION("no space") {
        t.w.etcd->no_space = true;
        auto one = t.arrive(0);
        t.w.env->pass(1s);
        CHECK(one.code() == coetcd::server_errc::resource_exhausted);
        t.w.etcd->no_space = false;
    }
    SECTION("no answer") {
        auto none = t.arrive(0, 0s);
        t.w.env->pass(1s);
        t.w.env->decide = [](const call_request& r) {
            return is_of_cyclic(r) ? support::unanswered() : scripted_env::fate();
        };
        auto one = t.arrive(0);
        t.w.env->pass(10s);
        CHECK(one.code() == errc::outcome_unknown);
        CHECK(t.arrived() <= 1);
        t.w.env->decide = nullptr;
    }
    t.w.env->pass(20s);
    CHECK(t.arrived() == 0);
}

TEST_CASE("a cyclic barrier that cannot be is refused", "[cyclic_barrier]") {
    cyclic_trio t;
    CHECK_THROWS_AS(cyclic_barrier(t.sessions[0], "", 2), std::invalid_argument);
    CHECK_THROWS_AS(cyclic_barrier(t.sessions[0], "b", 0), std::invalid_argument);
    CHECK_THROWS_AS(cyclic_barrier(t.sessions[0], "b", 101), std::invalid_argument);
    std::optional<cyclic_barrier> gone(std::in_place, t.sessions[0], "b", 3);
    auto one = t.w.start(gone->arrive_and_wait());
    gone.reset();
    auto two = t.arrive(1);
    t.w.env->pass(1s);
    CHECK_FALSE(one.ended());
    auto three = t.arrive(2);
    t.w.env->pass(1s);
    CHECK(one.ended());
    (void)t.sessions[0].orphan();
    auto closed = t.arrive(0);
    t.w.env->pass(1s);
    CHECK(closed.code() == errc::session_closed);
    t.w.env->calls.clear();
    cyclic_barrier other(t.sessions[0], "other", 2);
    auto never = t.w.start(other.arrive_and_wait());
    t.w.env->pass(1s);
    CHECK(never.code() == errc::session_closed);
    CHECK(t.w.env->calls.empty());
    cyclic_barrier taken = std::move(t.all[1]);
    CHECK_THROWS_AS(t.all[1].arrive_and_wait(), std::logic_error);
    CHECK_THROWS_AS(t.all[1].arrive_and_wait_for(1s), std::logic_error);
}
