// SPDX-License-Identifier: BSL-1.0
#include <coetcd/barrier.hpp>

#include <chrono>
#include <cstdint>
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
using coetcd::barrier;
using coetcd::errc;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::scripted_env;
using support::world;

namespace {

bool changes_barrier(const call_request& r) {
    return r.what == rpc::txn;
}

struct barrier_settings {
    barrier_settings()
        : client(w.client())
        , session(w.await(coetcd::session::open(client)))
        , b(session, "b") {
        w.env->calls.clear();
    }
    bool is_closed() { return w.etcd->keys.count("b") != 0; }

    world w;
    coetcd::client client;
    coetcd::session session;
    barrier b;
};

} // namespace

TEST_CASE("a barrier is closed in one round trip and opened in two", "[barrier]") {
    barrier_settings s;
    CHECK(s.b.name() == "b");
    CHECK(s.b.get_executor() == s.client.get_executor());
    CHECK(s.w.await(s.b.hold()));
    CHECK(s.w.env->calls.size() == 1);
    CHECK(s.w.etcd->keys.at("b").lease == 0);
    CHECK(s.w.etcd->keys.at("b").value.empty());
    CHECK_FALSE(s.w.await(s.b.hold()));
    CHECK_FALSE(s.w.await(s.b.hold_while_alive()));
    CHECK(s.w.env->calls.size() == 3);
    CHECK(s.w.await(s.b.release()));
    CHECK(s.w.env->calls.size() == 5);
    CHECK_FALSE(s.is_closed());
    CHECK_FALSE(s.w.await(s.b.release()));
    CHECK(s.w.env->calls.size() == 6);
    CHECK(s.w.await(s.b.hold_while_alive()));
    s.w.await(s.session.close());
    CHECK_FALSE(s.is_closed());
}

TEST_CASE("all who wait at a barrier pass when it is opened", "[barrier]") {
    barrier_settings s;
    s.w.await(s.b.wait());
    CHECK(s.w.env->calls.size() == 1);
    s.w.etcd->write("b", "");
    auto one = s.w.start(s.b.wait());
    auto two = s.w.start(s.b.wait_for(1h));
    auto three = s.w.start(s.b.wait_until(std::chrono::steady_clock::now() + 1h));
    s.w.env->pass(1min);
    CHECK_FALSE(one.ended());
    s.w.etcd->write("b", "again"); // it is the same life
    s.w.etcd->write("b/1", "");
    s.w.env->pass(1min);
    CHECK_FALSE(one.ended());
    CHECK_FALSE(two.ended());
    s.w.etcd->erase("b");
    s.w.env->pass(20ms);
    one.get();
    CHECK(two.get());
    CHECK(three.get());
    s.w.env->pass(15s);
    CHECK(s.w.etcd->watches() == 0);
}

TEST_CASE("a barrier that was open in between has let its waiters pass", "[barrier]") {
    barrier_settings s;
    s.w.etcd->write("b", "");
    auto waiting = s.w.start(s.b.wait());
    s.w.env->pass(1s);
    CHECK_FALSE(waiting.ended());
    s.w.env->break_streams();
    s.w.etcd->erase("b");
    s.w.etcd->write("b", "");
    s.w.env->pass(15s);
    CHECK(waiting.ended());
    CHECK(s.is_closed());
}

TEST_CASE("a wait at a barrier ends at its time, and after one look at the soonest", "[barrier]") {
    barrier_settings s;
    for (const auto patience : {-1h, 0h}) {
        s.w.env->calls.clear();
        CHECK(s.w.await(s.b.wait_for(patience)));
        s.w.etcd->write("b", "");
        CHECK_FALSE(s.w.await(s.b.wait_for(patience)));
        CHECK(s.w.env->calls.size() == 2);
        s.w.etcd->erase("b");
    }
    s.w.etcd->write("b", "");
    const auto began = s.w.env->now();
    CHECK_FALSE(s.w.await(s.b.wait_for(20s)));
    CHECK(s.w.env->now() - began >= 20s);
    CHECK(s.w.env->now() - began < 21s);
    s.w.env->pass(15s);
    CHECK(s.w.etcd->watches() == 0);

    s.w.env->decide = [](const call_request&) { return support::lost(); };
    auto blind = s.w.start(s.b.wait_for(1s));
    s.w.env->pass(10s);
    CHECK(blind.code() == errc::timed_out);
    auto patient = s.w.start(s.b.wait()); // an outage is no reason to pass, or to fail
    s.w.env->pass(1min);
    CHECK_FALSE(patient.ended());
    s.w.env->decide = nullptr;
    s.w.env->pass(10s);
    CHECK_FALSE(patient.ended());
    s.w.etcd->erase("b");
    s.w.env->pass(1s);
    CHECK(patient.ended());
}

TEST_CASE("a wait at a barrier outlives its session and its object", "[barrier]") {
    barrier_settings s;
    s.w.etcd->write("b", "");
    std::optional<barrier> b(s.b);
    auto waiting = s.w.start(b->wait());
    b.reset();
    s.w.env->pass(1s);
    (void)s.session.orphan();
    s.w.env->pass(1min);
    CHECK_FALSE(waiting.ended());
    s.w.etcd->erase("b");
    s.w.env->pass(1s);
    waiting.get();
}

TEST_CASE("cancelled at any moment, a wait at a barrier leaves nothing",
          "[barrier][cancellation]") {
    for (auto when = 0ms; when < 300ms; when += (when < 10ms ? 1ms : 40ms)) {
        barrier_settings s;
        s.w.etcd->write("b", "");
        auto waiting = s.w.start(s.b.wait());
        s.w.env->pass(when);
        waiting.cancel();
        s.w.env->pass(0ms);
        INFO("at " << when.count());
        CHECK(waiting.code() == asio::error::operation_aborted);
        s.w.env->pass(15s);
        CHECK(s.w.etcd->watches() == 0);
        CHECK(s.is_closed());
    }
}

TEST_CASE("a request that comes late neither closes nor opens a barrier anew", "[barrier]") {
    barrier_settings s;
    SECTION("to close it") {
        support::fate_of(s.w, changes_barrier, {support::late(8s)});
        CHECK(s.w.await(s.b.hold())); // by the second copy
        s.w.etcd->erase("b");
        s.w.env->pass(10s);
        CHECK_FALSE(s.is_closed());
    }
    SECTION("to open it") {
        s.w.etcd->write("b", "");
        support::fate_of(s.w, changes_barrier, {support::late(8s)});
        CHECK(s.w.await(s.b.release()));
        CHECK_FALSE(s.is_closed());
        s.w.etcd->write("b", "");
        s.w.env->pass(10s);
        CHECK(s.is_closed());
    }
}

TEST_CASE("a lost answer is no doubt about a barrier", "[barrier]") {
    for (const auto& fate : {support::broken(), support::lost(), support::unanswered()}) {
        barrier_settings s;
        support::fate_of(s.w, changes_barrier, {fate});
        CHECK(s.w.await(s.b.hold()));
        CHECK(s.is_closed());
        support::fate_of(s.w, changes_barrier, {fate});
        CHECK(s.w.await(s.b.release()));
        CHECK_FALSE(s.is_closed());
    }
    barrier_settings s;
    s.w.env->decide = [](const call_request& r) {
        return changes_barrier(r) ? support::unanswered() : scripted_env::fate();
    };
    auto holding = s.w.start(s.b.hold());
    s.w.env->pass(10s);
    CHECK(holding.code() == errc::outcome_unknown);
    auto releasing = s.w.start(s.b.release());
    s.w.env->pass(10s);
    CHECK(releasing.code() == errc::outcome_unknown);
    s.w.env->decide = nullptr;
    (void)s.w.await(s.b.release());
    CHECK_FALSE(s.is_closed());
}

TEST_CASE("a barrier has a name, and needs a session to be closed", "[barrier]") {
    barrier_settings s;
    CHECK_THROWS_AS(barrier(s.session, ""), std::invalid_argument);
    CHECK_THROWS_AS(barrier(s.session, std::string(513, 'x')), std::invalid_argument);
    (void)s.session.orphan();
    auto holding = s.w.start(s.b.hold());
    s.w.env->pass(1s);
    CHECK(holding.code() == errc::session_closed);
    CHECK_FALSE(s.w.await(s.b.release()));
    barrier taken = std::move(s.b);
    CHECK_THROWS_AS(s.b.hold(), std::logic_error); // NOLINT(bugprone-use-after-move)
    CHECK_THROWS_AS(s.b.hold_while_alive(), std::logic_error);
    CHECK_THROWS_AS(s.b.release(), std::logic_error);
    CHECK_THROWS_AS(s.b.wait(), std::logic_error);
    CHECK_THROWS_AS(s.b.wait_for(1s), std::logic_error);
}
