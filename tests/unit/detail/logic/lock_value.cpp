// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/lock_value.hpp>
#include <coetcd/detail/logic/places.hpp>

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

attempt_keys lock_m() {
    attempt_keys a;
    a.lease = 7;
    a.by_name.push_back(exclusive_keys("m", 7, 1, 0, 0));
    return a;
}

key_value stored_value(std::string key, std::string value, std::int64_t revision) {
    key_value kv;
    kv.key = std::move(key);
    kv.value = std::move(value);
    kv.create_revision = revision;
    kv.mod_revision = revision;
    return kv;
}
range_response showing(std::vector<key_value> all) {
    range_response r;
    r.kvs = std::move(all);
    r.count = static_cast<std::int64_t>(r.kvs.size());
    return r;
}
txn_response said(bool succeeded, std::int64_t revision, std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = succeeded;
    r.header.revision = revision;
    r.responses = std::move(responses);
    return r;
}

std::string last_key(const txn& t) {
    return std::get<range_request>(t.success.back()).range.key;
}

} // namespace

TEST_CASE("whoever may become the owner reads the value last", "[logic][lock_value]") {
    const valued_rule by("m");
    const attempt_keys a = lock_m();
    const rule plain;
    for (const auto& [with, without] : {std::pair(by.enter(a, ""), plain.enter(a, "")),
                                        std::pair(by.take(a, ""), plain.take(a, "")),
                                        std::pair(by.confirm(a, 5), plain.confirm(a, 5))}) {
        CHECK(with.success.size() == without.success.size() + 1);
        CHECK(with.compares.size() == without.compares.size());
        CHECK(with.failure.size() == without.failure.size());
        CHECK(last_key(with) == "m.value");
    }
}

TEST_CASE("the value is known to the owner, and to nobody else", "[logic][lock_value]") {
    attempt_keys a = lock_m();
    const range_response nobody;
    const range_response value = showing({stored_value("m.value", "x", 3)});
    valued_rule by("m");
    REQUIRE(by.value());
    CHECK_FALSE(by.value()->now());

    CHECK(by.after_enter(said(true, 9, {nobody, put_response(), value}), a).at ==
          standing::where::owner);
    REQUIRE(by.value()->now());
    CHECK(by.value()->now()->text == "x");
    CHECK(by.value()->now()->revision == 3);

    const range_response somebody = showing({stored_value("m/other", "", 8)});
    CHECK(by.after_enter(said(true, 9, {somebody, put_response(), value}), a).at ==
          standing::where::behind);
    CHECK_FALSE(by.value()->now());

    CHECK(by.after_confirm(said(true, 9, {erase_response(), nobody, nobody}), a, 9).at ==
          standing::where::owner);
    REQUIRE(by.value()->now());
    CHECK_FALSE(by.value()->now()->text);
    CHECK(by.value()->now()->revision == 0);
    CHECK(by.after_confirm(said(true, 9, {erase_response(), somebody, value}), a, 9).at ==
          standing::where::behind);
    CHECK_FALSE(by.value()->now());

    CHECK(by.after_take(said(true, 9, {put_response(), value}), a).at == standing::where::owner);
    CHECK(by.value()->now());
    CHECK(by.after_take(said(false, 9, {}), a).at == standing::where::taken);
    CHECK_FALSE(by.value()->now());

    const range_response foreign = showing({stored_value("n.value", "x", 3)});
    CHECK_THROWS_AS(by.after_take(said(true, 9, {put_response(), foreign}), a), coetcd::error);
    const range_response unborn = showing({stored_value("m.value", "x", 0)});
    CHECK_THROWS_AS(by.after_take(said(true, 9, {put_response(), unborn}), a), coetcd::error);
    CHECK_THROWS_AS(by.after_take(said(true, 9, {put_response()}), a), coetcd::error);
    CHECK_THROWS_AS(by.after_take(said(true, 9, {}), a), coetcd::error);
    CHECK(plain_rule().value() == nullptr);
}

TEST_CASE("an answer is learned only if nothing can have changed the value since",
          "[logic][lock_value]") {
    known_value known;
    known.learn({"0", 1}, known.turn()); // the hold did not begin in etcd
    CHECK_FALSE(known.now());
    known.ask();
    known.learn({"1", 1}, known.turn());
    REQUIRE(known.now());
    CHECK(known.now()->text == "1");
    const std::uint64_t before = known.turn();
    const std::uint64_t first = known.change();
    CHECK_FALSE(known.now());
    known.learn({"1", 1}, before);
    CHECK_FALSE(known.now());
    const std::uint64_t meanwhile = known.turn();
    known.learn({"1", 1}, meanwhile); // the change may come at any moment
    CHECK_FALSE(known.now());
    const std::uint64_t second = known.change();
    known.changed({"2", 2}, first); // the second may have come before it
    CHECK_FALSE(known.now());
    known.changed({"3", 3}, second);
    REQUIRE(known.now());
    CHECK(known.now()->text == "3");
    known.learn({"1", 1}, second); // read before it, and told after it
    CHECK(known.now()->text == "3");
    known.learn({"3", 3}, known.turn());
    CHECK(known.now()->text == "3");
}

TEST_CASE("a change names its owner and the change before it", "[logic][lock_value]") {
    const held_life life{"m/a", 9};
    const txn t = write_lock_value(life, "m.value", {"x", 3}, "y");
    REQUIRE(t.compares.size() == 2);
    CHECK(t.compares[0].range.key == "m/a");
    CHECK(t.compares[1].range.key == "m.value");
    CHECK(std::get<put_request>(t.success.front()).value == "y");
    CHECK(std::get<put_request>(t.success.front()).options.lease == 0);

    std::optional<lock_value> now =
        after_writing_lock_value(said(true, 12, {put_response()}), life, "m.value", "y");
    REQUIRE(now);
    CHECK(now->text == "y");
    CHECK(now->revision == 12);
    const range_response ours = showing({stored_value("m/a", "", 9)});
    const range_response value = showing({stored_value("m.value", "z", 11)});
    now = after_writing_lock_value(said(false, 12, {ours, value}), life, "m.value", "y");
    REQUIRE(now);
    CHECK(now->text == "z");
    CHECK(now->revision == 11);
    now = after_writing_lock_value(said(false, 12, {ours, showing({})}), life, "m.value", "y");
    REQUIRE(now);
    CHECK_FALSE(now->text);
    for (const range_response& not_ours : {showing({}),
                                           showing({stored_value("m/a", "", 10)}),
                                           showing({stored_value("m/b", "", 9)})}) {
        CHECK_FALSE(
            after_writing_lock_value(said(false, 12, {not_ours, value}), life, "m.value", "y"));
    }
    CHECK_THROWS_AS(after_writing_lock_value(said(false, 12, {}), life, "m.value", "y"),
                    coetcd::error);
}

TEST_CASE("the value is read as long as the lock is held", "[logic][lock_value]") {
    const txn t = read_lock_value({"m/a", 9}, "m.value");
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares.front().range.key == "m/a");
    CHECK(last_key(t) == "m.value");
    const range_response value = showing({stored_value("m.value", "z", 11)});
    CHECK(after_reading_lock_value(said(true, 12, {value}), "m.value")->text == "z");
    CHECK_FALSE(after_reading_lock_value(said(false, 12, {}), "m.value"));
    CHECK_THROWS_AS(after_reading_lock_value(said(true, 12, {}), "m.value"), coetcd::error);
    CHECK_THROWS_AS(require_lock_value(std::string(16 * 1024 + 1, 'x')), std::invalid_argument);
    CHECK_NOTHROW(require_lock_value(std::string(16 * 1024, 'x')));
    CHECK(lock_value_key("m") == "m.value");
}
