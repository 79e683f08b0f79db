// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/lane_width.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;
using width = coetcd::detail::logic::lane_width<time_point>;
using load = width::load;

namespace {

const time_point start(1000h);

/// How many of a kind can leave at a moment until none may.
int fill(width w, load what, time_point now = start) {
    int left = 0;
    while (w.may_leave(what, now)) {
        w.has_left(what, now);
        ++left;
    }
    return left;
}

} // namespace

TEST_CASE("full requests leave until the way is full, others until there are two",
          "[logic][lane]") {
    width w;
    CHECK(fill(w, load::full) == 32);
    CHECK(fill(w, load::roomy) == 2);
    CHECK(fill(w, load::alone) == 2);
    for (const load each : {load::roomy, load::full, load::alone, load::full, load::alone}) {
        w.has_left(each, start);
    }
    CHECK(w.under_way() == 5);
    CHECK(fill(w, load::full) == 29);
    CHECK(fill(w, load::roomy) == 0);
    CHECK(fill(w, load::alone) == 0);
    w.is_over(load::alone);
    CHECK(fill(w, load::alone) == 1);
    w.is_over(load::roomy);
    w.is_over(load::full);
    CHECK(fill(w, load::roomy) == 1);
    CHECK(w.under_way() == 2);
    while (w.may_leave(load::full, start)) {
        w.has_left(load::full, start);
    }
    while (w.may_leave(load::alone, start)) {
        w.has_left(load::alone, start);
    }
    CHECK(w.under_way() == width::most);
}

TEST_CASE("one with room left waits for company for 5 ms, while there is way", "[logic][lane]") {
    width w;
    w.has_left(load::roomy, start);
    w.has_left(load::roomy, start);
    CHECK(*w.next_turn() == start + 5ms);
    CHECK_FALSE(w.may_leave(load::roomy, start + 5ms - 1ns));
    CHECK(w.may_leave(load::roomy, start + 5ms));
    w.has_left(load::alone, start + 5ms); // that is nothing to it
    CHECK(w.may_leave(load::roomy, start + 5ms));
    w.has_left(load::roomy, start + 5ms);
    CHECK_FALSE(w.may_leave(load::roomy, start + 9ms));
    CHECK(*w.next_turn() == start + 10ms);
    w.has_left(load::full, start + 7ms);
    CHECK(*w.next_turn() == start + 12ms);
    w.is_over(load::full);
    w.is_over(load::roomy);
    w.is_over(load::roomy);
    CHECK(w.may_leave(load::roomy, start + 7ms));
    w.has_left(load::roomy, start + 7ms);
    int more = 0;
    time_point now = start + 7ms;
    for (; w.next_turn(); ++more) {
        now = *w.next_turn();
        CHECK(w.may_leave(load::roomy, now));
        w.has_left(load::roomy, now);
    }
    CHECK(more == 30);
    CHECK_FALSE(w.may_leave(load::roomy, now + 1h));
    w.was_too_many(now, now);
    w.is_over(load::roomy);
    CHECK_FALSE(w.next_turn()); // half as many
}

TEST_CASE("a limit of rates halves what is under way, once for those that it met",
          "[logic][lane]") {
    width w;
    w.was_too_many(start, start + 1s);
    CHECK(fill(w, load::full) == 16);
    w.was_too_many(start, start + 2s); // it was under way before
    w.was_too_many(start + 500ms, start + 2s);
    CHECK(fill(w, load::full) == 16);
    w.was_too_many(start + 1s, start + 3s);
    CHECK(fill(w, load::full) == 8);
    w.was_served(load::roomy);
    w.was_served(load::alone);
    CHECK(fill(w, load::full) == 8);
    w.was_served(load::full);
    CHECK(fill(w, load::full) == 9);
    for (int i = 4; i != 8; ++i) {
        w.was_too_many(start + i * 1s, start + i * 1s);
    }
    CHECK(fill(w, load::full) == 2);
    CHECK(fill(w, load::roomy) == 2);
    for (int i = 0; i != 100; ++i) {
        w.was_served(load::full);
    }
    CHECK(fill(w, load::full) == 32);
}
