// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/membership.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

key_value member(std::string key, std::string value, std::int64_t create, std::int64_t mod) {
    key_value kv;
    kv.key = "g/" + std::move(key);
    kv.value = std::move(value);
    kv.create_revision = create;
    kv.mod_revision = mod;
    kv.lease = 5;
    return kv;
}
event put(key_value kv) {
    event e;
    e.kv = std::move(kv);
    return e;
}
event erased(std::string key, std::int64_t mod) {
    event e;
    e.type = event_type::erase;
    e.kv.key = "g/" + std::move(key);
    e.kv.mod_revision = mod;
    return e;
}
/// "key=value" of each, in order.
std::string told(const std::optional<member_list>& all) {
    if (!all) {
        return "look";
    }
    std::string text;
    for (const member_entry& m : *all) {
        text += m.key.substr(2) + '=' + m.value + ' ';
    }
    return text;
}

} // namespace

TEST_CASE("the members of a group are listed by age", "[logic][group]") {
    range_response read;
    CHECK(members_in(read).empty());
    read.kvs = {member("a", "1", 9, 9), member("b", "2", 3, 12), member("c", "3", 9, 9)};
    const member_list all = members_in(read);
    CHECK(told(all) == "b=2 a=1 c=3 ");
    CHECK(all[0].joined == 3);
    CHECK(all[0].revision == 12);
    CHECK(all[0].lease == 5);
    read.kvs[0].create_revision = 0;
    CHECK_THROWS_AS(members_in(read), error);
}

TEST_CASE("events change the list of members, unless something was missed", "[logic][group]") {
    range_response read;
    read.kvs = {member("a", "1", 9, 9), member("b", "2", 3, 12)};
    const member_list now = members_in(read);
    struct {
        event what;
        const char* expected;
    } const rows[] = {
        {put(member("c", "3", 20, 20)), "b=2 a=1 c=3 "},
        {put(member("c", "3", 19, 20)), "look"}, // its first put was missed
        {put(member("a", "x", 9, 20)), "b=2 a=x "},
        {put(member("a", "x", 20, 20)), "look"}, // its end was missed
        {put(member("a", "x", 19, 20)), "look"},
        {erased("b", 20), "a=1 "},
        {erased("a", 20), "b=2 "},
        {erased("c", 20), "look"},
    };
    for (const auto& row : rows) {
        CHECK(told(members_after(now, row.what)) == row.expected);
    }
    CHECK(told(members_after({}, put(member("a", "1", 4, 4)))) == "a=1 ");
    CHECK(told(members_after(members_in({}), erased("a", 4))) == "look");
}

TEST_CASE("a group is what is below its name, and nothing beside it", "[logic][group]") {
    const auto q = who_is_in("group \"g\"", "g");
    CHECK(q.read.range.key == "g/");
    CHECK(q.read.range.range_end == "g0");
    CHECK(q.title == "group \"g\", changes");
}
