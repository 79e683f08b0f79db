// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/watch_traffic.hpp>

#include <chrono>
#include <cstdint>

#include "support/catch.hpp"

using coetcd::detail::logic::watch_traffic;
using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;

TEST_CASE("a watch brings much if it brings it at once, or goes on", "[logic][watch_traffic]") {
    struct {
        const char* name;
        std::uint64_t bytes;
        std::chrono::nanoseconds every;
        int times;
        bool is_much;
    } const rows[] = {
        {"nothing", 0, 1s, 100, false},
        {"a small message now and then", 300, 1s, 100'000, false},
        {"a hundred small ones a second", 300, 10ms, 100'000, false},
        {"a thousand", 300, 1ms, 10'000, true},
        {"many, one after the other", 300, 1us, 800, false},
        {"too many", 300, 1us, 900, true},
        {"a page", 200'000, 1s, 1, false},
        {"a page once a minute", 200'000, 1min, 1000, false},
        {"a page every two seconds", 200'000, 2s, 10, true},
        {"a large message", 300'000, 1s, 1, true},
        {"one after a long silence", 60'000, 1000h, 1000, false},
    };
    for (const auto& row : rows) {
        INFO(row.name);
        watch_traffic<time_point> t;
        time_point now{};
        for (int i = 0; i != row.times; ++i) {
            now += row.every;
            t.add(row.bytes, now);
        }
        CHECK(t.is_much() == row.is_much);
    }
}

TEST_CASE("what a watch has brought is forgotten by and by, in whatever steps",
          "[logic][watch_traffic]") {
    for (const auto step : {3us, 17us, 1000us, 500'000us}) {
        CAPTURE(step.count());
        watch_traffic<time_point> t;
        time_point now{};
        t.add(400'000, now);
        CHECK(t.is_much());
        for (const time_point end = now + 10s; now < end; now += step) {
            t.add(0, now);
        }
        CHECK_FALSE(t.is_much());
    }
}
