// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/admin.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

key_value kv(std::string key, std::int64_t create_revision, lease_id lease = 0x1a) {
    key_value out;
    out.key = std::move(key);
    out.create_revision = create_revision;
    out.lease = lease;
    return out;
}

using strings = std::vector<std::string>;

strings erased(const txn& t) {
    strings out;
    for (const op& o : t.success) {
        if (const auto* e = std::get_if<erase_request>(&o)) {
            CHECK(e->range.range_end.empty());
            out.push_back(e->range.key);
        }
    }
    return out;
}
strings put(const txn& t) {
    strings out;
    for (const op& o : t.success) {
        if (const auto* p = std::get_if<put_request>(&o)) {
            out.push_back(p->key + " " + hex(static_cast<std::uint64_t>(p->options.lease)));
        }
    }
    return out;
}
strings conditions(const txn& t) {
    strings out;
    for (const compare& c : t.compares) {
        CHECK(c.what == compare::target::create);
        CHECK(c.how == compare::result::equal);
        out.push_back(c.range.key + " " + std::to_string(std::get<std::int64_t>(c.operand)));
    }
    return out;
}

} // namespace

TEST_CASE("a life is found by its revision alone", "[logic][admin]") {
    const range_request r = life_of("m", 50);
    CHECK(r.range.key == "m/");
    CHECK(r.range.range_end == "m0");
    CHECK(r.options.min_create_revision == 50);
    CHECK(r.options.max_create_revision == 50);
    CHECK_FALSE(r.options.keys_only); // its leases are wanted
    CHECK_FALSE(r.options.serializable);
    CHECK(r.options.limit == 0);
}

TEST_CASE("a key of a queue is split into its line and its id", "[logic][admin]") {
    struct {
        const char* name;
        const char* key;
        const char* line; // null: it is none
        const char* id;
    } const rows[] = {
        {"m", "m/1a-3-0", "", "1a-3-0"},
        {"m", "m/1a", "", "1a"},
        {"m", "m/read/1a-3-0", "read/", "1a-3-0"},
        {"m", "m/write/1a-3-0", "write/", "1a-3-0"},
        {"m", "m/keep/1a-3-0", "keep/", "1a-3-0"},
        {"m", "m/wait/1a-3-0", "wait/", "1a-3-0"},
        {"m", "m/hold/0b/1a-3-0", "hold/0b/", "1a-3-0"},
        {"m", "m/hold/0b/", nullptr, nullptr},
        {"m", "m/hold/1a-3-0", nullptr, nullptr},
        {"m", "m/read/", nullptr, nullptr},
        {"m", "m/", nullptr, nullptr},
        {"m", "m", nullptr, nullptr},
        {"m", "m.1a", nullptr, nullptr},
        {"m", "mm/1a", nullptr, nullptr},
        {"m", "m/x/1a", nullptr, nullptr},
        {"m", "m/read/x/1a", nullptr, nullptr},
        {"a/b", "a/b/1a", "", "1a"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.name, row.key);
        const auto parts = split_key(row.name, row.key);
        REQUIRE(parts.has_value() == (row.line != nullptr));
        if (parts) {
            CHECK(parts->line == row.line);
            CHECK(parts->id == row.id);
        }
    }
}

TEST_CASE("force erases all keys of a permit, and its epoch once", "[logic][admin]") {
    const auto t = force("m", 50, {kv("m/hold/00/1a-3-0", 50), kv("m/hold/02/1a-3-0", 50)});
    REQUIRE(t);
    CHECK(erased(*t) == strings{"m/hold/00/1a-3-0", "m/hold/02/1a-3-0"});
    CHECK(put(*t) == strings{"m.1a-3-0 1a"});
}

TEST_CASE("force erases a life and puts an epoch with its lease", "[logic][admin]") {
    const auto t = force("m", 50, {kv("m/1a-3-0", 50)});
    REQUIRE(t);
    CHECK(conditions(*t) == strings{"m/1a-3-0 50"});
    CHECK(erased(*t) == strings{"m/1a-3-0"});
    CHECK(put(*t) == strings{"m.1a-3-0 1a"});
    REQUIRE(t->failure.size() == 1); // what is there of it now
    const auto& rest = std::get<range_request>(t->failure.front());
    CHECK(rest.range.key == "m/");
    CHECK(rest.range.range_end == "m0");
    CHECK(rest.options.min_create_revision == 50);
    CHECK(rest.options.max_create_revision == 50);
}

TEST_CASE("force erases all keys of a slot, whatever their ages", "[logic][admin]") {
    const strings all{"s/keep/1a-3-0", "s/read/1a-3-0", "s/write/1a-3-0"};
    const auto writer = force("s", 50, {kv("s/keep/1a-3-0", 50), kv("s/write/1a-3-0", 50)});
    REQUIRE(writer);
    CHECK(conditions(*writer) == strings{"s/keep/1a-3-0 50", "s/write/1a-3-0 50"});
    CHECK(erased(*writer) == all);
    CHECK(put(*writer) == strings{"s.1a-3-0 1a"}); // once
    const auto reader = force("s", 50, {kv("s/read/1a-3-0", 50)});
    REQUIRE(reader);
    CHECK(erased(*reader) == all); // it may have been upgraded
    CHECK(put(*reader) == strings{"s.1a-3-0 1a"});
}

TEST_CASE("force puts no epoch for owners that compare none", "[logic][admin]") {
    const auto of_go = force("m", 50, {kv("m/1a", 50)});
    REQUIRE(of_go);
    CHECK(erased(*of_go) == strings{"m/1a"});
    CHECK(put(*of_go).empty());
    const auto stray = force("m", 50, {kv("m/1a-3-0", 50, 0)});
    REQUIRE(stray);
    CHECK(erased(*stray) == strings{"m/1a-3-0"});
    CHECK(put(*stray).empty());
    const auto other_lease = force("m", 50, {kv("m/1a-3-0", 50, 0x1b)});
    REQUIRE(other_lease);
    CHECK(put(*other_lease).empty());
}

TEST_CASE("force touches nothing else", "[logic][admin]") {
    CHECK_FALSE(force("m", 50, {}));
    CHECK_FALSE(force("m", 50, {kv("m/1a-3-0", 51)}));   // a server that does not filter
    CHECK_FALSE(force("m", 50, {kv("m/x/1a-3-0", 50)})); // of the lock m/x
    CHECK_FALSE(force("m", 50, {kv("n/1a-3-0", 50)}));
    const auto some = force("m", 50, {kv("m/1-1-0", 49), kv("m/1a-3-0", 50), kv("m/x/2", 50)});
    REQUIRE(some);
    CHECK(conditions(*some) == strings{"m/1a-3-0 50"});
    CHECK(erased(*some) == strings{"m/1a-3-0"});
}

TEST_CASE("a position is that of the first own key", "[logic][admin]") {
    const std::vector<key_value> queue{
        kv("m/9", 10), kv("m/2-3-0", 11), kv("m/1a-3-1", 12), kv("m/1a-3-0", 13)};
    CHECK(position_in(queue, "m", 0x1a, 3, "") == 2U);
    CHECK(position_in(queue, "m", 0x1a, 3, "m/9") == 0U); // resumed
    CHECK(position_in(queue, "m", 0x2, 3, "") == 1U);
    CHECK_FALSE(position_in(queue, "m", 0x1a, 4, ""));
    CHECK_FALSE(position_in(queue, "m", 0x1, 3, ""));
    CHECK_FALSE(position_in(queue, "m", 0x9, 3, ""));
    CHECK_FALSE(position_in({}, "m", 0x1a, 3, ""));
    CHECK(position_in({kv("m/9", 1), kv("m/write/1a-3-0", 2)}, "m", 0x1a, 3, "") == 1U);
}

TEST_CASE("a request for a lock names one ownership", "[logic][admin]") {
    const txn t = ask_for_release("m", {"m/1a-3-0", 0x50}, 0x7, 0x9);
    CHECK(conditions(t) == strings{"m/1a-3-0 80"});
    CHECK(put(t) == strings{"m.ask/7-9 7"});
    REQUIRE(t.failure.size() == 1);
    const auto& again = std::get<range_request>(t.failure.front());
    CHECK(again.options.limit == 1);
    CHECK(again.options.order == sort_order::ascend);
    CHECK(again.options.target == sort_target::create);
    key_value asked;
    asked.value = std::get<put_request>(t.success.front()).value;
    CHECK(asks_for(asked, 0x50));
    CHECK_FALSE(asks_for(asked, 0x51));
    CHECK_FALSE(asks_for(key_value(), 0x50));
    const question<bool> q = is_asked_for("m", 0x50);
    CHECK(q.read.range.key == "m.ask/");
    CHECK(q.signs.range.key == "m.ask/");
    CHECK(q.signs.no_delete);
    range_response requests;
    CHECK_FALSE(q.from(requests));
    requests.kvs = {kv("m.ask/1-1", 60), asked};
    CHECK(q.from(requests));
    event happened;
    CHECK(q.follow(false, happened) == false);
    CHECK(q.follow(true, happened) == true);
    happened.kv = asked;
    CHECK(q.follow(false, happened) == true);

    // it is not in the queue, and is covered by what a user of the lock may do
    CHECK(asking_keys("m") > "m.");
    CHECK(asking_keys("m") < "m/");

    range_response read;
    CHECK_FALSE(first_in(read));
    read.kvs = {kv("m/1", 3), kv("m/2", 4)};
    REQUIRE(first_in(read));
    CHECK(first_in(read)->key == "m/1");
    CHECK(first_in(read)->create_revision == 3);
    read.kvs.front().create_revision = 0;
    CHECK_THROWS_AS(first_in(read), coetcd::error);
}
