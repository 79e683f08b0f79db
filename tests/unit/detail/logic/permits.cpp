// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/permits.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

key_value kv(std::string key, std::string value, std::int64_t create_revision = 40) {
    key_value out;
    out.key = std::move(key);
    out.value = std::move(value);
    out.create_revision = create_revision;
    out.mod_revision = create_revision + 1;
    out.lease = 0x1a;
    return out;
}

op_response count(std::int64_t n) {
    range_response r;
    r.count = n;
    return r;
}

op_response found(std::optional<key_value> one) {
    range_response r;
    if (one) {
        r.kvs.push_back(std::move(*one));
    }
    return r;
}

/// @param counts Of the first bits; of the others 0.
txn_response answer(std::vector<std::int64_t> counts, std::optional<key_value> limit) {
    txn_response r;
    r.succeeded = true;
    r.header.revision = 50;
    counts.resize(permit_bits);
    for (const std::int64_t n : counts) {
        r.responses.push_back(count(n));
    }
    r.responses.push_back(found(std::move(limit)));
    return r;
}

errc code_of(const txn_response& response) {
    try {
        (void)permits::room_in(response, 0, "s", 3);
    } catch (const error& e) {
        return static_cast<errc>(e.code().value());
    }
    return {};
}

} // namespace

TEST_CASE("the keys of a semaphore lie under its name, and in no other's", "[logic][permits]") {
    const name_keys c = permit_keys("s", 0x1a, 3, 2, 7);
    CHECK(c.keys == std::vector<std::string>{"s/wait/1a-3-2"});
    CHECK(c.before.key == "s/wait/");
    CHECK(c.before.range_end == "s/wait0");
    CHECK(c.epoch_key == "s.1a-3-2");
    CHECK(c.void_key == "s.1a-3-void");
    CHECK(c.epoch == 7);
    CHECK(c.later.empty()); // what a permit takes is up to the attempt
    CHECK(permit_keys("a/b", 0x1a, 3, 2, 0).keys.front() == "a/b/wait/1a-3-2");
    CHECK(permits::limit_key("s") == "s.limit");
    CHECK(permits::held_prefix("s", 0) == "s/hold/00/");
    CHECK(permits::held_prefix("s", 15) == "s/hold/0f/");
    std::set<std::string> all;
    for (std::size_t bit = 0; bit != permit_bits; ++bit) {
        const std::string prefix = permits::held_prefix("s", bit);
        CHECK(all.insert(prefix).second);
        CHECK(permits::all_held("s").key < prefix);
        CHECK(prefix < permits::all_held("s").range_end);
        // one role for the name is enough
        CHECK(std::string("s.") < prefix);
        CHECK(prefix < std::string("s0"));
    }
}

TEST_CASE("a limit is a decimal number, and nothing else", "[logic][permits]") {
    const struct {
        const char* text;
        std::optional<std::int64_t> value;
    } rows[] = {
        {"0", 0},
        {"7", 7},
        {"007", 7},
        {"1099511627776", most_limit},
        {"1099511627777", std::nullopt},
        {"9999999999999", std::nullopt},
        {"10995116277760", std::nullopt},
        {"", std::nullopt},
        {"-1", std::nullopt},
        {"+1", std::nullopt},
        {" 1", std::nullopt},
        {"1 ", std::nullopt},
        {"0x1", std::nullopt},
        {"1.5", std::nullopt},
        {"many", std::nullopt},
    };
    for (const auto& row : rows) {
        CAPTURE(row.text);
        CHECK(permits::parse(row.text) == row.value);
    }
    CHECK(permits::parse(std::to_string(most_limit)) == most_limit);
}

TEST_CASE("how much is used is the sum of the counts of all bits", "[logic][permits]") {
    std::vector<op> asked;
    permits::ask_room("s", asked);
    REQUIRE(asked.size() == permits::room_reads);
    for (std::size_t bit = 0; bit != permit_bits; ++bit) {
        const auto& read = std::get<range_request>(asked[bit]);
        CHECK(read.range.key == permits::held_prefix("s", bit));
        CHECK(read.options.count_only);
        CHECK_FALSE(read.options.serializable);
    }
    CHECK(std::get<range_request>(asked.back()).range.key == "s.limit");
    CHECK_FALSE(std::get<range_request>(asked.back()).options.keys_only);

    const room some = permits::room_in(answer({3, 0, 2}, kv("s.limit", "20", 30)), 0, "s", 3);
    CHECK(some.used == 3 + 2 * 4);
    CHECK(some.limit == 20);
    CHECK(some.limit_revision == 31);
    CHECK(some.has_limit);

    const room none = permits::room_in(answer({}, std::nullopt), 0, "s", 3);
    CHECK(none.used == 0);
    CHECK(none.limit == 3);
    CHECK(none.limit_revision == 0);
    CHECK(none.has_limit); // that of the reader

    const room closed = permits::room_in(answer({2}, std::nullopt), 0, "s", std::nullopt);
    CHECK(closed.used == 2);
    CHECK(closed.limit == 0);
    CHECK(closed.limit_revision == 0);
    CHECK_FALSE(closed.has_limit);
    const room stored = permits::room_in(answer({}, kv("s.limit", "0", 30)), 0, "s", std::nullopt);
    CHECK(stored.limit == 0);
    CHECK(stored.has_limit);

    std::vector<std::int64_t> most(permit_bits, most_limit);
    const room full = permits::room_in(answer(most, std::nullopt), 0, "s", 3);
    CHECK(full.used == most_limit * most_permits);
}

TEST_CASE("what cannot be an answer, and a limit that is none, are refused", "[logic][permits]") {
    CHECK(code_of(answer({1}, kv("s.limit", "1"))) == errc{});
    CHECK(code_of(answer({-1}, kv("s.limit", "1"))) == errc::protocol_error);
    CHECK(code_of(answer({std::numeric_limits<std::int64_t>::max()}, kv("s.limit", "1"))) ==
          errc::protocol_error);
    CHECK(code_of(answer({}, kv("s.limit", "many"))) == errc::wrong_kind);
    CHECK(code_of(answer({}, kv("s.limit", "-1"))) == errc::wrong_kind);
    CHECK(code_of(answer({}, kv("s.limit", "1", -1))) == errc::protocol_error); // no revision
    CHECK(code_of(txn_response()) == errc::protocol_error);
    // what is not the limit is none
    CHECK(permits::room_in(answer({}, kv("s.limits", "9")), 0, "s", 3).limit == 3);
}

TEST_CASE("a permit is listed once, whatever its weight", "[logic][permits]") {
    const std::vector<permit_entry> all = permits::owners({kv("s/hold/00/a", "A", 42),
                                                           kv("s/hold/00/c", "C", 41),
                                                           kv("s/hold/01/b", "B", 40),
                                                           kv("s/hold/02/a", "A", 42),
                                                           kv("s/hold/0f/a", "A", 42),
                                                           kv("s/hold/10/x", "no bit", 1),
                                                           kv("s/hold/a", "no bit", 1)},
                                                          "s");
    REQUIRE(all.size() == 3);
    CHECK(all[0].key == "s/hold/01/b");
    CHECK(all[0].label == "B");
    CHECK(all[0].weight == 2);
    CHECK(all[1].label == "C");
    CHECK(all[1].weight == 1);
    CHECK(all[2].key == "s/hold/00/a");
    CHECK(all[2].weight == 1 + 4 + 0x8000);
    CHECK(all[2].token == 42);
    CHECK(all[2].lease == 0x1a);
}

TEST_CASE("a waiter tells how much it asks for", "[logic][permits]") {
    CHECK(permits::waiting_value(5, "who is it") == "5 who is it");
    const permit_entry w = permits::waiter(kv("s/wait/a", "5 who is it", 42));
    CHECK(w.key == "s/wait/a");
    CHECK(w.label == "who is it");
    CHECK(w.weight == 5);
    CHECK(w.token == 42);
    CHECK(w.lease == 0x1a);
    CHECK(permits::waiter(kv("s/wait/a", "5 ")).label.empty());
    CHECK(permits::waiter(kv("s/wait/a", "5 ")).weight == 5);
    CHECK(permits::waiter(kv("s/wait/a", "")).weight == 0); // a stray key
    CHECK(permits::waiter(kv("s/wait/a", "x y")).weight == 0);
}

TEST_CASE("a limit becomes what it is set to, or what is added to it", "[logic][permits]") {
    const std::int64_t least = std::numeric_limits<std::int64_t>::min();
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const struct {
        permits::limit_change how;
        std::int64_t limit;
        std::optional<std::int64_t> becomes;
    } rows[] = {
        {{false, 5}, 3, 5},
        {{false, 0}, 3, 0},
        {{true, 5}, 3, 8},
        {{true, -3}, 3, 0},
        {{true, -4}, 3, std::nullopt},
        {{true, 0}, 3, 3},
        {{true, 1}, most_limit - 1, most_limit},
        {{true, 1}, most_limit, std::nullopt},
        {{true, most}, most_limit, std::nullopt},
        {{true, most}, 0, std::nullopt},
        {{true, least}, most_limit, std::nullopt},
    };
    for (const auto& row : rows) {
        CAPTURE(row.how.relative, row.how.by, row.limit);
        room known;
        known.has_limit = true;
        known.limit = row.limit;
        CHECK(permits::changed(row.how, known) == row.becomes);
    }
    room three;
    three.has_limit = true;
    three.limit = 3;
    CHECK(permits::why_not_changed(three) == "the limit is 3, and can be from 0 to 1099511627776");
    // of none there is nothing to add to
    CHECK(permits::changed({false, 5}, room()) == 5);
    CHECK(permits::changed({true, 5}, room()) == std::nullopt);
    CHECK(permits::changed({true, 0}, room()) == std::nullopt);
    CHECK(permits::why_not_changed(room()) == permits::no_limit);
}

TEST_CASE("to ensure a limit is to store it where none is, and otherwise to read it",
          "[logic][permits]") {
    const txn t = permits::ensure_limit("s", 5);
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares[0].range.key == "s.limit");
    CHECK(t.compares[0].what == compare::target::mod);
    CHECK(t.compares[0].how == compare::result::equal);
    CHECK(std::get<std::int64_t>(t.compares[0].operand) == 0);
    REQUIRE(t.success.size() == 1);
    CHECK(std::get<put_request>(t.success[0]).key == "s.limit");
    CHECK(std::get<put_request>(t.success[0]).value == "5");
    CHECK(std::get<put_request>(t.success[0]).options.lease == 0);
    REQUIRE(t.failure.size() == 1);
    CHECK(std::get<range_request>(t.failure[0]).range.key == "s.limit");
    CHECK_FALSE(std::get<range_request>(t.failure[0]).options.keys_only);

    const auto after = [](bool succeeded, std::vector<op_response> all) {
        txn_response r;
        r.succeeded = succeeded;
        r.responses = std::move(all);
        return permits::after_ensure(r, "s", 5);
    };
    const auto failure = [&](std::vector<op_response> all) {
        try {
            (void)after(false, std::move(all));
        } catch (const error& e) {
            return static_cast<errc>(e.code().value());
        }
        return errc{};
    };
    CHECK(after(true, {put_response()}) == 5);
    CHECK(after(false, {found(kv("s.limit", "9"))}) == 9);
    CHECK(after(false, {found(kv("s.limit", "0"))}) == 0);
    CHECK(failure({found(kv("s.limit", "many"))}) == errc::wrong_kind);
    CHECK(failure({found(std::nullopt)}) == errc::protocol_error); // then it would have been stored
    CHECK(failure({}) == errc::protocol_error);
}
