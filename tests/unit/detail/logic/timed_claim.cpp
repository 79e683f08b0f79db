// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/timed_claim.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

key_value kv(std::string key, std::int64_t create_revision) {
    key_value out;
    out.key = std::move(key);
    out.create_revision = create_revision;
    return out;
}
op_response found(std::vector<key_value> kvs) {
    range_response r;
    r.kvs = std::move(kvs);
    return r;
}
txn_response answer(bool succeeded, std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = succeeded;
    r.header.revision = 50;
    r.responses = std::move(responses);
    return r;
}

} // namespace

TEST_CASE("a claim is put if neither another key nor its own epoch is there", "[logic][claims]") {
    const txn t = take_for_a_time("m", 0x1a);
    REQUIRE(t.compares.size() == 2);
    for (const compare& c : t.compares) {
        CHECK(c.what == compare::target::create);
        CHECK(c.how == compare::result::equal);
        CHECK(std::get<std::int64_t>(c.operand) == 0);
    }
    CHECK(t.compares[0].range.key == "m.1a-0");
    CHECK(t.compares[0].range.range_end.empty());
    CHECK(t.compares[1].range.key == "m/");
    CHECK(t.compares[1].range.range_end == "m0");
    REQUIRE(t.success.size() == 1);
    const auto& put = std::get<put_request>(t.success.front());
    CHECK(put.key == "m/1a-0");
    CHECK(put.options.lease == 0x1a);
    CHECK(t.failure.size() == 2);

    // what force_unlock() puts for it is what it compares
    key_value claim = kv(put.key, 50);
    claim.lease = 0x1a;
    const auto end = force("m", 50, {claim});
    REQUIRE(end);
    CHECK(std::get<put_request>(end->success.front()).key == t.compares[0].range.key);
}

TEST_CASE("the answer tells whose the name is", "[logic][claims]") {
    const claiming ours = after_taking_for_a_time(answer(true, {put_response()}), "m", 0x1a);
    CHECK(ours.token == 50);
    CHECK_FALSE(ours.ahead);
    // an earlier copy was applied
    const claiming before = after_taking_for_a_time(
        answer(false, {found({kv("m/1a-0", 40)}), found({kv("m/1a-0", 40)})}), "m", 0x1a);
    CHECK(before.token == 40);
    // whatever else is there
    CHECK(after_taking_for_a_time(
              answer(false, {found({kv("m/1a-0", 40)}), found({kv("m/9", 30)})}), "m", 0x1a)
              .token == 40);
    const claiming theirs =
        after_taking_for_a_time(answer(false, {found({}), found({kv("m/9", 40)})}), "m", 0x1a);
    CHECK(theirs.token == 0);
    REQUIRE(theirs.ahead);
    CHECK(theirs.ahead->key == "m/9");
    CHECK(theirs.ahead->create_revision == 40);
    // forced out before: no key is there
    const claiming nobody =
        after_taking_for_a_time(answer(false, {found({}), found({})}), "m", 0x1a);
    CHECK(nobody.token == 0);
    CHECK_FALSE(nobody.ahead);
    for (const txn_response& r : {answer(false, {}), answer(false, {found({})})}) {
        CHECK_THROWS_AS(after_taking_for_a_time(r, "m", 0x1a), coetcd::error);
    }
    txn_response without = answer(true, {});
    without.header.revision = 0;
    CHECK_THROWS_AS(after_taking_for_a_time(without, "m", 0x1a), coetcd::error);
}

TEST_CASE("claims that have waited are not all tried again at once", "[logic][claims]") {
    using namespace std::chrono_literals;
    CHECK(before_a_try(0) == 0ns);
    CHECK(before_a_try(50'000'000) == 50ms);
    CHECK(before_a_try(50'000'001) == 0ns);
    CHECK(before_a_try(std::numeric_limits<std::uint64_t>::max()) <= 50ms);
}

TEST_CASE("a minimum is less than the hold", "[logic][claims]") {
    using namespace std::chrono_literals;
    CHECK_NOTHROW(require_min_hold(0s, 1s));
    CHECK_NOTHROW(require_min_hold(9s, 10s));
    CHECK_THROWS_AS(require_min_hold(10s, 10s), std::invalid_argument);
    CHECK_THROWS_AS(require_min_hold(-1s, 10s), std::invalid_argument);
}

TEST_CASE("the lease for the rest of a minimum never ends before it", "[logic][claims]") {
    using namespace std::chrono_literals;
    using time = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;
    const time now(100s);
    CHECK_FALSE(rest_of_min_hold(now, now));
    CHECK_FALSE(rest_of_min_hold(now, now - 5s));
    CHECK_FALSE(rest_of_min_hold(now, time::min()));
    CHECK(rest_of_min_hold(now, now + 1ns) == 1s);
    CHECK(rest_of_min_hold(now, now + 1s) == 1s);
    CHECK(rest_of_min_hold(now, now + 1s + 1ns) == 2s);
    CHECK(rest_of_min_hold(now, now + 3599500ms) == 3600s);
}

TEST_CASE("only this life of a claim gets another lease, and nothing else changes",
          "[logic][claims]") {
    const txn t = change_lease("m/1a-0", 50, 0x2b);
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares.front().what == compare::target::create);
    CHECK(t.compares.front().range.key == "m/1a-0");
    CHECK(std::get<std::int64_t>(t.compares.front().operand) == 50);
    REQUIRE(t.success.size() == 1);
    const auto& put = std::get<put_request>(t.success.front());
    CHECK(put.key == "m/1a-0");
    CHECK(put.options.lease == 0x2b);
    CHECK(put.options.ignore_value);
    CHECK(t.failure.empty());
}
