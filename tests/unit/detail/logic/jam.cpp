// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/jam.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace std::chrono_literals;

TEST_CASE("a gateway that gives everything up is told of, for as long as that is known",
          "[logic][jam]") {
    constexpr time_point morning{100s};
    const logic::endpoint one = logic::parse_endpoint("http://one");
    const logic::endpoint other = logic::parse_endpoint("http://other");
    logic::jam<time_point> j;
    CHECK(j.hint(morning).empty());
    CHECK(j.suspects(morning));
    CHECK_FALSE(j.suspects(morning + 9s)); // one question at a time
    j.heard(one, false, morning + 9s);
    CHECK(j.hint(morning + 9s).empty()); // etcd is slow, no more
    CHECK(j.suspects(morning + 10s));
    j.heard(one, true, morning + 11s);
    CHECK_THAT(j.hint(morning + 11s), support::contains("http://one"));
    CHECK_THAT(j.hint(morning + 11s), support::contains("--max-concurrent-streams"));
    CHECK_FALSE(j.suspects(morning + 14s)); // not so often
    CHECK_FALSE(j.hint(morning + 25s).empty());
    CHECK(j.hint(morning + 26s).empty());
    CHECK(j.suspects(morning + 15s));
    j.heard(other, false, morning + 16s);
    CHECK_FALSE(j.hint(morning + 16s).empty());
    CHECK(j.suspects(morning + 21s));
    j.heard(one, false, morning + 21s);
    CHECK(j.hint(morning + 21s).empty());
}
