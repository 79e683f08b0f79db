// SPDX-License-Identifier: BSL-1.0
#include <coetcd/lock_name.hpp>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using coetcd::lock_name;
using namespace std::string_literals;

namespace {

/// All ids of up to `length` bytes of what may be mistaken for something else.
std::vector<std::string> ids(std::size_t length) {
    const std::string alphabet = "/.%2F5Ea\0"s;
    std::vector<std::string> all{""};
    for (std::size_t begin = 0; length != 0; --length) {
        const std::size_t end = all.size();
        for (; begin != end; ++begin) {
            for (const char c : alphabet) {
                all.push_back(all[begin] + c);
            }
        }
    }
    all.erase(all.begin());
    return all;
}

/// Whether one lock's keys are among those that another one waits for, or owns.
bool is_within(const std::string& name, const std::string& other) {
    return name.size() > other.size() && name.compare(0, other.size(), other) == 0 &&
           (name[other.size()] == '/' || name[other.size()] == '.');
}

} // namespace

TEST_CASE("a lock of a prefix is named as its id, but for what would nest", "[lock_name]") {
    CHECK(lock_name("orders", "42") == "orders/42");
    CHECK(lock_name("shop/orders", "42") == "shop/orders/42");
    CHECK(lock_name("jobs", "77/x") == "jobs/77%2Fx");
    CHECK(lock_name("jobs", "1.5") == "jobs/1%2E5");
    CHECK(lock_name("jobs", "100%") == "jobs/100%25");
    CHECK(lock_name("jobs", "/./") == "jobs/%2F%2E%2F");
    CHECK(lock_name("jobs", "\0\xff"s) == "jobs/\0\xff"s);
}

TEST_CASE("different ids have different names, and none is within another", "[lock_name]") {
    std::vector<std::string> names;
    std::set<std::string> once;
    for (const std::string& id : ids(4)) {
        const std::string name = lock_name("a", id);
        REQUIRE(once.insert(name).second);
        REQUIRE(name.compare(0, 2, "a/") == 0);
        // No lock of that prefix can be within another, as none has more of either.
        REQUIRE(name.find_first_of("/.", 2) == std::string::npos);
    }
    for (const std::string& id : ids(2)) {
        names.push_back(lock_name("a", id));
    }
    for (const std::string& one : names) {
        for (const std::string& other : names) {
            REQUIRE_FALSE(is_within(one, other));
        }
    }
}

TEST_CASE("different prefixes have different names, whatever the ids", "[lock_name]") {
    std::set<std::string> once;
    for (const std::string_view prefix : {"a", "a/a", "a.a", "a/%2F", "a/b", "b"}) {
        for (const std::string& id : ids(2)) {
            REQUIRE(once.insert(lock_name(prefix, id)).second);
        }
    }
}

TEST_CASE("a prefix or an id that is likely to be a mistake is refused", "[lock_name]") {
    REQUIRE_THROWS_WITH(lock_name("", "42"), "prefix: is empty");
    REQUIRE_THROWS_WITH(lock_name("orders/", "42"), support::contains("ends with a slash"));
    REQUIRE_THROWS_WITH(lock_name("orders", ""), "id: is empty");
}
