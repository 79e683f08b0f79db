// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/resumable.hpp>

#include <string>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using coetcd::key_value;

namespace {

key_value key(const std::string& name, coetcd::lease_id lease, std::int64_t create_revision) {
    key_value kv;
    kv.key = name;
    kv.lease = lease;
    kv.create_revision = create_revision;
    return kv;
}

constexpr coetcd::lease_id lease = 0xabc;
constexpr std::uint64_t nonce = 0x77;

std::vector<std::string> ids(const std::vector<resumable_key>& l) {
    std::vector<std::string> all;
    for (const resumable_key& k : l) {
        all.push_back(k.id);
    }
    return all;
}

} // namespace

TEST_CASE("a queue is read with its leases", "[logic][resumable]") {
    const coetcd::range_request queue = whole_queue("m");
    CHECK_FALSE(queue.options.keys_only); // etcd 3.7 leaves them out then
    CHECK(queue.range.key == "m/");
    CHECK(queue.range.range_end == "m0");
    CHECK(queue.options.limit == 0);
}

TEST_CASE("what can be resumed is what other objects with the lease have put",
          "[logic][resumable]") {
    const std::vector<key_value> queue = {
        key("m/abc-1-0", lease, 3),
        key("m/abc", lease, 4),         // Go's
        key("m/abc-77-0", lease, 5),    // our own
        key("m/abc-1-1", 0xdef, 6),     // of another lease, in spite of its name
        key("m/abcd-1-0", lease, 7),    // not after our pattern
        key("m/abc-1-0/abc", lease, 8), // another lock, below this one
        key("m/def-1-0", 0xdef, 9),
        key("m/abc-7-1", lease, 10),
        key("m/", lease, 11),
    };
    const std::vector<resumable_key> l = resumable_of(queue, "m", lease, nonce);
    CHECK(ids(l) == std::vector<std::string>{"abc-1-0", "abc", "abc-7-1"});
    CHECK(l[0].create_revision == 3);
    CHECK(l[0].has_epoch);
    CHECK_FALSE(l[1].has_epoch);
    CHECK(l[2].create_revision == 10);
}

TEST_CASE("the keys to resume are those that its first owner had", "[logic][resumable]") {
    const name_keys before = exclusive_keys("m", lease, 0x1, 0, 9);
    const name_keys c = resumable_keys("m", "abc-1-0", lease, nonce);
    CHECK(c.name == before.name);
    CHECK(c.keys == before.keys);
    CHECK(c.epoch_key == before.epoch_key);
    CHECK(c.before.key == before.before.key);
    CHECK(c.before.range_end == before.before.range_end);
    CHECK(c.void_key == exclusive_keys("m", lease, nonce, 0, 0).void_key);
}

TEST_CASE("to end what was resumed is to erase its life, and to make void what may come late",
          "[logic][resumable]") {
    const name_keys c = resumable_keys("m", "abc-1-0", lease, nonce);
    for (const bool bumps : {false, true}) {
        const coetcd::txn t = end_resumed(c, lease, 3, bumps);
        REQUIRE(t.compares.size() == 1);
        REQUIRE(t.success.size() == (bumps ? 2 : 1));
        const auto& erased = std::get<coetcd::erase_request>(t.success[0]);
        CHECK(erased.range.key == "m/abc-1-0");
        if (bumps) {
            const auto& put = std::get<coetcd::put_request>(t.success[1]);
            CHECK(put.key == "m.abc-1-0");
            CHECK(put.options.lease == lease);
            // The same holds if the key is gone: a copy may come later.
            CHECK(t.compares[0].how == coetcd::compare::result::less);
            CHECK(std::get<std::int64_t>(t.compares[0].operand) == 4);
        } else {
            CHECK(t.compares[0].how == coetcd::compare::result::equal);
            CHECK(std::get<std::int64_t>(t.compares[0].operand) == 3);
        }
    }
}

TEST_CASE("what was resumed is given up whatever the answer says", "[logic][resumable]") {
    coetcd::txn_response answer;
    answer.succeeded = true;
    coetcd::erase_response erased;
    erased.deleted = 1;
    answer.responses.emplace_back(erased);
    CHECK(after_ending_resumed(answer).over);
    CHECK(after_ending_resumed(answer).was_there);
    answer.succeeded = false;
    answer.responses.clear();
    answer.responses.emplace_back(coetcd::range_response());
    CHECK(after_ending_resumed(answer).over);
    CHECK_FALSE(after_ending_resumed(answer).was_there);
}
