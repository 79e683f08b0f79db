// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/sequence.hpp>

#include <cstdint>
#include <string>
#include <variant>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

TEST_CASE("the last number of a sequence is the version of an empty key", "[logic][sequence]") {
    range_response read;
    CHECK(last_drawn(read) == 0);
    key_value& kv = read.kvs.emplace_back();
    kv.key = "n";
    kv.version = 7;
    CHECK(last_drawn(read) == 7);
    for (const std::string text : {"7", " ", "order 42"}) {
        kv.value = text;
        CHECK_FALSE(last_drawn(read));
    }
}

TEST_CASE("a number is drawn from an empty key, or from none", "[logic][sequence]") {
    for (const bool exists : {true, false}) {
        CAPTURE(exists);
        const txn t = draw("n", exists);
        REQUIRE(t.compares.size() == 1);
        CHECK(t.compares[0].range.key == "n");
        CHECK(t.compares[0].how == compare::result::equal);
        if (exists) {
            CHECK(t.compares[0].what == compare::target::value);
            CHECK(std::get<std::string>(t.compares[0].operand).empty());
        } else {
            CHECK(t.compares[0].what == compare::target::create);
            CHECK(std::get<std::int64_t>(t.compares[0].operand) == 0);
        }
        REQUIRE(t.success.size() == 2);
        CHECK(std::get<put_request>(t.success[0]).value.empty());
        CHECK(std::get<put_request>(t.success[0]).options.lease == 0);
        CHECK(std::get<range_request>(t.success[1]).range.key == "n");
        REQUIRE(t.failure.size() == 1);
        CHECK(std::get<range_request>(t.failure[0]).range.key == "n");
    }
}
