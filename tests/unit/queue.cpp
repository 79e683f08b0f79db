// SPDX-License-Identifier: BSL-1.0
#include <coetcd/queue.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/race.hpp"
#include "support/world.hpp"
#include "support/writes.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::queue;
using coetcd::detail::call_request;
using support::background;
using support::broken;
using support::fate_of;
using support::has;
using support::late;
using support::lost;
using support::scripted_env;
using support::unanswered;
using support::world;
using fate = scripted_env::fate;

namespace {

/// A producer and two consumers, each with a session of its own.
struct queue_users {
    queue_users()
        : client(w.client())
        , one(w.await(coetcd::session::open(client)))
        , two(w.await(coetcd::session::open(client)))
        , three(w.await(coetcd::session::open(client)))
        , producer(one, "q")
        , a(two, "q")
        , b(three, "q") {
        w.env->calls.clear();
    }
    void enqueue(const char* value) { w.await(producer.enqueue(std::string(value))); }
    std::string dequeue(queue& by) { return w.await(by.dequeue()); }
    std::optional<std::string> try_dequeue(queue& by) { return w.await(by.try_dequeue()); }
    std::size_t items() const { return w.etcd->under("q/").size(); }

    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::session three;
    queue producer;
    queue a;
    queue b;
};

bool takes_from_queue(const call_request& r) {
    return has(r, "request_put") && has(r, "request_delete_range") && has(r, "request_range") &&
           has(r, "\"limit\"");
}
bool puts_back(const call_request& r) {
    return has(r, "request_put") && has(r, "cS8h") && !has(r, "request_delete_range"); // "q/!"
}
bool appends_x(const call_request& r) {
    return has(r, "request_put") && has(r, "eA==") && !has(r, "request_delete_range");
}
/// The rest of a line, or of an item that is put back, goes in the background.
void settle_queue(world& w) {
    w.env->pass(50ms);
}

} // namespace

TEST_CASE("items are handed out in order, each once", "[queue]") {
    queue_users all;
    world& w = all.w;
    CHECK(all.a.name() == "q");
    CHECK(all.a.get_executor() == all.client.get_executor());
    all.enqueue("1");
    w.await(all.b.enqueue(std::string("2")));
    w.await(all.producer.enqueue(std::vector<std::string>{"3", "4", "5"}));
    w.await(all.a.enqueue(std::string("6")));
    CHECK(w.await(all.a.size()) == 6);
    for (const std::string& key : w.etcd->under("q/")) {
        CHECK(w.etcd->keys.at(key).lease == 0);
    }
    for (const char* value : {"1", "2", "3", "4", "5", "6"}) {
        CHECK(all.dequeue(*value % 2 == 0 ? all.a : all.b) == value);
    }
    CHECK(w.await(all.a.size()) == 0);
    CHECK_FALSE(all.try_dequeue(all.a));
    for (coetcd::session* s : {&all.one, &all.two, &all.three}) {
        w.await(s->close());
    }
    CHECK(w.etcd->keys.empty());
}

TEST_CASE("all that begins with the name of a queue is an item", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("1");
    CHECK(all.dequeue(all.a) == "1");
    auto waiting = w.start(all.a.dequeue());
    auto behind = w.start(all.b.dequeue());
    w.env->pass(1s);
    // Go's queue would take anything else for an item.
    CHECK(w.etcd->under("q").empty());
    CHECK(w.etcd->under(".q.line/").size() == 2);
    CHECK_FALSE(w.etcd->under(".q.").empty());
}

TEST_CASE("what a queue costs", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("1");
    CHECK(w.env->calls.size() == 1);
    all.enqueue("2");
    CHECK(w.env->calls.size() == 2); // the last one was ours, too
    w.await(all.b.enqueue(std::string("3")));
    CHECK(w.env->calls.size() == 4);
    w.await(all.b.enqueue(std::string("4")));
    CHECK(w.env->calls.size() == 5);
    w.await(all.b.enqueue(std::vector<std::string>(60, "many")));
    CHECK(w.env->calls.size() == 6);

    w.env->calls.clear();
    CHECK(all.dequeue(all.a) == "1");
    CHECK(w.env->calls.size() == 2);
    CHECK(all.dequeue(all.a) == "2");
    CHECK(w.env->calls.size() == 3); // the first take has told which item is next
    CHECK(all.dequeue(all.b) == "3");
    CHECK(w.env->calls.size() == 5);
    CHECK(all.dequeue(all.a) == "4");
    CHECK(w.env->calls.size() == 7); // another one was faster
    w.env->calls.clear();
    CHECK(w.await(all.a.size()) == 60);
    CHECK(w.env->calls.size() == 1);
    for (int i = 0; i != 60; ++i) {
        CHECK(all.try_dequeue(all.a));
    }
    CHECK(w.env->calls.size() == 61);
    CHECK_FALSE(all.try_dequeue(all.a));
    CHECK(w.env->calls.size() == 62);
}

TEST_CASE("an item of a queue costs an idle consumer one event and one round trip", "[queue]") {
    queue_users all;
    world& w = all.w;
    auto waiting = w.start(all.a.dequeue());
    std::vector<background<std::string>> others;
    for (int i = 0; i != 5; ++i) {
        others.push_back(w.start(all.b.dequeue()));
    }
    w.env->pass(1s);
    CHECK_FALSE(waiting.ended());
    w.env->calls.clear();
    all.enqueue("x");
    w.env->pass(3ms);
    REQUIRE(waiting.ended());
    CHECK(support::count(w, takes_from_queue) == 1); // nobody else was woken for it
    CHECK(waiting.get() == "x");
    w.env->pass(1s);
    for (auto& each : others) {
        CHECK_FALSE(each.ended());
    }
    for (const char* value : {"1", "2", "3", "4", "5"}) {
        all.enqueue(value);
    }
    w.env->pass(1s);
    std::set<std::string> seen;
    for (auto& each : others) {
        CHECK(seen.insert(each.get()).second);
    }
    CHECK(seen.size() == 5);
}

TEST_CASE("many consumers of a queue get each item once", "[queue]") {
    queue_users all;
    world& w = all.w;
    std::vector<background<std::string>> taking;
    for (int i = 0; i != 20; ++i) {
        taking.push_back(w.start(i % 2 == 0 ? all.a.dequeue() : all.b.dequeue()));
    }
    std::vector<background<void>> appending;
    for (int i = 0; i != 40; ++i) {
        queue& by = i % 2 == 0 ? all.producer : all.b;
        appending.push_back(w.start(by.enqueue(std::to_string(i))));
    }
    for (int i = 0; i != 20; ++i) {
        taking.push_back(w.start(i % 2 == 0 ? all.a.dequeue() : all.b.dequeue()));
    }
    w.env->pass(2s);
    std::set<std::string> seen;
    for (auto& each : taking) {
        CHECK(seen.insert(each.get()).second);
    }
    CHECK(seen.size() == 40);
    CHECK(all.items() == 0);
}

TEST_CASE("items of several producers of a queue are in the order of their calls", "[queue]") {
    queue_users all;
    world& w = all.w;
    queue* const producers[] = {&all.producer, &all.a, &all.b};
    for (int i = 0; i != 30; ++i) {
        w.await(producers[(i * 7 + i / 4) % 3]->enqueue(std::to_string(i)));
    }
    for (int i = 0; i != 30; ++i) {
        CHECK(all.dequeue(i % 3 == 0 ? all.b : all.a) == std::to_string(i));
    }
}

TEST_CASE("a dequeue gives up in time", "[queue]") {
    queue_users all;
    world& w = all.w;
    CHECK_FALSE(w.await(all.a.dequeue_for(0s)));
    const auto begin = w.env->now();
    CHECK_FALSE(w.await(all.a.dequeue_for(300ms)));
    CHECK(w.env->now() - begin >= 300ms);
    CHECK(w.env->now() - begin < 320ms);
    auto first = w.start(all.a.dequeue());
    w.env->pass(100ms);
    CHECK_FALSE(w.await(all.b.dequeue_for(300ms))); // behind another one in the line
    all.enqueue("x");
    settle_queue(w);
    CHECK(first.ended());
    all.enqueue("y");
    CHECK(w.await(all.b.dequeue_for(300ms)) == "y");

    w.env->decide = [](const call_request&) { return lost(); };
    auto cut_off = w.start(all.b.dequeue_for(300ms));
    w.env->pass(400ms);
    CHECK(cut_off.code() == errc::timed_out);
}

TEST_CASE("a time that is over while etcd is away is no failure of a queue if it was there before",
          "[queue]") {
    queue_users all;
    world& w = all.w;
    int answers = GENERATE(range(0, 8)); // before it is away
    const bool was_there = answers != 0;
    w.env->decide = [&](const call_request&) { return answers-- > 0 ? fate() : broken(); };
    auto taking = w.start(all.a.dequeue_for(300ms));
    w.env->pass(400ms);
    REQUIRE(taking.ended());
    if (was_there) {
        CHECK_FALSE(taking.get());
    } else {
        CHECK(taking.code() == errc::unavailable);
    }
}

TEST_CASE("an item whose enqueue is repeated is in the queue once", "[queue]") {
    queue_users all;
    world& w = all.w;
    for (int i = 0; i != 4; ++i) {
        support::fate_of_copies(w, {broken(), i % 2 == 0 ? broken() : late(3s)});
        auto appending = w.start(all.producer.enqueue(std::to_string(i)));
        w.env->pass(1ms); // it is there
        auto taking = w.start(all.a.dequeue());
        w.env->pass(20s);
        (void)appending.get();
        CHECK(taking.get() == std::to_string(i));
    }
    w.env->pass(20s);
    CHECK(all.items() == 0);
}

TEST_CASE("items that were copied from an etcd of more revisions are in nobody's way", "[queue]") {
    queue_users all;
    all.w.etcd->write("q/0000000009000000-0", "old");
    all.w.env->calls.clear();
    all.enqueue("x");
    CHECK(all.w.env->calls.size() == 5);
    CHECK(all.dequeue(all.a) == "x");
    CHECK(all.dequeue(all.a) == "old");
    CHECK_FALSE(all.try_dequeue(all.a));
}

TEST_CASE("an item that was taken without an answer is neither lost nor there twice", "[queue]") {
    queue_users all;
    world& w = all.w;
    const fate what = GENERATE(broken(), lost(), unanswered(), late(3s));
    all.enqueue("x");
    all.enqueue("y");
    fate_of(w, takes_from_queue, {what, broken()});
    CHECK(all.dequeue(all.a) == "x");
    w.env->pass(10s);
    CHECK(all.items() == 1);
    CHECK(all.dequeue(all.a) == "y");
    CHECK(all.items() == 0);
}

TEST_CASE("an item that somebody else takes goes to nobody else", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    all.enqueue("y");
    // Another one, such as Go's, takes it between our read and our request.
    bool raced = false;
    w.env->decide = [&](const call_request& r) {
        if (takes_from_queue(r) && !raced) {
            raced = true;
            w.etcd->erase(w.etcd->under("q/").front());
        }
        return fate();
    };
    CHECK(all.dequeue(all.a) == "y");
    CHECK(raced);
    all.enqueue("z");
    CHECK(all.dequeue(all.a) == "z");
}

TEST_CASE("an item that was written again is handed out as it is now", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    bool raced = false;
    w.env->decide = [&](const call_request& r) {
        if (takes_from_queue(r) && !raced) {
            raced = true;
            w.etcd->write(w.etcd->under("q/").front(), "z");
        }
        return fate();
    };
    CHECK(all.dequeue(all.a) == "z");
    CHECK(all.items() == 0);
}

TEST_CASE("items of Go's queue are taken, too", "[queue]") {
    queue_users all;
    world& w = all.w;
    w.etcd->write("q/1764512345678901235", "go 2");
    w.etcd->write("q/1764512345678901234", "go 1");
    all.enqueue("ours");
    CHECK(all.dequeue(all.a) == "ours");
    CHECK(all.dequeue(all.a) == "go 1");
    auto waiting = w.start(all.b.dequeue());
    settle_queue(w);
    CHECK(waiting.get() == "go 2");
    auto idle = w.start(all.b.dequeue());
    settle_queue(w);
    w.etcd->write("q/1764512345678901236", "go 3");
    settle_queue(w);
    CHECK(idle.get() == "go 3");
}

TEST_CASE("dequeue() goes on for as long as etcd does not answer", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    const bool reads = GENERATE(false, true);
    w.env->decide = [reads](const call_request& r) {
        return takes_from_queue(r) || (reads && has(r, "request_range")) ? lost() : fate();
    };
    auto taking = w.start(all.a.dequeue());
    auto limited = w.start(all.b.dequeue_for(1s));
    w.env->pass(20s);
    CHECK_FALSE(taking.ended());
    CHECK(limited.ended());
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(taking.ended());
    CHECK(taking.get() == "x");
    CHECK(all.items() == 0);
}

TEST_CASE("a dequeue that is cancelled leaves the item to others, at its place", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    all.enqueue("y");
    const auto when = GENERATE(0ms, 1ms, 2ms, 3ms, 4ms);
    const bool slow = GENERATE(false, true);
    CAPTURE(when.count(), slow);
    if (slow) {
        fate_of(w, takes_from_queue, {broken(), late(1s)});
    }
    auto taking = w.start(all.a.dequeue());
    w.env->pass(when);
    const bool was_over = taking.ended();
    taking.cancel();
    w.env->pass(0ms);
    REQUIRE(taking.ended());
    if (was_over) {
        CHECK(taking.get() == "x");
    } else {
        CHECK(taking.code() == asio::error::operation_aborted);
    }
    w.env->pass(10s);
    CHECK(all.items() == (was_over ? 1 : 2));
    CHECK(w.etcd->under(".q.line/").empty());
    if (!was_over) {
        CHECK(all.dequeue(all.b) == "x");
    }
    CHECK(all.dequeue(all.b) == "y");
    CHECK_FALSE(all.try_dequeue(all.a));
}

TEST_CASE("an item that is put back is found by a consumer that is far ahead", "[queue]") {
    queue_users all;
    world& w = all.w;
    w.await(all.producer.enqueue(std::vector<std::string>{"1", "2", "3", "4", "5", "6"}));
    CHECK(all.dequeue(all.a) == "1");
    fate_of(w, takes_from_queue, {unanswered()});
    auto taking = w.start(all.b.dequeue());
    w.env->pass(5ms);
    CHECK(all.dequeue(all.a) == "3");
    taking.cancel();
    w.env->pass(10s);
    CHECK(all.dequeue(all.a) == "4"); // as it was told before
    CHECK(all.dequeue(all.a) == "2");
    CHECK(all.dequeue(all.a) == "5");
}

TEST_CASE("an item that was appended much later is found", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("1");
    all.enqueue("2");
    for (int i = 0; i != 40; ++i) {
        w.etcd->write("other", std::to_string(i));
    }
    all.enqueue("3");
    CHECK(all.dequeue(all.a) == "1");
    CHECK(all.dequeue(all.b) == "2");
    CHECK(all.try_dequeue(all.a) == "3");
}

TEST_CASE("a consumer that was beaten takes the items of a new producer in order", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("1");
    all.enqueue("2");
    CHECK(all.dequeue(all.a) == "1");
    CHECK(all.dequeue(all.b) == "2"); // of which the other one was told, too
    w.await(all.b.enqueue(std::string("3")));
    w.await(all.b.enqueue(std::string("4")));
    CHECK(all.try_dequeue(all.a) == "3");
    CHECK(all.try_dequeue(all.a) == "4");
}

TEST_CASE("items of one producer are in order though a request to append comes late", "[queue]") {
    queue_users all;
    world& w = all.w;
    const int changes = GENERATE(0, 40);
    all.enqueue("1");
    all.enqueue("2");
    fate_of(w, appends_x, {fate(), lost()}); // the first one is refused
    auto appending = w.start(all.b.enqueue(std::string("x")));
    w.env->pass(50ms);
    for (int i = 0; i != changes; ++i) {
        w.etcd->write("other", std::to_string(i));
    }
    w.await(all.a.enqueue(std::string("3")));
    w.await(all.a.enqueue(std::string("4")));
    for (const char* value : {"1", "2", "3"}) {
        CHECK(all.try_dequeue(all.a) == value); // and is told of the next one
    }
    w.env->pass(20s);
    (void)appending.get();
    w.await(all.b.enqueue(std::string("y")));
    std::vector<std::string> rest;
    for (std::optional<std::string> next = all.try_dequeue(all.a); next;
         next = all.try_dequeue(all.a)) {
        rest.push_back(*next);
    }
    CHECK(rest == std::vector<std::string>{"4", "x", "y"});
}

TEST_CASE("a cancelled call that got nothing puts nothing back", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    const auto when = GENERATE(1ms, 2ms, 3ms);
    bool raced = false;
    w.env->decide = [&](const call_request& r) {
        if (takes_from_queue(r) && !raced) { // somebody else takes it
            raced = true;
            w.etcd->erase(w.etcd->under("q/").front());
        }
        return takes_from_queue(r) ? late(100ms) : fate();
    };
    auto taking = w.start(all.a.dequeue());
    w.env->pass(when);
    taking.cancel();
    w.env->pass(10s);
    CHECK(taking.code() == asio::error::operation_aborted);
    CHECK(all.items() == (raced ? 0 : 1));
}

TEST_CASE("an item is put back once", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    for (const fate& what : {broken(), lost(), unanswered(), late(3s)}) {
        std::vector<fate> copies = {late(100ms)}; // of the request that takes it
        copies.push_back(what);
        fate_of(w, support::is_write, copies);
        auto taking = w.start(all.a.dequeue());
        w.env->pass(3ms);
        REQUIRE_FALSE(taking.ended());
        taking.cancel();
        w.env->pass(1s);
        auto next = w.start(all.b.dequeue()); // as soon as it is there
        w.env->pass(30s);
        CHECK(next.get() == "x");
        w.env->pass(30s);
        CHECK(all.items() == 0);
        w.env->decide = nullptr;
        all.enqueue("x");
    }
}

TEST_CASE("an item is put back as soon as etcd lets it", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    fate_of(w, takes_from_queue, {unanswered()});
    auto taking = w.start(all.a.dequeue());
    w.env->pass(5ms);
    taking.cancel();
    w.etcd->no_space = true;
    w.env->pass(20s);
    CHECK(all.items() == 0);
    w.etcd->no_space = false;
    w.env->pass(10s);
    CHECK(all.items() == 1);
    CHECK(all.dequeue(all.b) == "x");
}

TEST_CASE("an item is put back as soon as etcd tells what became of it", "[queue]") {
    queue_users all;
    world& w = all.w;
    const bool is_cancelled = GENERATE(true, false);
    CAPTURE(is_cancelled);
    bool is_allowed = true;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (is_allowed || q.what != coetcd::detail::rpc::txn) {
            serve(q, r);
        } else {
            r.status = 403;
            r.body = R"({"code":7,"message":"etcdserver: permission denied"})";
        }
    };
    all.enqueue("x");
    fate_of(w, takes_from_queue, {unanswered()});
    auto taking = w.start(all.a.dequeue());
    w.env->pass(5ms);
    REQUIRE(all.items() == 0);
    is_allowed = false;
    if (is_cancelled) {
        taking.cancel();
    }
    w.env->pass(20s);
    if (!is_cancelled) {
        CHECK(taking.code() == errc::outcome_unknown);
    }
    CHECK(all.items() == 0);
    // Nor is it there twice if the same happens to what puts it back.
    fate_of(w, puts_back, {unanswered()});
    is_allowed = true;
    for (int i = 0; all.items() == 0 && i != 1000; ++i) {
        w.env->pass(10ms);
    }
    REQUIRE(all.items() == 1);
    is_allowed = false;
    w.env->pass(20s);
    is_allowed = true;
    w.env->pass(20s);
    CHECK(all.items() == 1);
    CHECK(all.dequeue(all.b) == "x");
    w.env->pass(20s);
    CHECK(all.items() == 0);
}

TEST_CASE("a consumer that is cancelled in the line of a queue lets the next one wait", "[queue]") {
    queue_users all;
    world& w = all.w;
    auto first = w.start(all.a.dequeue());
    w.env->pass(1s);
    auto second = w.start(all.b.dequeue());
    w.env->pass(1s);
    first.cancel();
    w.env->pass(0ms);
    CHECK(first.code() == asio::error::operation_aborted);
    w.env->pass(1s);
    all.enqueue("x");
    settle_queue(w);
    REQUIRE(second.ended());
    CHECK(second.get() == "x");
}

TEST_CASE("dequeue() || timer puts the item back if the timer wins", "[queue][cancellation]") {
    constexpr int most_hops = 30;
    for (const bool elsewhere : {false, true}) {
        int lost = 0;
        for (int hops = 0; hops != most_hops; ++hops) {
            INFO("elsewhere " << elsewhere << ", " << hops << " handlers later");
            world w;
            const auto watching = std::make_shared<support::answers>("txn");
            coetcd::client_options options;
            options.observer = watching;
            const coetcd::client client = w.client(std::move(options));
            const auto s = w.await(coetcd::session::open(client));
            queue q(s, "q");
            w.await(q.enqueue(std::string("x")));
            support::race<std::string> first(w, q.dequeue(), elsewhere);
            watching->told = [&] { // the first item was read
                watching->told = [&] { first.ring_after(hops); };
            };
            w.env->pass(50ms);
            const bool taken = first.result().has_value();
            lost += taken ? 0 : 1;
            w.env->pass(1s);
            REQUIRE(w.etcd->under("q/").size() == (taken ? 0 : 1));
        }
        CHECK(lost > 0);
        CHECK(lost < most_hops);
    }
}

TEST_CASE("a queue object may be destroyed under way", "[queue]") {
    queue_users all;
    world& w = all.w;
    std::optional<queue> gone(std::in_place, all.two, "q");
    auto taking = w.start(gone->dequeue());
    auto appending = w.start(gone->enqueue(std::string("x")));
    gone.reset();
    w.env->pass(1s);
    CHECK(appending.ended());
    CHECK(taking.get() == "x");
}

TEST_CASE("a queue does nothing without a session", "[queue]") {
    queue_users all;
    world& w = all.w;
    auto waiting = w.start(all.a.dequeue());
    w.env->pass(1s);
    w.await(all.two.close());
    w.env->pass(1ms);
    CHECK(waiting.code() == errc::session_closed);
    all.enqueue("x");
    auto taking = w.start(all.a.dequeue());
    auto trying = w.start(all.a.try_dequeue());
    auto appending = w.start(all.a.enqueue(std::string("y")));
    w.env->pass(1s);
    CHECK(taking.code() == errc::session_closed);
    CHECK(trying.code() == errc::session_closed);
    CHECK(appending.code() == errc::session_closed);
    CHECK(w.await(all.a.size()) == 1);
}

TEST_CASE("a session that ends while an item is taken says that it may be lost", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    const bool arrives = GENERATE(true, false);
    w.env->decide = [arrives](const call_request& r) {
        return takes_from_queue(r) ? (arrives ? unanswered() : lost()) : fate();
    };
    auto taking = w.start(all.a.dequeue());
    w.env->pass(500ms);
    CHECK_FALSE(taking.ended());
    w.etcd->revoke(all.two.lease());
    w.env->pass(20s);
    REQUIRE(taking.ended());
    CHECK(taking.code() == errc::outcome_unknown);
    w.env->decide = nullptr;
    w.env->pass(10s);
    CHECK(all.items() == (arrives ? 0 : 1));
}

TEST_CASE("an answer to a queue that is not etcd's loses no item", "[queue]") {
    queue_users all;
    world& w = all.w;
    all.enqueue("x");
    const auto serve = w.env->on_call;
    const bool is_json = GENERATE(true, false);
    w.env->on_call = [serve, is_json](const call_request& r, coetcd::detail::reply& to) {
        serve(r, to);
        if (takes_from_queue(r)) {
            to.body = is_json ? R"({"header":{"revision":"9"},"succeeded":true})" : "<html>";
        }
    };
    auto trying = w.start(all.a.try_dequeue());
    w.env->pass(60s);
    REQUIRE(trying.ended());
    CHECK(trying.code() == errc::timed_out);
    CHECK(all.items() == 0);
    w.env->on_call = serve;
    w.env->pass(60s);
    CHECK(all.items() == 1); // put back as soon as that was possible
    CHECK(all.try_dequeue(all.b) == "x");
}

TEST_CASE("a place in the line that is deleted is noticed", "[queue]") {
    queue_users all;
    world& w = all.w;
    auto waiting = w.start(all.a.dequeue());
    w.env->pass(1s);
    w.etcd->erase(w.etcd->under(".q.line/").front());
    all.enqueue("x");
    w.env->pass(30s);
    REQUIRE(waiting.ended());
    if (waiting.code()) {
        CHECK(waiting.code() == errc::lock_lost);
        CHECK(all.items() == 1);
    }
}

TEST_CASE("a consumer asks a member that has stalled ever more seldom", "[queue]") {
    queue_users all;
    world& w = all.w;
    std::string old; // the answer to a look at the empty queue
    bool stalls = false;
    int looks = 0;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (stalls && takes_from_queue(q)) { // somebody else is faster
            w.etcd->erase(w.etcd->under("q/").front());
        }
        serve(q, r);
        if (has(q, R"({"success":[{"request_range":{"key":"cS8h")")) { // "q/!"
            ++looks;
            if (stalls) {
                r.body = old;
            } else {
                old = r.body;
            }
        }
    };
    auto waiting = w.start(all.a.dequeue());
    w.env->pass(1s);
    stalls = true;
    looks = 0;
    all.enqueue("x");
    w.env->pass(30s);
    CHECK_FALSE(waiting.ended());
    CHECK(all.items() == 0);
    CHECK(looks < 100);
    SECTION("and goes on when it has recovered") {
        stalls = false;
        all.enqueue("y");
        w.env->pass(10s);
        CHECK(waiting.get() == "y");
    }
    SECTION("and a call that does not wait ends in time") {
        auto trying = w.start(all.a.try_dequeue());
        w.env->pass(30s);
        REQUIRE(trying.ended());
        waiting.cancel();
        w.env->pass(1s);
    }
}

TEST_CASE("what a queue refuses", "[queue]") {
    queue_users all;
    CHECK_THROWS_AS(queue(all.one, ""), std::invalid_argument);
    CHECK_THROWS_AS(queue(all.one, std::string(513, 'x')), std::invalid_argument);
    CHECK_THROWS_AS(all.a.enqueue(std::vector<std::string>()), std::invalid_argument);
    CHECK_THROWS_AS(all.a.enqueue(std::vector<std::string>(61)), std::invalid_argument);
    queue taken = std::move(all.a);
    CHECK_THROWS_AS(all.a.dequeue(), std::logic_error);
    CHECK_THROWS_AS(all.a.try_dequeue(), std::logic_error);
    CHECK_THROWS_AS(all.a.dequeue_for(1s), std::logic_error);
    CHECK_THROWS_AS(all.a.enqueue(std::string("x")), std::logic_error);
    CHECK_THROWS_AS(all.a.size(), std::logic_error);
    CHECK(all.w.env->calls.empty());
}
