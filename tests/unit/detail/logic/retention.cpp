// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/retention.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using namespace coetcd::detail::logic;
using coetcd::event;
using coetcd::event_type;

namespace {

using time_point = std::chrono::steady_clock::time_point;
using retained = retention<time_point>;

constexpr time_point start{1h};

/// One that may stay for 10 s, was looked at, and is watched.
retained in_force() {
    retained r(10s, start);
    r.looked(true, start);
    r.hears();
    return r;
}

event put(std::string key) {
    event e;
    e.kv.key = std::move(key);
    return e;
}
event erased(std::string key) {
    event e = put(std::move(key));
    e.type = event_type::erase;
    return e;
}

} // namespace

TEST_CASE("a retained lock stays until its time is over, unless it is used", "[logic][retention]") {
    retained r = in_force();
    CHECK(r.is_decided());
    CHECK(r.is_idle());
    CHECK(r.due() == start + 10s);
    CHECK_FALSE(r.must_go(start + 10s - 1ns));
    CHECK(r.must_go(start + 10s));
    r.taken();
    CHECK_FALSE(r.is_idle());
    CHECK_FALSE(r.must_go(start + 1h)); // a hold may last
    CHECK(r.due() == time_point::max());
    r.given_back(2s, start + 1h);
    CHECK(r.is_idle());
    CHECK_FALSE(r.must_go(start + 1h + 2s - 1ns));
    CHECK(r.must_go(start + 1h + 2s)); // as its last holder has said
}

TEST_CASE("a retained lock goes when it is recalled", "[logic][retention]") {
    retained r = in_force();
    SECTION("while nobody has it") {
        r.recall();
        CHECK(r.must_go(start));
        CHECK_FALSE(r.may_stay(start));
        CHECK(r.was_missed());
        CHECK_FALSE(r.was_missed()); // it is told once
    }
    SECTION("after it was of use") {
        r.taken();
        r.recall();
        CHECK_FALSE(r.may_stay(start));
        CHECK_FALSE(r.was_missed());
    }
    SECTION("or not") {
        CHECK_FALSE(r.was_missed());
    }
    SECTION("before it is known whether it may stay") {
        retained early(10s, start);
        early.recall();
        early.looked(true, start);
        CHECK(early.is_decided());
        CHECK(early.must_go(start));
    }
    SECTION("by the look") {
        retained early(10s, start);
        early.looked(false, start);
        CHECK(early.is_decided());
        CHECK(early.must_go(start));
        CHECK(early.was_missed());
    }
}

TEST_CASE("a retained lock goes when nobody could ask for it for a second", "[logic][retention]") {
    SECTION("from the look on") {
        retained r(10s, start);
        CHECK_FALSE(r.is_decided());
        CHECK_FALSE(r.is_idle());
        r.looked(true, start + 200ms);
        CHECK(r.due() == start + 1s);
        CHECK(r.may_stay(start + 1s - 1ns));
        CHECK_FALSE(r.may_stay(start + 1s));
    }
    SECTION("from when the stream broke, whoever has it") {
        retained r = in_force();
        r.taken();
        r.is_deaf(start + 5s);
        r.is_deaf(start + 5500ms); // it is still broken
        CHECK(r.due() == start + 6s);
        CHECK_FALSE(r.must_go(start + 6s - 1ns));
        CHECK(r.must_go(start + 6s));
    }
    SECTION("unless it was mended") {
        retained r = in_force();
        r.is_deaf(start);
        r.hears();
        CHECK(r.may_stay(start + 2s));
    }
}

TEST_CASE("a time that is very long does not overflow", "[logic][retention]") {
    retained r(std::chrono::nanoseconds::max(), start);
    r.looked(true, start);
    r.hears();
    CHECK(r.due() == time_point::max());
    CHECK_FALSE(r.must_go(start + 1h));
}

TEST_CASE("a lock that others want is given back more and more often", "[logic][retention]") {
    retention_habit habit;
    const auto released = [&] { // before it may stay again
        int times = 0;
        while (!habit.may_stay()) {
            ++times;
        }
        return times;
    };
    CHECK(released() == 0);
    for (const int expected : {1, 2, 4, 8, 16, 32, 64, 64}) {
        habit.was_missed();
        CHECK(released() == expected);
        CHECK(released() == 0);
    }
    habit.was_hit();
    CHECK(released() == 0);
    habit.was_missed();
    CHECK(released() == 1);
}

TEST_CASE("what tells that a retained lock has to go", "[logic][retention]") {
    const std::string own = "a/1-2-0";
    const auto ends = [&](const event& e) { return ends_retention(e, "a", own); };
    CHECK(ends(put("a/3-4-0")));      // somebody queues
    CHECK(ends(put("a/3")));          // such as Go's client
    CHECK(ends(put("a/read/3-4-0"))); // a reader
    CHECK(ends(put("a.ask/3-4")));    // somebody asks
    CHECK(ends(erased(own)));         // it is not ours any more
    CHECK_FALSE(ends(put(own)));
    CHECK_FALSE(ends(erased("a/3-4-0")));
    CHECK_FALSE(ends(erased("a.ask/3-4")));
    CHECK_FALSE(ends(put("a.3-4-0")));   // an epoch
    CHECK_FALSE(ends(put("a/b/3-4-0"))); // of another lock
    const coetcd::key_range all = keys_of_others("a");
    for (const char* key : {"a/3-4-0", "a.ask/3-4", "a/1-2-0"}) {
        CHECK((all.key <= key && key < all.range_end));
    }
    CHECK_FALSE(("b" < all.range_end));
}
