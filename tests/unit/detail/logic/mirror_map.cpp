// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/mirror_map.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace logic = coetcd::detail::logic;
using coetcd::event;
using coetcd::event_type;
using coetcd::key_value;
using coetcd::mirror_change;
using coetcd::mirror_entry;
using logic::found_entries;
using logic::mirror_entries;
using logic::mirror_map;

namespace {

struct mirror_map_fixture {
    using list = std::vector<std::string>;

    static key_value kv(std::string key, std::string value, std::int64_t mod) {
        key_value k;
        k.key = std::move(key);
        k.value = std::move(value);
        k.mod_revision = mod;
        k.create_revision = mod;
        k.version = 1;
        return k;
    }
    static event put(std::int64_t at, std::string key, std::string value) {
        return {event_type::put, kv(std::move(key), std::move(value), at), {}};
    }
    static event erase(std::int64_t at, std::string key) {
        return {event_type::erase, kv(std::move(key), "", at), {}};
    }
    static found_entries entries(std::vector<key_value> all) {
        found_entries result;
        for (key_value& k : all) {
            result.push_back(std::make_shared<const key_value>(std::move(k)));
        }
        return result;
    }
    static std::string text(const mirror_entry& e) { return e ? e->value : "-"; }
    /// "revision key was>is", with "?" if it is by comparison.
    static list texts(const std::vector<mirror_change>& changes) {
        list result;
        for (const mirror_change& c : changes) {
            result.push_back(std::to_string(c.revision) + " " + c.key() + " " + text(c.was) + ">" +
                             text(c.is) + (c.by_comparison ? "?" : ""));
        }
        return result;
    }
    static list texts(const mirror_entries& all) {
        list result;
        for (const mirror_entry& e : all) {
            result.push_back(e->key + "=" + e->value);
        }
        return result;
    }
    list apply(std::vector<event> events) { return texts(m.apply(events)); }

    mirror_map m;
};

using mirror_map_list = mirror_map_fixture::list;

} // namespace

TEST_CASE("a difference says what to do to one map to get the other", "[logic][mirror]") {
    using f = mirror_map_fixture;
    struct row {
        std::vector<key_value> from;
        std::vector<key_value> to;
        mirror_map_list changes;
    };
    const std::vector<row> rows = {
        {{}, {}, {}},
        {{f::kv("a", "1", 2)}, {f::kv("a", "1", 2)}, {}},
        {{}, {f::kv("a", "1", 2), f::kv("b", "2", 3)}, {"9 a ->1?", "9 b ->2?"}},
        {{f::kv("a", "1", 2), f::kv("b", "2", 3)}, {}, {"9 a 1>-?", "9 b 2>-?"}},
        {{f::kv("a", "1", 2)}, {f::kv("a", "2", 4)}, {"9 a 1>2?"}},
        {{f::kv("a", "1", 2)}, {f::kv("a", "1", 4)}, {"9 a 1>1?"}}, // written again
        {{f::kv("b", "1", 2), f::kv("d", "1", 2), f::kv("f", "1", 2)},
         {f::kv("a", "2", 3), f::kv("d", "2", 3), f::kv("e", "2", 3), f::kv("g", "2", 3)},
         {"9 a ->2?", "9 b 1>-?", "9 d 1>2?", "9 e ->2?", "9 f 1>-?", "9 g ->2?"}},
    };
    for (const row& r : rows) {
        CHECK(f::texts(logic::difference(f::entries(r.from), f::entries(r.to), 9)) == r.changes);
    }
}

TEST_CASE("events change the map, each once", "[logic][mirror]") {
    mirror_map_fixture f;
    using x = mirror_map_fixture;
    f.m.become(x::entries({x::kv("a", "1", 5)}), 7);
    CHECK(f.m.revision() == 7);
    CHECK(f.m.heard() == 7);
    CHECK(f.apply({x::put(7, "a", "old"), x::put(6, "b", "old")}).empty());
    // Several keys of one revision, and several revisions.
    CHECK(f.apply({x::put(8, "a", "2"), x::put(8, "b", "2"), x::erase(9, "a")}) ==
          mirror_map_list{"8 a 1>2", "8 b ->2", "9 a 2>-"});
    CHECK(x::texts(f.m.now()) == mirror_map_list{"b=2"});
    CHECK(f.m.revision() == 9);
    CHECK(f.apply({x::erase(9, "b")}).empty());  // told before
    CHECK(f.apply({x::erase(10, "c")}).empty()); // of nothing
    CHECK(f.m.revision() == 10);
    f.m.reached(20);
    CHECK(f.m.revision() == 20);
    f.m.reached(15);
    CHECK(f.m.heard() == 20);
    CHECK(f.apply({x::put(20, "b", "3")}).empty());
    CHECK(f.apply({x::put(21, "b", "3")}) == mirror_map_list{"21 b 2>3"});
    // A restored store begins anew.
    f.m.become(x::entries({x::kv("z", "1", 2)}), 3);
    CHECK(x::texts(f.m.now()) == mirror_map_list{"z=1"});
    CHECK(f.m.revision() == 3);
    CHECK(f.apply({x::erase(4, "z")}) == mirror_map_list{"4 z 1>-"});
}

TEST_CASE("a map becomes what a read has found, and keeps what is the same", "[logic][mirror]") {
    mirror_map_fixture f;
    using x = mirror_map_fixture;
    f.m.become(x::entries({x::kv("a", "1", 2), x::kv("c", "1", 2), x::kv("e", "1", 2)}), 3);
    CHECK(x::texts(f.m.now()) == mirror_map_list{"a=1", "c=1", "e=1"});
    const mirror_entry kept = *f.m.now().begin();
    found_entries found = x::entries({x::kv("b", "2", 4), x::kv("c", "2", 5), x::kv("f", "2", 6)});
    found.push_front(kept);
    CHECK(x::texts(f.m.changes_to(found, 7)) ==
          mirror_map_list{"7 b ->2?", "7 c 1>2?", "7 e 1>-?", "7 f ->2?"});
    f.m.become(std::move(found), 7);
    CHECK(x::texts(f.m.now()) == mirror_map_list{"a=1", "b=2", "c=2", "f=2"});
    CHECK(*f.m.now().begin() == kept);
    f.m.become({}, 8);
    CHECK(f.m.now().empty());
    CHECK(f.m.revision() == 8);
}

TEST_CASE("what is proved is not taken back by events of what has passed", "[logic][mirror]") {
    mirror_map_fixture f;
    using x = mirror_map_fixture;
    f.m.become(x::entries({x::kv("a", "1", 5)}), 7);
    f.m.prove(12); // "b" came at 9 and went at 11
    CHECK(f.m.revision() == 12);
    CHECK(f.m.heard() == 7);
    CHECK(f.apply({x::put(9, "b", "2")}) == mirror_map_list{"9 b ->2"});
    CHECK(x::texts(f.m.now()) == mirror_map_list{"a=1"});
    CHECK(x::texts(f.m.told()) == mirror_map_list{"a=1", "b=2"});
    CHECK(f.m.told("b")->value == "2");
    CHECK(f.m.revision() == 12);
    CHECK(f.m.heard() == 9);
    CHECK(f.apply({x::put(10, "b", "3"), x::erase(11, "b")}) ==
          mirror_map_list{"10 b 2>3", "11 b 3>-"});
    CHECK(x::texts(f.m.told()) == mirror_map_list{"a=1"});
    CHECK_FALSE(f.m.told("b"));
    CHECK(f.apply({x::put(13, "b", "4")}) == mirror_map_list{"13 b ->4"});
    CHECK(x::texts(f.m.now()) == mirror_map_list{"a=1", "b=4"});
    CHECK(f.m.revision() == 13);
    f.m.prove(11);
    CHECK(f.m.revision() == 13);
}

TEST_CASE("a change after what is proved counts, whatever has passed before", "[logic][mirror]") {
    mirror_map_fixture f;
    using x = mirror_map_fixture;
    f.m.become({}, 7);
    f.m.prove(12);
    // One message may hold both.
    CHECK(f.apply({x::put(9, "b", "2"), x::put(13, "b", "3")}) ==
          mirror_map_list{"9 b ->2", "13 b 2>3"});
    CHECK(x::texts(f.m.now()) == mirror_map_list{"b=3"});
    CHECK(f.m.told("b")->value == "3");
}
