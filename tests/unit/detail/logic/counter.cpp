// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/counter.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

range_response holding(const std::string& value) {
    range_response r;
    key_value& kv = r.kvs.emplace_back();
    kv.key = "n";
    kv.value = value;
    kv.mod_revision = 9;
    return r;
}

} // namespace

TEST_CASE("a counter is a number in decimal digits, and nothing else", "[logic][counter]") {
    for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-7}, most, least}) {
        const auto read = to_counted(holding(std::to_string(number)));
        REQUIRE(read);
        CHECK(read->value == number);
        CHECK(read->mod_revision == 9);
    }
    for (const std::string text : {"", " ", "1 ", " 1", "+1", "x", "1.5", "9223372036854775808"}) {
        INFO('"' << text << '"');
        CHECK_FALSE(to_counted(holding(text)));
    }
    const auto absent = to_counted(range_response());
    REQUIRE(absent);
    CHECK(absent->value == 0);
    CHECK(absent->mod_revision == 0);
}

TEST_CASE("a sum that does not fit is none", "[logic][counter]") {
    struct {
        std::int64_t value, by;
        std::optional<std::int64_t> expected;
    } const rows[] = {
        {1, 2, 3},
        {1, -2, -1},
        {0, 0, 0},
        {most, 0, most},
        {most, 1, std::nullopt},
        {most - 1, 1, most},
        {least, -1, std::nullopt},
        {least + 1, -1, least},
        {most, least, -1},
        {least, most, -1},
        {1, most, std::nullopt},
        {-1, least, std::nullopt},
        {0, least, least},
    };
    for (const auto& row : rows) {
        CAPTURE(row.value, row.by);
        CHECK(sum(row.value, row.by) == row.expected);
    }
}

TEST_CASE("a count is written if the key has not changed; else the key is read",
          "[logic][counter]") {
    const txn t = count("n", {4, 9}, 5);
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares[0].what == compare::target::mod);
    CHECK(t.compares[0].how == compare::result::equal);
    CHECK(t.compares[0].range.key == "n");
    CHECK(std::get<std::int64_t>(t.compares[0].operand) == 9);
    REQUIRE(t.success.size() == 1);
    CHECK(std::get<put_request>(t.success[0]).value == "5");
    CHECK(std::get<put_request>(t.success[0]).options.lease == 0);
    REQUIRE(t.failure.size() == 1);
    CHECK(std::get<range_request>(t.failure[0]).range.key == "n");
}
