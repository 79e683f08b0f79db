// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/semaphore.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/race.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::permit;
using coetcd::semaphore;
using coetcd::detail::call_request;
using coetcd::detail::rpc;
using support::background;
using support::delay_first;
using support::has;
using support::scripted_env;
using support::world;

namespace {

/// Two sessions that use the same semaphore.
struct users {
    explicit users(std::int64_t limit = 1, coetcd::session_options options = {})
        : client(w.client())
        , one(w.await(coetcd::session::open(client, options)))
        , two(w.await(coetcd::session::open(client, options)))
        , a(one, "s", limit)
        , b(two, "s", limit) {}

    /// How many permits etcd has.
    std::size_t held() const { return w.etcd->under("s/hold/").size(); }
    std::size_t waiting() const { return w.etcd->under("s/wait/").size(); }

    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    semaphore a;
    semaphore b;
};

// Its transactions on the wire.
bool is_permit_take(const call_request& r) {
    return has(r, "count_only") && has(r, "request_txn");
}
bool is_permit_enter(const call_request& r) {
    return has(r, "count_only") && has(r, "request_put") && !has(r, "request_txn");
}
bool is_permit_confirm(const call_request& r) {
    return has(r, "count_only") && has(r, "request_delete_range") && !has(r, "request_put");
}
bool is_admit(const call_request& r) {
    return has(r, "request_put") && has(r, "request_delete_range") && !has(r, "sort_order") &&
           !has(r, "prev_kv");
}

std::size_t transactions(const world& w) {
    return support::count(w, [](const call_request& r) { return r.what == rpc::txn; });
}

/// The first such request does not get its answer; and it may arrive late.
void lose_first(world& w,
                bool (*which)(const call_request&),
                std::chrono::nanoseconds late = std::chrono::nanoseconds(0)) {
    w.env->decide = [which, late, first = true](const call_request& r) mutable {
        scripted_env::fate f;
        if (which(r) && std::exchange(first, false)) {
            f.breaks = true;
            f.late = late;
        }
        return f;
    };
}

} // namespace

TEST_CASE("acquire() takes a permit in one round trip, release() gives it back in one",
          "[semaphore]") {
    users all(2);
    world& w = all.w;
    const std::size_t before = w.env->calls.size();
    permit p = w.await(all.a.acquire());
    REQUIRE(w.env->calls.size() == before + 1);
    REQUIRE(p.owns_lock());
    REQUIRE(p);
    REQUIRE(p.weight() == 1);
    REQUIRE(w.etcd->under("s/hold/") == std::vector<std::string>{p.key()});
    REQUIRE(w.etcd->keys.at(p.key()).create_revision == p.token());
    REQUIRE(w.etcd->keys.at(p.key()).lease == all.one.lease());
    REQUIRE(w.etcd->keys.at("s.limit").value == "2");
    REQUIRE(w.etcd->keys.at("s.limit").lease == 0); // outlives us

    REQUIRE(w.await(p.release()));
    REQUIRE(w.env->calls.size() == before + 2);
    REQUIRE_FALSE(p.owns_lock());
    REQUIRE(all.held() == 0);
    REQUIRE(w.etcd->keys.size() == 1); // the limit
    REQUIRE_FALSE(w.await(p.release()));
    REQUIRE(w.env->calls.size() == before + 2);

    permit again = w.await(all.a.acquire());
    REQUIRE(again.token() > p.token());
    REQUIRE(again.key() == p.key());
}

TEST_CASE("the limit that was stored first counts", "[semaphore]") {
    users all(1);
    world& w = all.w;
    semaphore other(all.two, "s", 100);
    const permit p = w.await(all.a.acquire());
    REQUIRE_FALSE(w.await(other.try_acquire()));
    REQUIRE(w.await(other.state()).limit == 1);
}

TEST_CASE("arguments that cannot be are refused", "[semaphore]") {
    users all;
    const coetcd::session& s = all.one;
    REQUIRE_THROWS_WITH(semaphore(s, ""), "name: is empty");
    REQUIRE_THROWS_WITH(semaphore(s, std::string(513, 'x')), "name: is longer than 512 bytes");
    REQUIRE_THROWS_WITH(semaphore(s, "", 1), "name: is empty");
    REQUIRE_THROWS_WITH(semaphore(s, std::string(513, 'x'), 1), "name: is longer than 512 bytes");
    REQUIRE_THROWS_WITH(semaphore(s, "s", -1), "initial_limit: must be from 0 to 2^40");
    REQUIRE_THROWS_AS(semaphore(s, "s", semaphore::max_limit + 1), std::invalid_argument);
    REQUIRE_NOTHROW(semaphore(s, "s", 0));
    REQUIRE_NOTHROW(semaphore(s, "s", semaphore::max_limit));
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-1}, semaphore::max_weight + 1}) {
        REQUIRE_THROWS_AS(all.a.acquire(n), std::invalid_argument);
        REQUIRE_THROWS_AS(all.a.try_acquire(n), std::invalid_argument);
        REQUIRE_THROWS_AS(all.a.acquire_for(n, 1s), std::invalid_argument);
        REQUIRE_THROWS_AS(all.a.acquire_for(n, 0s), std::invalid_argument);
    }
    REQUIRE(all.a.name() == "s");
}

TEST_CASE("a permit that is none owns nothing", "[semaphore]") {
    users all;
    world& w = all.w;
    permit none;
    REQUIRE_FALSE(none.owns_lock());
    REQUIRE(none.weight() == 0);
    REQUIRE_FALSE(w.await(none.release()));
    REQUIRE_THROWS_AS(none.token(), std::logic_error);
    REQUIRE_THROWS_AS(none.is_owner(), std::logic_error);
    REQUIRE_THROWS_AS(none.key(), std::logic_error);
    REQUIRE_THROWS_AS(none.get_executor(), std::logic_error);
    REQUIRE_THROWS_AS(none.wait_lost(), std::logic_error);

    permit p = w.await(all.a.acquire());
    none = std::move(p);
    REQUIRE(none.owns_lock());
    REQUIRE(none.weight() == 1);
    REQUIRE(p.weight() == 0);
    none = permit(); // gives it back
    w.env->pass(10ms);
    REQUIRE(all.held() == 0);
}

TEST_CASE("no call of a semaphore that was moved from goes astray", "[semaphore]") {
    users all;
    semaphore& s = all.a;
    const semaphore now = std::move(s);
    const std::size_t calls = all.w.env->calls.size();
    const std::vector<std::function<void()>> uses{
        [&] { (void)s.get_executor(); },
        [&] { (void)s.acquire(); },
        [&] { (void)s.try_acquire(); },
        [&] { (void)s.acquire_for(1, 1s); },
        [&] { (void)s.acquire_for(1, -1s); },
        [&] { (void)s.name(); },
        [&] { (void)s.state(); },
        [&] { (void)s.holders(); },
        [&] { (void)s.waiters(); },
        [&] { (void)s.ensure_limit(1); },
        [&] { (void)s.set_limit(1); },
        [&] { (void)s.adjust_limit(1); },
    };
    for (const auto& use : uses) {
        REQUIRE_THROWS_AS(use(), std::logic_error);
    }
    REQUIRE(all.w.env->calls.size() == calls);
    s = semaphore(all.one, "t", 1);
    REQUIRE(all.w.await(s.acquire()).owns_lock());
}

TEST_CASE("permits of a weight count as many", "[semaphore]") {
    users all(8);
    world& w = all.w;
    permit five = w.await(all.a.acquire(5));
    REQUIRE(w.etcd->under("s/hold/").size() == 2); // two bits
    permit two = w.await(all.b.acquire(2));
    REQUIRE(five.weight() == 5);
    const coetcd::semaphore_state now = w.await(all.a.state());
    REQUIRE(now.limit == 8);
    REQUIRE(now.used == 7);
    REQUIRE(now.waiting == 0);
    REQUIRE_FALSE(w.await(all.b.try_acquire(2)));
    const std::optional<permit> last = w.await(all.b.try_acquire(1));
    REQUIRE(last);
    REQUIRE(w.await(all.a.state()).used == 8);

    const std::vector<coetcd::permit_entry> owners = w.await(all.b.holders());
    REQUIRE(owners.size() == 3);
    REQUIRE(owners[0].key == five.key());
    REQUIRE(owners[0].token == five.token());
    REQUIRE(owners[0].weight == 5);
    REQUIRE(owners[0].lease == all.one.lease());
    REQUIRE(owners[1].weight == 2);
    REQUIRE(owners[2].weight == 1);

    REQUIRE(w.await(five.release()));
    REQUIRE(w.await(all.a.state()).used == 3);
    permit all_bits = w.await(semaphore(all.one, "big", 100'000).acquire(semaphore::max_weight));
    REQUIRE(w.etcd->under("big/hold/").size() == 16);
    REQUIRE(w.await(all_bits.release()));
    REQUIRE(w.etcd->under("big/").empty());
}

TEST_CASE("acquire() waits for room, and costs what it says", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    const std::size_t before = transactions(w);
    auto waiting = w.start(all.b.acquire());
    w.env->pass(1s);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(all.held() == 1);
    REQUIRE(all.waiting() == 1);
    // To take, to enter, a look for the watch of the own key.
    REQUIRE(transactions(w) == before + 3);
    REQUIRE(w.etcd->watches() == 3);
    REQUIRE(w.await(all.a.state()).waiting == 1);
    const std::vector<coetcd::permit_entry> queue = w.await(all.a.waiters());
    REQUIRE(queue.size() == 1);
    REQUIRE(queue[0].lease == all.two.lease());
    REQUIRE(queue[0].weight == 1);

    const std::size_t then = transactions(w);
    auto releasing = w.start(held.release());
    w.env->pass(20ms); // there and back, an event, there and back
    REQUIRE(releasing.get());
    const permit p = waiting.get();
    REQUIRE(transactions(w) == then + 2); // release, admit
    REQUIRE(p.owns_lock());
    REQUIRE(all.held() == 1);
    REQUIRE(all.waiting() == 0);
    w.env->pass(1s);
    REQUIRE(w.etcd->watches() == 0); // of what concerns others
}

TEST_CASE("no attempt is let past one that waits, even if there is room", "[semaphore]") {
    users all(3);
    world& w = all.w;
    const coetcd::session three = w.await(coetcd::session::open(all.client));
    semaphore c(three, "s", 3);
    permit held = w.await(all.a.acquire(2));
    auto big = w.start(all.b.acquire(3));
    w.env->pass(50ms);
    auto small = w.start(c.acquire(1));
    w.env->pass(1s);
    REQUIRE_FALSE(big.ended());
    REQUIRE_FALSE(small.ended());
    REQUIRE_FALSE(w.await(all.a.try_acquire(1)));
    REQUIRE(w.await(c.state()).used == 2);
    REQUIRE(w.await(c.waiters()).size() == 2);
    REQUIRE(w.await(c.waiters(1)).front().weight == 3);

    REQUIRE(w.await(held.release()));
    w.env->pass(20ms);
    permit three_permits = big.get();
    w.env->pass(1s);
    REQUIRE_FALSE(small.ended());
    REQUIRE(w.await(three_permits.release()));
    w.env->pass(20ms);
    REQUIRE(small.get().owns_lock());
}

TEST_CASE("the coroutines of one session get their permits in order", "[semaphore]") {
    users all(2);
    world& w = all.w;
    std::vector<int> order;
    const auto job = [&](int n) -> asio::awaitable<void> {
        permit p = co_await all.a.acquire();
        order.push_back(n);
        (void)co_await p.release();
    };
    permit first = w.await(all.b.acquire());
    permit second = w.await(all.b.acquire());
    REQUIRE(all.held() == 2); // one session, two permits
    std::vector<background<void>> jobs;
    for (int i = 0; i != 6; ++i) {
        jobs.push_back(w.start(job(i)));
    }
    w.env->pass(100ms);
    REQUIRE(order.empty());
    REQUIRE(all.waiting() == 6);
    REQUIRE(w.await(first.release()));
    w.env->pass(1s);
    REQUIRE(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    for (auto& j : jobs) {
        j.get();
    }
    REQUIRE(w.await(second.release()));
    REQUIRE(w.etcd->keys.size() == 1);
}

TEST_CASE("of a session up to 16 coroutines wait in etcd's queue, by one watch", "[semaphore]") {
    users all(3);
    world& w = all.w;
    permit first = w.await(all.b.acquire(3));
    std::vector<background<permit>> taking;
    for (int i = 0; i != 20; ++i) {
        taking.push_back(w.start(all.a.acquire()));
    }
    w.env->pass(100ms);
    REQUIRE(all.waiting() == 16);
    REQUIRE(w.await(all.b.state()).waiting == 16); // and not those behind them
    // of the permits, of the limit, and of one key for each of those that are far behind
    REQUIRE(w.etcd->watches() == 2 + 11);
    REQUIRE(w.await(first.release()));
    w.env->pass(100ms);
    std::vector<permit> held;
    for (std::size_t i = 0; i != 3; ++i) {
        held.push_back(taking[i].get());
    }
    REQUIRE(all.held() == 3);
    REQUIRE(all.waiting() == 16);
    taking[5].cancel(); // in etcd's queue
    taking[19].cancel();
    w.env->pass(100ms);
    REQUIRE(all.waiting() == 15);
    for (auto& t : taking) {
        t.cancel();
    }
    w.env->pass(100ms);
    REQUIRE(all.waiting() == 0);
}

TEST_CASE("those of one session may hold at once", "[semaphore]") {
    users all(50);
    world& w = all.w;
    std::vector<background<permit>> taking;
    for (int i = 0; i != 50; ++i) {
        taking.push_back(w.start(all.a.acquire()));
    }
    w.env->pass(1s);
    std::vector<permit> held;
    for (auto& t : taking) {
        held.push_back(t.get());
    }
    REQUIRE(all.held() == 50);
    for (std::size_t i = 1; i != held.size(); ++i) {
        REQUIRE(held[i].token() > held[i - 1].token());
    }
    held.clear(); // in the background
    w.env->pass(100ms);
    REQUIRE(w.etcd->keys.size() == 1);
}

TEST_CASE("try_acquire() takes what there is, and leaves nothing if it is too little",
          "[semaphore]") {
    users all(2);
    world& w = all.w;
    std::optional<permit> one = w.await(all.a.try_acquire());
    REQUIRE(one);
    REQUIRE_FALSE(w.await(all.b.try_acquire(2)));
    w.env->pass(20ms);
    REQUIRE(all.held() == 1);
    REQUIRE(all.waiting() == 0);
    // two at once, of one session: there is room for both
    REQUIRE(w.await(one->release()));
    auto first = w.start(all.a.try_acquire());
    auto second = w.start(all.a.try_acquire());
    auto third = w.start(all.a.try_acquire());
    w.env->pass(50ms);
    const std::optional<permit> p = first.get();
    const std::optional<permit> q = second.get();
    REQUIRE(p);
    REQUIRE(q);
    REQUIRE_FALSE(third.get());
    w.env->pass(20ms);
    REQUIRE(all.held() == 2);
}

TEST_CASE("try_acquire() is not refused because of what the session itself gives up",
          "[semaphore]") {
    users all(1, coetcd::session_options(60s));
    world& w = all.w;
    permit mine = w.await(all.a.acquire());
    delay_first(w, support::is_release, 1s);
    (void)mine.release();
    const std::optional<permit> next = w.await(all.a.try_acquire());
    REQUIRE(next);
    REQUIRE(all.held() == 1);
    REQUIRE_FALSE(w.await(all.b.try_acquire()));
}

TEST_CASE("try_acquire() does not wait behind a waiter of its session", "[semaphore]") {
    users all(1);
    world& w = all.w;
    const permit held = w.await(all.b.acquire());
    auto waiting = w.start(all.a.acquire());
    auto at_the_same_time = w.start(all.a.try_acquire()); // etcd has not told yet
    w.env->pass(100ms);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE_FALSE(at_the_same_time.get());
    const std::size_t before = w.env->calls.size();
    REQUIRE_FALSE(w.await(all.a.try_acquire()));
    REQUIRE(w.env->calls.size() == before);
    waiting.cancel();
    w.env->pass(20ms);
}

TEST_CASE("acquire_for() waits as long as it is told, and leaves the queue", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    const auto began = w.env->now();
    REQUIRE_FALSE(w.await(all.b.acquire_for(1, 300ms)));
    REQUIRE(w.env->now() - began >= 300ms);
    REQUIRE(w.env->now() - began < 320ms);
    w.env->pass(20ms);
    REQUIRE(all.waiting() == 0);
    REQUIRE_FALSE(w.await(all.b.acquire_for(1, -1s)));
    REQUIRE_FALSE(w.await(all.b.acquire_until(1, std::chrono::steady_clock::now() - 1s)));
    auto patient = w.start(all.b.acquire_until(1, std::chrono::steady_clock::now() + 1h));
    w.env->pass(50ms);
    REQUIRE(w.await(held.release()));
    w.env->pass(20ms);
    REQUIRE(patient.get()->owns_lock());
}

TEST_CASE("acquire_for() and try_acquire() tell an outage from others that have it",
          "[semaphore]") {
    users all(1, coetcd::session_options(60s));
    world& w = all.w;
    w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.answered = r.what != rpc::txn;
        return f;
    };
    auto patient = w.start(all.a.acquire_for(1, 500ms));
    w.env->pass(510ms);
    REQUIRE(patient.code() == errc::timed_out);
    try {
        (void)patient.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("semaphore \"s\", acquire_for"));
    }
    auto trying = w.start(all.b.try_acquire());
    w.env->pass(5100ms);
    REQUIRE(trying.code() == errc::timed_out);
    w.env->decide = nullptr;
    w.env->pass(5s);
    REQUIRE(all.held() == 0);
    REQUIRE(all.waiting() == 0);
    REQUIRE(all.one.state() == coetcd::session_state::active);
}

TEST_CASE("more than the limit is refused at once, and leaves nothing", "[semaphore]") {
    users all(3);
    world& w = all.w;
    const auto refused = [&](auto work) {
        background<typename decltype(work)::value_type> b = w.start(std::move(work));
        w.env->pass(50ms);
        REQUIRE(b.code() == errc::exceeds_limit);
        REQUIRE(w.etcd->under("s/wait/").empty());
    };
    refused(all.a.acquire(4));
    refused(all.a.try_acquire(4));
    refused(all.a.acquire_for(4, 10s));
    REQUIRE(all.held() == 0);
    const permit held = w.await(all.a.acquire(3));
    refused(all.b.acquire(4)); // others have it all, but that is not why
    auto waiting = w.start(all.b.acquire());
    w.env->pass(50ms);
    const coetcd::session three = w.await(coetcd::session::open(all.client));
    semaphore c(three, "s", 3);
    auto behind = w.start(c.acquire(4)); // nor that another one waits
    w.env->pass(50ms);
    REQUIRE(behind.code() == errc::exceeds_limit);
    try {
        (void)behind.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("it asks for 4, and the limit is 3"));
    }
    REQUIRE_FALSE(waiting.ended());
    waiting.cancel();
    w.env->pass(20ms);
    semaphore closed(all.one, "closed", 0);
    auto none = w.start(closed.acquire());
    w.env->pass(20ms);
    REQUIRE(none.code() == errc::exceeds_limit);
}

TEST_CASE("the limit changes live: up lets a waiter in, down takes nothing from holders",
          "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit first = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(500ms);
    w.etcd->write("s.limit", "2");
    w.env->pass(20ms);
    permit second = waiting.get();
    REQUIRE(all.held() == 2);

    w.etcd->write("s.limit", "1");
    w.env->pass(10s);
    REQUIRE(first.owns_lock());
    REQUIRE(second.owns_lock());
    REQUIRE(w.await(all.a.state()).used == 2);
    auto third = w.start(all.b.acquire());
    w.env->pass(1s);
    REQUIRE(w.await(first.release()));
    w.env->pass(1s);
    REQUIRE_FALSE(third.ended()); // one is held, and one is the limit
    REQUIRE(w.await(second.release()));
    w.env->pass(20ms);
    REQUIRE(third.get().owns_lock());
}

TEST_CASE("a waiter that asks for more than the limit has become is refused", "[semaphore]") {
    users all(5);
    world& w = all.w;
    permit held = w.await(all.a.acquire(3));
    auto waiting = w.start(all.b.acquire(4));
    w.env->pass(500ms);
    w.etcd->write("s.limit", "3");
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::exceeds_limit);
    w.env->pass(20ms);
    REQUIRE(all.waiting() == 0);
    REQUIRE(held.owns_lock());
}

TEST_CASE("a limit that was deleted is stored again by the next one", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    semaphore generous(all.two, "s", 2);
    auto waiting = w.start(generous.acquire());
    w.env->pass(500ms);
    REQUIRE_FALSE(waiting.ended());
    w.etcd->erase("s.limit");
    w.env->pass(20ms);
    REQUIRE(waiting.get().owns_lock());
    REQUIRE(w.etcd->keys.at("s.limit").value == "2");
}

TEST_CASE("what is stored as the limit and is no number is refused", "[semaphore]") {
    users all(1);
    world& w = all.w;
    w.etcd->write("s.limit", "many");
    auto acquiring = w.start(all.a.acquire());
    auto trying = w.start(all.b.try_acquire());
    w.env->pass(50ms);
    REQUIRE(acquiring.code() == errc::wrong_kind);
    REQUIRE(trying.code() == errc::wrong_kind);
    REQUIRE_THROWS_AS(w.await(all.a.state()), coetcd::error);
    w.env->pass(50ms);
    REQUIRE(all.held() == 0);
    REQUIRE(all.waiting() == 0);

    w.etcd->write("s.limit", "1");
    const permit held = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(500ms);
    w.etcd->write("s.limit", "");
    w.env->pass(50ms);
    REQUIRE(waiting.code() == errc::wrong_kind);
    w.env->pass(50ms);
    REQUIRE(all.waiting() == 0);
}

TEST_CASE("a limit that is lowered between the judgement and the admission counts", "[semaphore]") {
    users all(2);
    world& w = all.w;
    permit first = w.await(all.a.acquire());
    permit second = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(500ms);
    delay_first(w, is_admit, 50ms);
    auto releasing = w.start(second.release());
    w.env->pass(20ms); // judged
    REQUIRE(releasing.get());
    REQUIRE(support::count(w, is_admit) == 1);
    w.etcd->write("s.limit", "1");
    w.env->pass(1s);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(all.held() == 1);
    REQUIRE(w.await(first.release()));
    w.env->pass(20ms);
    REQUIRE(waiting.get().owns_lock());
}

TEST_CASE("of two that take the last permit at once one waits", "[semaphore]") {
    users all(1);
    world& w = all.w;
    auto first = w.start(all.a.acquire());
    auto second = w.start(all.b.acquire());
    w.env->pass(1s);
    REQUIRE(first.ended() != second.ended());
    background<permit>& granted = first.ended() ? first : second;
    background<permit>& waits = first.ended() ? second : first;
    permit p = granted.get();
    REQUIRE(all.held() == 1);
    REQUIRE(all.waiting() == 1);
    REQUIRE(w.await(p.release()));
    w.env->pass(20ms);
    REQUIRE(waits.get().owns_lock());
}

TEST_CASE("an attempt that takes too many gives them up before others are judged by them",
          "[semaphore]") {
    users all(4);
    world& w = all.w;
    permit held = w.await(all.a.acquire(3));
    delay_first(w, is_permit_enter, 300ms); // its three stay for so long
    auto big = w.start(all.b.acquire(3));
    w.env->pass(20ms);
    REQUIRE(w.await(all.a.state()).used == 6);
    REQUIRE_FALSE(w.await(all.a.try_acquire(1))); // errs on the safe side
    w.env->pass(1s);
    REQUIRE(w.await(all.a.state()).used == 3);
    REQUIRE(w.await(held.release()));
    w.env->pass(20ms);
    REQUIRE(big.get().owns_lock());
}

TEST_CASE("every lost answer on the way to a permit is ridden out", "[semaphore]") {
    for (const int how : {0, 1, 2}) {
        for (int lost = 1; lost != 10; ++lost) {
            INFO("the transaction number " << lost << ", " << how);
            users all(2);
            world& w = all.w;
            permit held = w.await(all.a.acquire(2));
            int n = 0;
            w.env->decide = [&](const call_request& r) {
                scripted_env::fate f;
                if (r.what == rpc::txn && ++n == lost) {
                    f.arrives = how != 0;
                    f.breaks = true;
                    f.late = how == 2 ? 700ms : 0ms;
                }
                return f;
            };
            auto waiting = w.start(all.b.acquire(2));
            w.env->pass(100ms);
            auto releasing = w.start(held.release());
            w.env->pass(5s);
            REQUIRE(releasing.get());
            permit p = waiting.get();
            REQUIRE(p.owns_lock());
            REQUIRE(w.etcd->under("s/hold/") == std::vector<std::string>{p.key()});
            REQUIRE(w.etcd->keys.at(p.key()).create_revision == p.token());
            REQUIRE(all.waiting() == 0);
            w.env->pass(10s);
            REQUIRE(p.owns_lock());
            REQUIRE(w.await(p.release()));
            REQUIRE(all.held() == 0);
            permit again = w.await(all.b.acquire(2));
            REQUIRE(again.token() > p.token());
            w.env->pass(1s);
            REQUIRE(all.held() == 1);
            REQUIRE(all.waiting() == 0);
        }
    }
}

TEST_CASE("a request that arrives late touches no permit that was granted since", "[semaphore]") {
    for (const auto which : {&is_permit_take, &is_permit_enter, &is_permit_confirm, &is_admit}) {
        for (const auto late : {10ms, 100ms, 1000ms, 3000ms}) {
            users all(1);
            world& w = all.w;
            permit held = w.await(all.a.acquire());
            lose_first(w, which, late);
            auto waiting = w.start(all.b.acquire());
            w.env->pass(50ms);
            REQUIRE(w.await(held.release()));
            w.env->pass(500ms);
            permit p = waiting.get();
            w.env->pass(4s); // it has arrived
            REQUIRE(w.etcd->under("s/hold/") == std::vector<std::string>{p.key()});
            REQUIRE(w.etcd->keys.at(p.key()).create_revision == p.token());
            REQUIRE(all.waiting() == 0);
            REQUIRE(p.owns_lock());
            REQUIRE(w.await(p.release()));
            REQUIRE(all.held() == 0);
        }
    }
}

TEST_CASE("a request that arrives after its permit was given back does not come back to life",
          "[semaphore]") {
    for (const auto which : {&is_permit_take, &is_permit_enter, &is_admit}) {
        for (const bool takes_again : {false, true}) {
            users all(2);
            world& w = all.w;
            permit held = w.await(all.a.acquire(2));
            lose_first(w, which, 5s);
            auto waiting = w.start(all.b.acquire());
            w.env->pass(50ms);
            REQUIRE(w.await(held.release()));
            w.env->pass(500ms);
            permit p = waiting.get();
            REQUIRE(w.await(p.release()));
            std::optional<permit> again;
            if (takes_again) {
                again.emplace(w.await(all.b.acquire()));
            }
            w.env->pass(10s);
            REQUIRE(all.held() == (takes_again ? 1 : 0));
            REQUIRE(all.waiting() == 0);
            if (again) {
                REQUIRE(w.etcd->keys.at(again->key()).create_revision == again->token());
                REQUIRE(again->owns_lock());
            }
        }
    }
}

TEST_CASE("a late take that is applied all the same is found, and counts", "[semaphore]") {
    // An attempt waits when the copy that is answered arrives, and none when the late one does.
    users all(2);
    world& w = all.w;
    permit held = w.await(all.a.acquire(2));
    auto impatient = w.start(all.a.acquire(2));
    w.env->pass(50ms);
    w.env->decide = [n = 0](const call_request& r) mutable {
        scripted_env::fate f;
        if (is_permit_take(r) && ++n == 1) {
            f.breaks = true;
            f.late = 150ms;
        }
        if (is_permit_enter(r)) {
            f.late = 400ms;
        }
        return f;
    };
    auto taking = w.start(all.b.acquire(1));
    w.env->pass(100ms);
    REQUIRE(support::count(w, is_permit_enter) == 2); // with that of the waiter
    impatient.cancel();
    REQUIRE(w.await(held.release()));
    w.env->pass(100ms);
    REQUIRE(all.held() == 1);
    w.env->pass(1s);
    permit p = taking.get();
    REQUIRE(all.waiting() == 0);
    REQUIRE(support::count(w, is_permit_confirm) >= 1); // whether it fits
    REQUIRE(w.etcd->under("s/hold/") == std::vector<std::string>{p.key()});
    REQUIRE(w.etcd->keys.at(p.key()).create_revision == p.token());
    REQUIRE(all.waiting() == 0);
    REQUIRE(w.await(p.release()));
    w.env->pass(1s);
    REQUIRE(all.held() == 0);
    REQUIRE(all.waiting() == 0);
}

TEST_CASE("cancelled at any moment, acquire() ends once and leaves nothing",
          "[semaphore][cancellation]") {
    int granted = 0;
    int cancelled = 0;
    for (const auto late : {0ms, 300ms}) {
        for (auto at = 0us; at != 24000us; at += 500us) {
            INFO(at.count() << " us");
            users all(1);
            world& w = all.w;
            permit held = w.await(all.a.acquire());
            if (late != 0ms) {
                w.env->decide = [late](const call_request& r) { // each is on its way for long
                    scripted_env::fate f;
                    f.late = is_permit_take(r) || is_permit_enter(r) || is_admit(r) ? late : 0ms;
                    return f;
                };
            }
            auto waiting = w.start(all.b.acquire());
            const auto step = late == 0ms ? at : at * 50;
            w.env->at(w.env->now() + (late == 0ms ? 8ms : 650ms), [&] { (void)held.release(); });
            w.env->pass(step);
            const bool was_over = waiting.ended();
            waiting.cancel();
            w.env->pass(0ms);
            REQUIRE(waiting.ended()); // at once
            REQUIRE(waiting.completions() == 1);
            w.env->decide = nullptr;
            held = permit();
            w.env->pass(2s);
            if (was_over) {
                ++granted;
                const permit p = waiting.get();
                REQUIRE(all.held() == 1);
            } else {
                ++cancelled;
                REQUIRE(waiting.code() == asio::error::operation_aborted);
                REQUIRE(all.held() == 0);
            }
            REQUIRE(all.waiting() == 0);
            REQUIRE(all.two.state() == coetcd::session_state::active);
            const std::optional<permit> next = w.await(all.b.acquire_for(1, 5s));
            REQUIRE(next);
        }
    }
    REQUIRE(granted > 5);
    REQUIRE(cancelled > 10);
}

TEST_CASE("a permit that is granted in the moment of the cancellation is given back",
          "[semaphore][cancellation]") {
    int cancelled = 0;
    constexpr int most_hops = 14;
    for (int hops = 0; hops != most_hops; ++hops) {
        world w;
        const auto watching = std::make_shared<support::answers>("txn");
        coetcd::client_options options;
        options.observer = watching;
        const coetcd::client client = w.client(options);
        const coetcd::session session = w.await(coetcd::session::open(client));
        semaphore s(session, "s", 1);
        std::optional<background<permit>> taking;
        bool in_time = false;
        watching->told = [&, at = hops] {
            support::hop(*w.context, at, [&] {
                in_time = !taking->ended();
                taking->cancel();
            });
        };
        taking.emplace(w.start(s.acquire()));
        w.env->pass(50ms);
        INFO(hops << " handlers later");
        REQUIRE(taking->ended());
        if (in_time) {
            ++cancelled;
            REQUIRE(taking->code() == asio::error::operation_aborted);
            w.env->pass(50ms);
            REQUIRE(w.etcd->under("s/hold/").empty());
        } else {
            REQUIRE(taking->get().owns_lock());
        }
    }
    REQUIRE(cancelled > 1);
    REQUIRE(cancelled < most_hops);
}

TEST_CASE("a lost session takes all its permits with it, and its waiters hear of it",
          "[semaphore]") {
    users all(2);
    world& w = all.w;
    permit first = w.await(all.a.acquire());
    permit second = w.await(all.a.acquire());
    auto lost = w.start(first.wait_lost());
    auto waiting = w.start(all.b.acquire(2));
    auto of_lost = w.start(all.a.acquire());
    w.env->pass(500ms);
    w.etcd->revoke(all.one.lease());
    w.env->pass(100ms);
    permit p = waiting.get(); // at once: the keys went with the lease
    REQUIRE(p.owns_lock());
    w.env->pass(10s);
    REQUIRE(lost.get() == errc::session_lost);
    REQUIRE_FALSE(first.owns_lock());
    REQUIRE_FALSE(second.owns_lock());
    REQUIRE_FALSE(w.await(first.release()));
    REQUIRE(of_lost.code() == errc::session_lost);
    auto late = w.start(all.a.acquire());
    w.env->pass(10ms);
    REQUIRE(late.code() == errc::session_lost);
    REQUIRE(w.await(p.release()));
}

TEST_CASE("a waiter whose lease is revoked fails, and one whose session is closed", "[semaphore]") {
    users all(1);
    world& w = all.w;
    const permit held = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(2s);
    w.etcd->revoke(all.two.lease());
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::session_lost);
    coetcd::session three = w.await(coetcd::session::open(all.client));
    semaphore c(three, "s", 1);
    auto closed = w.start(c.acquire());
    w.env->pass(100ms);
    w.await(three.close());
    REQUIRE(closed.code() == errc::session_closed);
    REQUIRE(held.owns_lock());
}

TEST_CASE("a look that is older than the refusal frees no permit", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    int sent = 0;
    w.env->decide = [&sent](const call_request& r) {
        sent += r.what == rpc::txn;
        return scripted_env::fate{};
    };
    w.etcd->stale_by = 3; // reads are from before anything was held
    auto waiting = w.start(all.b.acquire());
    w.env->pass(5s);
    REQUIRE_FALSE(waiting.ended());
    REQUIRE(sent <= 10);
    w.etcd->stale_by = 0;
    w.await(held.release());
    w.env->pass(1s);
    REQUIRE(waiting.get().owns_lock());
}

TEST_CASE("a waiter for permits whose key is deleted by hand fails at once", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(2s);
    w.etcd->erase(w.etcd->under("s/wait/").front());
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::lock_lost);
    REQUIRE(all.two.state() == coetcd::session_state::active);
    REQUIRE(held.owns_lock());
    REQUIRE(w.await(held.release()));
    REQUIRE(w.await(all.b.acquire()).owns_lock());
}

TEST_CASE("permits of which a key is deleted by hand are lost, and what is left of them goes",
          "[semaphore]") {
    for (const std::size_t which : {0U, 1U, 2U}) {
        users all(7, coetcd::session_options(6s));
        world& w = all.w;
        permit p = w.await(all.a.acquire(7));
        auto lost = w.start(p.wait_lost());
        auto waiting = w.start(all.b.acquire(7));
        w.env->pass(100ms);
        w.etcd->erase(w.etcd->under("s/hold/")[which]);
        w.env->pass(2500ms); // the next renewal
        REQUIRE_FALSE(p.owns_lock());
        REQUIRE(lost.get() == errc::lock_lost);
        REQUIRE(all.one.state() == coetcd::session_state::active);
        REQUIRE(waiting.get().owns_lock());
        REQUIRE_FALSE(w.await(p.release()));
    }
}

TEST_CASE("force_unlock() ends a permit, or the wait for one, and no other", "[semaphore]") {
    users all(3);
    world& w = all.w;
    permit held = w.await(all.a.acquire(3));
    auto waiting = w.start(all.b.acquire(2));
    w.env->pass(500ms);
    REQUIRE_FALSE(waiting.ended());
    const auto queue = w.await(all.a.waiters());
    REQUIRE(queue.size() == 1);
    REQUIRE(w.await(coetcd::force_unlock(all.client, "s", queue[0].token)));
    w.env->pass(50ms);
    CHECK(waiting.code() == errc::lock_lost);
    CHECK(held.owns_lock());

    auto next = w.start(all.b.acquire(2));
    w.env->pass(500ms);
    const auto token = held.token();
    REQUIRE(w.await(coetcd::force_unlock(all.client, "s", token)));
    CHECK_FALSE(w.await(coetcd::force_unlock(all.client, "s", token)));
    w.env->pass(50ms);
    const permit other = next.get();
    CHECK(other.owns_lock());
    w.env->pass(std::chrono::nanoseconds(all.one.ttl()) / 2);
    CHECK_FALSE(held.owns_lock()); // it was told with the next renewal
    CHECK(other.owns_lock());
    CHECK_FALSE(w.await(held.release()));
    const permit again = w.await(all.a.acquire(1)); // its slot is of use again
    CHECK(again.token() > token);
    CHECK(other.owns_lock());
}

TEST_CASE("an acquire that arrives after force_unlock() does not come back", "[semaphore]") {
    users all(2);
    world& w = all.w;
    support::delay_first(w, &is_permit_take, 3s);
    permit held = w.await(all.a.acquire()); // by the second copy
    REQUIRE(w.await(coetcd::force_unlock(all.client, "s", held.token())));
    CHECK(all.held() == 0);
    w.env->pass(30s);
    CHECK(all.held() == 0);
    CHECK_FALSE(held.owns_lock());
}

TEST_CASE("release() tells if a key was missing before the next renewal did", "[semaphore]") {
    users all(3);
    world& w = all.w;
    permit p = w.await(all.a.acquire(3));
    w.etcd->erase(w.etcd->under("s/hold/").back());
    REQUIRE_FALSE(w.await(p.release()));
    w.env->pass(20ms);
    REQUIRE(all.held() == 0);
}

TEST_CASE("release() takes effect at the call, and is made good in the background", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit p = w.await(all.a.acquire());
    {
        const auto never_awaited = p.release();
        REQUIRE_FALSE(p.owns_lock());
        w.env->pass(20ms);
        REQUIRE(all.held() == 0);
    }
    permit q = w.await(all.a.acquire());
    bool out = true;
    w.env->decide = [&](const call_request& r) {
        scripted_env::fate f;
        f.refused = out && r.what == rpc::txn;
        return f;
    };
    auto releasing = w.start(q.release());
    w.env->pass(5200ms);
    REQUIRE(releasing.code() != coetcd::error_code());
    try {
        (void)releasing.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("semaphore \"s\", release"));
    }
    out = false;
    w.env->pass(1s);
    REQUIRE(all.held() == 0);
}

TEST_CASE("a lost event does not keep a waiter from the room there is", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(100ms);
    w.etcd->tells = false;
    REQUIRE(w.await(held.release()));
    w.env->pass(6s);
    REQUIRE(waiting.get().owns_lock());
}

TEST_CASE("room that is made while the watches begin is not missed", "[semaphore]") {
    for (auto after = 0us; after != 8000us; after += 250us) {
        INFO(after.count() << " us");
        users all(1);
        world& w = all.w;
        permit held = w.await(all.a.acquire());
        auto waiting = w.start(all.b.acquire());
        w.env->pass(after);
        auto releasing = w.start(held.release());
        w.env->pass(40ms);
        REQUIRE(releasing.get());
        REQUIRE(waiting.get().owns_lock());
    }
}

TEST_CASE("room that a part of the same request makes is not missed", "[semaphore]") {
    // One session waits for room that another one of the same client makes: their transactions go
    // together, and the answer has one revision.
    for (auto after = 0us; after != 4000us; after += 100us) {
        INFO(after.count() << " us");
        users all(3);
        world& w = all.w;
        permit one = w.await(all.a.acquire());
        permit two = w.await(all.a.acquire());
        permit three = w.await(all.a.acquire());
        auto waiting = w.start(all.b.acquire(2));
        w.env->pass(100ms);
        auto first = w.start(one.release());
        w.env->pass(after); // the waiter is told, and confirms that it is not enough
        auto second = w.start(two.release());
        w.env->pass(40ms);
        REQUIRE(first.get());
        REQUIRE(second.get());
        REQUIRE(waiting.get().owns_lock());
        REQUIRE(three.owns_lock());
    }
}

TEST_CASE("a permit that is given back is told to those who count only", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    std::vector<coetcd::session> sessions;
    std::vector<semaphore> semaphores;
    std::vector<background<permit>> waiting;
    for (int i = 0; i != 30; ++i) {
        sessions.push_back(w.await(coetcd::session::open(all.client)));
        semaphores.emplace_back(sessions.back(), "s", 1);
    }
    for (semaphore& s : semaphores) {
        waiting.push_back(w.start(s.acquire()));
        w.env->pass(10ms);
    }
    w.env->pass(500ms);
    REQUIRE(all.waiting() == 30);
    int events = 0;
    w.etcd->loses_event = [&] {
        ++events;
        return false;
    };
    REQUIRE(w.await(held.release()));
    w.env->pass(1s);
    // One counts: it is told of that, and of its own admission, also as it watches its key. And the
    // one behind it waits for that key.
    REQUIRE(events <= 4);
    REQUIRE(waiting.front().get().owns_lock());
    REQUIRE(std::none_of(waiting.begin() + 1, waiting.end(), [](auto& t) { return t.ended(); }));
}

TEST_CASE("a semaphore may be destroyed while acquire() is under way", "[semaphore]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    auto temporary = std::make_unique<semaphore>(all.two, "s", 1);
    auto waiting = w.start(temporary->acquire());
    temporary.reset();
    w.env->pass(100ms);
    REQUIRE(w.await(held.release()));
    w.env->pass(20ms);
    REQUIRE(waiting.get().owns_lock());
}

TEST_CASE("the whole world may end while acquire() is under way", "[semaphore]") {
    for (auto after = 0us; after != 8000us; after += 500us) {
        users all(1);
        permit held = all.w.await(all.a.acquire());
        auto waiting = all.w.start(all.b.acquire());
        all.w.env->pass(after);
    }
}

TEST_CASE("is_owner() of a permit guards a transaction", "[semaphore]") {
    users all(2);
    world& w = all.w;
    permit p = w.await(all.a.acquire(2));
    const coetcd::compare mine = p.is_owner();
    const auto guarded = [&] { return coetcd::txn().when(mine).then(coetcd::op::put("k", "v")); };
    REQUIRE(w.await(all.client.txn(guarded())).succeeded);
    REQUIRE(w.await(p.release()));
    REQUIRE_FALSE(w.await(all.client.txn(guarded())).succeeded);
    const permit next = w.await(all.a.acquire(2)); // with the same keys
    REQUIRE(next.key() == p.key());
    REQUIRE_FALSE(w.await(all.client.txn(guarded())).succeeded);
}

TEST_CASE("with_permits() runs its body with permits, and gives them back", "[semaphore]") {
    users all(3);
    world& w = all.w;
    const auto body = [&](const permit& p) -> asio::awaitable<std::int64_t> {
        CHECK(p.owns_lock());
        const coetcd::semaphore_state now = co_await all.b.state();
        co_return now.used;
    };
    REQUIRE(w.await(coetcd::with_permits(all.a, 2, body)) == 2);
    w.env->pass(10ms);
    REQUIRE(all.held() == 0);
    REQUIRE(w.await(coetcd::with_permits_for(all.a, 2, 50ms, body)) == std::optional(2));
    REQUIRE(w.await(coetcd::with_permits_for(all.a, 2, 0ms, body)) == std::optional(2));
    {
        const permit taken = w.await(all.b.acquire(2));
        REQUIRE_FALSE(w.await(coetcd::with_permits_for(all.a, 2, 50ms, body)));
        REQUIRE_FALSE(w.await(coetcd::with_permits_for(all.a, 2, 0ms, body)));
    }
    w.env->pass(10ms);
    REQUIRE(all.held() == 0);

    bool cancelled = false;
    const auto for_ever = [&]() -> asio::awaitable<void> {
        coetcd::detail::notifier never(*w.env);
        try {
            (void)co_await never.wait();
        } catch (const boost::system::system_error&) {
            cancelled = true;
            throw;
        }
    };
    auto running = w.start(coetcd::with_permits(all.a, 3, for_ever));
    w.env->pass(100ms);
    REQUIRE(all.held() == 2);
    w.etcd->revoke(all.one.lease());
    w.env->pass(10s);
    REQUIRE(running.code() == errc::session_lost);
    REQUIRE(cancelled);
}

TEST_CASE("what etcd refuses to an acquire is reported at once, and leaves nothing",
          "[semaphore]") {
    users all(1);
    world& w = all.w;
    w.etcd->no_space = true;
    auto acquiring = w.start(all.a.acquire());
    w.env->pass(50ms);
    REQUIRE(acquiring.code() == coetcd::server_errc::resource_exhausted);
    w.etcd->no_space = false;
    w.env->pass(1s);
    REQUIRE(all.held() == 0);

    // Not enough space to be admitted: the permit goes to others.
    permit held = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(500ms);
    w.etcd->no_space = true;
    auto releasing = w.start(held.release());
    w.env->pass(50ms);
    REQUIRE(releasing.get());
    REQUIRE(waiting.code() == coetcd::server_errc::resource_exhausted);
    w.etcd->no_space = false;
    w.env->pass(1s);
    REQUIRE(all.waiting() == 0);
    REQUIRE(all.held() == 0);
    REQUIRE(all.two.state() == coetcd::session_state::active);
}

TEST_CASE("what must not be touched tells which keys a user needs", "[semaphore]") {
    users all(1);
    world& w = all.w;
    const permit held = w.await(all.a.acquire());
    const auto serve = w.env->on_call;
    w.env->on_call = [&](const call_request& r, coetcd::detail::reply& reply) {
        if (!is_permit_enter(r)) {
            serve(r, reply);
            return;
        }
        reply.status = 403;
        reply.body = R"({"error":"etcdserver: permission denied","code":7,)"
                     R"("message":"etcdserver: permission denied"})";
    };
    auto waiting = w.start(all.b.acquire());
    w.env->pass(100ms);
    REQUIRE(waiting.code() == coetcd::server_errc::permission_denied);
    try {
        (void)waiting.get();
    } catch (const coetcd::error& e) {
        REQUIRE_THAT(e.what(), support::contains("from \"s.\" up to"));
    }
}

TEST_CASE("the observer hears of the wait for permits, and how long they are held", "[semaphore]") {
    struct listening final : coetcd::observer {
        void on_lock_wait(const coetcd::lock_wait_report& r) override {
            names.push_back(std::string(r.name));
        }
        void on_lock_hold(const coetcd::lock_hold_report&) override { ++holds; }
        std::vector<std::string> names;
        int holds = 0;
    };
    world w;
    const auto heard = std::make_shared<listening>();
    coetcd::client_options options;
    options.observer = heard;
    const coetcd::client client = w.client(options);
    const coetcd::session session = w.await(coetcd::session::open(client));
    semaphore s(session, "s", 1);
    permit p = w.await(s.acquire());
    REQUIRE(heard->names == std::vector<std::string>{"s"});
    REQUIRE(w.await(p.release()));
    REQUIRE(heard->holds == 1);
}

TEST_CASE("set_limit() and adjust_limit() change the limit for everybody", "[semaphore][limit]") {
    users all(1);
    world& w = all.w;
    permit first = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire(2));
    w.env->pass(20ms);
    REQUIRE(waiting.code() == errc::exceeds_limit);
    w.await(all.a.set_limit(2));
    REQUIRE(w.etcd->keys.at("s.limit").value == "2");
    REQUIRE(w.etcd->keys.at("s.limit").lease == 0);
    auto more = w.start(all.b.acquire(2));
    w.env->pass(500ms);
    REQUIRE_FALSE(more.ended());
    REQUIRE(w.await(all.b.adjust_limit(1)) == 3);
    w.env->pass(20ms);
    permit second = more.get();
    REQUIRE(w.await(all.a.adjust_limit(-3)) == 0);
    REQUIRE(first.owns_lock());
    REQUIRE(second.owns_lock());
    const coetcd::semaphore_state now = w.await(all.a.state());
    REQUIRE(now.limit == 0);
    REQUIRE(now.used == 3);
    w.await(all.a.set_limit(0)); // as it is
    semaphore fresh(all.one, "fresh", 5);
    REQUIRE(w.await(fresh.adjust_limit(2)) == 7); // from the initial one
    semaphore other(all.one, "other", 5);
    w.await(other.set_limit(9));
    REQUIRE(w.await(other.state()).limit == 9);
}

TEST_CASE("a limit that cannot be is refused, and nothing is changed", "[semaphore][limit]") {
    users all(3);
    world& w = all.w;
    REQUIRE_THROWS_AS(all.a.set_limit(-1), std::invalid_argument);
    REQUIRE_THROWS_AS(all.a.set_limit(semaphore::max_limit + 1), std::invalid_argument);
    w.await(all.a.set_limit(semaphore::max_limit));
    const auto refused = [&](std::int64_t by) {
        auto changing = w.start(all.a.adjust_limit(by));
        w.env->pass(50ms);
        REQUIRE(changing.code() == errc::exceeds_limit);
    };
    refused(1);
    refused(std::numeric_limits<std::int64_t>::max());
    w.await(all.a.set_limit(3));
    refused(-4);
    refused(std::numeric_limits<std::int64_t>::min());
    REQUIRE(w.await(all.a.state()).limit == 3);
    w.etcd->write("s.limit", "many");
    auto changing = w.start(all.a.set_limit(1));
    w.env->pass(50ms);
    REQUIRE(changing.code() == errc::wrong_kind);
    coetcd::session closed = w.await(coetcd::session::open(all.client));
    semaphore of_closed(closed, "s", 1);
    w.await(closed.close());
    auto late = w.start(of_closed.set_limit(1));
    w.env->pass(50ms);
    REQUIRE(late.code() == errc::session_closed);
}

TEST_CASE("a limit is adjusted once, whatever answer is lost", "[semaphore][limit]") {
    for (const int how : {0, 1, 2}) {
        for (int lost = 1; lost != 5; ++lost) {
            INFO("the call number " << lost << ", " << how);
            users all(3);
            world& w = all.w;
            REQUIRE(w.await(all.a.adjust_limit(2)) == 5);
            int n = 0;
            w.env->decide = [&](const call_request& r) {
                scripted_env::fate f;
                if ((r.what == rpc::txn || r.what == rpc::range) && ++n == lost) {
                    f.arrives = how != 0;
                    f.breaks = true;
                    f.late = how == 2 ? 500ms : 0ms;
                }
                return f;
            };
            REQUIRE(w.await(all.a.adjust_limit(1)) == 6);
            REQUIRE(w.await(all.b.adjust_limit(1)) == 7);
            w.env->pass(5s); // what is late has come
            REQUIRE(w.etcd->keys.at("s.limit").value == "7");
        }
    }
}

TEST_CASE("a late set_limit() does not undo a later one", "[semaphore][limit]") {
    users all(3);
    world& w = all.w;
    w.await(all.a.set_limit(4));
    w.env->decide = [first = true](const call_request& r) mutable {
        scripted_env::fate f;
        if (has(r, "request_put") && std::exchange(first, false)) {
            f.breaks = true;
            f.late = 1s;
        }
        return f;
    };
    w.await(all.a.set_limit(5));
    w.await(all.b.set_limit(3));
    w.env->pass(5s);
    REQUIRE(w.etcd->keys.at("s.limit").value == "3");
}

TEST_CASE("many adjustments of a limit at once lose no change", "[semaphore][limit]") {
    users all(0);
    world& w = all.w;
    std::vector<background<std::int64_t>> changing;
    for (int i = 0; i != 5; ++i) {
        changing.push_back(w.start(all.a.adjust_limit(1)));
        changing.push_back(w.start(all.b.adjust_limit(10)));
    }
    w.env->pass(2s);
    for (auto& c : changing) {
        (void)c.get();
    }
    REQUIRE(w.await(all.a.state()).limit == 55);
}

TEST_CASE("set_limit() that is cancelled changes the limit once, or not at all",
          "[semaphore][limit][cancellation]") {
    int changed = 0;
    for (auto at = 0us; at != 8000us; at += 250us) {
        users all(3);
        world& w = all.w;
        w.await(all.a.set_limit(3));
        auto changing = w.start(all.a.set_limit(4));
        w.env->pass(at);
        changing.cancel();
        w.env->pass(0ms);
        REQUIRE(changing.ended());
        w.env->pass(1s);
        const std::int64_t now = w.await(all.a.state()).limit;
        REQUIRE((now == 3 || now == 4));
        changed += now == 4 ? 1 : 0;
        REQUIRE(w.await(all.a.adjust_limit(1)) == now + 1);
    }
    REQUIRE(changed > 0);
    REQUIRE(changed < 32);
}

TEST_CASE("a semaphore that brings no limit is refused while none is stored, and leaves nothing",
          "[semaphore][limit]") {
    const auto refused = [](std::int64_t stored, int which) {
        users all;
        world& w = all.w;
        if (stored == 0) {
            w.await(all.b.set_limit(0));
        }
        semaphore s(all.one, "s");
        const std::size_t keys = w.etcd->keys.size();
        const std::size_t before = transactions(w);
        const auto ends = [&](auto work) {
            background<typename decltype(work)::value_type> b = w.start(std::move(work));
            w.env->pass(50ms);
            REQUIRE(b.code() == errc::exceeds_limit);
            const std::string text = support::failure_of(b).what();
            const bool of_none = text.find("semaphore \"s\": no limit is stored under this name; "
                                           "ensure_limit or set_limit stores one") == 0;
            CHECK(of_none == (stored != 0));
        };
        switch (which) {
        case 0:
            ends(s.acquire());
            break;
        case 1:
            ends(s.try_acquire());
            break;
        default:
            ends(s.acquire_for(1, 10s));
        }
        w.env->pass(1s);
        CHECK(w.etcd->keys.size() == keys);
        return transactions(w) - before;
    };
    for (const int which : {0, 1, 2}) {
        INFO(which);
        CHECK(refused(-1, which) == refused(0, which)); // no more round trips
    }

    users all;
    world& w = all.w;
    semaphore s(all.one, "s");
    REQUIRE(w.await(s.state()).limit == 0);
    REQUIRE(w.etcd->keys.empty());
    auto early = w.start(s.acquire());
    w.env->pass(50ms);
    REQUIRE(early.code() == errc::exceeds_limit);
    REQUIRE(w.await(all.b.ensure_limit(2)) == 2);
    REQUIRE(w.await(s.state()).limit == 2);
    const permit held = w.await(s.acquire(2));
    REQUIRE(held.owns_lock());
    auto more = w.start(s.acquire(3));
    w.env->pass(50ms);
    REQUIRE_THAT(support::failure_of(more).what(),
                 support::contains("it asks for 3, and the limit is 2"));
    REQUIRE(w.etcd->keys.at("s.limit").value == "2");
}

TEST_CASE("a limit that is deleted ends the wait of those that bring none", "[semaphore][limit]") {
    users all(1);
    world& w = all.w;
    const permit held = w.await(all.a.acquire());
    semaphore s(all.two, "s");
    std::vector<background<permit>> waiting;
    for (int i = 0; i != 20; ++i) { // in etcd's queue, and behind it
        waiting.push_back(w.start(s.acquire()));
    }
    auto patient = w.start(s.acquire_for(1, 1h));
    w.env->pass(500ms);
    REQUIRE(all.waiting() == 16);
    w.etcd->erase("s.limit");
    w.env->pass(200ms);
    for (background<permit>& each : waiting) {
        REQUIRE(each.code() == errc::exceeds_limit);
        REQUIRE_THAT(support::failure_of(each).what(), support::contains("no limit is stored"));
    }
    REQUIRE(patient.code() == errc::exceeds_limit);
    w.env->pass(1s);
    REQUIRE(all.waiting() == 0);
    REQUIRE(held.owns_lock());
    REQUIRE(w.etcd->keys.count("s.limit") == 0);
    const coetcd::semaphore_state now = w.await(s.state());
    REQUIRE(now.limit == 0);
    REQUIRE(now.used == 1);
}

TEST_CASE("a limit that is deleted before the admission admits nobody who brings none",
          "[semaphore][limit]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    semaphore s(all.two, "s");
    auto waiting = w.start(s.acquire());
    w.env->pass(500ms);
    delay_first(w, is_admit, 50ms);
    auto releasing = w.start(held.release());
    w.env->pass(20ms); // judged
    REQUIRE(releasing.get());
    REQUIRE(support::count(w, is_admit) == 1);
    w.etcd->erase("s.limit");
    w.env->pass(1s);
    REQUIRE(waiting.code() == errc::exceeds_limit);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("ensure_limit() stores a limit where none is stored, and never changes one",
          "[semaphore][limit]") {
    users all(1);
    world& w = all.w;
    semaphore s(all.one, "s");
    const std::size_t before = w.env->calls.size();
    REQUIRE(w.await(s.ensure_limit(3)) == 3);
    REQUIRE(w.env->calls.size() == before + 1);
    REQUIRE(w.etcd->keys.at("s.limit").value == "3");
    REQUIRE(w.etcd->keys.at("s.limit").lease == 0);
    const auto stored = w.etcd->keys.at("s.limit").mod_revision;
    REQUIRE(w.await(s.ensure_limit(5)) == 3);
    REQUIRE(w.env->calls.size() == before + 2);
    REQUIRE(w.await(all.b.ensure_limit(0)) == 3);
    REQUIRE(w.etcd->keys.at("s.limit").mod_revision == stored);
    REQUIRE(w.etcd->keys.size() == 1); // no marker
    w.await(all.b.set_limit(7));
    REQUIRE(w.await(s.ensure_limit(3)) == 7);
    REQUIRE(w.await(s.state()).limit == 7);
    w.etcd->erase("s.limit");
    // the argument counts, not what the constructor was given
    REQUIRE(w.await(all.a.ensure_limit(2)) == 2);
    const permit two = w.await(all.a.acquire(2));
    REQUIRE(two.owns_lock());
    w.etcd->erase("s.limit");
    REQUIRE(w.await(s.ensure_limit(0)) == 0); // is one, too
    REQUIRE(w.await(all.a.ensure_limit(2)) == 0);
    w.etcd->erase("s.limit");
    REQUIRE(w.await(s.ensure_limit(semaphore::max_limit)) == semaphore::max_limit);
}

TEST_CASE("ensure_limit() lets those in who wait with a limit of their own", "[semaphore][limit]") {
    users all(1);
    world& w = all.w;
    permit held = w.await(all.a.acquire());
    auto waiting = w.start(all.b.acquire());
    w.env->pass(500ms);
    w.etcd->erase("s.limit");
    REQUIRE(w.await(semaphore(all.one, "s").ensure_limit(2)) == 2);
    w.env->pass(50ms);
    REQUIRE(waiting.get().owns_lock());
}

TEST_CASE("ensure_limit() fails as set_limit() does", "[semaphore][limit]") {
    users all;
    world& w = all.w;
    semaphore s(all.one, "s");
    REQUIRE_THROWS_WITH(s.ensure_limit(-1), "limit: must be from 0 to 2^40");
    REQUIRE_THROWS_WITH(s.ensure_limit(semaphore::max_limit + 1), "limit: must be from 0 to 2^40");
    const auto fails = [&](const char* text) {
        auto storing = w.start(s.ensure_limit(3));
        w.env->pass(50ms);
        REQUIRE_THAT(support::failure_of(storing).what(), support::contains("semaphore \"s\""));
        REQUIRE_THAT(support::failure_of(storing).what(), support::contains(text));
        return storing.code();
    };
    w.etcd->no_space = true;
    REQUIRE(fails("space") == coetcd::server_errc::resource_exhausted);
    w.etcd->no_space = false;
    const auto serve = w.env->on_call;
    w.env->on_call = [serve](const call_request& r, coetcd::detail::reply& reply) {
        if (r.what != rpc::txn) {
            serve(r, reply);
            return;
        }
        reply.status = 403;
        reply.body = R"({"error":"etcdserver: permission denied","code":7,)"
                     R"("message":"etcdserver: permission denied"})";
    };
    REQUIRE(fails("from \"s.\" up to") == coetcd::server_errc::permission_denied);
    w.env->on_call = serve;
    REQUIRE(w.etcd->keys.empty());
    w.etcd->write("s.limit", "many");
    REQUIRE(fails("is not a number") == errc::wrong_kind);
    REQUIRE(w.etcd->keys.at("s.limit").value == "many");
    w.etcd->erase("s.limit");
    const std::size_t before = transactions(w);
    w.etcd->revoke(all.one.lease());
    w.env->pass(30s);
    REQUIRE(fails("") == errc::session_lost);
    w.await(all.two.close());
    auto late = w.start(all.b.ensure_limit(3));
    w.env->pass(50ms);
    REQUIRE(late.code() == errc::session_closed);
    REQUIRE(transactions(w) == before);
    REQUIRE(w.etcd->keys.empty());
}

TEST_CASE("ensure_limit() is sent again when an answer is lost", "[semaphore][limit]") {
    for (const int how : {0, 1, 2}) {
        for (int lost = 1; lost != 3; ++lost) {
            INFO("the first " << lost << " calls, " << how);
            users all;
            world& w = all.w;
            semaphore s(all.one, "s");
            w.env->decide = [=, n = 0](const call_request& r) mutable {
                scripted_env::fate f;
                if (r.what == rpc::txn && ++n <= lost) {
                    f.arrives = how != 0;
                    f.breaks = true;
                    f.late = how == 2 ? 500ms : 0ms;
                }
                return f;
            };
            REQUIRE(w.await(s.ensure_limit(3)) == 3);
            w.env->decide = nullptr;
            w.await(all.b.set_limit(4));
            w.env->pass(5s); // what is late has come
            REQUIRE(w.etcd->keys.at("s.limit").value == "4");
        }
    }
    // It was stored, and changed before the second copy came.
    users all;
    world& w = all.w;
    semaphore s(all.one, "s");
    support::lose_answer(w, [](const call_request& r) { return r.what == rpc::txn; });
    w.env->at(w.env->now() + 1500us, [&] { w.etcd->write("s.limit", "9"); });
    REQUIRE(w.await(s.ensure_limit(3)) == 9);
    REQUIRE(w.etcd->keys.at("s.limit").version == 2);
}

TEST_CASE("ensure_limit() tells if it does not know whether it has stored one",
          "[semaphore][limit]") {
    for (const bool sent : {true, false}) {
        for (const bool closes : {true, false}) {
            INFO((sent ? "sent" : "not sent") << (closes ? ", the session is closed" : ""));
            users all(1, coetcd::session_options(60s));
            world& w = all.w;
            semaphore s(all.one, "s");
            w.env->decide = [sent](const call_request& r) {
                scripted_env::fate f;
                f.answered = r.what != rpc::txn;
                f.refused = r.what == rpc::txn && !sent;
                return f;
            };
            auto storing = w.start(s.ensure_limit(3));
            w.env->pass(500ms);
            if (closes) {
                w.await(all.one.close());
                w.env->pass(2s);
                const std::size_t sent_by_then = transactions(w);
                w.env->pass(10s);
                REQUIRE(transactions(w) == sent_by_then);
            } else {
                w.env->pass(10s);
            }
            const errc neither = closes ? errc::session_closed : errc::unavailable;
            REQUIRE(storing.code() == (sent ? errc::outcome_unknown : neither));
            REQUIRE_THAT(support::failure_of(storing).what(),
                         support::contains("semaphore \"s\": "));
            REQUIRE(w.etcd->keys.count("s.limit") == (sent ? 1 : 0));
            w.env->decide = nullptr;
            if (!closes) {
                REQUIRE(w.await(s.ensure_limit(5)) == (sent ? 3 : 5));
            }
        }
    }
}

TEST_CASE("ensure_limit() that is cancelled stores the limit, or does not",
          "[semaphore][limit][cancellation]") {
    int stored = 0;
    int cancelled = 0;
    for (auto at = 0us; at != 8000us; at += 250us) {
        users all;
        world& w = all.w;
        semaphore s(all.one, "s");
        w.env->decide = [at](const call_request& r) {
            scripted_env::fate f;
            f.arrives = r.what != rpc::txn || at < 4000us;
            return f;
        };
        auto storing = w.start(s.ensure_limit(3));
        w.env->pass(at);
        const bool was_over = storing.ended();
        storing.cancel();
        w.env->pass(0ms);
        REQUIRE(storing.ended()); // at once
        if (!was_over) {
            ++cancelled;
            REQUIRE(storing.code() == asio::error::operation_aborted);
        } else {
            REQUIRE(storing.get() == 3);
        }
        w.env->pass(1s);
        w.env->decide = nullptr;
        const bool is_stored = w.etcd->keys.count("s.limit") != 0;
        REQUIRE((is_stored || !was_over));
        stored += is_stored && !was_over ? 1 : 0;
        REQUIRE(w.await(s.ensure_limit(4)) == (is_stored ? 3 : 4));
    }
    REQUIRE(stored > 0);
    REQUIRE(cancelled > stored);
    REQUIRE(cancelled < 32);
}

TEST_CASE("of two clients that ensure a limit at once one stores it, and both hear which",
          "[semaphore][limit]") {
    for (const auto late : {0us, 500us, 5000us}) {
        for (const int first_is_late : {0, 1}) {
            users all;
            world& w = all.w;
            const coetcd::client other = w.client();
            const coetcd::session session = w.await(coetcd::session::open(other));
            semaphore s(all.one, "s");
            semaphore t(session, "s");
            w.env->decide = [=, n = 0](const call_request& r) mutable {
                scripted_env::fate f;
                if (r.what == rpc::txn && n++ == 1 - first_is_late) {
                    f.late = late;
                }
                return f;
            };
            auto one = w.start(s.ensure_limit(3));
            auto two = w.start(t.ensure_limit(5));
            w.env->pass(50ms);
            const std::int64_t now = one.get();
            REQUIRE(two.get() == now);
            REQUIRE((now == 3 || now == 5));
            REQUIRE((late == 0us || now == (first_is_late == 1 ? 5 : 3)));
            REQUIRE(w.etcd->keys.at("s.limit").value == std::to_string(now));
            REQUIRE(w.etcd->keys.at("s.limit").version == 1);
        }
    }
}

TEST_CASE("a semaphore may be destroyed while ensure_limit() is under way", "[semaphore][limit]") {
    users all;
    world& w = all.w;
    auto temporary = std::make_unique<semaphore>(all.two, "s");
    auto storing = w.start(temporary->ensure_limit(3));
    temporary.reset();
    w.env->pass(10ms);
    REQUIRE(storing.get() == 3);
}

TEST_CASE("adjust_limit() is refused if there is no limit to add to", "[semaphore][limit]") {
    users all(5);
    world& w = all.w;
    semaphore s(all.one, "s");
    for (const std::int64_t by : {1, 0, -1}) {
        auto changing = w.start(s.adjust_limit(by));
        w.env->pass(50ms);
        REQUIRE(changing.code() == errc::exceeds_limit);
        REQUIRE_THAT(support::failure_of(changing).what(),
                     support::contains("semaphore \"s\": no limit is stored under this name; "
                                       "ensure_limit or set_limit stores one"));
    }
    REQUIRE(w.etcd->keys.empty());
    REQUIRE(w.await(all.b.adjust_limit(1)) == 6); // that one brings a limit
    REQUIRE(w.await(s.adjust_limit(-2)) == 4);
    // deleted between the read and the change
    w.env->decide = [&, first = true](const call_request& r) mutable {
        if (has(r, "request_put") && std::exchange(first, false)) {
            w.etcd->erase("s.limit");
        }
        return scripted_env::fate{};
    };
    auto changing = w.start(s.adjust_limit(1));
    w.env->pass(50ms);
    REQUIRE(changing.code() == errc::exceeds_limit);
    REQUIRE(w.etcd->keys.count("s.limit") == 0);
    w.await(s.set_limit(2)); // needs none
    REQUIRE(w.await(s.adjust_limit(1)) == 3);
}
