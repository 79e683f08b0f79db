// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/arrival.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

arrival ours(gathers how = gathers::to_pass) {
    arrival a(how, "b", "1a-2b-w0-1", "b.1a-2b-w0");
    a.create_revision = 40;
    return a;
}

key_value kv(std::string key, std::int64_t create_revision, std::string value = {}) {
    key_value out;
    out.key = std::move(key);
    out.create_revision = create_revision;
    out.value = std::move(value);
    return out;
}
range_response found(std::vector<key_value> kvs) {
    range_response r;
    r.kvs = std::move(kvs);
    return r;
}
/// @param own The create_revision of our key; 0 if it is not there.
/// @param proof The bound.
txn_response looked(
    std::int64_t own, range_response proof, bool marker, std::int64_t count, std::int64_t at = 90) {
    txn_response r;
    r.succeeded = true;
    r.header.revision = at;
    range_response counted;
    counted.count = count;
    using kvs = std::vector<key_value>;
    r.responses.emplace_back(found(own != 0 ? kvs{kv(ours().key, own)} : kvs{}));
    r.responses.emplace_back(std::move(proof));
    r.responses.emplace_back(found(marker ? kvs{kv(ours().marker, 39)} : kvs{}));
    r.responses.emplace_back(counted);
    return r;
}
range_response bound(const char* value) {
    return found({kv("b.bound", 1, value)});
}

} // namespace

TEST_CASE("what has become of an arrival", "[logic][barrier]") {
    using where = arrived::where;
    const range_response none;
    const struct {
        txn_response said;
        where what;
    } rows[] = {
        {looked(40, none, true, 2), where::waiting},
        {looked(40, bound("39"), true, 2), where::waiting},
        {looked(40, none, true, 3), where::full},
        {looked(40, none, true, 7), where::full},
        {looked(0, bound("40"), true, 0), where::through},
        {looked(0, bound("55"), true, 1), where::through},
        {looked(0, bound("39"), true, 1), where::deleted},
        {looked(0, none, true, 1), where::deleted},
        {looked(0, bound("x"), true, 1), where::deleted},
        {looked(0, bound("55"), false, 1), where::gone}, // the lease may have taken it along
        {looked(0, none, false, 1), where::gone},
        {looked(0, none, false, 0, 39), where::waiting},    // of a member that is behind
        {looked(50, bound("45"), true, 1), where::through}, // the key is another life's
    };
    for (const auto& row : rows) {
        CHECK(after_look(row.said, ours(), 3).at == row.what);
    }
    // To stay: only a key of its own is a proof, and says which group it is.
    const arrival stays = ours(gathers::to_stay);
    const range_response inside = found({kv(stays.proof, 77)});
    CHECK(after_look(looked(40, none, true, 2), stays, 3).at == where::waiting);
    CHECK(after_look(looked(40, none, true, 3), stays, 3).at == where::full);
    CHECK(after_look(looked(0, none, true, 3), stays, 3).at == where::deleted);
    CHECK(after_look(looked(0, none, false, 3), stays, 3).at == where::gone);
    const arrived through = after_look(looked(0, inside, true, 3), stays, 3);
    CHECK(through.at == where::through);
    CHECK(through.group == 77);
    CHECK_THROWS_AS(after_look(looked(0, found({kv(stays.proof, 0)}), true, 3), stays, 3),
                    coetcd::error);
}

TEST_CASE("a group goes through whole, or not at all", "[logic][barrier]") {
    std::vector<key_value> group = {kv("b/1", 40), kv("b/2", 43), kv("b/3", 41)};
    group[1].lease = 7;
    CHECK_FALSE(trip(ours(), group, 4));
    const auto t = trip(ours(), group, 3);
    REQUIRE(t);
    REQUIRE(t->compares.size() == 3);
    for (std::size_t i = 0; i != 3; ++i) {
        CHECK(t->compares[i].range.key == group[i].key);
        CHECK(std::get<std::int64_t>(t->compares[i].operand) == group[i].create_revision);
        CHECK(std::get<erase_request>(t->success[i]).range.key == group[i].key);
    }
    REQUIRE(t->success.size() == 4);
    const auto& put = std::get<put_request>(t->success[3]);
    CHECK(put.key == "b.bound");
    CHECK(put.value == "43");
    CHECK(put.options.lease == 0);
    CHECK(t->failure.empty());
    CHECK_THROWS_AS(trip(ours(), {kv("b/1", 0)}, 1), coetcd::error);

    const auto moves = trip(ours(gathers::to_stay), group, 3);
    REQUIRE(moves);
    CHECK(moves->compares.size() == 3);
    REQUIRE(moves->success.size() == 6);
    CHECK(std::get<erase_request>(moves->success[2]).range.key == "b/2");
    const auto& moved = std::get<put_request>(moves->success[3]);
    CHECK(moved.key == "b.in/2");
    CHECK(moved.options.lease == 7); // each member keeps its own

    CHECK_FALSE(is_among(group, ours()));
    CHECK(is_among({kv("b/1", 39), kv(ours().key, 40)}, ours()));
    CHECK_FALSE(is_among({kv(ours().key, 41)}, ours()));
    const range_request asks = oldest_arrivals("b", 3);
    CHECK(asks.options.limit == 3);
    CHECK_FALSE(asks.options.keys_only); // etcd 3.7 would not tell the leases
    CHECK(asks.options.order == sort_order::ascend);
    CHECK(asks.options.target == sort_target::create);
}

TEST_CASE("an arrival and its withdrawal", "[logic][barrier]") {
    const txn in = arrive(ours(), 0x1a);
    CHECK(in.compares.empty());
    const auto& put = std::get<put_request>(in.success.front());
    CHECK(put.key == "b/1a-2b-w0-1");
    CHECK(put.options.lease == 0x1a);
    CHECK(std::get<range_request>(in.success.back()).options.count_only);
    const txn out = withdraw(ours());
    REQUIRE(out.compares.size() == 1);
    CHECK(std::get<std::int64_t>(out.compares.front().operand) == 40);
    CHECK(std::get<erase_request>(out.success.front()).range.key == ours().key);
    CHECK(std::get<range_request>(out.failure.front()).range.key == "b.bound");
    CHECK(is_through(bound("40"), ours()));
    CHECK_FALSE(is_through(bound("39"), ours()));
    CHECK_FALSE(is_through(range_response(), ours()));
    CHECK(abandon(ours()).success.size() == 1);

    const arrival stays = ours(gathers::to_stay);
    CHECK(std::get<range_request>(withdraw(stays).failure.front()).range.key == stays.proof);
    const txn gives_up = abandon(stays);
    REQUIRE(gives_up.success.size() == 2);
    CHECK(gives_up.compares.empty());
    CHECK(std::get<erase_request>(gives_up.success.front()).range.key == stays.key);
    CHECK(std::get<erase_request>(gives_up.success.back()).range.key == "b.in/1a-2b-w0-1");

    for (const int wrong : {-1, 0, 101}) {
        CHECK_THROWS_AS(require_parties(wrong, gathers::to_pass), std::invalid_argument);
    }
    CHECK_NOTHROW(require_parties(100, gathers::to_pass));
    CHECK_NOTHROW(require_parties(60, gathers::to_stay));
    CHECK_THROWS_AS(require_parties(61, gathers::to_stay), std::invalid_argument);
}

TEST_CASE("who of a group is still inside", "[logic][barrier]") {
    const arrival a = ours(gathers::to_stay);
    const txn leaves = leave(a, 77);
    CHECK(std::get<std::int64_t>(leaves.compares.front().operand) == 77);
    CHECK(std::get<erase_request>(leaves.success.front()).range.key == a.proof);
    const range_response read = found({kv("b.in/1", 77), kv("b.in/2", 80), kv("b.in/3", 77)});
    CHECK(those_inside(read, 77) == member_keys{"b.in/1", "b.in/3"});

    txn_response left;
    left.succeeded = true;
    CHECK_FALSE(was_lost(left));
    left.succeeded = false; // by an earlier copy, or by hand: the marker is there
    left.responses.emplace_back(found({kv(a.marker, 39)}));
    CHECK_FALSE(was_lost(left));
    left.responses.front() = range_response();
    CHECK(was_lost(left));

    const auto asks = inside_now("double_barrier", "b", 77);
    member_keys now = asks.from(read);
    CHECK(now.size() == 2);
    event e;
    e.type = event_type::put;
    e.kv = kv("b.in/4", 90);
    now = asks.follow(now, e).value();
    CHECK(now.size() == 2); // of another group
    e.type = event_type::erase;
    for (const char* key : {"b.in/2", "b.in/1"}) {
        e.kv = kv(key, 0);
        now = asks.follow(now, e).value();
    }
    CHECK(now == member_keys{"b.in/3"});
}
