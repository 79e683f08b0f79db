// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/item_order.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

TEST_CASE("sortable digits are ordered as numbers are", "[logic][queue]") {
    CHECK(sortable(0) == "0000000000000000");
    CHECK(sortable(0x1f) == "000000000000001f");
    CHECK(sortable(std::numeric_limits<std::uint64_t>::max()) == "ffffffffffffffff");
    CHECK(sortable(59, 2) == "3b");
    std::string before;
    for (const std::uint64_t n :
         {0ULL, 1ULL, 9ULL, 10ULL, 15ULL, 16ULL, 255ULL, 256ULL, 1ULL << 40}) {
        CHECK(before < sortable(n));
        before = sortable(n);
    }
}

TEST_CASE("the order of items is that of revisions, then of their indexes", "[logic][queue]") {
    CHECK(order_of(0x12, 0xab) == "0000000000000012-00000000000000ab");
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    CHECK(order_of(9, most) < order_of(10, 0));
    const std::string all = order_of(7, 3);
    for (std::size_t i = 1; i != most_appended; ++i) {
        CHECK(order_of(all, i - 1) < order_of(all, i));
    }
    CHECK(order_of(all, 0) > all);
    CHECK(order_of(all, most_appended - 1) < order_of(8, 0));
}

TEST_CASE("a guard covers its own place, and all later ones", "[logic][queue]") {
    const compare guard = nothing_from("q/", "0012");
    CHECK(guard.range.key == "q/0012");
    CHECK(guard.range.range_end == "q0");
    CHECK(guard.what == compare::target::create);
    CHECK(guard.how == compare::result::equal);
    CHECK(std::get<std::int64_t>(guard.operand) == 0);
}

TEST_CASE("from one item to sixty can be appended at once", "[logic][queue]") {
    CHECK_THROWS_AS(require_appendable({}), std::invalid_argument);
    CHECK_THROWS_AS(require_appendable(std::vector<std::string>(61)), std::invalid_argument);
    CHECK_NOTHROW(require_appendable({""}));
    CHECK_NOTHROW(require_appendable(std::vector<std::string>(60)));
}
