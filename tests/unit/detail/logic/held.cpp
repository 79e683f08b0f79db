// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/held.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

std::vector<held_life> lives(std::size_t count) {
    std::vector<held_life> out;
    for (std::size_t i = 0; i != count; ++i) {
        out.push_back({std::to_string(i), 40});
    }
    return out;
}

op_response found(std::string key, std::int64_t create_revision) {
    range_response r;
    r.kvs.emplace_back();
    r.kvs.back().key = std::move(key);
    r.kvs.back().create_revision = create_revision;
    return r;
}

std::vector<std::string> gone(std::vector<op_response> responses,
                              const std::vector<held_life>& some,
                              std::int64_t revision = 50) {
    txn_response r;
    r.succeeded = true;
    r.header.revision = revision;
    r.responses = std::move(responses);
    std::vector<std::string> out;
    for (const held_life& h : missing(r, some)) {
        out.push_back(h.key);
    }
    return out;
}

using strings = std::vector<std::string>;

} // namespace

TEST_CASE("what is held is looked at by 60 keys at a time", "[logic][held]") {
    for (const std::size_t count : {0U, 1U, 60U, 61U, 120U, 121U}) {
        CAPTURE(count);
        const auto all = rounds(lives(count));
        CHECK(all.size() == (count + 59) / 60);
        std::size_t next = 0;
        for (const auto& some : all) {
            CHECK(some.size() <= 60);
            for (const held_life& h : some) {
                CHECK(h.key == std::to_string(next++));
                CHECK(h.create_revision == 40);
            }
        }
        CHECK(next == count);
    }
}

TEST_CASE("what is held are the keys that it began with, and later ones that are known to be there",
          "[logic][held]") {
    attempt_keys two{0x1a,
                     {exclusive_keys("m", 0x1a, 3, 2, 7), exclusive_keys("n", 0x1a, 3, 2, 7)}};
    two.by_name[0].later = {{"m/later", 45}, {"m/perhaps", 0}};
    strings all;
    for (const held_life& h : counted_on(two, 40)) {
        all.push_back(h.key + '@' + std::to_string(h.create_revision));
    }
    CHECK(all == strings{"m/1a-3-2@40", "m/later@45", "n/1a-3-2@40"});
}

TEST_CASE("to look at what is held is to read the keys, whatever there is", "[logic][held]") {
    const txn t = look_at(lives(3));
    CHECK(t.compares.empty());
    CHECK(t.failure.empty());
    REQUIRE(t.success.size() == 3);
    for (std::size_t i = 0; i != 3; ++i) {
        const auto& r = std::get<range_request>(t.success[i]);
        CHECK(r.range.key == std::to_string(i));
        CHECK(r.range.range_end.empty());
        CHECK(r.options.keys_only);
        CHECK_FALSE(r.options.serializable);
        CHECK(r.options.revision == 0);
    }
}

TEST_CASE("a life that is not there is missing", "[logic][held]") {
    const std::vector<held_life> some{{"a", 40}, {"b", 41}, {"c", 50}};
    const op_response a = found("a", 40);
    const op_response b = found("b", 41);
    const op_response c = found("c", 50);
    const op_response none = range_response();
    CHECK(gone({a, b, c}, some) == strings{});
    CHECK(gone({a, none, c}, some) == strings{"b"});
    CHECK(gone({none, none, none}, some) == strings{"a", "b", "c"});
    CHECK(gone({a, found("b", 45), c}, some) == strings{"b"}); // another life
    // A member that lags shows what was before.
    CHECK(gone({none, none, none}, some, 49) == strings{"a", "b"});
    CHECK(gone({none, none, none}, some, 39) == strings{});
    // what no answer speaks of, or no read
    CHECK(gone({none}, some) == strings{"a"});
    CHECK(gone({}, some) == strings{});
    CHECK(gone({put_response(), none, c, none}, some) == strings{"b"});
}

TEST_CASE("an answer shows all lives, or any", "[logic][held]") {
    const std::vector<held_life> some{{"a", 40}, {"b", 41}, {"c", 50}};
    const op_response a = found("a", 40);
    const op_response b = found("b", 41);
    const op_response c = found("c", 50);
    const op_response none = range_response();
    struct {
        std::vector<op_response> reads;
        bool all;
        bool any;
        bool any_but_first;
    } const rows[] = {
        {{a, b, c}, true, true, true},
        {{none, b, c}, false, true, true},
        {{a, none, c}, false, true, true},
        {{a, b, none}, false, true, true},
        {{a, none, none}, false, true, false},
        {{none, none, none}, false, false, false},
        {{a, b, found("c", 51)}, false, true, true}, // another life
        {{none, none, found("c", 51)}, false, false, false},
        {{none, none, found("d", 50)}, false, false, false},
    };
    const std::vector<held_life> last{some[1], some[2]};
    for (const auto& row : rows) {
        txn_response r;
        r.responses = row.reads;
        CHECK(shows_all(r, some) == row.all);
        CHECK(shows_any(r, 0, some) == row.any);
        CHECK(shows_any(r, 1, last) == row.any_but_first);
    }
    // what lacks a read
    for (const auto& reads : std::vector<std::vector<op_response>>{{}, {put_response()}, {a, b}}) {
        txn_response r;
        r.responses = reads;
        CHECK_THROWS_AS(shows_all(r, some), error);
    }
}
