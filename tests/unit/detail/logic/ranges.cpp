// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/ranges.hpp>

#include <string>
#include <vector>

#include "support/catch.hpp"

using coetcd::key_range;
using coetcd::detail::logic::contains;
using coetcd::detail::logic::overlap;

TEST_CASE("a range contains its first key, and not its last", "[logic][ranges]") {
    struct {
        key_range keys;
        std::string key;
        bool inside;
    } const rows[] = {
        {"b", "b", true},
        {"b", "a", false},
        {"b", "ba", false},
        {"b", "c", false},
        {{"b", "d"}, "a", false},
        {{"b", "d"}, "b", true},
        {{"b", "d"}, "czzz", true},
        {{"b", "d"}, "d", false},
        {key_range::prefix("b"), "b", true},
        {key_range::prefix("b"), "b\xff", true},
        {key_range::prefix("b"), "c", false},
        {key_range::from("b"), "a", false},
        {key_range::from("b"), "\xff", true},
        {key_range::all(), "a", true},
    };
    for (const auto& row : rows) {
        CAPTURE(row.keys.key, row.keys.range_end, row.key);
        CHECK(contains(row.keys, row.key) == row.inside);
        CHECK(overlap(row.keys, row.key) == row.inside);
        CHECK(overlap(row.key, row.keys) == row.inside);
    }
}

TEST_CASE("ranges overlap if a key can be in both", "[logic][ranges]") {
    const std::vector<key_range> all = {{"a", "c"}, {"b", "d"}, {"c", "d"}, key_range::from("d")};
    const std::vector<std::vector<bool>> expected = {
        {true, true, false, false},
        {true, true, true, false},
        {false, true, true, false},
        {false, false, false, true},
    };
    for (std::size_t i = 0; i != all.size(); ++i) {
        for (std::size_t j = 0; j != all.size(); ++j) {
            CAPTURE(i, j);
            CHECK(overlap(all[i], all[j]) == expected[i][j]);
        }
    }
}
