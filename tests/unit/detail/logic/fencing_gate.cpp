// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/fencing_gate.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

txn_response answer(bool succeeded, std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = succeeded;
    r.header.revision = 50;
    r.responses = std::move(responses);
    return r;
}
txn_response inner(bool succeeded, std::vector<op_response> responses) {
    txn_response r = answer(succeeded, std::move(responses));
    r.header = {}; // as etcd has it
    return r;
}

op_response there(const std::string& value) {
    range_response r;
    r.kvs.emplace_back().value = value;
    return r;
}

bool refused(const std::function<void()>& read) {
    try {
        read();
        return false;
    } catch (const error& e) {
        return e.code() == errc::protocol_error;
    }
}

} // namespace

TEST_CASE("a token is written so that texts have the order of numbers", "[logic][fencing]") {
    CHECK(hex16(0) == "0000000000000000");
    CHECK(hex16(0x1a2b) == "0000000000001a2b");
    CHECK(hex16(std::numeric_limits<std::uint64_t>::max()) == "ffffffffffffffff");
    const std::vector<std::uint64_t> numbers{
        1, 9, 10, 15, 16, 255, 256, 0x9fff, 0xa000, 1ULL << 62, (1ULL << 63) - 1, 1ULL << 63};
    for (std::size_t i = 1; i != numbers.size(); ++i) {
        CHECK(hex16(numbers[i - 1]) < hex16(numbers[i]));
    }
}

TEST_CASE("a token comes through where none above it has", "[logic][fencing]") {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t token : {std::int64_t{1}, std::int64_t{15}, most}) {
        CAPTURE(token);
        const txn t = pass("gate", token, std::nullopt);
        const std::string text = hex16(static_cast<std::uint64_t>(token));
        REQUIRE(t.compares.size() == 2);
        CHECK(t.compares.front().what == compare::target::value);
        CHECK(t.compares.front().how == compare::result::less);
        CHECK(std::get<std::string>(t.compares.front().operand) ==
              hex16(static_cast<std::uint64_t>(token) + 1));
        CHECK(t.compares.back().what == compare::target::value);
        CHECK(t.compares.back().how == compare::result::greater);
        CHECK(std::get<std::string>(t.compares.back().operand) == hex16(0));
        REQUIRE(t.success.size() == 1);
        CHECK(std::get<put_request>(t.success.front()).value == text);
        REQUIRE(t.failure.size() == 1);
        const txn& first = std::get<txn>(t.failure.front());
        REQUIRE(first.compares.size() == 1);
        CHECK(first.compares.front().what == compare::target::create);
        CHECK(std::get<std::int64_t>(first.compares.front().operand) == 0);
        REQUIRE(first.success.size() == 1);
        CHECK(std::get<put_request>(first.success.front()).value == text);
        CHECK(std::get<put_request>(first.success.front()).key == "gate");
        REQUIRE(first.failure.size() == 1);
        CHECK(std::get<range_request>(first.failure.front()).range.key == "gate");
    }
    const std::optional<txn> work(txn().then(op::put("k", "v")));
    const txn t = pass("gate", 5, work);
    REQUIRE(t.success.size() == 2);
    CHECK(std::get<txn>(t.success.back()).success.size() == 1);
    REQUIRE(std::get<txn>(t.failure.front()).success.size() == 2);
}

TEST_CASE("the answer tells whether a token came through, and what was done", "[logic][fencing]") {
    const op_response put = put_response();
    const op_response did(inner(true, {put}));
    CHECK(after_pass(answer(true, {put}), false).through);
    CHECK(after_pass(answer(false, {inner(true, {put})}), false).through); // the first one
    for (const bool works : {false, true}) {
        const passage late = after_pass(answer(false, {inner(false, {there(hex16(9))})}), works);
        CHECK_FALSE(late.through);
        CHECK(late.is_gate);
        for (const std::string text : {"", "9", "000000000000000x", "{}"}) {
            const passage p = after_pass(answer(false, {inner(false, {there(text)})}), works);
            CHECK_FALSE(p.through);
            CHECK_FALSE(p.is_gate);
        }
    }
    for (const txn_response& r :
         {answer(true, {put, did}), answer(false, {inner(true, {put, did})})}) {
        const passage p = after_pass(r, true);
        CHECK(p.through);
        CHECK(p.did.succeeded);
        CHECK(p.did.header.revision == 50);
        CHECK(p.did.responses.size() == 1);
    }
    // what is no answer to it
    for (const txn_response& r : {answer(false, {}),
                                  answer(false, {put}),
                                  answer(true, {}),
                                  answer(false, {inner(false, {})}),
                                  answer(false, {inner(false, {put})}),
                                  answer(false, {inner(false, {range_response()})})}) {
        CHECK(refused([&] { (void)after_pass(r, false); }));
    }
    for (const txn_response& r : {answer(true, {put}), answer(true, {put, put})}) {
        CHECK(refused([&] { (void)after_pass(r, true); }));
    }
}
