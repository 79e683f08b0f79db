// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/answer_room.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;
using coetcd::detail::logic::answer_room;

TEST_CASE("fewer share a request for a while after an answer that was too large",
          "[logic][answer_room]") {
    answer_room<time_point> room;
    const time_point start(1h);
    CHECK(room.most(60, start) == 60);
    room.was_too_large(60, start);
    CHECK(room.most(60, start) == 30);
    CHECK(room.most(20, start) == 20);
    room.was_too_large(30, start + 1s);
    CHECK(room.most(60, start + 10s) == 15);
    CHECK(room.most(60, start + 11s) == 60);
    room.was_too_large(3, start + 20s);
    CHECK(room.most(60, start + 20s) == 1);
    room.was_too_large(1, start + 20s);
    CHECK(room.most(60, start + 20s) == 1);
}
