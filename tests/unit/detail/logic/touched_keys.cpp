// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/touched_keys.hpp>

#include <string>

#include "support/catch.hpp"

using coetcd::compare;
using coetcd::key_range;
using coetcd::op;
using coetcd::txn;
using coetcd::detail::logic::touched_keys;

TEST_CASE("none touches what another one of its request may change", "[logic][touched_keys]") {
    const auto put = [](const char* key) { return txn().then(op::put(key, "")); };
    const auto erase = [](key_range keys) { return txn().then(op::erase(std::move(keys))); };
    const auto read = [](key_range keys) { return txn().then(op::range(std::move(keys))); };
    const auto put_if = [](key_range keys, const char* key) {
        return txn().when(compare::version(std::move(keys)) == 0).then(op::put(key, ""));
    };
    const auto else_put = [](const char* key) { return txn().otherwise(op::put(key, "")); };
    const auto nested = [](const char* key) {
        return txn().otherwise(op::nested(txn().otherwise(op::put(key, ""))));
    };
    const key_range range("b", "d");
    struct {
        txn first;
        txn second;
        bool together;
    } const rows[] = {
        {put("a"), put("b"), true},
        {put("a"), put("a"), false},
        {put("a"), else_put("a"), false},
        {nested("a"), put("a"), false},
        {nested("a"), nested("b"), true},
        {erase("a"), erase("b"), true},
        {erase("a"), erase("a"), false}, // each tells how many it has erased
        {erase(range), erase("c"), false},
        {erase("c"), erase(range), false},
        {erase(range), erase("d"), true},
        {erase(range), erase({"c", "e"}), false},
        {erase(range), erase({"d", "e"}), true},
        {erase(range), erase(key_range::from("c")), false},
        {read("a"), read("a"), true},
        {read(range), read("c"), true},
        {erase("a"), read("a"), false}, // at the revision of the answer it is gone
        {read("a"), erase("a"), false},
        {read(range), erase("c"), false},
        {erase("c"), read(range), false},
        {put("a"), put_if("a", "b"), false}, // it would be carried out as if "a" were not there
        {put_if("a", "b"), put("a"), false}, // its answer tells of the revision that puts "a"
        {put_if(range, "a"), put("c"), false},
        {put("c"), put_if(range, "a"), false},
        {put_if("a", "b"), put_if("a", "c"), true},
        {put_if("a", "b"), put_if("b", "a"), false},
        {put("a"), erase("b"), false}, // without space etcd refuses the first one only
        {erase("b"), put("a"), false},
        {put("a"), read("b"), false},
    };
    int row = 0;
    for (const auto& r : rows) {
        CAPTURE(++row);
        touched_keys f;
        CHECK(f.add(r.first));
        CHECK(f.add(r.second) == r.together);
    }
}

TEST_CASE("one that does not fit leaves no trace", "[logic][touched_keys]") {
    const txn first = txn().then(op::put("a", ""));
    const txn second = txn().then(op::put("a", ""), op::put("b", ""));
    const txn third = txn().then(op::put("b", ""));
    touched_keys f;
    CHECK(f.add(first));
    CHECK_FALSE(f.add(second));
    CHECK(f.add(third));
}

TEST_CASE("a transaction may touch twice what it likes", "[logic][touched_keys]") {
    const txn one = txn()
                        .when(compare::version("a") == 0)
                        .then(op::put("a", ""), op::range("a"))
                        .otherwise(op::erase("a"));
    touched_keys f;
    CHECK(f.add(one));
}
