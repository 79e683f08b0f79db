// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/endpoint_choice.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;

namespace {

using time_point = std::chrono::steady_clock::time_point;
using choice = endpoint_choice<time_point>;

constexpr time_point start(1000h);

} // namespace

TEST_CASE("clients spread over the endpoints", "[logic][endpoint_choice]") {
    std::set<std::size_t> first;
    for (std::uint64_t chance = 0; chance != 6; ++chance) {
        CHECK(choice(3, chance).pick(start) == chance % 3);
    }
    const auto most = std::numeric_limits<std::uint64_t>::max();
    CHECK(choice(3, most).pick(start) == most % 3);
    CHECK(choice(1, most).pick(start) == 0);
    CHECK(choice(3, 0).size() == 3);
}

TEST_CASE("a client stays with the endpoint that works", "[logic][endpoint_choice]") {
    choice c(3, 1);
    CHECK(c.pick(start) == 1);
    c.succeeded(1);
    CHECK(c.pick(start + 1h) == 1);
    c.succeeded(2); // as a stream found
    CHECK(c.pick(start + 1h) == 2);
}

TEST_CASE("an endpoint that failed makes room for the next one", "[logic][endpoint_choice]") {
    choice c(3, 2);
    c.failed(2, start);
    CHECK(c.pick(start) == 0);
    c.failed(0, start);
    CHECK(c.pick(start) == 1);
    // The failure of another one does not move the preferred one.
    choice d(3, 0);
    d.failed(1, start);
    CHECK(d.pick(start) == 0);
    d.failed(0, start);
    CHECK(d.pick(start) == 2);
}

TEST_CASE("a client does not go back by itself from one that works", "[logic][endpoint_choice]") {
    choice c(2, 0);
    c.failed(0, start);
    c.succeeded(1);
    CHECK(c.pick(start + 1h) == 1);
}

TEST_CASE("the time that an endpoint is shunned doubles up to a limit",
          "[logic][endpoint_choice]") {
    const std::chrono::milliseconds expected[] = {
        100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms, 5000ms};
    for (std::size_t failures = 1; failures <= std::size(expected); ++failures) {
        choice c(2, 0);
        for (std::size_t i = 0; i != failures; ++i) {
            c.failed(0, start);
        }
        c.failed(1, start - 1h); // so that 0 is preferred again
        CAPTURE(failures);
        CHECK(c.pick(start + expected[failures - 1] - 1ns) == 1);
        CHECK(c.pick(start + expected[failures - 1]) == 0);
    }
}

TEST_CASE("an endpoint is forgiven all failures with one success", "[logic][endpoint_choice]") {
    choice c(2, 0);
    for (int i = 0; i != 5; ++i) {
        c.failed(0, start);
    }
    c.succeeded(0);
    CHECK(c.pick(start) == 0);
    c.failed(0, start);
    c.failed(1, start - 1h);
    CHECK(c.pick(start + 100ms - 1ns) == 1);
    CHECK(c.pick(start + 100ms) == 0);
}

TEST_CASE("if all endpoints are shunned the first to be free is tried",
          "[logic][endpoint_choice]") {
    choice c(3, 0);
    c.failed(0, start + 20ms);
    c.failed(1, start + 10ms);
    c.failed(2, start + 30ms);
    CHECK(c.pick(start + 30ms) == 1);
    c.failed(1, start + 30ms);
    CHECK(c.pick(start + 30ms) == 0);
    choice one(1, 0);
    for (int i = 0; i != 1000; ++i) {
        one.failed(0, start);
        CHECK(one.pick(start) == 0);
    }
}
