// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/crowd.hpp>

#include <cstddef>

#include "support/catch.hpp"

using coetcd::detail::logic::crowd;

TEST_CASE("a request takes half of a crowd", "[logic][crowd]") {
    CHECK(crowd().share(64) == 32);
    CHECK(crowd().share(63) == 32);
    CHECK(crowd().share(10'000) == 5'000);
}

TEST_CASE("a few go together", "[logic][crowd]") {
    for (std::size_t few = 0; few <= 8; ++few) {
        CHECK(crowd().share(few) == 4);
    }
    CHECK(crowd().share(9) == 5);
}

TEST_CASE("a crowd is remembered for a while", "[logic][crowd]") {
    crowd c;
    CHECK(c.share(64) == 32);
    CHECK(c.share(16) == 28); // those that were answered are on their way back
    CHECK(c.share(64) == 32);
    std::size_t share = 0;
    for (int i = 0; i != 30; ++i) {
        share = c.share(1);
    }
    CHECK(share == 4);
}
