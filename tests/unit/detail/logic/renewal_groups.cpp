// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/renewal_groups.hpp>

#include <chrono>
#include <cstddef>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;

TEST_CASE("renewals gather while requests are under way", "[logic][renewal_groups]") {
    constexpr std::size_t full = most_renewals_together;
    struct {
        std::size_t under_way;
        std::size_t gathered;
        std::chrono::nanoseconds longest_wait;
        bool due;
    } const rows[] = {
        // Nothing to gather for.
        {0, 1, 0ms, true},
        {0, full + 1, 1s, true},
        // One request is under way: the next is one that is full, or has waited.
        {1, 1, 0ms, false},
        {1, full - 1, longest_gathering - 1ns, false},
        {1, 1, longest_gathering, true},
        {1, full, 0ms, true},
        {1, full + 1, 0ms, true},
        // Two: the next is one that is full.
        {2, 1, 0ms, false},
        {2, full - 1, 1h, false},
        {2, full, 0ms, true},
        {31, full * 9, 0ms, true},
        // As many as there may be.
        {32, 1, 1h, false},
        {32, full, 0ms, false},
        {32, full * 9, 1h, false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.under_way, row.gathered, row.longest_wait.count());
        CHECK(is_group_due(row.under_way, row.gathered, row.longest_wait) == row.due);
    }
    CHECK(most_renewal_requests == 2);
    CHECK(most_renewals_together == 16);
    CHECK(most_renewals_alone == 2);
    CHECK(most_full_renewal_requests == 32);
    CHECK(renewal_connections == 34);
}
