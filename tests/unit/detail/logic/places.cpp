// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/lock.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::logic;
using place = standing::place;

namespace {

const lock_keys keys = make_lock_keys("m", 0x1a, 3);
const predecessor first{"m/f-0", 40};

bool covers(const key_range& range, const std::string& key) {
    return key >= range.key && key < range.range_end;
}

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

/// Whether the reading of an answer ends in `errc::protocol_error`.
bool refused(const std::function<void()>& read) {
    try {
        read();
        return false;
    } catch (const error& e) {
        return e.code() == errc::protocol_error;
    }
}

/// A condition on create_revision.
void check_create(const compare& c,
                  const std::string& key,
                  const std::string& range_end,
                  compare::result how,
                  std::int64_t revision) {
    CHECK(c.what == compare::target::create);
    CHECK(c.how == how);
    CHECK(c.range.key == key);
    CHECK(c.range.range_end == range_end);
    CHECK(std::get<std::int64_t>(c.operand) == revision);
}

void check_read_of(const op& o, const std::string& key) {
    const auto& r = std::get<range_request>(o);
    CHECK(r.range.key == key);
    CHECK(r.range.range_end.empty());
    CHECK(r.options.keys_only);
    CHECK_FALSE(r.options.serializable);
    CHECK(r.options.revision == 0);
}

} // namespace

TEST_CASE("a key tells the lock, the lease and the attempt", "[logic][lock]") {
    CHECK(keys.queue == "m/");
    CHECK(keys.key == "m/1a-3");
    CHECK(keys.lease == 0x1a);
    const lock_keys largest = make_lock_keys(
        "a/b", std::numeric_limits<lease_id>::max(), std::numeric_limits<std::uint64_t>::max());
    CHECK(largest.queue == "a/b/");
    CHECK(largest.key == "a/b/7fffffffffffffff-ffffffffffffffff");
    CHECK(make_lock_keys("m", -1, 0).key == "m/ffffffffffffffff-0");
    // as etcdctl does
    CHECK(make_lock_keys("m/", 1, 0).queue == "m//");
}

TEST_CASE("the key is in the queue and its tombstone is not", "[logic][lock]") {
    for (const std::string name :
         {"m", "m/", "m.", "m.x", "/", "\xff", "m\xff", "a b", "0", "m.x/1a"}) {
        CAPTURE(name);
        const lock_keys k = make_lock_keys(name, 0x1a, 3);
        const key_range queue = key_range::prefix(k.queue);
        CHECK(covers(queue, k.key));
        CHECK_FALSE(covers(queue, k.tombstone));
        CHECK(k.tombstone.starts_with(name)); // so that a role for the name's prefix is enough
    }
}

TEST_CASE("a tombstone lies in no other lock's queue", "[logic][lock]") {
    const std::string tombstone = make_lock_keys("m", 0x1a, 3).tombstone;
    for (const std::string other : {"m", "m.x", "m.", "m.1a", "m.1a-3", "n", "l"}) {
        CAPTURE(other);
        CHECK_FALSE(covers(key_range::prefix(make_lock_keys(other, 0x1a, 3).queue), tombstone));
    }
}

TEST_CASE("an answer without the revision of our key is none", "[logic][lock]") {
    txn_response put;
    put.succeeded = true;
    CHECK_THROWS_AS(after_enter_if_free(put, keys), coetcd::error);
    put.header.revision = 7;
    CHECK(after_enter_if_free(put, keys).create_revision == 7);
    range_response own;
    own.kvs.emplace_back();
    own.kvs.back().key = keys.key;
    txn_response again;
    again.responses.emplace_back(own);
    CHECK_THROWS_AS(after_enter(again, keys), coetcd::error);
    CHECK_THROWS_AS(after_enter_if_free(again, keys), coetcd::error);
}

TEST_CASE("no two attempts share a key", "[logic][lock]") {
    std::set<std::string> all;
    for (const char* name : {"m", "m.x", "n"}) {
        for (const lease_id lease : {0x1, 0x11, 0x1a}) {
            for (const unsigned serial : {0x0U, 0x1U, 0x11U}) {
                const lock_keys k = make_lock_keys(name, lease, serial);
                CHECK(all.insert(k.key).second);
                CHECK(all.insert(k.tombstone).second);
            }
        }
    }
}

TEST_CASE("to enter is to put the key, unless the attempt is over", "[logic][lock]") {
    const txn t = enter(keys, "who");
    REQUIRE(t.compares.size() == 2);
    check_create(t.compares[0], keys.key, "", compare::result::equal, 0);
    check_create(t.compares[1], keys.tombstone, "", compare::result::equal, 0);

    REQUIRE(t.success.size() == 2);
    const auto& put = std::get<put_request>(t.success[0]);
    CHECK(put.key == keys.key);
    CHECK(put.value == "who");
    CHECK(put.options.lease == keys.lease);
    CHECK_FALSE(put.options.ignore_lease);
    const auto& newest = std::get<range_request>(t.success[1]);
    CHECK(newest.range.key == "m/");
    CHECK(newest.range.range_end == "m0");
    CHECK(newest.options.limit == 2);
    CHECK(newest.options.order == sort_order::descend);
    CHECK(newest.options.target == sort_target::create);
    CHECK(newest.options.keys_only);

    REQUIRE(t.failure.size() == 1);
    check_read_of(t.failure[0], keys.key);
}

TEST_CASE("the answer to enter tells the place in the queue", "[logic][lock]") {
    const op_response put = put_response();

    SECTION("nobody else is there") {
        const auto s = after_enter(answer(true, {put, found({kv(keys.key, 50)})}), keys);
        CHECK(s.at == place::owner);
        CHECK(s.create_revision == 50);
        CHECK_FALSE(s.ahead);
    }
    SECTION("somebody is ahead") {
        const auto s =
            after_enter(answer(true, {put, found({kv(keys.key, 50), kv("m/f-0", 40)})}), keys);
        CHECK(s.at == place::behind);
        CHECK(s.create_revision == 50);
        REQUIRE(s.ahead);
        CHECK(s.ahead->key == "m/f-0");
        CHECK(s.ahead->create_revision == 40);
    }
    SECTION("an earlier attempt of the same request was applied") {
        const auto s = after_enter(answer(false, {found({kv(keys.key, 45)})}), keys);
        CHECK(s.at == place::queued);
        CHECK(s.create_revision == 45);
        CHECK_FALSE(s.ahead);
    }
    SECTION("the attempt is over") {
        const auto s = after_enter(answer(false, {found({})}), keys);
        CHECK(s.at == place::gone);
        CHECK(s.create_revision == 0);
    }
    SECTION("the answer is not etcd's") {
        const txn_response bad[] = {
            answer(true, {}),
            answer(true, {put}),
            answer(true, {put, put}),
            answer(true, {put, found({})}),
            answer(true, {put, found({kv("m/f-0", 40)})}),
            answer(true, {put, found({kv(keys.key, 0)})}),
            answer(true, {put, found({kv(keys.key, 0), kv("m/f-0", 40)})}),
            answer(false, {}),
            answer(false, {put}),
        };
        for (const auto& response : bad) {
            CHECK(refused([&] { (void)after_enter(response, keys); }));
        }
    }
}

TEST_CASE("to try is to put the key if the queue is empty", "[logic][lock]") {
    const txn t = enter_if_free(keys, "who");
    REQUIRE(t.compares.size() == 2);
    check_create(t.compares[0], "m/", "m0", compare::result::equal, 0);
    check_create(t.compares[1], keys.tombstone, "", compare::result::equal, 0);
    REQUIRE(t.success.size() == 1);
    const auto& put = std::get<put_request>(t.success[0]);
    CHECK(put.key == keys.key);
    CHECK(put.value == "who");
    CHECK(put.options.lease == keys.lease);
    REQUIRE(t.failure.size() == 1);
    check_read_of(t.failure[0], keys.key);
}

TEST_CASE("the answer to a try tells whether the lock is ours", "[logic][lock]") {
    const op_response put = put_response();
    const auto taken = after_enter_if_free(answer(true, {put}), keys);
    CHECK(taken.at == place::owner);
    CHECK(taken.create_revision == 50);
    // by an earlier attempt of the same request
    const auto before = after_enter_if_free(answer(false, {found({kv(keys.key, 45)})}), keys);
    CHECK(before.at == place::owner);
    CHECK(before.create_revision == 45);
    CHECK(after_enter_if_free(answer(false, {found({})}), keys).at == place::gone);
    CHECK(after_enter_if_free(answer(false, {found({kv("m/f-0", 40)})}), keys).at == place::gone);
    for (const auto& response : {answer(false, {}), answer(false, {put})}) {
        CHECK(refused([&] { (void)after_enter_if_free(response, keys); }));
    }
}

TEST_CASE("ownership is confirmed by a write", "[logic][lock]") {
    const txn t = confirm(keys, 50);
    REQUIRE(t.compares.size() == 2);
    check_create(t.compares[0], keys.key, "", compare::result::equal, 50);
    // On a range: nobody in the queue is older.
    check_create(t.compares[1], "m/", "m0", compare::result::greater, 49);
    REQUIRE(t.success.size() == 1);
    const auto& put = std::get<put_request>(t.success[0]);
    CHECK(put.key == keys.key);
    CHECK(put.value.empty());
    CHECK(put.options.ignore_value);
    CHECK(put.options.ignore_lease);
    CHECK(put.options.lease == 0);

    REQUIRE(t.failure.size() == 2);
    check_read_of(t.failure[0], keys.key);
    const auto& older = std::get<range_request>(t.failure[1]);
    CHECK(older.range.key == "m/");
    CHECK(older.range.range_end == "m0");
    CHECK(older.options.limit == 1);
    CHECK(older.options.order == sort_order::descend);
    CHECK(older.options.target == sort_target::create);
    CHECK(older.options.max_create_revision == 49);
    CHECK(older.options.keys_only);
}

TEST_CASE("the answer to confirm tells who owns the lock", "[logic][lock]") {
    const op_response put = put_response();
    const op_response own = found({kv(keys.key, 50)});

    const auto owner = after_confirm(answer(true, {put}), keys, 50);
    CHECK(owner.at == place::owner);
    CHECK(owner.create_revision == 50);

    const auto behind = after_confirm(answer(false, {own, found({kv("m/f-0", 40)})}), keys, 50);
    CHECK(behind.at == place::behind);
    CHECK(behind.create_revision == 50);
    REQUIRE(behind.ahead);
    CHECK(behind.ahead->key == "m/f-0");
    CHECK(behind.ahead->create_revision == 40);

    // Whoever was ahead went between the two halves of the answer: it cannot be, so ask again.
    const auto queued = after_confirm(answer(false, {own, found({})}), keys, 50);
    CHECK(queued.at == place::queued);
    CHECK(queued.create_revision == 50);

    CHECK(after_confirm(answer(false, {found({}), found({})}), keys, 50).at == place::gone);
    // A later life of the key is not ours.
    const op_response reborn = found({kv(keys.key, 51)});
    CHECK(after_confirm(answer(false, {reborn, found({})}), keys, 50).at == place::gone);

    for (const auto& response : {answer(false, {}),
                                 answer(false, {put, found({})}),
                                 answer(false, {own}),
                                 answer(false, {own, put})}) {
        CHECK(refused([&] { (void)after_confirm(response, keys, 50); }));
    }
}

TEST_CASE("to look is to read our key and the one ahead", "[logic][lock]") {
    const txn t = look(keys, first);
    CHECK(t.compares.empty());
    CHECK(t.failure.empty());
    REQUIRE(t.success.size() == 2);
    check_read_of(t.success[0], keys.key);
    check_read_of(t.success[1], first.key);
}

TEST_CASE("the queue has moved if our key or the one ahead is gone", "[logic][lock]") {
    const op_response own = found({kv(keys.key, 50)});
    const op_response ahead = found({kv("m/f-0", 40)});
    const op_response none = found({});
    struct {
        op_response own, ahead;
        bool moved;
    } const rows[] = {
        {own, ahead, false},
        {own, none, true},
        {none, ahead, true},
        {none, none, true},
        {found({kv(keys.key, 51)}), ahead, true},
        {own, found({kv("m/f-0", 41)}), true},
        {own, found({kv("m/e-0", 40)}), true},
    };
    for (const auto& row : rows) {
        const auto response = answer(true, {row.own, row.ahead});
        CHECK(has_moved(response, keys, 50, first) == row.moved);
    }
    const op_response put = put_response();
    for (const auto& response : {answer(true, {}),
                                 answer(true, {own}),
                                 answer(true, {own, put}),
                                 answer(true, {put, ahead})}) {
        CHECK(refused([&] { (void)has_moved(response, keys, 50, first); }));
    }
}

TEST_CASE("to leave is to delete the key, and to bar a late request to enter", "[logic][lock]") {
    const txn clean = leave(keys, false);
    CHECK(clean.compares.empty());
    CHECK(clean.failure.empty());
    REQUIRE(clean.success.size() == 1);
    const auto& erase = std::get<delete_range_request>(clean.success[0]);
    CHECK(erase.range.key == keys.key);
    CHECK(erase.range.range_end.empty());

    const txn t = leave(keys, true);
    CHECK(t.compares.empty());
    REQUIRE(t.success.size() == 2);
    CHECK(std::get<delete_range_request>(t.success[0]).range.key == keys.key);
    const auto& put = std::get<put_request>(t.success[1]);
    CHECK(put.key == keys.tombstone);
    CHECK(put.options.lease == keys.lease); // it goes with the lease
}

TEST_CASE("to release is to leave, if the key is still the one that was taken", "[logic][lock]") {
    for (const bool unresolved : {false, true}) {
        const txn t = release(keys, 50, unresolved);
        REQUIRE(t.compares.size() == 1);
        check_create(t.compares[0], keys.key, "", compare::result::equal, 50);
        CHECK(t.success.size() == leave(keys, unresolved).success.size());
        // Should the key be gone, a late request to enter must still be made void.
        CHECK(t.failure.size() == (unresolved ? t.success.size() : 0));
    }
}

TEST_CASE("a read from before the key was put does not tell that it is gone", "[logic][lock]") {
    coetcd::txn_response response;
    coetcd::range_response read;
    response.header.revision = 6;
    CHECK_FALSE(is_gone(response, read, "k", 7));
    response.header.revision = 7;
    CHECK(is_gone(response, read, "k", 7));
    coetcd::key_value& kv = read.kvs.emplace_back();
    kv.key = "k";
    kv.create_revision = 7;
    CHECK_FALSE(is_gone(response, read, "k", 7));
    kv.create_revision = 9; // somebody else's
    CHECK(is_gone(response, read, "k", 7));
}
