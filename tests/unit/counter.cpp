// SPDX-License-Identifier: BSL-1.0
#include <coetcd/counter.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::detail::call_request;
using support::background;
using support::broken;
using support::fate_of_copies;
using support::scripted_env;
using support::world;
using fate = scripted_env::fate;

namespace {

struct tally {
    tally()
        : client(w.client())
        , session(w.await(coetcd::session::open(client)))
        , counter(session, "n") {
        w.env->calls.clear();
    }
    std::string value() const { return w.etcd->keys.at("n").value; }

    world w;
    coetcd::client client;
    coetcd::session session;
    coetcd::counter counter;
};

} // namespace

TEST_CASE("a counter costs one round trip while nothing else writes it", "[counter]") {
    tally t;
    CHECK(t.w.await(t.counter.get()) == 0);
    t.w.env->calls.clear();
    CHECK(t.w.await(t.counter.add()) == 1);
    CHECK(t.w.await(t.counter.add(10)) == 11);
    CHECK(t.w.await(t.counter.add(-12)) == -1);
    CHECK(t.w.env->calls.size() == 3);
    CHECK(t.value() == "-1");
    CHECK(t.w.etcd->keys.at("n").lease == 0);
    CHECK(t.w.await(t.counter.get()) == -1);
    CHECK(t.w.etcd->under("n.").size() == 1);

    t.w.etcd->write("n", "100");
    t.w.env->calls.clear();
    CHECK(t.w.await(t.counter.add()) == 101);
    CHECK(t.w.env->calls.size() == 2);
    coetcd::counter second(t.session, "n");
    t.w.env->calls.clear();
    CHECK(t.w.await(second.add()) == 102);
    CHECK(t.w.env->calls.size() == 2);
    CHECK(t.w.etcd->under("n.").size() == 1);

    t.w.etcd->erase("n");
    CHECK(t.w.await(t.counter.add()) == 1);
}

TEST_CASE("a counter whose answers are lost counts once", "[counter]") {
    tally t;
    for (int i = 1; i <= 5; ++i) {
        fate_of_copies(t.w, {broken(), broken()});
        CHECK(t.w.await(t.counter.add()) == i);
    }
    CHECK(t.value() == "5");
}

TEST_CASE("counters that are used at the same time lose nothing", "[counter]") {
    tally t;
    std::vector<coetcd::counter> all;
    for (int i = 0; i != 4; ++i) {
        all.emplace_back(t.session, "n");
    }
    std::vector<background<std::int64_t>> adding;
    for (int i = 0; i != 40; ++i) {
        coetcd::counter& one = all[static_cast<std::size_t>(i) % all.size()];
        adding.push_back(t.w.start(one.add()));
    }
    t.w.env->pass(4s);
    std::set<std::int64_t> seen;
    for (auto& each : adding) {
        CHECK(seen.insert(each.get()).second);
    }
    CHECK(t.value() == "40");
}

TEST_CASE("the calls of one counter take turns, and a cancelled one lets the next go",
          "[counter]") {
    tally t;
    t.w.env->decide = [first = true](const call_request& r) mutable {
        fate f;
        f.late = support::is_write(r) && std::exchange(first, false) ? 1s : 0s;
        return f;
    };
    coetcd::counter same = t.counter;
    auto slow = t.w.start(t.counter.add());
    auto next = t.w.start(same.add());
    auto last = t.w.start(t.counter.add());
    t.w.env->pass(100ms);
    CHECK(t.w.env->calls.size() == 1);
    CHECK_FALSE(next.ended());
    next.cancel();
    t.w.env->pass(0ms);
    CHECK(next.code() == asio::error::operation_aborted);
    SECTION("the first one ends") {
        t.w.env->pass(1s);
        CHECK(slow.get() == 1);
        CHECK(last.get() == 2);
    }
    SECTION("the first one is cancelled") {
        slow.cancel();
        t.w.env->pass(100ms);
        CHECK(slow.code() == asio::error::operation_aborted);
        CHECK(last.get() == 1); // and the copy of the first one is void
        t.w.env->pass(5s);
        CHECK(t.value() == "1");
    }
}

TEST_CASE("a counter that others are always before is given up", "[counter]") {
    tally t;
    t.w.etcd->write("n", "1");
    const auto serve = t.w.env->on_call;
    std::int64_t others = 1;
    bool on = true;
    t.w.env->on_call = [&](const auto& request, auto& reply) {
        if (on && support::is_write(request)) {
            t.w.etcd->write("n", std::to_string(++others));
        }
        serve(request, reply);
    };
    auto adding = t.w.start(t.counter.add());
    t.w.env->pass(5100ms);
    CHECK(adding.code() == errc::conflict);
    CHECK(t.value() == std::to_string(others));
    CHECK(others < 400); // it pauses
    on = false;
    CHECK(t.w.await(t.counter.add()) == others + 1);
}

TEST_CASE("what is no number is not counted", "[counter]") {
    tally t;
    t.w.etcd->write("n", "five");
    auto adding = t.w.start(t.counter.add());
    auto reading = t.w.start(t.counter.get());
    t.w.env->pass(1s);
    CHECK(adding.code() == errc::wrong_kind);
    CHECK(reading.code() == errc::wrong_kind);
    CHECK(t.value() == "five");
    t.w.etcd->write("n", std::to_string(std::numeric_limits<std::int64_t>::max()));
    CHECK_THROWS_AS(t.w.await(t.counter.add()), std::overflow_error);
    CHECK(t.w.await(t.counter.add(-1)) == std::numeric_limits<std::int64_t>::max() - 1);
}

TEST_CASE("a counter does not overflow by what it knew long ago", "[counter]") {
    tally t;
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    CHECK(t.w.await(t.counter.add(most)) == most);
    CHECK_THROWS_AS(t.w.await(t.counter.add()), std::overflow_error);
    t.w.etcd->write("n", "0");
    CHECK(t.w.await(t.counter.add()) == 1);
}

TEST_CASE("a counter has a name, and an end", "[counter]") {
    tally t;
    CHECK_THROWS_AS(coetcd::counter(t.session, ""), std::invalid_argument);
    CHECK_THROWS_AS(coetcd::counter(t.session, std::string(513, 'x')), std::invalid_argument);
    CHECK(t.counter.name() == "n");
    CHECK(t.counter.get_executor() == t.client.get_executor());
    auto late = t.w.start(t.counter.add());
    coetcd::counter& old = t.counter;
    coetcd::counter taken = std::move(t.counter);
    CHECK_THROWS_AS(old.add(), std::logic_error);
    CHECK_THROWS_AS(old.get(), std::logic_error);
    CHECK_THROWS_AS(old.name(), std::logic_error);
    CHECK_THROWS_AS(old.get_executor(), std::logic_error);
    old = coetcd::counter(t.session, "o"); // with one under way
    t.w.env->pass(1s);
    CHECK(late.get() == 1);
    (void)t.session.orphan();
    auto adding = t.w.start(taken.add());
    t.w.env->pass(1s);
    CHECK(adding.code() == errc::session_closed);
}
