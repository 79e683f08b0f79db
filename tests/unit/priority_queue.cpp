// SPDX-License-Identifier: BSL-1.0
#include <coetcd/priority_queue.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::priority_queue;
using coetcd::detail::call_request;
using support::fate_of;
using support::has;
using support::scripted_env;
using support::world;

namespace {

struct priority_users {
    priority_users()
        : client(w.client())
        , one(w.await(coetcd::session::open(client)))
        , two(w.await(coetcd::session::open(client)))
        , a(one, "p")
        , b(two, "p") {
        w.env->calls.clear();
    }
    void enqueue(const char* value, std::uint16_t priority) {
        w.await(a.enqueue(std::string(value), priority));
    }
    std::string dequeue(priority_queue& by) { return w.await(by.dequeue()); }
    std::size_t items() const { return w.etcd->under("p/").size(); }

    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    priority_queue a;
    priority_queue b;
};

bool takes_urgent(const call_request& r) {
    return has(r, "request_put") && has(r, "request_delete_range") && has(r, "\"limit\"");
}

} // namespace

TEST_CASE("the most urgent item is first, and equals are in order", "[priority_queue]") {
    priority_users all;
    world& w = all.w;
    CHECK(all.a.name() == "p");
    CHECK(all.a.get_executor() == all.client.get_executor());
    all.enqueue("late", 65535);
    all.enqueue("normal 1", 16);
    all.enqueue("urgent", 2);
    w.await(all.b.enqueue(std::string("normal 2"), 16));
    all.enqueue("now", 0);
    all.enqueue("normal 3", 16);
    CHECK(w.await(all.b.size()) == 6);
    CHECK(all.dequeue(all.a) == "now");
    CHECK(all.dequeue(all.a) == "urgent");
    CHECK(all.dequeue(all.b) == "normal 1");
    all.enqueue("urgent too", 2); // although somebody knows what was next
    CHECK(all.dequeue(all.b) == "urgent too");
    CHECK(all.dequeue(all.b) == "normal 2");
    CHECK(all.dequeue(all.a) == "normal 3");
    CHECK(all.dequeue(all.a) == "late");
    CHECK_FALSE(w.await(all.a.try_dequeue()));
    w.await(all.one.close());
    w.await(all.two.close());
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("what a priority queue costs", "[priority_queue]") {
    priority_users all;
    world& w = all.w;
    all.enqueue("1", 5);
    CHECK(w.env->calls.size() == 1);
    w.await(all.b.enqueue(std::string("2"), 4)); // nobody else appends to these
    CHECK(w.env->calls.size() == 2);
    w.await(all.b.enqueue(std::string("3"), 5));
    CHECK(w.env->calls.size() == 3); // it has been told a newer revision meanwhile
    w.env->calls.clear();
    for (int i = 1; i <= 3; ++i) {
        (void)all.dequeue(all.a);
        CHECK(w.env->calls.size() == static_cast<std::size_t>(2 * i));
    }
    w.env->calls.clear();
    CHECK_FALSE(w.await(all.a.try_dequeue()));
    CHECK(w.env->calls.size() == 1);
}

TEST_CASE("an idle consumer gets an urgent item as soon as it is there", "[priority_queue]") {
    priority_users all;
    world& w = all.w;
    auto waiting = w.start(all.b.dequeue());
    w.env->pass(1s);
    CHECK_FALSE(waiting.ended());
    CHECK(w.etcd->under("p").empty());
    w.env->calls.clear();
    all.enqueue("x", 7);
    w.env->pass(3ms);
    REQUIRE(waiting.ended());
    CHECK(waiting.get() == "x");
    CHECK(support::count(w, takes_urgent) == 1);
    CHECK_FALSE(w.await(all.a.dequeue_for(300ms)));
    CHECK_FALSE(w.await(all.a.dequeue_for(0s)));
    all.enqueue("y", 7);
    CHECK(w.await(all.a.dequeue_for(300ms)) == "y");
}

TEST_CASE("an urgent item whose answer is lost is neither lost nor there twice",
          "[priority_queue]") {
    priority_users all;
    world& w = all.w;
    all.enqueue("y", 1);
    all.enqueue("x", 0);
    fate_of(w, takes_urgent, {support::unanswered(), support::broken()});
    CHECK(all.dequeue(all.a) == "x");
    w.env->pass(10s);
    CHECK(all.items() == 1);
    CHECK(all.dequeue(all.a) == "y");
    support::fate_of_copies(w, {support::broken(), support::late(3s)});
    all.enqueue("z", 1);
    w.env->pass(10s);
    CHECK(all.items() == 1);
}

TEST_CASE("a cancelled dequeue puts an item back among those of its priority", "[priority_queue]") {
    priority_users all;
    world& w = all.w;
    all.enqueue("second", 3);
    all.enqueue("third", 3);
    const auto when = GENERATE(1ms, 2ms, 3ms, 4ms);
    CAPTURE(when.count());
    fate_of(w, takes_urgent, {support::unanswered()});
    auto taking = w.start(all.a.dequeue());
    w.env->pass(when);
    taking.cancel();
    w.env->pass(0ms);
    CHECK(taking.code() == asio::error::operation_aborted);
    w.env->pass(10s);
    CHECK(all.items() == 2);
    all.enqueue("first", 2);
    for (const char* value : {"first", "second", "third"}) {
        CHECK(all.dequeue(all.b) == value);
    }
}

TEST_CASE("what a priority queue refuses", "[priority_queue]") {
    priority_users all;
    world& w = all.w;
    CHECK_THROWS_AS(priority_queue(all.one, ""), std::invalid_argument);
    CHECK_THROWS_AS(priority_queue(all.one, std::string(513, 'x')), std::invalid_argument);
    w.await(all.one.close());
    auto taking = w.start(all.a.dequeue());
    auto trying = w.start(all.a.try_dequeue());
    auto appending = w.start(all.a.enqueue(std::string("y"), 1));
    w.env->pass(1s);
    CHECK(taking.code() == errc::session_closed);
    CHECK(trying.code() == errc::session_closed);
    CHECK(appending.code() == errc::session_closed);
    priority_queue taken = std::move(all.a);
    CHECK_THROWS_AS(all.a.dequeue(), std::logic_error);
    CHECK_THROWS_AS(all.a.try_dequeue(), std::logic_error);
    CHECK_THROWS_AS(all.a.dequeue_for(1s), std::logic_error);
    CHECK_THROWS_AS(all.a.enqueue(std::string("x"), 1), std::logic_error);
    CHECK_THROWS_AS(all.a.size(), std::logic_error);
}
