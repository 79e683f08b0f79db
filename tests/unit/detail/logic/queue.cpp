// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/queue.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using namespace coetcd::detail::logic::queue;

namespace {

const layout fifo{"q", order::arrival};
const layout ranked{"q", order::priority};
const std::string first_key = "q/0000000000000010-00000000000000ab-00";

key_value kv(std::string key, std::string value = "v", std::int64_t mod_revision = 7) {
    key_value out;
    out.key = std::move(key);
    out.value = std::move(value);
    out.mod_revision = mod_revision;
    return out;
}
range_response found(std::optional<key_value> one = {}) {
    range_response r;
    if (one) {
        r.kvs.push_back(*one);
    }
    return r;
}
event put(std::string key, std::int64_t revision) {
    event e;
    e.type = event_type::put;
    e.kv = kv(std::move(key), "v", revision);
    return e;
}
const range_request& range_of(const op& o) {
    return std::get<range_request>(o);
}

} // namespace

TEST_CASE("what is beside a queue does not begin with its name", "[logic][queue]") {
    const struct {
        const char* name;
        const char* beside;
    } rows[] = {
        {"q", ".q"},
        {"app/jobs", "app/.jobs"},
        {"/app/jobs", "/app/.jobs"},
        {"app/jobs/", "app/.jobs/"},
        {"app/.jobs", "app/_.jobs"},
        {".", "_."},
        {"..", "_.."},
        {"/", "./"},
        {"//", "/./"},
        {"a/", ".a/"},
    };
    for (const auto& row : rows) {
        CHECK(beside(row.name) == row.beside);
        CHECK_FALSE(beside(row.name).starts_with(row.name));
    }
}

TEST_CASE("items are appended behind all, or not far before others", "[logic][queue]") {
    const std::string all = order_of(0x10, 0xab);
    const txn if_last = append(fifo.items(), all, {"x", "y"}, nothing_from(fifo.items(), all));
    REQUIRE(if_last.compares.size() == 1);
    CHECK(if_last.compares[0].range.key == "q/" + all);
    CHECK(if_last.compares[0].range.range_end == "q0");
    REQUIRE(if_last.success.size() == 2);
    CHECK(std::get<put_request>(if_last.success[0]).key == first_key);
    CHECK(std::get<put_request>(if_last.success[1]).value == "y");
    const txn near = append(fifo.items(), all, {"x"}, nothing_far_after(fifo.items(), 0x10));
    REQUIRE(near.compares.size() == 1);
    CHECK(near.compares[0].range.key == "q/0000000000000030");
    CHECK(near.compares[0].range.range_end == "q/1"); // Go's are later
    const std::string prefix = ranked.of_priority(0x1f);
    CHECK(prefix == "q/001f/");
    CHECK(ranked.of_priority(0xffff) == "q/ffff/");
    const txn of_one = append(prefix, all, {"x"}, nothing_from(prefix, all));
    CHECK(of_one.compares[0].range.range_end == "q/001f0"); // others do not matter
}

TEST_CASE("where to look for the next item", "[logic][queue]") {
    const scope all = everything(fifo);
    CHECK(all.complete);
    CHECK(all.range.key == "q/");
    CHECK(all.range.range_end == "q0");
    const scope soon = after_item(fifo, {first_key, "v", 7});
    CHECK_FALSE(soon.complete);
    CHECK(soon.range.key == "q/0000000000000000");
    CHECK(soon.range.range_end == "q/0000000000000030");
    const item later{"q/0000000000000123-00000000000000ab-00", "v", 7};
    CHECK(after_item(fifo, later).range.key == "q/0000000000000103");
    for (const char* key : {"q/!0000000000000010-00000000000000ab-00", "q/x", "q/123"}) {
        CHECK(after_item(fifo, {key, "v", 7}).complete);
    }
    CHECK_FALSE(after_item(fifo, {"q/1764512345678901234", "v", 7}).complete); // Go's
    CHECK(after_item(ranked, {"q/0001/0000000000000010-00000000000000ab-00", "v", 7}).complete);
}

TEST_CASE("an item is taken as it was read, and the answer tells the next one", "[logic][queue]") {
    const item what{first_key, "v", 7, 8};
    const txn t = take(fifo, what);
    REQUIRE(t.compares.size() == 1);
    CHECK(t.compares[0].range.key == first_key);
    CHECK(std::get<std::int64_t>(t.compares[0].operand) == 7);
    REQUIRE(t.success.size() == 3);
    CHECK(std::get<erase_request>(t.success[0]).range.key == first_key);
    CHECK(range_of(t.success[1]).range.key == "q/!");
    CHECK(range_of(t.success[2]).options.limit == 1);
    REQUIRE(t.failure.size() == 2);
    CHECK(range_of(t.failure[1]).range.key == "q/0000000000000000");

    txn_response said;
    said.succeeded = true;
    said.header.revision = 12;
    said.responses = {erase_response(), found(), found(kv("q/2", "z", 11))};
    CHECK(after_take(fifo, what, said).first->key == "q/2");
    CHECK(after_take(fifo, what, said).first->as_of == 12);
    said.responses = {erase_response(), found(kv("q/!1")), found(kv("q/2"))};
    CHECK(after_take(fifo, what, said).first->key == "q/!1");
    said.responses = {erase_response(), found(), found()};
    CHECK_FALSE(after_take(fifo, what, said).is_known); // there may be some further on
    const item returned{"q/!1", "v", 7};
    CHECK(after_take(fifo, returned, said).is_known);
    said.succeeded = false;
    said.responses = {found(), found()};
    CHECK_FALSE(after_take(fifo, what, said).is_known);
    CHECK(after_take(fifo, returned, said).is_known);
    said.responses = {found(), found(kv("q/3", "z", 8))};
    const next_item other = after_take(fifo, what, said);
    CHECK(other.is_known);
    CHECK(other.first->value == "z");
    CHECK(other.first->mod_revision == 8);
    CHECK(other.first->as_of == 12);
    said.responses = {found(), found(kv("q/3", "z", 9))}; // it may have been empty meanwhile
    CHECK_FALSE(after_take(fifo, what, said).is_known);
    CHECK_FALSE(after_take(fifo, what, said).first);
    CHECK(after_take(fifo, returned, said).first);
    said.responses = {found(kv("q/!1", "z", 9)), found()};
    CHECK(after_take(fifo, what, said).first); // before all others in any case
    said.responses = {found(), found(kv("p/3"))};
    CHECK_THROWS_AS(after_take(fifo, what, said), coetcd::error);
    said.responses = {found(), found(kv("q/3", "z", 0))};
    CHECK_THROWS_AS(after_take(fifo, what, said), coetcd::error);
}

TEST_CASE("an item is put back before all others, or among those of its priority",
          "[logic][queue]") {
    const struct {
        layout of;
        const char* key;
        const char* put;
    } rows[] = {
        {fifo, "q/0010-00", "q/!0010-00"},
        {fifo, "q/!0010-00", "q/!0010-00"},
        {ranked, "q/0001/0010-00", "q/0001/0010-00"},
    };
    for (const auto& row : rows) {
        const txn t = put_back(row.of, {row.key, "v", 7});
        REQUIRE(t.compares.size() == 1);
        CHECK(t.compares[0].range.key == row.put);
        CHECK(std::get<std::int64_t>(t.compares[0].operand) == 0);
        CHECK(std::get<put_request>(t.success[0]).key == row.put);
        CHECK(std::get<put_request>(t.success[0]).value == "v");
    }
}

TEST_CASE("events tell the first item of a queue", "[logic][queue]") {
    signs told(fifo);
    event erased = put("q/1", 4);
    erased.type = event_type::erase;
    CHECK_FALSE(told.heed({erased}));
    CHECK_FALSE(told.has_newer(0));
    CHECK(told.heed({put("q/3", 5), put("q/2", 6)}));
    CHECK(told.heed({put("q/4", 8)}));
    CHECK(told.has_newer(7));
    CHECK_FALSE(told.has_newer(8));
    CHECK(told.take_first()->key == "q/2");
    CHECK_FALSE(told.take_first());
}
