// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/work.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

key_value at(std::string key, std::int64_t revision = 1, std::string value = "v") {
    key_value kv;
    kv.key = std::move(key);
    kv.value = std::move(value);
    kv.create_revision = revision;
    kv.mod_revision = revision;
    return kv;
}
range_response reads(std::vector<key_value> kvs) {
    range_response r;
    r.kvs = std::move(kvs);
    return r;
}
event put(std::string key, std::int64_t revision) {
    event e;
    e.type = event_type::put;
    e.kv = at(std::move(key), revision);
    return e;
}
event erased(std::string key, std::int64_t revision) {
    event e;
    e.type = event_type::erase;
    e.kv.key = std::move(key);
    e.kv.mod_revision = revision;
    return e;
}
std::vector<std::string> puts(const txn& t) {
    std::vector<std::string> keys;
    for (const op& o : t.success) {
        if (const auto* p = std::get_if<put_request>(&o)) {
            keys.push_back(p->key);
        }
    }
    return keys;
}
std::vector<std::string> erases(const txn& t) {
    std::vector<std::string> keys;
    for (const op& o : t.success) {
        if (const auto* e = std::get_if<erase_request>(&o)) {
            keys.push_back(e->range.key);
        }
    }
    return keys;
}
bool compares(const txn& t, const std::string& key, const std::string& end, std::int64_t create) {
    return std::any_of(t.compares.begin(), t.compares.end(), [&](const compare& c) {
        return c.what == compare::target::create && c.how == compare::result::equal &&
               c.range.key == key && c.range.range_end == end &&
               std::get<std::int64_t>(c.operand) == create;
    });
}

} // namespace

TEST_CASE("the key of an item ends in its attempt", "[logic][work_queue]") {
    const struct {
        const char* text;
        const char* order;
        int attempt;
    } all[] = {
        {"12-ab-00.1", "12-ab-00", 1},
        {"12-ab-00.17", "12-ab-00", 17},
        {"a.b.2", "a.b", 2},
        // What somebody else has put.
        {"by hand", "by hand", 1},
        {"", "", 1},
        {"a.", "a.", 1},
        {"a.0", "a.0", 1},
        {"a.-1", "a.-1", 1},
        {"a.1x", "a.1x", 1},
        {"a.99999999999", "a.99999999999", 1},
    };
    for (const auto& one : all) {
        CAPTURE(one.text);
        const work::item_id id = work::split_id(one.text);
        CHECK(id.order == one.order);
        CHECK(id.attempt == one.attempt);
    }
    CHECK(work::item_id{"x", 3}.text() == "x.3");
}

TEST_CASE("items are appended next to each other, behind all others", "[logic][work_queue]") {
    const txn first = work::append("w", "0a", {"x", "y"}, true);
    CHECK(first.compares.size() == 2);
    CHECK(compares(first, "w/ready/0a", "w/ready0", 0));
    CHECK(compares(first, "w/run/busy/0a", "w/run/busy0", 0));
    CHECK(puts(first) == std::vector<std::string>{"w/ready/0a-00.1", "w/ready/0a-01.1"});
    CHECK(std::get<put_request>(first.success[1]).value == "y");
    CHECK(std::get<put_request>(first.success[1]).options.lease == 0);
    CHECK(work::append("w", "0a", {"x"}, false).compares.empty());
}

TEST_CASE("an item is claimed unless one that was taken before is ready", "[logic][work_queue]") {
    const std::string order = order_of(0x80, 1);
    const txn t = work::claim("w", {order + "-00.1", "value", 17}, 99, "me");
    CHECK(t.compares.size() == 2);
    CHECK(compares(t, "w/ready/" + order + "-00.1", "", 17));
    CHECK(compares(t, "w/again/", "w/again0", 0));
    CHECK(erases(t) == std::vector<std::string>{"w/ready/" + order + "-00.1"});
    CHECK(puts(t) == std::vector<std::string>{"w/run/busy/" + order + "-00.1",
                                              "w/run/claim/" + order + "-00.1"});
    const auto& busy = std::get<put_request>(t.success[1]);
    CHECK(busy.value == "value");
    CHECK(busy.options.lease == 0);
    const auto& claim = std::get<put_request>(t.success[2]);
    CHECK(claim.value == "me");
    CHECK(claim.options.lease == 99);
    const auto& next = std::get<range_request>(t.success[4]);
    CHECK(next.range.key == "w/ready/" + order + "-00.1");
    CHECK(next.range.range_end == "w/ready/00000000000000a0");
    CHECK(next.options.limit == 1);
    CHECK(std::get<range_request>(t.failure[1]).range.range_end == next.range.range_end);

    const txn later = work::claim("w", {"a.2", "value", 17, true}, 99, "me");
    CHECK(compares(later, "w/again/a.2", "", 17));
    CHECK(compares(later, "w/again/", "w/again/a.2", 0));
    CHECK(erases(later) == std::vector<std::string>{"w/again/a.2"});
}

TEST_CASE("a claim tells which item is the first then", "[logic][work_queue]") {
    const work::item ours{order_of(1, 1) + "-00.1", "", 17};
    const work::item foreign{"by hand", "", 17};
    txn_response done;
    done.succeeded = true;
    done.responses = {erase_response(), put_response(), put_response(), reads({}), reads({})};
    CHECK_FALSE(work::after_claim("w", ours, done).first);
    CHECK_FALSE(work::after_claim("w", ours, done).is_known); // it has looked only near
    CHECK_FALSE(work::after_claim("w", foreign, done).first);
    CHECK(work::after_claim("w", foreign, done).is_known);
    done.responses[4] = reads({at("w/ready/c.1", 20, "next")});
    work::next_item next = work::after_claim("w", ours, done);
    REQUIRE(next.first);
    CHECK(next.is_known);
    CHECK(next.first->id == "c.1");
    CHECK(next.first->value == "next");
    CHECK(next.first->create_revision == 20);
    CHECK_FALSE(next.first->again);
    done.responses[3] = reads({at("w/again/d.2", 21)});
    next = work::after_claim("w", ours, done);
    REQUIRE(next.first);
    CHECK(next.first->id == "d.2");
    CHECK(next.first->again);
    CHECK(work::key_of("w", *next.first) == "w/again/d.2");

    txn_response refused;
    refused.responses = {reads({}), reads({at("w/ready/a.1", 3)})};
    CHECK(work::after_claim("w", ours, refused).first->id == "a.1");
    refused.responses = {reads({}), reads({at("elsewhere", 3)})};
    CHECK_THROWS_AS(work::after_claim("w", ours, refused), error);
    refused.responses = {reads({})};
    CHECK_THROWS_AS(work::after_claim("w", ours, refused), error);
}

TEST_CASE("an attempt that failed is followed by the next, until there were enough",
          "[logic][work_queue]") {
    const auto where = [](const op& o) { return std::get<put_request>(o).key; };
    CHECK(where(work::put_back("w", {"a.1", "", 1}, 3)) == "w/again/a.2");
    CHECK(where(work::put_back("w", {"a.2", "", 1}, 3)) == "w/again/a.3");
    CHECK(where(work::put_back("w", {"a.3", "", 1}, 3)) == "w.dead/a.3");
    CHECK(where(work::put_back("w", {"a.7", "", 1}, 3)) == "w.dead/a.7");
    CHECK(where(work::put_back("w", {"a.1", "", 1}, 1)) == "w.dead/a.1");
    CHECK(where(work::put_to_dead("w", {"a.1", "", 1})) == "w.dead/a.1");
}

TEST_CASE("an attempt is ended by its claim", "[logic][work_queue]") {
    const txn t = work::finish("w", "a.1", 5);
    CHECK(t.compares.size() == 1);
    CHECK(compares(t, "w/run/claim/a.1", "", 5));
    CHECK(erases(t) == std::vector<std::string>{"w/run/claim/a.1", "w/run/busy/a.1"});

    txn_response refused;
    refused.responses = {reads({})};
    CHECK_FALSE(work::still_claimed("w", "a.1", 5, refused));
    refused.responses = {reads({at("w/run/claim/a.1", 5)})};
    CHECK(work::still_claimed("w", "a.1", 5, refused));
    CHECK_FALSE(work::still_claimed("w", "a.1", 4, refused));
}

TEST_CASE("the effect of a job has no operations for a failure", "[logic][work_queue]") {
    CHECK_NOTHROW(work::require_effect(txn()));
    CHECK_THROWS_AS(work::require_effect(txn().otherwise(op::range("k"))), std::invalid_argument);
    txn much;
    much.success.assign(120, op::range("k"));
    CHECK_NOTHROW(work::require_effect(much));
    much.success.push_back(op::range("k"));
    CHECK_THROWS_AS(work::require_effect(much), std::invalid_argument);
    txn picky;
    picky.compares.assign(121, compare::version("k") == 0);
    CHECK_THROWS_AS(work::require_effect(picky), std::invalid_argument);
}

TEST_CASE("an orphan is busy without a claim", "[logic][work_queue]") {
    txn_response looked;
    looked.responses = {reads({}),
                        reads({}),
                        reads({at("w/run/busy/a.1", 5), at("w/run/busy/b.2", 6)}),
                        reads({at("w/run/claim/a.1", 5)})};
    const std::vector<work::item> orphans = work::orphans_in("w", looked);
    REQUIRE(orphans.size() == 1);
    CHECK(orphans[0].id == "b.2");
    CHECK(orphans[0].create_revision == 6);
    CHECK(work::shows_work("w", looked));
    looked.responses[2] = reads({at("w/run/busy/a.1", 5)});
    CHECK_FALSE(work::shows_work("w", looked));
    looked.responses[1] = reads({at("w/ready/c.1", 7)});
    CHECK(work::shows_work("w", looked));

    const txn t = work::reap("w", {"b.2", "v", 6}, 5);
    CHECK(compares(t, "w/run/claim/b.2", "", 0));
    CHECK(compares(t, "w/run/busy/b.2", "", 6));
    CHECK(erases(t) == std::vector<std::string>{"w/run/busy/b.2"});
    CHECK(puts(t) == std::vector<std::string>{"w/again/b.3"});
    CHECK(puts(work::reap("w", {"b.2", "v", 6}, 2)) == std::vector<std::string>{"w.dead/b.2"});
}

TEST_CASE("a consumer that waits heeds new items, and claims that end by themselves",
          "[logic][work_queue]") {
    work::signs told("w");
    CHECK_FALSE(told.heed({put("w/run/busy/a.1", 5), put("w/run/claim/a.1", 5)}));
    CHECK_FALSE(told.heed({erased("w/ready/a.1", 5)}));
    CHECK_FALSE(told.heed({erased("w/run/claim/a.1", 6), erased("w/run/busy/a.1", 6)}));
    CHECK_FALSE(told.heed({erased("w/run/busy/a.1", 6), erased("w/run/claim/a.1", 6)}));
    CHECK_FALSE(told.has_newer(0));
    CHECK(told.heed({erased("w/run/claim/b.1", 7), erased("w/run/busy/c.1", 7)}));
    CHECK(told.has_newer(6));
    CHECK_FALSE(told.has_newer(7));
    CHECK_FALSE(told.take_first());

    CHECK(told.heed({put("w/ready/d.1", 8), put("w/ready/c.1", 9)}));
    CHECK(told.heed({put("w/ready/e.1", 10)}));
    CHECK(told.has_newer(9));
    const std::optional<work::item> first = told.take_first();
    REQUIRE(first);
    CHECK(first->id == "c.1");
    CHECK(first->create_revision == 9);
    CHECK_FALSE(told.take_first());
    CHECK(told.heed({put("w/again/z.2", 11), put("w/ready/a.1", 12)}));
    CHECK(told.take_first()->id == "z.2");
}
