// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/watch_path.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using coetcd::detail::logic::watch_path;
using time_point = std::chrono::steady_clock::time_point;

TEST_CASE("watches go together again as soon as that is possible", "[logic][watch_path]") {
    watch_path<time_point> path;
    CHECK_FALSE(path.alone());
    const time_point now(1000h);
    path.broken(now);
    CHECK(path.alone());
    CHECK(path.retry_at() == now + 5min);
    path.mended();
    CHECK_FALSE(path.alone());
}

TEST_CASE("that is tried ever more seldom, but every hour", "[logic][watch_path]") {
    watch_path<time_point> path;
    const time_point now(1000h);
    for (const auto wait : {5min, 10min, 20min, 40min, 60min, 60min}) {
        path.broken(now);
        CHECK(path.retry_at() == now + wait);
    }
    path.mended();
    path.broken(now);
    CHECK(path.retry_at() == now + 5min);
}
