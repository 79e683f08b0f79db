// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/staggering.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace std::chrono_literals;

namespace {

constexpr time_point origin{100s};

/// What is begun when time goes on to each of these moments, and nothing else happens.
std::string begun_at(std::size_t count, std::chrono::nanoseconds time) {
    logic::staggering<time_point> s(count, origin, origin + time);
    std::string out;
    for (time_point now = origin; now < origin + time; now += 5ms) {
        while (s.begin(now)) {
            out += std::to_string((now - origin) / 1ms) + ' ';
        }
    }
    return out;
}

} // namespace

TEST_CASE("the next address is tried while those before it go on", "[logic][staggering]") {
    CHECK(begun_at(1, 1s) == "0 ");
    CHECK(begun_at(3, 1s) == "0 250 500 ");
    CHECK(begun_at(3, 9s) == "0 250 500 ");
    // Each has its turn, however short the time.
    CHECK(begun_at(5, 1s) == "0 200 400 600 800 ");
    CHECK(begun_at(2, 100ms) == "0 50 ");
}

TEST_CASE("what happens to one address decides over the next", "[logic][staggering]") {
    logic::staggering<time_point> s(3, origin, origin + 1s);
    const std::optional<std::size_t> none;
    CHECK(s.until() == origin);
    CHECK(s.begin(origin) == 0);
    CHECK(s.begin(origin) == none);
    CHECK(s.until() == origin + 250ms);
    s.answered(origin + 200ms); // it has more to do
    CHECK(s.begin(origin + 250ms) == none);
    CHECK(s.until() == origin + 450ms);
    CHECK(s.begin(origin + 450ms) == 1);
    s.failed(origin + 460ms); // at once
    CHECK(s.until() == origin + 460ms);
    CHECK_FALSE(s.is_over(origin + 460ms));
    CHECK(s.begin(origin + 460ms) == 2);
    CHECK(s.until() == time_point::max());
    s.failed(origin + 470ms);
    CHECK(s.begin(origin + 470ms) == none);
    CHECK_FALSE(s.is_over(origin + 470ms)); // one goes on
    s.failed(origin + 480ms);
    CHECK(s.is_over(origin + 480ms));
}

TEST_CASE("after the deadline no address is tried", "[logic][staggering]") {
    logic::staggering<time_point> s(2, origin, origin + 1s);
    CHECK(s.begin(origin + 900ms) == 0);
    CHECK(s.until() == time_point::max());
    s.failed(origin + 1s);
    CHECK_FALSE(s.begin(origin + 1s));
    CHECK(s.is_over(origin + 1s));
    CHECK(logic::staggering<time_point>(2, origin, origin - 1s).is_over(origin));
}
