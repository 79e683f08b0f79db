// SPDX-License-Identifier: BSL-1.0
#include <coetcd/double_barrier.hpp>

#include <boost/system/system_error.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
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
using coetcd::double_barrier;
using coetcd::errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::scripted_env;
using support::world;

namespace {

/// Members of groups of two, each with a session of its own.
struct double_pairs {
    explicit double_pairs(int members = 4)
        : client(w.client()) {
        for (int i = 0; i != members; ++i) {
            sessions.push_back(w.await(coetcd::session::open(client, {60s})));
            all.emplace_back(sessions.back(), "b", 2);
        }
        w.env->calls.clear();
    }
    /// Without those that renew leases.
    std::size_t requests() {
        return static_cast<std::size_t>(
            std::count_if(w.env->calls.begin(), w.env->calls.end(), [](const call_request& r) {
                return r.what == rpc::txn || r.what == rpc::range;
            }));
    }
    std::size_t arrived() { return w.etcd->under("b/").size(); }
    std::size_t inside() { return w.etcd->under("b.in/").size(); }
    background<bool> enter(std::size_t i, std::chrono::nanoseconds patience = 1h) {
        return w.start(all[i].enter_for(patience));
    }
    background<bool> leave(std::size_t i, std::chrono::nanoseconds patience = 1h) {
        return w.start(all[i].leave_for(patience));
    }
    /// Lets two members in.
    void let_in(std::size_t one, std::size_t other) {
        auto first = enter(one);
        w.env->pass(1ms);
        auto second = enter(other);
        w.env->pass(100ms);
        REQUIRE(first.get());
        REQUIRE(second.get());
    }

    world w;
    coetcd::client client;
    std::vector<coetcd::session> sessions;
    std::vector<double_barrier> all;
};

bool is_of_double(const call_request& r) {
    return r.what == rpc::txn;
}

} // namespace

TEST_CASE("a group begins together and ends together", "[double_barrier]") {
    double_pairs t(2);
    CHECK(t.all[0].name() == "b");
    CHECK(t.all[0].get_executor() == t.client.get_executor());
    for (int round = 0; round != 3; ++round) { // again and again
        auto first = t.w.start(t.all[0].enter());
        t.w.env->pass(1min);
        CHECK_FALSE(first.ended());
        CHECK(t.arrived() == 1);
        t.w.env->calls.clear();
        t.w.await(t.all[1].enter());
        t.w.env->pass(10ms);
        CHECK(first.ended());
        CHECK(t.arrived() == 0);
        REQUIRE(t.inside() == 2);
        // The last one arrives and trips, which takes three; the other looks once.
        CHECK(t.requests() == (round == 0 ? 5 : 4));
        for (std::size_t i = 0; i != 2; ++i) { // each key goes with its own member
            const auto lease = t.w.etcd->keys.at(t.w.etcd->under("b.in/")[i]).lease;
            CHECK((lease == t.sessions[0].lease() || lease == t.sessions[1].lease()));
        }

        t.w.env->calls.clear();
        auto leaving = t.w.start(t.all[1].leave());
        t.w.env->pass(1s);
        CHECK_FALSE(leaving.ended());
        CHECK(t.inside() == 1);
        CHECK(t.requests() == 2); // it has left, and looked
        t.w.await(t.all[0].leave());
        t.w.env->pass(10ms);
        CHECK(leaving.ended());
        CHECK(t.inside() == 0);
        CHECK(t.requests() == 3); // the last one leaves; an event tells the other
    }
    CHECK(t.w.etcd->keys.at("b.parties").value == "2");
    CHECK(t.w.etcd->keys.at("b.parties").lease == 0);
    for (auto& s : t.sessions) {
        t.w.await(s.close());
    }
    CHECK(t.w.etcd->keys.size() == 1);
}

TEST_CASE("groups in the double barrier do not wait for each other", "[double_barrier]") {
    double_pairs t;
    t.let_in(0, 1);
    auto leaving = t.leave(0);
    t.w.env->pass(10ms);
    t.let_in(2, 3);
    CHECK(t.inside() == 3);
    CHECK_FALSE(leaving.ended());
    CHECK(t.w.await(t.all[1].leave_for(1h)));
    t.w.env->pass(10ms);
    CHECK(leaving.get());
    CHECK(t.inside() == 2);
    auto other = t.leave(2);
    auto last = t.leave(3);
    t.w.env->pass(10ms);
    CHECK(other.get());
    CHECK(last.get());
}

TEST_CASE("a member whose session ends leaves with its lease", "[double_barrier]") {
    double_pairs t;
    t.let_in(0, 1);
    auto leaving = t.leave(0);
    t.w.env->pass(1s);
    CHECK_FALSE(leaving.ended());
    errc why = errc::session_lost;
    SECTION("lost") {
        t.w.etcd->revoke(t.sessions[1].lease());
    }
    SECTION("closed") {
        t.w.await(t.sessions[1].close());
        why = errc::session_closed;
    }
    t.w.env->pass(10ms);
    CHECK(leaving.get());
    auto late = t.leave(1); // whether its session knows or not
    t.w.env->pass(30s);
    CHECK(late.code() == why);
    CHECK(t.w.await(t.all[1].leave_for(1h))); // all have left
}

TEST_CASE("nobody enters with one that has withdrawn, or whose session is lost",
          "[double_barrier]") {
    double_pairs t;
    auto one = t.enter(0, 5s);
    t.w.env->pass(6s);
    CHECK_FALSE(one.get());
    CHECK(t.arrived() == 0);
    auto dying = t.enter(1);
    t.w.env->pass(1s);
    t.w.etcd->revoke(t.sessions[1].lease());
    auto two = t.enter(2);
    t.w.env->pass(30s);
    CHECK(dying.code() == errc::session_lost);
    CHECK_FALSE(two.ended());
    auto again = t.enter(0);
    t.w.env->pass(1s);
    CHECK(two.get());
    CHECK(again.get());
    // At any moment: both of them, or none.
    int whole = 0;
    for (auto when = 0us; when < 16ms; when += 250us) {
        double_pairs r(2);
        auto a = r.enter(0, 1s);
        r.w.env->pass(1s - 12ms + when);
        auto b = r.enter(1);
        r.w.env->pass(1s);
        REQUIRE(a.ended());
        const bool went = a.get();
        INFO("at " << when.count());
        CHECK(b.ended() == went);
        CHECK(r.inside() == (went ? 2 : 0));
        CHECK(r.arrived() == (went ? 0 : 1));
        whole += went ? 1 : 0;
    }
    CHECK(whole > 0);
    CHECK(whole < 64);
}

TEST_CASE("leaving waits for as long as it may, and can be continued", "[double_barrier]") {
    double_pairs t(2);
    t.let_in(0, 1);
    CHECK_FALSE(t.w.await(t.all[0].leave_for(0s)));
    CHECK(t.inside() == 1);
    t.w.env->calls.clear();
    CHECK_FALSE(t.w.await(t.all[0].leave_for(5s)));
    CHECK(t.requests() == 1); // it has left already
    auto leaving = t.leave(0);
    t.w.env->pass(1s);
    CHECK_FALSE(leaving.ended());
    CHECK(t.w.await(t.all[1].leave_for(0s)));
    t.w.env->pass(10ms);
    CHECK(leaving.get());
}

TEST_CASE("a member that has stalled lets nobody leave before the others", "[double_barrier]") {
    double_pairs t(2);
    t.let_in(0, 1);
    bool stalls = true;
    t.w.env->on_open = [](const call_request&, std::shared_ptr<scripted_env::server_stream>) {};
    t.w.env->break_streams();
    t.w.env->on_call = [&, serve = t.w.env->on_call](const call_request& q,
                                                     coetcd::detail::reply& r) {
        serve(q, r);
        if (stalls && q.what == rpc::range) { // as it was before anybody had entered
            auto then = nlohmann::json::parse(r.body);
            then["header"]["revision"] = "1";
            then.erase("kvs");
            then.erase("count");
            r.body = then.dump();
        }
    };
    auto leaving = t.leave(0);
    t.w.env->pass(4s);
    CHECK_FALSE(leaving.ended());
    stalls = false;
    t.w.env->pass(4s);
    CHECK_FALSE(leaving.ended());
    CHECK(t.w.await(t.all[1].leave_for(0s)));
    t.w.env->pass(10s);
    CHECK(leaving.get());
}

TEST_CASE("whatever is lost, each member enters and leaves once", "[double_barrier]") {
    using namespace support;
    for (const auto& fate : {broken(), lost(), unanswered(), late(8s)}) {
        for (int victim = 0; victim != 9; ++victim) {
            INFO("victim " << victim);
            double_pairs t(2);
            int n = 0;
            t.w.env->decide = [&](const call_request& r) {
                return is_of_double(r) && n++ == victim ? fate : scripted_env::fate();
            };
            auto one = t.enter(0);
            t.w.env->pass(20s);
            CHECK_FALSE(one.ended());
            auto two = t.enter(1);
            t.w.env->pass(30s);
            REQUIRE(one.get());
            REQUIRE(two.get());
            CHECK(t.arrived() == 0); // no ghost
            CHECK(t.inside() == 2);
            auto leaving = t.leave(0);
            t.w.env->pass(20s);
            CHECK_FALSE(leaving.ended());
            auto last = t.leave(1);
            t.w.env->pass(20s);
            CHECK(leaving.get());
            CHECK(last.get());
            CHECK(t.inside() == 0);
        }
    }
}

TEST_CASE("a group enters as soon as there are answers", "[double_barrier]") {
    double_pairs t(2);
    for (double_barrier& b : t.all) { // the size is known from now on
        CHECK_FALSE(t.w.await(b.enter_for(0s)));
    }
    CHECK(t.w.etcd->watches() == 0); // which has not waited
    auto one = t.enter(0);
    t.w.env->pass(1s);
    SECTION("the last one is not told that it has arrived") {
        support::fate_of_copies(t.w, {support::broken()});
        auto two = t.enter(1);
        t.w.env->pass(1s); // long before the next look
        CHECK(one.get());
        CHECK(two.get());
    }
    SECTION("nobody can read for a while") {
        t.w.env->decide = [](const call_request& r) {
            return support::is_write(r) ? scripted_env::fate() : support::lost();
        };
        auto two = t.enter(1);
        t.w.env->pass(20s);
        CHECK_FALSE(one.ended());
        CHECK_FALSE(two.ended());
        t.w.env->decide = nullptr;
        t.w.env->pass(20s);
        CHECK(one.get());
        CHECK(two.get());
    }
}

TEST_CASE("cancelled at any moment, entering is withdrawn", "[double_barrier][cancellation]") {
    for (auto when = 0us; when < 300ms; when += (when < 12ms ? 500us : 29ms)) {
        double_pairs t(3);
        INFO("at " << when.count());
        auto one = t.enter(0);
        t.w.env->pass(when / 2);
        std::optional<background<bool>> two;
        if (when.count() % 1000 == 0) { // it may enter at that moment
            two.emplace(t.enter(1));
        }
        t.w.env->pass(when / 2);
        if (one.ended()) {
            continue;
        }
        one.cancel();
        t.w.env->pass(0ms);
        CHECK(one.code() == asio::error::operation_aborted);
        t.w.env->pass(1s);
        CHECK(t.arrived() + t.inside() == (two ? 1 : 0));
        if (!two) {
            two.emplace(t.enter(1));
        }
        auto three = t.enter(2);
        t.w.env->pass(1s);
        if (!three.ended()) { // the first one was inside for a moment
            CHECK(t.inside() == 1);
            CHECK(two->get());
            CHECK(t.w.await(t.all[1].leave_for(1s)));
        } else {
            CHECK(t.inside() == 2);
        }
    }
}

TEST_CASE("cancelled at any moment, leaving goes on", "[double_barrier][cancellation]") {
    for (auto when = 0us; when < 300ms; when += (when < 6ms ? 500us : 29ms)) {
        double_pairs t(2);
        t.let_in(0, 1);
        INFO("at " << when.count());
        auto one = t.leave(0);
        t.w.env->pass(when);
        one.cancel();
        t.w.env->pass(0ms);
        CHECK(one.code() == asio::error::operation_aborted);
        t.w.env->pass(1s);
        CHECK(t.inside() == 1);
        auto again = t.leave(0);
        t.w.env->pass(1s);
        CHECK_FALSE(again.ended());
        CHECK(t.w.await(t.all[1].leave_for(1h)));
        t.w.env->pass(10ms);
        CHECK(again.get());
    }
}

TEST_CASE("a request of a cancelled entry that comes late makes no ghost", "[double_barrier]") {
    double_pairs t(2);
    t.w.await(t.all[0].enter_for(0s)); // the size is known from now on
    support::fate_of_copies(t.w, {support::late(8s)});
    auto one = t.enter(0);
    t.w.env->pass(10ms);
    one.cancel();
    t.w.env->pass(20s);
    CHECK(t.arrived() == 0);
    CHECK(t.inside() == 0);
}

TEST_CASE("an outage ends no wait in a double barrier, and lets nobody out", "[double_barrier]") {
    double_pairs t(2);
    t.let_in(0, 1);
    auto leaving = t.leave(0);
    t.w.env->pass(1s);
    t.w.env->decide = [](const call_request&) { return support::lost(); };
    t.w.env->break_streams();
    t.w.env->pass(20s);
    CHECK_FALSE(leaving.ended());
    auto failing = t.leave(1);
    t.w.env->pass(10s);
    CHECK(failing.code() == errc::outcome_unknown);
    CHECK(t.inside() == 1);
    t.w.env->decide = nullptr;
    t.w.env->pass(20s); // it leaves in the background
    CHECK(t.inside() == 0);
    CHECK(leaving.get());
    CHECK(t.w.await(t.all[1].leave_for(1s)));
}

TEST_CASE("an object that is destroyed leaves", "[double_barrier]") {
    double_pairs t(2);
    t.let_in(0, 1);
    auto leaving = t.leave(0);
    t.w.env->pass(1s);
    CHECK_FALSE(leaving.ended());
    t.all.pop_back();
    t.w.env->pass(10ms);
    CHECK(leaving.get());
    // Also while it is about to enter.
    std::optional<double_barrier> other(std::in_place, t.sessions[1], "b", 2);
    auto entering = t.w.start(other->enter_for(1h));
    other.reset();
    t.w.env->pass(1s);
    CHECK_FALSE(entering.ended());
    t.w.await(t.all[0].enter());
    t.w.env->pass(1s);
    CHECK(entering.get());
    CHECK(t.inside() == 1);
}

TEST_CASE("what is deleted by hand", "[double_barrier]") {
    double_pairs t(2);
    SECTION("an arrival") {
        auto one = t.enter(0);
        t.w.env->pass(1s);
        t.w.etcd->erase(t.w.etcd->under("b/").front());
        t.w.env->pass(1s);
        CHECK(one.code() == errc::lock_lost);
    }
    SECTION("members") {
        t.let_in(0, 1);
        for (const std::string& key : t.w.etcd->under("b.in/")) {
            t.w.etcd->erase(key);
        }
        CHECK(t.w.await(t.all[0].leave_for(1s)));
        CHECK(t.w.await(t.all[1].leave_for(1s)));
    }
}

TEST_CASE("entering that is refused, or without an answer, is withdrawn", "[double_barrier]") {
    double_pairs t(2);
    CHECK_FALSE(t.w.await(t.all[0].enter_for(0s)));
    SECTION("no space") {
        t.w.etcd->no_space = true;
        auto one = t.enter(0);
        t.w.env->pass(1s);
        CHECK(one.code() == coetcd::server_errc::resource_exhausted);
        t.w.etcd->no_space = false;
    }
    SECTION("no answer") {
        t.w.env->decide = [](const call_request& r) {
            return is_of_double(r) ? support::unanswered() : scripted_env::fate();
        };
        auto one = t.enter(0);
        t.w.env->pass(10s);
        CHECK(one.code() == errc::outcome_unknown);
        t.w.env->decide = nullptr;
    }
    SECTION("a size that is none") {
        t.w.etcd->write("c.parties", "61");
        double_barrier c(t.sessions[0], "c", 2);
        auto one = t.w.start(c.enter());
        t.w.env->pass(1s);
        CHECK(one.code() == errc::wrong_kind);
    }
    t.w.env->pass(20s);
    CHECK(t.arrived() == 0);
    t.let_in(0, 1); // it can enter again
}

TEST_CASE("a double barrier refuses what makes no sense", "[double_barrier]") {
    double_pairs t(2);
    CHECK_THROWS_AS(double_barrier(t.sessions[0], "", 2), std::invalid_argument);
    CHECK_THROWS_AS(double_barrier(t.sessions[0], "b", 0), std::invalid_argument);
    CHECK_THROWS_AS(double_barrier(t.sessions[0], "b", 61), std::invalid_argument);
    CHECK_THROWS_AS(t.w.await(t.all[0].leave_for(1s)), std::logic_error);
    auto one = t.enter(0);
    t.w.env->pass(1s);
    CHECK_THROWS_AS(t.w.await(t.all[0].enter_for(1s)), std::logic_error);
    CHECK_THROWS_AS(t.w.await(t.all[0].leave_for(1s)), std::logic_error);
    t.w.await(t.all[1].enter());
    t.w.env->pass(1s);
    CHECK(one.get());
    CHECK_THROWS_AS(t.w.await(t.all[0].enter_for(1s)), std::logic_error);
    auto leaving = t.leave(0);
    t.w.env->pass(1s);
    CHECK_THROWS_AS(t.w.await(t.all[0].leave_for(1s)), std::logic_error);
    CHECK_THROWS_AS(t.w.await(t.all[0].enter_for(1s)), std::logic_error);
    CHECK(t.w.await(t.all[1].leave_for(1s)));
    CHECK_THROWS_AS(t.w.await(t.all[1].leave_for(1s)), std::logic_error);
    t.w.env->pass(1s);
    CHECK(leaving.get());
    (void)t.sessions[0].orphan();
    auto closed = t.enter(0);
    t.w.env->pass(1s);
    CHECK(closed.code() == errc::session_closed);
    t.w.env->calls.clear();
    double_barrier other(t.sessions[0], "other", 2);
    auto never = t.w.start(other.enter());
    t.w.env->pass(1s);
    CHECK(never.code() == errc::session_closed);
    CHECK(t.w.env->calls.empty());
    double_barrier taken = std::move(t.all[1]);
    CHECK_THROWS_AS(t.all[1].enter(), std::logic_error);
    CHECK_THROWS_AS(t.all[1].leave_for(1s), std::logic_error);
}
