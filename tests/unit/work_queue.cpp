// SPDX-License-Identifier: BSL-1.0
#include <coetcd/work_queue.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
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
using coetcd::job;
using coetcd::work_queue;
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
struct workers {
    explicit workers(coetcd::work_options options = {})
        : client(w.client())
        , one(w.await(coetcd::session::open(client)))
        , two(w.await(coetcd::session::open(client)))
        , three(w.await(coetcd::session::open(client)))
        , producer(one, "w", options)
        , a(two, "w", options)
        , b(three, "w", options) {
        w.env->calls.clear();
    }
    void enqueue(const char* value) { w.await(producer.enqueue(std::string(value))); }

    std::size_t ready() const {
        return w.etcd->under("w/ready/").size() + w.etcd->under("w/again/").size();
    }
    std::size_t busy() const { return w.etcd->under("w/run/busy/").size(); }
    std::size_t claims() const { return w.etcd->under("w/run/claim/").size(); }
    std::size_t dead() const { return w.etcd->under("w.dead/").size(); }
    /// The same without what is only between two attempts.
    std::size_t items() const { return ready() + busy() + dead(); }

    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    coetcd::session three;
    work_queue producer;
    work_queue a;
    work_queue b;
};

bool claims_item(const call_request& r) {
    return has(r, "request_put") && has(r, "request_delete_range") && has(r, "request_range") &&
           has(r, "\"limit\"");
}
/// An ack, a retry or a bury.
bool is_end(const call_request& r) {
    return has(r, "request_delete_range") && has(r, "request_put") && !claims_item(r);
}
/// The rest of a job, and of a line, goes in the background.
void settle(world& w) {
    w.env->pass(50ms);
}

} // namespace

TEST_CASE("items are taken in order, and erased when their work is done", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("first");
    all.enqueue("second");
    CHECK(all.ready() == 2);

    job first = w.await(all.a.take());
    CHECK(first.value() == "first");
    CHECK(first.attempt() == 1);
    CHECK(first.owns());
    CHECK(first);
    CHECK_FALSE(first.lost());
    CHECK(all.ready() == 1);
    CHECK(all.busy() == 1);
    const std::vector<std::string> claim = w.etcd->under("w/run/claim/");
    REQUIRE(claim.size() == 1);
    CHECK(w.etcd->keys.at(claim[0]).lease == all.two.lease());
    CHECK(w.etcd->keys.at(claim[0]).create_revision == first.token());

    job second = w.await(all.b.take());
    CHECK(second.value() == "second");
    CHECK(second.id() > first.id());
    CHECK(w.await(first.ack()));
    CHECK_FALSE(first.owns());
    CHECK_FALSE(first.lost());
    CHECK(w.await(first.ack())); // told again
    CHECK_FALSE(w.await(first.retry()));
    CHECK(all.busy() == 1);
    CHECK(w.await(second.ack()));
    CHECK(all.items() == 0);
    CHECK(all.claims() == 0);
}

TEST_CASE("what a work queue costs", "[work_queue]") {
    workers all;
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
    job one = w.await(all.a.take());
    CHECK(w.env->calls.size() == 2);
    job two = w.await(all.a.take());
    CHECK(w.env->calls.size() == 3); // the first claim has told which item is next
    job other = w.await(all.b.take());
    CHECK(w.env->calls.size() == 5);
    job three = w.await(all.a.take());
    CHECK(w.env->calls.size() == 7); // another one was faster
    CHECK(w.await(one.ack()));
    CHECK(w.env->calls.size() == 8);
    CHECK(w.await(two.retry()));
    CHECK(w.env->calls.size() == 9);
    CHECK(w.await(three.bury()));
    CHECK(w.env->calls.size() == 10);
    (void)w.await(all.a.state());
    CHECK(w.env->calls.size() == 11);
    (void)w.await(all.a.dead());
    CHECK(w.env->calls.size() == 12);
}

TEST_CASE("an item costs an idle consumer one event and one round trip", "[work_queue]") {
    workers all;
    world& w = all.w;
    auto waiting = w.start(all.a.take());
    std::vector<background<job>> others;
    for (int i = 0; i != 5; ++i) {
        others.push_back(w.start(all.b.take()));
    }
    w.env->pass(1s);
    CHECK_FALSE(waiting.ended());
    w.env->calls.clear();
    all.enqueue("x");
    w.env->pass(3ms);
    CHECK(waiting.ended());
    CHECK(support::count(w, claims_item) == 1); // nobody else was woken for it
    job taken = waiting.get();
    CHECK(taken.value() == "x");
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
        job next = each.get();
        CHECK(seen.insert(next.value()).second);
        CHECK(w.await(next.ack()));
    }
    CHECK(seen.size() == 5);
}

TEST_CASE("many consumers take each item once", "[work_queue]") {
    workers all;
    world& w = all.w;
    std::vector<background<job>> taking;
    for (int i = 0; i != 20; ++i) {
        taking.push_back(w.start(i % 2 == 0 ? all.a.take() : all.b.take()));
    }
    std::vector<background<void>> appending;
    for (int i = 0; i != 40; ++i) {
        work_queue& by = i % 2 == 0 ? all.producer : all.b;
        appending.push_back(w.start(by.enqueue(std::to_string(i))));
    }
    for (int i = 0; i != 20; ++i) {
        taking.push_back(w.start(i % 2 == 0 ? all.a.take() : all.b.take()));
    }
    w.env->pass(2s);
    std::set<std::string> seen;
    for (auto& each : taking) {
        job one = each.get();
        CHECK(one.attempt() == 1);
        CHECK(seen.insert(one.value()).second);
        CHECK(w.await(one.ack()));
    }
    CHECK(seen.size() == 40);
    CHECK(all.items() == 0);
}

TEST_CASE("items of several producers are in the order of their calls", "[work_queue]") {
    workers all;
    world& w = all.w;
    work_queue* const producers[] = {&all.producer, &all.a, &all.b};
    for (int i = 0; i != 30; ++i) {
        w.await(producers[(i * 7 + i / 4) % 3]->enqueue(std::to_string(i)));
    }
    std::vector<std::string> last = {"30", "31", "32"};
    w.await(all.a.enqueue(last));
    for (int i = 0; i != 33; ++i) {
        job next = w.await(i % 3 == 0 ? all.b.take() : all.a.take());
        CHECK(next.value() == std::to_string(i));
        CHECK(w.await(next.ack()));
    }
}

TEST_CASE("an item is after those that are being worked on", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("1");
    all.enqueue("2");
    job first = w.await(all.a.take());
    job second = w.await(all.a.take());
    w.await(all.b.enqueue(std::string("3"))); // which has appended nothing before
    CHECK(w.await(second.retry()));
    for (const char* value : {"2", "3"}) {
        job next = w.await(all.b.take());
        CHECK(next.value() == value);
        CHECK(w.await(next.ack()));
    }
    CHECK(w.await(first.ack()));
}

TEST_CASE("a job that is retried is the first, until it is dead", "[work_queue]") {
    coetcd::work_options options;
    options.max_attempts = 3;
    workers all(options);
    world& w = all.w;
    all.enqueue("poison");
    all.enqueue("good");
    std::int64_t token = 0;
    std::string id;
    for (int attempt = 1; attempt <= 3; ++attempt) {
        job again = w.await(all.a.take());
        CHECK(again.value() == "poison");
        CHECK(again.attempt() == attempt);
        CHECK(again.token() > token);
        CHECK((id.empty() || again.id() == id));
        token = again.token();
        id = again.id();
        if (attempt == 2) {
            again = job(); // nobody says anything
            settle(w);
        } else {
            CHECK(w.await(again.retry()));
        }
    }
    CHECK(all.dead() == 1);
    job good = w.await(all.a.take());
    CHECK(good.value() == "good");
    CHECK(w.await(good.bury()));
    const coetcd::work_state now = w.await(all.a.state());
    CHECK(now.ready == 0);
    CHECK(now.busy == 0);
    CHECK(now.dead == 2);

    std::vector<coetcd::dead_item> dead = w.await(all.b.dead());
    REQUIRE(dead.size() == 2);
    CHECK(dead[0].value == "poison");
    CHECK(dead[0].attempts == 3);
    CHECK(dead[1].value == "good");
    CHECK(dead[1].attempts == 1);
    CHECK(dead[0].id == id);
    CHECK(dead[0].key == "w.dead/" + id + ".3");
    CHECK(w.etcd->keys.at(dead[0].key).create_revision == dead[0].revision);
    coetcd::dead_item foreign = dead[0];
    foreign.key = "w2.dead/" + id + ".3";
    CHECK_THROWS_AS(all.b.revive(foreign), std::invalid_argument);
    CHECK_THROWS_AS(all.b.erase_dead(foreign), std::invalid_argument);
    CHECK(w.await(all.b.dead(1)).size() == 1);
    CHECK(w.await(all.b.revive(dead[0])));
    CHECK_FALSE(w.await(all.b.revive(dead[0])));
    CHECK_FALSE(w.await(all.b.erase_dead(dead[0])));
    CHECK(w.await(all.b.erase_dead(dead[1])));
    CHECK(all.dead() == 0);
    job revived = w.await(all.a.take());
    CHECK(revived.value() == "poison");
    CHECK(revived.attempt() == 1);
    CHECK(revived.id() != id);
}

TEST_CASE("an effect and its acknowledgement are one", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job one = w.await(all.a.take());
    w.etcd->write("balance", "1");
    const auto pay = [](const char* from, const char* to) {
        return coetcd::txn()
            .when(coetcd::compare::value("balance") == from)
            .then(coetcd::op::put("balance", to));
    };
    CHECK_FALSE(w.await(one.ack(pay("7", "8")))); // its condition fails
    CHECK(one.owns());
    CHECK(all.busy() == 1);
    CHECK(w.etcd->keys.at("balance").value == "1");
    CHECK(w.await(one.ack(pay("1", "2"))));
    CHECK(w.etcd->keys.at("balance").value == "2");
    CHECK(all.items() == 0);
    CHECK_FALSE(one.owns());

    CHECK_THROWS_AS(one.ack(coetcd::txn().otherwise(coetcd::op::range("k"))),
                    std::invalid_argument);

    all.enqueue("y");
    job other = w.await(all.a.take());
    w.etcd->erase(w.etcd->under("w/run/claim/").at(0)); // it is somebody else's now
    CHECK_FALSE(w.await(other.ack(pay("2", "3"))));
    CHECK(other.lost());
    CHECK(w.etcd->keys.at("balance").value == "2");
}

TEST_CASE("an effect whose answer is lost happens once", "[work_queue]") {
    workers all;
    world& w = all.w;
    for (int i = 0; i != 3; ++i) {
        all.enqueue("x");
        job one = w.await(all.a.take());
        fate_of(w, is_end, {i == 0 ? broken() : i == 1 ? lost() : unanswered(), broken()});
        CHECK(w.await(one.ack(coetcd::txn().then(coetcd::op::put("done", "x")))));
        CHECK(w.etcd->keys.at("done").version == i + 1);
        CHECK(all.items() == 0);
    }
}

TEST_CASE("a condition holds exactly while the job is ours", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job one = w.await(all.a.take());
    const coetcd::compare mine = one.is_mine();
    const auto holds = [&] { return w.await(all.client.txn(coetcd::txn().when(mine))).succeeded; };
    CHECK(holds());
    CHECK(w.await(one.retry()));
    CHECK_FALSE(holds());
    job again = w.await(all.a.take());
    CHECK_FALSE(holds());
    CHECK(w.await(again.ack()));
}

TEST_CASE("items of a consumer that died go to another, and its late ack is refused",
          "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job orphan = w.await(all.a.take());
    const bool waits_already = GENERATE(true, false);
    CAPTURE(waits_already);
    std::optional<background<job>> waiting;
    if (waits_already) {
        waiting.emplace(w.start(all.b.take()));
        w.env->pass(1s);
    }
    w.etcd->revoke(all.two.lease()); // the consumer has not heard of it
    if (!waits_already) {
        waiting.emplace(w.start(all.b.take()));
    }
    w.env->pass(20ms);
    REQUIRE(waiting->ended());
    job redelivered = waiting->get();
    CHECK(redelivered.value() == "x");
    CHECK(redelivered.attempt() == 2);
    CHECK(redelivered.id() == orphan.id());
    CHECK(redelivered.token() > orphan.token());
    auto acking = w.start(orphan.ack());
    w.env->pass(5s);
    CHECK(acking.ended());
    CHECK(orphan.lost());
    CHECK(all.busy() == 1);
    CHECK(redelivered.owns());
    CHECK(w.await(redelivered.ack()));
    CHECK(all.items() == 0);
}

TEST_CASE("an orphan is found while there is other work", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("orphan");
    {
        job orphan = w.await(all.a.take());
        w.etcd->revoke(all.two.lease());
    }
    std::set<std::string> seen;
    for (int i = 0; i != 200 && !seen.contains("orphan"); ++i) {
        all.enqueue("other");
        job next = w.await(all.b.take());
        seen.insert(next.value());
        CHECK(w.await(next.ack()));
        w.env->pass(100ms);
    }
    CHECK(seen.contains("orphan"));
}

TEST_CASE("try_take() finds orphans, too", "[work_queue]") {
    workers all;
    world& w = all.w;
    CHECK_FALSE(w.await(all.b.try_take()));
    CHECK(w.env->calls.size() == 2);
    CHECK_FALSE(w.await(all.b.try_take()));
    CHECK(w.env->calls.size() == 3);
    all.enqueue("x");
    std::optional<job> one = w.await(all.a.try_take());
    REQUIRE(one);
    CHECK(one->value() == "x");
    w.etcd->revoke(all.two.lease());
    w.env->pass(10s);
    std::optional<job> again = w.await(all.b.try_take());
    REQUIRE(again);
    CHECK(again->attempt() == 2);
}

TEST_CASE("a time that is over while an orphan is put back is no failure", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job orphan = w.await(all.a.take());
    w.etcd->revoke(all.two.lease());
    w.env->decide = [](const call_request& r) { return is_end(r) ? unanswered() : fate(); };
    CHECK_FALSE(w.await(all.b.take_for(300ms)));
    w.env->decide = nullptr;
    CHECK(all.ready() == 1);
    std::optional<job> x = w.await(all.b.take_for(300ms));
    REQUIRE(x);
    CHECK(x->attempt() == 2);
}

TEST_CASE("an orphan after its last attempt is dead", "[work_queue]") {
    coetcd::work_options options;
    options.max_attempts = 1;
    workers all(options);
    world& w = all.w;
    all.enqueue("x");
    job orphan = w.await(all.a.take());
    w.etcd->revoke(all.two.lease());
    CHECK_FALSE(w.await(all.b.try_take()));
    CHECK(all.dead() == 1);
    CHECK(all.items() == 1);
}

TEST_CASE("a claim that somebody deletes is noticed", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job one = w.await(all.a.take());
    w.etcd->erase(w.etcd->under("w/run/claim/").at(0));
    CHECK(one.owns());
    w.env->pass(60s);
    CHECK_FALSE(one.owns());
    CHECK(one.lost());
    CHECK_FALSE(w.await(one.ack()));
    CHECK(all.items() == 1);
}

TEST_CASE("take_for() and take_until() give up in time", "[work_queue]") {
    workers all;
    world& w = all.w;
    CHECK_FALSE(w.await(all.a.take_for(0s)));
    const auto begin = w.env->now();
    CHECK_FALSE(w.await(all.a.take_for(300ms)));
    CHECK(w.env->now() - begin >= 300ms);
    CHECK(w.env->now() - begin < 320ms);
    auto first = w.start(all.a.take());
    w.env->pass(100ms);
    CHECK_FALSE(w.await(all.b.take_for(300ms))); // behind another one in the line
    all.enqueue("x");
    settle(w);
    CHECK(first.ended());
    all.enqueue("y");
    std::optional<job> y = w.await(all.b.take_for(300ms));
    REQUIRE(y);
    CHECK(y->value() == "y");

    w.env->decide = [](const call_request&) { return lost(); };
    auto cut_off = w.start(all.b.take_for(300ms));
    w.env->pass(400ms);
    CHECK(cut_off.code() == errc::timed_out);
}

TEST_CASE(
    "a time that is over while etcd is away is no failure of a work queue if it was there before",
    "[work_queue]") {
    workers all;
    world& w = all.w;
    int answers = GENERATE(range(0, 8)); // before it is away
    const bool was_there = answers != 0;
    w.env->decide = [&](const call_request&) { return answers-- > 0 ? fate() : broken(); };
    auto taking = w.start(all.a.take_for(300ms));
    w.env->pass(400ms);
    REQUIRE(taking.ended());
    if (was_there) {
        CHECK_FALSE(taking.get());
    } else {
        CHECK(taking.code() == errc::unavailable);
    }
}

TEST_CASE("an item whose enqueue is repeated is there once", "[work_queue]") {
    workers all;
    world& w = all.w;
    for (int i = 0; i != 4; ++i) {
        support::fate_of_copies(w, {broken(), i % 2 == 0 ? broken() : late(3s)});
        auto appending = w.start(all.producer.enqueue(std::to_string(i)));
        w.env->pass(1ms); // it is there
        auto taking = w.start(all.a.take());
        w.env->pass(20s);
        (void)appending.get();
        job one = taking.get();
        CHECK(one.value() == std::to_string(i));
        CHECK(w.await(one.ack()));
    }
    w.env->pass(20s);
    CHECK(all.items() == 0);
}

TEST_CASE("a claim whose answer is lost is ours", "[work_queue]") {
    workers all;
    world& w = all.w;
    const fate what = GENERATE(broken(), lost(), unanswered());
    all.enqueue("x");
    all.enqueue("y");
    fate_of(w, claims_item, {what, broken()});
    job x = w.await(all.a.take());
    CHECK(x.value() == "x");
    CHECK(x.attempt() == 1);
    CHECK(w.etcd->keys.at(w.etcd->under("w/run/claim/").at(0)).create_revision == x.token());
    job y = w.await(all.a.take());
    CHECK(y.value() == "y");
    CHECK(w.await(x.ack()));
    CHECK(w.await(y.ack()));
    CHECK(all.items() == 0);
}

TEST_CASE("take() goes on for as long as etcd does not answer", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    const bool reads = GENERATE(false, true);
    w.env->decide = [reads](const call_request& r) {
        return claims_item(r) || (reads && has(r, "request_range")) ? lost() : fate();
    };
    auto taking = w.start(all.a.take());
    auto limited = w.start(all.b.take_for(1s));
    w.env->pass(20s);
    CHECK_FALSE(taking.ended());
    CHECK(limited.ended());
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(taking.ended());
    job x = taking.get();
    CHECK(x.value() == "x");
    CHECK(w.await(x.ack()));
    CHECK(all.items() == 0);
}

TEST_CASE("a take that is cancelled leaves the item to others", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    const auto when = GENERATE(0ms, 1ms, 2ms, 3ms, 4ms);
    const bool slow = GENERATE(false, true);
    CAPTURE(when.count(), slow);
    if (slow) {
        fate_of(w, claims_item, {broken(), late(1s)});
    }
    auto taking = w.start(all.a.take());
    w.env->pass(when);
    const bool was_over = taking.ended();
    taking.cancel();
    w.env->pass(0ms);
    REQUIRE(taking.ended());
    if (was_over) {
        (void)taking.get();
    } else {
        CHECK(taking.code() == asio::error::operation_aborted);
    }
    w.env->pass(10s);
    CHECK(all.items() == 1);
    CHECK(all.ready() == 1);
    CHECK(all.claims() == 0);
    CHECK(w.etcd->under("w.line/").empty());
    job x = w.await(all.b.take());
    CHECK(x.value() == "x");
}

TEST_CASE("a consumer that is cancelled in the line lets the next one wait", "[work_queue]") {
    workers all;
    world& w = all.w;
    auto first = w.start(all.a.take());
    w.env->pass(1s);
    auto second = w.start(all.b.take());
    w.env->pass(1s);
    first.cancel();
    w.env->pass(0ms);
    CHECK(first.code() == asio::error::operation_aborted);
    w.env->pass(1s);
    all.enqueue("x");
    settle(w);
    REQUIRE(second.ended());
    CHECK(second.get().value() == "x");
}

TEST_CASE("a result that nobody takes is put back", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    const bool elsewhere = GENERATE(false, true);
    {
        support::race<job> both(w, all.a.take(), elsewhere);
        both.ring_after(GENERATE(range(0, 40, 3)));
        w.env->pass(1s);
    }
    w.env->pass(1s);
    CHECK(all.items() == 1);
    CHECK(all.ready() == 1);
}

TEST_CASE("an ack that is cancelled, or not awaited, goes on", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    all.enqueue("y");
    {
        job x = w.await(all.a.take());
        fate_of(w, is_end, {late(2s)});
        auto acking = w.start(x.ack());
        w.env->pass(1ms);
        acking.cancel();
        w.env->pass(0ms);
        CHECK(acking.code() == asio::error::operation_aborted);
        job y = w.await(all.a.take());
        (void)y.ack();
    }
    w.env->pass(10s);
    CHECK(all.items() == 0);
    CHECK(all.claims() == 0);
}

TEST_CASE("an ack without an answer in time can be asked again", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job x = w.await(all.a.take());
    bool cut = true;
    w.env->decide = [&cut](const call_request& r) { return cut && is_end(r) ? lost() : fate(); };
    auto acking = w.start(x.ack());
    auto retrying = w.start(x.retry());
    w.env->pass(12s);
    CHECK(acking.code() == errc::outcome_unknown);
    CHECK_FALSE(x.owns());
    CHECK(retrying.ended());
    cut = false;
    CHECK(w.await(x.ack()));
    CHECK(all.items() == 0);
}

TEST_CASE("a job that is refused stays its owner's", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    {
        job x = w.await(all.a.take());
        w.etcd->write("k", "1");
        // etcd refuses to put a key twice.
        auto acking = w.start(
            x.ack(coetcd::txn().then(coetcd::op::put("k", "2"), coetcd::op::put("k", "3"))));
        w.env->pass(1s);
        CHECK(acking.code() == coetcd::server_errc::invalid_argument);
        CHECK(x.owns());
        CHECK(all.busy() == 1);
    }
    w.env->pass(1s);
    CHECK(all.ready() == 1);
    CHECK(w.etcd->keys.at("k").value == "1");
}

TEST_CASE("whoever has lost its session takes nothing", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    job x = w.await(all.a.take());
    auto waiting = w.start(all.a.take());
    w.env->pass(1s);
    w.await(all.two.close());
    w.env->pass(1ms);
    CHECK(waiting.code() == errc::session_closed);
    CHECK_FALSE(x.owns());
    CHECK(x.lost());
    CHECK_FALSE(w.await(x.ack()));
    auto taking = w.start(all.a.take());
    auto trying = w.start(all.a.try_take());
    auto appending = w.start(all.a.enqueue(std::string("y")));
    w.env->pass(1s);
    CHECK(taking.code() == errc::session_closed);
    CHECK(trying.code() == errc::session_closed);
    CHECK(appending.code() == errc::session_closed);
    CHECK(w.await(all.a.state()).busy == 1);
    CHECK(all.items() == 1);
}

TEST_CASE("a session that ends under way ends the calls", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    w.env->decide = [](const call_request& r) { return claims_item(r) ? lost() : fate(); };
    auto taking = w.start(all.a.take());
    w.env->pass(500ms);
    CHECK_FALSE(taking.ended());
    w.await(all.two.close());
    w.env->pass(10s);
    REQUIRE(taking.ended());
    CHECK(taking.code() == errc::session_closed);
    w.env->decide = nullptr;
    w.env->pass(10s);
    CHECK(all.ready() == 1);
    CHECK(all.claims() == 0);
}

TEST_CASE("an answer that is not etcd's ends in a documented way", "[work_queue]") {
    workers all;
    world& w = all.w;
    all.enqueue("x");
    const auto serve = w.env->on_call;
    const bool is_json = GENERATE(true, false);
    w.env->on_call = [serve, is_json](const call_request& r, coetcd::detail::reply& to) {
        serve(r, to);
        if (claims_item(r)) {
            to.body = is_json ? R"({"header":{"revision":"9"},"succeeded":true})" : "<html>";
        }
    };
    auto trying = w.start(all.a.try_take());
    w.env->pass(60s);
    REQUIRE(trying.ended());
    CHECK(trying.code() == errc::timed_out);
    CHECK(all.busy() == 1);
    w.env->on_call = serve;
    w.env->pass(60s);
    CHECK(all.items() == 1);
    CHECK(all.ready() == 1); // put back as soon as that was possible
    std::optional<job> x = w.await(all.b.try_take());
    REQUIRE(x);
    CHECK(x->value() == "x");
    CHECK(x->attempt() == 2);
}

TEST_CASE("arguments that cannot be are refused by a work queue", "[work_queue]") {
    workers all;
    CHECK_THROWS_AS(work_queue(all.one, ""), std::invalid_argument);
    CHECK_THROWS_AS(work_queue(all.one, std::string(513, 'x')), std::invalid_argument);
    coetcd::work_options none;
    none.max_attempts = 0;
    CHECK_THROWS_WITH(work_queue(all.one, "w", none), "max_attempts: must be at least 1");
    CHECK_THROWS_AS(all.a.enqueue(std::vector<std::string>()), std::invalid_argument);
    CHECK_THROWS_AS(all.a.enqueue(std::vector<std::string>(61)), std::invalid_argument);
    CHECK(all.a.name() == "w");
    CHECK(all.w.env->calls.empty());
}

TEST_CASE("a worker asks a member that has stalled ever more seldom", "[work_queue]") {
    workers all;
    world& w = all.w;
    std::map<std::string, std::string> old; // the answers to looks at the empty queue
    bool stalls = false;
    int looks = 0;
    w.env->on_call = [&, serve = w.env->on_call](const call_request& q, coetcd::detail::reply& r) {
        if (stalls && claims_item(q)) { // somebody else is faster
            w.etcd->erase(w.etcd->under("w/ready/").front());
        }
        serve(q, r);
        const bool is_look = q.what == coetcd::detail::rpc::txn && !has(q, "request_put") &&
                             has(q, "dy9hZ2Fpbi8"); // "w/again/"
        if (is_look && stalls && old.contains(q.body)) {
            ++looks;
            r.body = old[q.body];
        } else if (is_look && !stalls) {
            old[q.body] = r.body;
        }
    };
    auto waiting = w.start(all.a.take());
    w.env->pass(1s);
    stalls = true;
    all.enqueue("x");
    w.env->pass(30s);
    CHECK_FALSE(waiting.ended());
    CHECK(all.items() == 0);
    CHECK(looks < 100);
    stalls = false;
    all.enqueue("y");
    w.env->pass(10s);
    CHECK(waiting.get().value() == "y");
}

TEST_CASE("a job that is none does nothing", "[work_queue]") {
    workers all;
    world& w = all.w;
    job none;
    CHECK_FALSE(none.owns());
    CHECK_FALSE(none.lost());
    CHECK_THROWS_AS(none.value(), std::logic_error);
    CHECK_THROWS_AS(none.ack(), std::logic_error);
    CHECK_THROWS_AS(none.get_executor(), std::logic_error);
    all.enqueue("x");
    job x = w.await(all.a.take());
    none = std::move(x);
    CHECK(none.owns());
    CHECK_FALSE(x.owns());
    x = std::move(none);
    CHECK(w.await(x.ack()));
}

TEST_CASE("an object may be destroyed while its calls are under way", "[work_queue]") {
    workers all;
    world& w = all.w;
    auto temporary = std::make_unique<work_queue>(all.two, "w");
    auto appending = w.start(temporary->enqueue(std::string("x")));
    auto taking = w.start(temporary->take());
    temporary.reset();
    w.env->pass(1s);
    (void)appending.get();
    auto x = std::make_unique<job>(taking.get());
    auto acking = w.start(x->ack());
    x.reset();
    w.env->pass(1s);
    CHECK(acking.get());
    CHECK(all.items() == 0);
}

TEST_CASE("a name that another begins with is another queue", "[work_queue]") {
    workers all;
    world& w = all.w;
    work_queue other(all.one, "w2");
    w.await(other.enqueue(std::string("x")));
    CHECK_FALSE(w.await(all.a.try_take()));
    CHECK(w.await(other.try_take()));
}
