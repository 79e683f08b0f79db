// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/first_number.hpp>
#include <coetcd/detail/logic/latch.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

range_response holding(const char* value) {
    range_response r;
    key_value kv;
    kv.value = value;
    r.kvs.push_back(kv);
    return r;
}
range_response counting(std::int64_t count) {
    range_response r;
    r.count = count;
    return r;
}
txn_response answer(bool succeeded, std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = succeeded;
    r.responses = std::move(responses);
    return r;
}

} // namespace

TEST_CASE("the number that is stored first counts", "[logic][latch]") {
    const txn t = store_first("l.total", 3);
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares.front().range.key == "l.total");
    CHECK(std::get<put_request>(t.success.front()).value == "3");
    CHECK(std::get<put_request>(t.success.front()).options.lease == 0);
    CHECK(first_stored(answer(true, {put_response(), holding("3")})) == 3);
    CHECK(first_stored(answer(false, {holding("7")})) == 7);
    for (const char* wrong : {"", "0", "-1", "x", "3x", "99999999999999999999"}) {
        CHECK_FALSE(first_stored(answer(false, {holding(wrong)})));
    }
    CHECK_FALSE(first_stored(answer(false, {range_response()})));
    CHECK_THROWS_AS(first_stored(answer(true, {put_response()})), coetcd::error);
    CHECK_THROWS_AS(require_count(0), std::invalid_argument);
    CHECK_THROWS_AS(require_count(-1), std::invalid_argument);
    CHECK_NOTHROW(require_count(1));
}

TEST_CASE("a count is a key that is put once", "[logic][latch]") {
    const txn t = count_down("l", "1a-2b-3c");
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares.front().range.key == "l/1a-2b-3c");
    CHECK(std::get<std::int64_t>(t.compares.front().operand) == 0);
    CHECK(std::get<put_request>(t.success.front()).key == "l/1a-2b-3c");
    CHECK(std::get<put_request>(t.success.front()).options.lease == 0);
    REQUIRE(t.success.size() == 2); // it is counted after it was put
    const auto& read = std::get<range_request>(t.success.back());
    CHECK(read.range.key == "l/");
    CHECK(read.range.range_end == "l0");
    CHECK(read.options.count_only);
    CHECK(t.failure.size() == 1);
    CHECK(counted_after(answer(true, {put_response(), counting(2)})) == 2);
    CHECK(counted_after(answer(false, {counting(2)})) == 2); // by an earlier copy
    CHECK(remaining(3, 2) == 1);
    CHECK(remaining(3, 3) == 0);
    CHECK(remaining(3, 4) == 0);
}

TEST_CASE("events tell how many have counted", "[logic][latch]") {
    const question<std::int64_t> q = counted_now("latch \"l\"", "l");
    CHECK(q.from(counting(2)) == 2);
    event e;
    e.kv.version = 1;
    CHECK(q.follow(2, e) == 3);
    e.kv.version = 2; // by hand: it was there
    CHECK(q.follow(2, e) == 2);
    e.type = event_type::erase;
    CHECK(q.follow(2, e) == 1);
}
