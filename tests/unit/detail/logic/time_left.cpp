// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/time_left.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace std::chrono;
using coetcd::detail::logic::is_nearly_due;
using coetcd::detail::logic::others_have_it;
using coetcd::detail::logic::time_left;

TEST_CASE("the time that is left is told exactly", "[logic][time_left]") {
    const steady_clock::time_point now{hours(1000)};
    CHECK(time_left(now, now) == nanoseconds(0));
    CHECK(time_left(now + nanoseconds(1), now) == nanoseconds(1));
    CHECK(time_left(now - milliseconds(5), now) == milliseconds(-5));
    CHECK(time_left(now + hours(24), now) == hours(24));
    const system_clock::time_point today{hours(24 * 365 * 55)};
    CHECK(time_left(time_point_cast<seconds>(today + minutes(3)), today) == minutes(3));
}

TEST_CASE("a time beyond what can be told is as far as can be told", "[logic][time_left]") {
    const steady_clock::time_point now{hours(1000)};
    CHECK(time_left(steady_clock::time_point::min(), now) == nanoseconds::min());
    CHECK(time_left(steady_clock::time_point::max(), now - hours(2000)) == nanoseconds::max());
    const system_clock::time_point today{hours(24 * 365 * 55)};
    CHECK(time_left(sys_seconds::max(), today) == nanoseconds::max());
    CHECK(time_left(sys_seconds::min(), today) == nanoseconds::min());
    CHECK(time_left(time_point<system_clock, hours>::max(), today) == nanoseconds::max());
}

TEST_CASE("a patience that is over says that others have it, unless etcd does not answer",
          "[logic][time_left]") {
    using clock = std::chrono::steady_clock;
    const clock::time_point began(1000h);
    struct {
        nanoseconds told;
        nanoseconds now;
        bool others;
    } const rows[] = {
        {-1ns, 1s, false}, // before we came: it may be free by now
        {0ns, 1s, true},
        {1s, 1s, true}, // in this very moment
        {1s, 2s, true},
        {1s, 3s - 1ns, true},
        {1s, 3s, false}, // nothing for as long as an answer may take
        {1s, 1h, false},
    };
    for (const auto& row : rows) {
        INFO(row.told.count() << " " << row.now.count());
        CHECK(others_have_it(began, began + row.told, began + row.now, 2s) == row.others);
    }
    CHECK_FALSE(others_have_it(began, clock::time_point::min(), began + 1s, 2s));
    CHECK(others_have_it(began, began, began + 1s, nanoseconds::max()));
}

TEST_CASE("what has less than a tenth of its time left is nearly due", "[logic][time_left]") {
    using clock = std::chrono::steady_clock;
    const clock::time_point asked(1000h);
    const clock::time_point then = asked + 10s;
    CHECK_FALSE(is_nearly_due(then, asked, asked));
    CHECK_FALSE(is_nearly_due(then, asked, asked + 9s));
    CHECK(is_nearly_due(then, asked, asked + 9s + 1ns));
    CHECK(is_nearly_due(then, asked, then));
    CHECK(is_nearly_due(then, asked, then + 1h));
    CHECK_FALSE(is_nearly_due(asked + 1ns, asked, asked));
    CHECK(is_nearly_due(asked, asked, asked));
    CHECK_FALSE(is_nearly_due(clock::time_point::max(), asked, asked + 1h));
}
