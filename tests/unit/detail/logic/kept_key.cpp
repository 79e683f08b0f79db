// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/kept_key.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

constexpr lease_id ours = 7;
constexpr lease_id before = 6;
constexpr lease_id theirs = 9;

kept_terms terms(std::int64_t life, bool takes_over = false) {
    kept_terms t;
    t.name = "k";
    t.key = "k";
    t.tombstone = "k.id";
    t.lease = ours;
    t.former = {5, before};
    t.life = life;
    t.takes_over = takes_over;
    return t;
}

key_value found(std::string value, std::int64_t create, std::int64_t mod, lease_id lease) {
    key_value kv;
    kv.key = "k";
    kv.value = std::move(value);
    kv.create_revision = create;
    kv.mod_revision = mod;
    kv.version = 1;
    kv.lease = lease;
    return kv;
}

txn_response answer(bool succeeded, std::int64_t revision, std::optional<key_value> shown = {}) {
    txn_response r;
    r.header.revision = revision;
    r.succeeded = succeeded;
    if (!succeeded) {
        range_response read;
        read.header.revision = revision;
        if (shown) {
            read.kvs.push_back(*shown);
            read.count = 1;
        }
        r.responses.emplace_back(read);
    }
    return r;
}

} // namespace

TEST_CASE("what to do about a key depends on whose it is", "[logic][kept_key]") {
    using step = key_step;
    struct {
        std::optional<key_value> there;
        std::int64_t life;
        bool takes_over;
        step expected;
    } const rows[] = {
        {std::nullopt, 0, false, step::create},
        {std::nullopt, 3, false, step::create},
        {found("v", 3, 3, ours), 0, false, step::none},
        {found("v", 3, 3, ours), 3, false, step::none},
        {found("v", 8, 8, ours), 3, false, step::none}, // put again by a copy
        {found("x", 3, 4, ours), 3, false, step::change},
        {found("v", 3, 3, before), 3, false, step::change}, // to the lease of now
        {found("v", 3, 3, before), 0, false, step::change},
        {found("v", 3, 4, 0), 3, false, step::change}, // by hand
        {found("v", 3, 4, 0), 0, false, step::give_up},
        {found("v", 4, 4, 0), 3, false, step::give_up},
        {found("v", 3, 4, theirs), 3, false, step::give_up},
        {found("v", 4, 4, theirs), 0, false, step::give_up},
        {found("v", 4, 4, theirs), 0, true, step::change},
        {found("v", 4, 4, 0), 0, true, step::change},
        {found("v", 4, 4, theirs), 3, true, step::give_up}, // the last one to come has it
        {found("v", 4, 4, 0), 3, true, step::give_up},
    };
    CHECK(next_step(std::nullopt, "v", terms(0)) == step::create);
    for (const auto& row : rows) {
        key_state seen;
        seen.kv = row.there;
        seen.as_of = 10;
        INFO((row.there ? row.there->lease : -1) << ' ' << row.life << ' ' << row.takes_over);
        CHECK(next_step(seen, "v", terms(row.life, row.takes_over)) == row.expected);
    }
}

TEST_CASE("a key is put where none is, or where nothing has changed", "[logic][kept_key]") {
    const kept_terms t = terms(0);
    const txn first = put_kept(t, "v", nullptr);
    REQUIRE(first.compares.size() == 2);
    CHECK(first.compares[0].range.key == "k.id");
    CHECK(std::get<std::int64_t>(first.compares[0].operand) == 0);
    CHECK(first.compares[1].range.key == "k");
    CHECK(first.compares[1].what == compare::target::create);
    const key_value now = found("x", 3, 4, before);
    const txn change = put_kept(t, "v", &now);
    REQUIRE(change.compares.size() == 2);
    CHECK(std::get<std::int64_t>(change.compares[0].operand) == 3);
    CHECK(change.compares[1].what == compare::target::mod);
    CHECK(std::get<std::int64_t>(change.compares[1].operand) == 4);
    for (const txn& each : {first, change}) {
        REQUIRE(each.success.size() == 1);
        const auto& put = std::get<put_request>(each.success[0]);
        CHECK(put.key == "k");
        CHECK(put.value == "v");
        CHECK(put.options.lease == ours);
        CHECK(each.failure.size() == 1);
    }
}

TEST_CASE("the answer to a put tells what there is", "[logic][kept_key]") {
    const kept_terms t = terms(0);
    const key_state put = after_put(answer(true, 12), t, "v", nullptr);
    REQUIRE(put.kv);
    CHECK(*put.kv == found("v", 12, 12, ours));
    CHECK(put.as_of == 12);
    const key_value now = found("x", 3, 4, before);
    const key_state changed = after_put(answer(true, 12), t, "v", &now);
    REQUIRE(changed.kv);
    CHECK(changed.kv->create_revision == 3);
    CHECK(changed.kv->mod_revision == 12);
    CHECK(changed.kv->version == 2);
    CHECK(changed.kv->lease == ours);
    const key_value other = found("y", 5, 6, theirs);
    const key_state refused = after_put(answer(false, 13, other), t, "v", nullptr);
    CHECK(refused.kv == other);
    CHECK(refused.as_of == 13);
    CHECK_FALSE(after_put(answer(false, 13), t, "v", &now).kv);

    // Contradictions.
    CHECK_THROWS_AS(after_put(answer(true, 0), t, "v", nullptr), error);
    CHECK_THROWS_AS(after_put(answer(false, 0, other), t, "v", nullptr), error);
    CHECK_THROWS_AS(after_put(answer(false, 13), t, "v", nullptr), error);
    CHECK_THROWS_AS(after_put(answer(false, 13, now), t, "v", &now), error);
    txn_response empty;
    empty.header.revision = 3;
    CHECK_THROWS_AS(after_put(empty, t, "v", nullptr), error);
}

TEST_CASE("a key is erased if it is ours, and late copies are made void", "[logic][kept_key]") {
    for (const bool makes_void : {false, true}) {
        const txn by_lease = erase_kept(terms(3), std::nullopt, makes_void);
        REQUIRE(by_lease.compares.size() == 1);
        CHECK(by_lease.compares[0].what == compare::target::lease);
        CHECK(std::get<std::int64_t>(by_lease.compares[0].operand) == ours);
        const txn by_hand = erase_kept(terms(3), found("v", 3, 4, 0), makes_void);
        CHECK(by_hand.compares[0].what == compare::target::mod);
        CHECK(std::get<std::int64_t>(by_hand.compares[0].operand) == 4);
        for (const txn& each : {by_lease, by_hand}) {
            CHECK(std::get<erase_request>(each.success[0]).range.key == "k");
            for (const auto& branch : {each.success, each.failure}) {
                REQUIRE(branch.size() == (makes_void ? 2 : 1));
                if (makes_void) {
                    CHECK(std::get<put_request>(branch[1]).key == "k.id");
                    CHECK(std::get<put_request>(branch[1]).options.lease == ours);
                }
            }
        }
    }
}

TEST_CASE("a key and its changes are told once each", "[logic][kept_key]") {
    const auto q = key_and_changes("title", "k");
    range_response read;
    read.header.revision = 20;
    CHECK(q.from(read) == key_state{std::nullopt, 20});
    read.kvs.push_back(found("v", 3, 4, ours));
    const key_state there = q.from(read);
    CHECK(there.as_of == 4);
    read.header.revision = 30;
    CHECK(q.from(read) == there);
    event gone;
    gone.type = event_type::erase;
    gone.kv.key = "k";
    gone.kv.mod_revision = 31;
    CHECK(q.follow(there, gone) == key_state{std::nullopt, 31});
    event put;
    put.kv = found("w", 32, 32, ours);
    const auto next = q.follow(there, put);
    REQUIRE(next);
    CHECK(next->kv == put.kv);
    CHECK(next->as_of == 32);
    // Gone and put again with the same value is another state.
    CHECK_FALSE(*next == there);
}
