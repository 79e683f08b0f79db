// SPDX-License-Identifier: BSL-1.0
#include <coetcd/kv.hpp>

#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "support/catch.hpp"

using namespace coetcd;
using namespace std::string_literals;

namespace {

/// Whether etcd counts `key` to `range`.
bool covers(const key_range& range, const std::string& key) {
    if (range.range_end.empty()) {
        return key == range.key;
    }
    return key >= range.key && (range.range_end == "\0"s || key < range.range_end);
}

} // namespace

static_assert(std::is_trivially_destructible_v<range_options>);
static_assert(std::is_trivially_destructible_v<put_options>);
static_assert(std::is_trivially_destructible_v<erase_options>);
// A call that awaits must not have aggregates with owners among its arguments.
static_assert(!std::is_aggregate_v<txn>);
static_assert(!std::is_aggregate_v<op>);
static_assert(!std::is_aggregate_v<key_range>);
static_assert(!std::is_aggregate_v<compare>);

TEST_CASE("a key stands for a range of one", "[kv]") {
    const key_range from_literal = "k";
    const key_range from_string = "k"s;
    CHECK(from_literal.key == "k");
    CHECK(from_literal.range_end.empty());
    CHECK(from_string.key == "k");
    CHECK(from_string.range_end.empty());
    const key_range half_open("a", "b");
    CHECK(half_open.key == "a");
    CHECK(half_open.range_end == "b");
}

TEST_CASE("a prefix ends where its last byte is raised by one", "[kv]") {
    struct {
        std::string prefix, key, range_end;
    } const rows[] = {
        {"a", "a", "b"},
        {"orders/", "orders/", "orders0"},
        {"a\0"s, "a\0"s, "a\1"},
        {"\x7f", "\x7f", "\x80"},
        {"a\xfe", "a\xfe", "a\xff"},
        {"a\xff", "a\xff", "b"},
        {"a\xff\xff", "a\xff\xff", "b"},
        {"a\xff"s + "b", "a\xff"s + "b", "a\xff"s + "c"},
        {"\xff", "\xff", "\0"s},
        {"\xff\xff", "\xff\xff", "\0"s},
        {"", "\0"s, "\0"s},
    };
    for (const auto& row : rows) {
        const key_range range = key_range::prefix(row.prefix);
        CHECK(range.key == row.key);
        CHECK(range.range_end == row.range_end);
    }
}

TEST_CASE("a prefix covers the keys that begin with it and no others", "[kv]") {
    std::mt19937 chance(1);
    const char alphabet[] = {'\0', '\1', 'a', 'b', '\x7f', '\x80', '\xfe', '\xff'};
    const auto word = [&](std::size_t shortest) {
        std::string out(shortest + chance() % 4, ' ');
        for (char& c : out) {
            c = alphabet[chance() % sizeof alphabet];
        }
        return out;
    };
    for (int i = 0; i != 20'000; ++i) {
        const std::string prefix = word(0);
        const std::string key = chance() % 2 == 0 ? word(1) : prefix + word(1);
        if (covers(key_range::prefix(prefix), key) != key.starts_with(prefix)) {
            FAIL("prefix " << Catch::Detail::stringify(prefix) << ", key "
                           << Catch::Detail::stringify(key));
        }
    }
}

TEST_CASE("a range can be open at its end", "[kv]") {
    CHECK(key_range::from("k").key == "k");
    CHECK(key_range::from("k").range_end == "\0"s);
    CHECK(key_range::from("").key == "\0"s);
    CHECK(key_range::all().key == "\0"s);
    CHECK(key_range::all().range_end == "\0"s);
    CHECK(covers(key_range::all(), "\0"s));
    CHECK(covers(key_range::all(), "\xff\xff"));
    CHECK_FALSE(covers(key_range::from("k"), "j"));
}

TEST_CASE("a comparison is written as it is read", "[kv][txn]") {
    using target = compare::target;
    using result = compare::result;
    struct {
        compare made;
        target what;
        result how;
    } const numbers[] = {
        {compare::version("k") == 7, target::version, result::equal},
        {compare::version("k") != 7, target::version, result::not_equal},
        {compare::version("k") > 7, target::version, result::greater},
        {compare::version("k") < 7, target::version, result::less},
        {compare::create_revision("k") == 7, target::create, result::equal},
        {compare::mod_revision("k") > 7, target::mod, result::greater},
        {compare::lease("k") != 7, target::lease, result::not_equal},
    };
    for (const auto& row : numbers) {
        CHECK(row.made.what == row.what);
        CHECK(row.made.how == row.how);
        CHECK(row.made.range.key == "k");
        CHECK(row.made.range.range_end.empty());
        CHECK(std::get<std::int64_t>(row.made.operand) == 7);
    }
    const compare bytes = compare::value("k") < "v\0w"s;
    CHECK(bytes.what == target::value);
    CHECK(bytes.how == result::less);
    CHECK(std::get<std::string>(bytes.operand) == "v\0w"s);
    const compare range = compare::mod_revision(key_range::prefix("p")) < 1;
    CHECK(range.range.key == "p");
    CHECK(range.range.range_end == "q");
}

TEST_CASE("a transaction is built in one expression", "[kv][txn]") {
    range_options two;
    two.limit = 2;
    put_options with_lease;
    with_lease.lease = 5;
    erase_options with_prev;
    with_prev.prev_kv = true;
    const txn t = txn()
                      .when(compare::version("a") == 0, compare::value("b") == "x")
                      .when(compare::lease("c") == 1)
                      .then(op::put("a", "1", with_lease), op::range("b", two))
                      .then(op::erase(key_range::prefix("c"), with_prev))
                      .otherwise(op::nested(txn().then(op::range("d"))));

    REQUIRE(t.compares.size() == 3);
    CHECK(t.compares[0].range.key == "a");
    CHECK(t.compares[1].range.key == "b");
    CHECK(t.compares[2].range.key == "c");

    REQUIRE(t.success.size() == 3);
    const auto& put = std::get<put_request>(t.success[0]);
    CHECK(put.key == "a");
    CHECK(put.value == "1");
    CHECK(put.options.lease == 5);
    const auto& get = std::get<range_request>(t.success[1]);
    CHECK(get.range.key == "b");
    CHECK(get.options.limit == 2);
    const auto& erase = std::get<erase_request>(t.success[2]);
    CHECK(erase.range.range_end == "d");
    CHECK(erase.options.prev_kv);

    REQUIRE(t.failure.size() == 1);
    const auto& inner = std::get<txn>(t.failure[0]);
    REQUIRE(inner.success.size() == 1);
    CHECK(std::get<range_request>(inner.success[0]).range.key == "d");
    CHECK(txn().compares.empty());
}

TEST_CASE("an answer of another type than was asked for is not mistaken", "[kv][txn]") {
    put_response put;
    put.header.revision = 3;
    const op_response answer = put;
    CHECK(answer.put().header.revision == 3);
    CHECK_THROWS_AS(answer.range(), std::bad_variant_access);
    CHECK_THROWS_AS(answer.erase(), std::bad_variant_access);
    CHECK_THROWS_AS(answer.nested(), std::bad_variant_access);
    CHECK(op_response(range_response()).range().kvs.empty());
    CHECK(op_response(erase_response()).erase().deleted == 0);
    CHECK_FALSE(op_response(txn_response()).nested().succeeded);
}

TEST_CASE("a transaction is built in one expression, or bit by bit", "[kv]") {
    const std::vector<compare> both{compare::version("a") == 0, compare::version("b") == 0};
    const std::vector<coetcd::op> puts{coetcd::op::put("a", "1"), coetcd::op::put("b", "2")};
    const coetcd::txn at_once = coetcd::txn()
                                    .when(both, compare::version("c") == 0)
                                    .then(puts, coetcd::op::erase("c"))
                                    .otherwise(coetcd::op::range("a"), puts);
    coetcd::txn in_steps;
    in_steps.when(both[0]);
    in_steps.when(both[1], compare::version("c") == 0).then(puts);
    in_steps.then(coetcd::op::erase("c")).otherwise(coetcd::op::range("a"));
    in_steps.otherwise(puts);
    for (const coetcd::txn& t : {at_once, in_steps}) {
        REQUIRE(t.compares.size() == 3);
        CHECK(t.compares[1].range.key == "b");
        CHECK(t.compares[2].range.key == "c");
        REQUIRE(t.success.size() == 3);
        CHECK(std::get<coetcd::put_request>(t.success[1]).key == "b");
        CHECK(std::holds_alternative<coetcd::erase_request>(t.success[2]));
        REQUIRE(t.failure.size() == 3);
        CHECK(std::holds_alternative<coetcd::range_request>(t.failure[0]));
        CHECK(std::get<coetcd::put_request>(t.failure[2]).key == "b");
    }
    CHECK(both.size() == 2); // a copy was taken
}

TEST_CASE("each enumerator of keys and values has its name as a label", "[kv]") {
    const auto name = [](auto e) { return std::string(to_string(e)); };
    CHECK(name(event_type::put) == "put");
    CHECK(name(event_type::erase) == "erase");
    CHECK(name(sort_order::none) == "none");
    CHECK(name(sort_order::ascend) == "ascend");
    CHECK(name(sort_order::descend) == "descend");
    CHECK(name(sort_target::key) == "key");
    CHECK(name(sort_target::version) == "version");
    CHECK(name(sort_target::create) == "create");
    CHECK(name(sort_target::mod) == "mod");
    CHECK(name(sort_target::value) == "value");
    CHECK(name(compare::target::version) == "version");
    CHECK(name(compare::target::create) == "create");
    CHECK(name(compare::target::mod) == "mod");
    CHECK(name(compare::target::value) == "value");
    CHECK(name(compare::target::lease) == "lease");
    CHECK(name(compare::result::equal) == "equal");
    CHECK(name(compare::result::greater) == "greater");
    CHECK(name(compare::result::less) == "less");
    CHECK(name(compare::result::not_equal) == "not_equal");
    CHECK(name(static_cast<sort_order>(99)) == "unknown");
}
