// SPDX-License-Identifier: BSL-1.0
#include <coetcd/as_result.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/testing.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_end;
using coetcd::session_state;
using coetcd::testing::cluster;
using coetcd::testing::cluster_options;

namespace {

/// A cluster with two clients that have a session each, and a lock of it.
struct two_clients {
    explicit two_clients(cluster_options options = {})
        : etcd(options)
        , first(etcd.make_client())
        , second(etcd.make_client())
        , first_session(etcd.run(first, coetcd::session::open(first, 5s)))
        , second_session(etcd.run(second, coetcd::session::open(second, 5s)))
        , first_lock(first_session, "n")
        , second_lock(second_session, "n") {}

    cluster etcd;
    coetcd::client first;
    coetcd::client second;
    coetcd::session first_session;
    coetcd::session second_session;
    coetcd::mutex first_lock;
    coetcd::mutex second_lock;
};

/// How long a lock, three times taken and given back, and waited for, takes; what it tells in
/// between.
std::vector<std::int64_t> lock_story(std::uint64_t seed) {
    cluster_options options;
    options.seed = seed;
    two_clients r(options);
    std::vector<std::int64_t> told;
    for (int i = 0; i != 3; ++i) {
        r.etcd.run(r.first, r.first_lock.lock());
        auto waiting = r.etcd.start(r.second, r.second_lock.lock());
        r.etcd.pass(1s);
        r.etcd.run(r.first, r.first_lock.unlock());
        r.etcd.pass(1s);
        waiting.get();
        told.push_back(r.second_lock.fencing_token());
        told.push_back(static_cast<std::int64_t>(r.etcd.requests(r.second)));
        r.etcd.change_leader();
        r.etcd.run(r.second, r.second_lock.unlock());
        told.push_back(r.etcd.now().count());
    }
    return told;
}

} // namespace

TEST_CASE("a test of a lock takes no time, and is the same each time") {
    CHECK(lock_story(1) == lock_story(1));
    CHECK(lock_story(1) != lock_story(2)); // when the leader is there again is up to chance
}

TEST_CASE("time passes in pass and in run only") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    CHECK(etcd.now() == 0s);
    auto sleeping = etcd.start(c, etcd.sleep(c, 10min));
    etcd.pass(10min - 1ns);
    CHECK_FALSE(sleeping.ended());
    etcd.pass(1ns);
    CHECK(sleeping.succeeded());
    CHECK(etcd.now() == 10min);
    etcd.run(c, etcd.sleep(c, 1s));
    CHECK(etcd.now() == 10min + 1s);
}

TEST_CASE("a request takes a round trip") {
    cluster_options options;
    options.round_trip = 10ms;
    cluster etcd(options);
    const coetcd::client c = etcd.make_client();
    auto writing = etcd.start(c, c.put("k", "v"));
    etcd.pass(10ms - 1ns);
    CHECK_FALSE(writing.ended());
    CHECK(etcd.keys() == std::vector<std::string>{"k"});
    etcd.pass(1ns);
    CHECK(writing.succeeded());
    CHECK(etcd.requests(c) == 1);
    CHECK(etcd.run(c, c.get("k")).value().value == "v");
    CHECK(etcd.requests(c) == 2);
    CHECK(etcd.keys("l").empty());
}

TEST_CASE("code that runs is cancelled by its handle") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    r.etcd.pass(1s);
    CHECK_THROWS_AS(waiting.get(), std::logic_error);
    waiting.cancel();
    r.etcd.pass(0s);
    CHECK(waiting.code() == asio::error::operation_aborted);
}

TEST_CASE("a lease that is lost takes the lock along") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    r.etcd.pass(1s);
    CHECK(r.etcd.leases() == 2);
    r.etcd.lose_lease(r.first_session);
    CHECK(r.etcd.leases() == 1);
    r.etcd.pass(1s);
    CHECK(waiting.succeeded());
    r.etcd.pass(5s);
    CHECK(r.first_session.state() == session_state::lost);
    CHECK_FALSE(r.first_lock.owns_lock());
}

TEST_CASE("a client that is cut off loses its session, and begins again when it is joined") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    r.etcd.cut(r.first);
    r.etcd.pass(4s);
    CHECK(r.first_lock.owns_lock());
    r.etcd.pass(2s);
    CHECK(r.first_session.state() == session_state::lost);
    CHECK_FALSE(r.first_lock.owns_lock());
    r.etcd.pass(2s);
    CHECK(waiting.succeeded());
    r.etcd.join(r.first);
    const coetcd::session again = r.etcd.run(r.first, coetcd::session::open(r.first, 5s));
    CHECK(again.state() == session_state::active);
}

TEST_CASE("a process that stands still finds its lock lost") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    coetcd::txn late =
        coetcd::txn().when(r.first_lock.is_owner()).then(coetcd::op::put("shipped", "twice"));
    const auto write_late = [&]() -> asio::awaitable<coetcd::txn_response> {
        co_await r.etcd.sleep(r.first, 2s); // when the lock is its own, by its clock
        co_return co_await r.first.txn(std::move(late));
    };
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    auto writing = r.etcd.start(r.first, write_late());
    r.etcd.pass(1s);
    r.etcd.stall(r.first, 30s);
    r.etcd.pass(29s);
    CHECK(waiting.succeeded());
    CHECK_FALSE(writing.ended());
    r.etcd.pass(2s);
    CHECK_FALSE(writing.get().succeeded);
    CHECK(r.etcd.keys("shipped").empty());
    CHECK_FALSE(r.first_lock.owns_lock());
}

TEST_CASE("a process that is killed does nothing any more, and its lock is free in time") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    auto never = r.etcd.start(r.first, r.etcd.sleep(r.first, 1s));
    r.etcd.pass(0s);
    r.etcd.kill(r.first);
    const std::uint64_t before = r.etcd.requests(r.first);
    r.etcd.pass(4s);
    CHECK_FALSE(waiting.ended());
    r.etcd.pass(3s);
    CHECK(waiting.succeeded());
    CHECK_FALSE(never.ended());
    CHECK(r.etcd.requests(r.first) == before);
}

TEST_CASE("code kills its own process, once it waits") {
    two_clients r;
    int steps = 0;
    const auto fall_on_a_sword = [&]() -> asio::awaitable<void> {
        co_await r.first_lock.lock();
        r.etcd.kill(r.first);
        ++steps;
        co_await r.etcd.sleep(r.first, 0s);
        ++steps;
    };
    auto never = r.etcd.start(r.first, fall_on_a_sword());
    r.etcd.pass(1s);
    CHECK(steps == 1);
    CHECK_FALSE(never.ended());
    r.etcd.pass(6s);
    CHECK(r.etcd.run(r.second, r.second_lock.try_lock()));
}

TEST_CASE("code in a process cannot make time pass") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    const auto impatient = [&]() -> asio::awaitable<void> {
        etcd.pass(1s);
        co_return;
    };
    auto t = etcd.start(c, impatient());
    etcd.pass(0s);
    CHECK_THROWS_AS(t.get(), std::logic_error);
}

TEST_CASE("a write whose answer is lost is done, and told as unknown") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    etcd.lose_answer(c);
    CHECK(etcd.run(c, c.get("k")) == std::nullopt); // it may not change anything
    auto writing = etcd.start(c, c.put("k", "v"));
    etcd.pass(1s);
    CHECK(writing.code() == errc::outcome_unknown);
    CHECK(etcd.keys() == std::vector<std::string>{"k"});
    etcd.run(c, c.put("k", "w")); // once only
}

TEST_CASE("a lock outlives a change of the leader") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    r.etcd.change_leader();
    auto writing = r.etcd.start(r.second, r.second.put("k", "v"));
    r.etcd.pass(900ms);
    CHECK_FALSE(writing.ended()); // there is none yet
    r.etcd.pass(20s);
    CHECK(writing.succeeded());
    CHECK(r.first_lock.owns_lock());
    r.etcd.run(r.first, r.first_lock.unlock());
}

TEST_CASE("a member that stops is one of three") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    for (int member = 0; member != 3; ++member) {
        r.etcd.stop_member(member);
        r.etcd.pass(5s);
        r.etcd.run(r.second, r.second.put("k", "v"));
        r.etcd.start_member(member);
        r.etcd.pass(5s);
    }
    CHECK(r.first_lock.owns_lock());
    r.etcd.stop_member(0);
    r.etcd.stop_member(1);
    auto writing = r.etcd.start(r.second, r.second.put("k", "w"));
    r.etcd.pass(60s);
    CHECK(writing.ended());
    CHECK_FALSE(writing.succeeded());
    CHECK(r.first_session.state() == session_state::lost);
    r.etcd.start_member(1);
    r.etcd.pass(5s);
    r.etcd.run(r.second, r.second.put("k", "x"));
}

TEST_CASE("a watcher that begins in history that is gone is told so") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    etcd.run(c, c.put("k", "v"));
    etcd.run(c, c.put("k", "w"));
    etcd.compact();
    const auto read_from_the_past = [&]() -> asio::awaitable<void> {
        coetcd::watch_options past;
        past.start_revision = 2;
        coetcd::watcher watcher = co_await c.watch("k", past);
        (void)co_await watcher.next();
    };
    auto reading = etcd.start(c, read_from_the_past());
    etcd.pass(1s);
    CHECK(reading.code() == errc::watch_compacted);
}

TEST_CASE("code that waits for a timer of Asio never ends, and is told why") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    const auto wait = [&]() -> asio::awaitable<void> {
        asio::steady_timer timer(c.get_executor(), 1ms);
        co_await timer.async_wait(asio::use_awaitable);
    };
    std::string why;
    try {
        etcd.run(c, wait());
    } catch (const std::runtime_error& e) {
        why = e.what();
    }
    CHECK_THAT(why, support::contains("`sleep`"));
}

TEST_CASE("an exception that nobody catches comes out of pass") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    asio::post(c.get_executor(), [] { throw std::runtime_error("out of paper"); });
    std::string what;
    try {
        etcd.pass(0s);
    } catch (const std::runtime_error& e) {
        what = e.what();
    }
    CHECK_THAT(what, support::contains("out of paper"));
}

TEST_CASE("clients of one test call each other's code") {
    two_clients r;
    const auto both = [&]() -> asio::awaitable<void> {
        co_await r.first_lock.lock(); // from the second one's process
        co_await r.first_lock.unlock();
        co_await r.second_lock.lock();
        co_await r.second_lock.unlock();
    };
    r.etcd.run(r.second, both());
    CHECK(r.etcd.keys("n/").empty());
}

TEST_CASE("a cluster refuses what it cannot be asked for") {
    const auto with = [](auto change) {
        cluster_options o;
        change(o);
        return o;
    };
    CHECK_THROWS_AS(cluster(with([](auto& o) { o.members = 0; })), std::invalid_argument);
    CHECK_THROWS_AS(cluster(with([](auto& o) { o.members = 4; })), std::invalid_argument);
    CHECK_THROWS_AS(cluster(with([](auto& o) { o.round_trip = -1ns; })), std::invalid_argument);
    cluster etcd;
    cluster other;
    const coetcd::client c = other.make_client();
    CHECK_THROWS_AS(etcd.cut(c), std::invalid_argument);
    CHECK_THROWS_AS(etcd.stop_member(3), std::invalid_argument);
    CHECK_THROWS_AS(etcd.stop_member(-1), std::invalid_argument);
    coetcd::client_options bad;
    bad.request_timeout = 0ms;
    CHECK_THROWS_AS(etcd.make_client(bad), std::invalid_argument);
}
