// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/barrier.hpp>

#include <cstdint>
#include <string>

#include "support/catch.hpp"
#include "support/transactions.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

TEST_CASE("a barrier is closed and opened by transactions that a late copy cannot spoil",
          "[logic][barrier]") {
    CHECK(support::text(close_barrier("b", 0)) == "c(b)=0 ? put(b,,0) :");
    CHECK(support::text(close_barrier("b", 0x1a)) == "c(b)=0 ? put(b,,1a) :");
    CHECK(support::text(open_barrier("b", 40)) == "c(b)=40 ? erase(b) :");
}

TEST_CASE("a waiter passes if the barrier is open, or was", "[logic][barrier]") {
    barrier_watcher open;
    CHECK(open.may_pass(0));
    barrier_watcher w;
    CHECK_FALSE(w.may_pass(40));
    CHECK_FALSE(w.may_pass(40));
    CHECK(w.may_pass(50)); // open in between
    CHECK(w.may_pass(0));
}

TEST_CASE("events tell how a barrier is", "[logic][barrier]") {
    const question<std::int64_t> q = barrier_now("barrier \"b\"", "b");
    range_response r;
    CHECK(q.from(r) == 0);
    key_value kv;
    kv.key = "b";
    r.kvs.push_back(kv);
    CHECK_THROWS_AS(q.from(r), coetcd::error); // it exists, and so has a revision
    r.kvs.front().create_revision = 40;
    CHECK(q.from(r) == 40);
    event e;
    e.kv.create_revision = 50;
    CHECK(q.follow(0, e) == 50);
    e.type = event_type::erase;
    CHECK(q.follow(50, e) == 0);
}
