// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/group.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using coetcd::detail::logic::group;
using form = group::form;

namespace {

/// A transaction with so many conditions and operations.
txn sized(std::size_t compares, std::size_t operations) {
    txn t;
    for (std::size_t i = 0; i != compares; ++i) {
        t.compares.push_back(compare::version("k") == 0);
    }
    for (std::size_t i = 0; i != operations; ++i) {
        t.success.push_back(op::range("k"));
    }
    t.failure.push_back(op::range("k"));
    return t;
}

/// How many of this kind fit into one request.
std::size_t room(const txn& what, form how) {
    group g;
    while (g.add(what, {}, how)) {
    }
    return g.size();
}

/// Whether transactions that put into the queues of these names share a request. Without a name:
/// one that puts nothing.
bool share(const std::vector<std::string>& names) {
    const txn t = sized(1, 1);
    group g;
    for (const std::string& name : names) {
        const std::vector<std::string> puts(name.empty() ? 0 : 1, name);
        if (!g.add(t, puts, form::flat)) {
            return false;
        }
    }
    return true;
}

range_response read(std::string key) {
    range_response r;
    r.kvs.emplace_back();
    r.kvs.back().key = std::move(key);
    return r;
}

txn_response answer(bool succeeded, std::vector<op_response> responses = {}) {
    txn_response r;
    r.succeeded = succeeded;
    r.responses = std::move(responses);
    return r;
}

/// That of a whole request: it alone has a header.
txn_response whole(bool succeeded, std::vector<op_response> responses = {}) {
    txn_response r = answer(succeeded, std::move(responses));
    r.header.revision = 50;
    r.header.raft_term = 2;
    return r;
}

std::vector<std::string> keys_read(const txn_response& r) {
    std::vector<std::string> out;
    for (const op_response& one : r.responses) {
        out.push_back(one.range().kvs.front().key);
    }
    return out;
}

bool refused(const std::function<void()>& read) {
    try {
        read();
        return false;
    } catch (const error& e) {
        return e.code() == errc::protocol_error;
    }
}

const txn a = txn().when(compare::version("a") == 0).then(op::range("a")).otherwise(op::range("x"));
const txn b = txn()
                  .when(compare::version("b") == 1, compare::version("c") == 0)
                  .then(op::put("b", "1"), op::erase("c"))
                  .otherwise(op::range("y"));
const char* const alone_a =
    R"({"compare":[{"key":"YQ=="}],"success":[{"request_range":{"key":"YQ=="}}],)"
    R"("failure":[{"request_range":{"key":"eA=="}}]})";
const char* const nested_a =
    R"({"request_txn":{"compare":[{"key":"YQ=="}],"success":[{"request_range":{"key":"YQ=="}}],)"
    R"("failure":[{"request_range":{"key":"eA=="}}]}})";
const char* const nested_b =
    R"({"request_txn":{"compare":[{"key":"Yg==","version":1},{"key":"Yw=="}],)"
    R"("success":[{"request_put":{"key":"Yg==","value":"MQ=="}},)"
    R"({"request_delete_range":{"key":"Yw=="}}],"failure":[{"request_range":{"key":"eQ=="}}]}})";

/// A request of `a` and `b`.
std::string body(form how_a, form how_b) {
    group g;
    REQUIRE(g.add(a, {}, how_a));
    REQUIRE(g.add(b, {}, how_b));
    return g.body();
}

} // namespace

TEST_CASE("one that is to be alone is the only one of its request", "[logic][group]") {
    const txn t = sized(1, 1);
    for (const form other : {form::alone, form::flat, form::nested}) {
        group first;
        CHECK(first.add(t, {}, form::alone));
        CHECK_FALSE(first.add(t, {}, other));
        CHECK(first.size() == 1);
        group last;
        CHECK(last.add(t, {}, other));
        CHECK_FALSE(last.add(t, {}, form::alone));
        CHECK(last.size() == 1);
    }
}

TEST_CASE("no two transactions of a request put into one queue", "[logic][group]") {
    struct {
        std::vector<std::string> names;
        bool share;
    } const rows[] = {
        {{"a", "b"}, true},
        {{"", ""}, true}, // those that put into none
        {{"a", "", "b", ""}, true},
        {{"/a", ""}, true},
        {{"a", "a"}, false},
        {{"a", "b", "a"}, false},
        // The keys of `a/b` lie in the queue of `a`.
        {{"a", "a/b"}, false},
        {{"a/b", "a"}, false},
        {{"a", "a/b/c"}, false},
        {{"a/b/c", "a"}, false},
        {{"a/b/c", "a/b"}, false},
        {{"a/b", "a/c"}, true},
        {{"a/b", "a/c", "a"}, false},
        {{"a", "ab"}, true},
        {{"a", "ab/a"}, true},
        {{"a/b", "a/bc"}, true},
        {{"a", "b/a"}, true},
        {{"a", "a/"}, false},
        {{"a/", "a"}, false},
        {{"a/", "a/b"}, true}, // "a//..." and "a/b/..."
        {{"a/", "a//b"}, false},
        {{"/", "/a"}, true},
        {{"/", "//a"}, false},
        {{"/a", "a"}, true},
    };
    for (const auto& row : rows) {
        CAPTURE(row.names);
        CHECK(share(row.names) == row.share);
    }
}

TEST_CASE("a request has 60 transactions at the most", "[logic][group]") {
    CHECK(room(sized(1, 1), form::flat) == 60);
    CHECK(room(sized(1, 1), form::nested) == 60);
    CHECK(room(sized(0, 0), form::flat) == 60);
}

TEST_CASE("a request keeps below what etcd takes", "[logic][group]") {
    CHECK(room(sized(3, 1), form::flat) == 40);
    CHECK(room(sized(1, 3), form::flat) == 40);
    CHECK(room(sized(61, 0), form::flat) == 1);
    CHECK(room(sized(60, 0), form::flat) == 2);
    // Each is one operation, and the longest list within one counts besides.
    CHECK(room(sized(70, 1), form::nested) == 50);
    CHECK(room(sized(1, 70), form::nested) == 50);
    CHECK(room(sized(119, 0), form::nested) == 1);
    CHECK(room(sized(118, 0), form::nested) == 2);
    txn otherwise = sized(1, 1);
    otherwise.failure.assign(70, op::range("k"));
    CHECK(room(otherwise, form::nested) == 50);
    CHECK(room(otherwise, form::flat) == 60);
    // whatever its own size
    CHECK(room(sized(200, 0), form::flat) == 1);
    CHECK(room(sized(200, 0), form::nested) == 1);

    const txn flat = sized(1, 50);
    const txn nested = sized(1, 20);
    const txn small = sized(0, 1);
    group g; // 50, then 50 + 1 + 20, ...
    CHECK(g.add(flat, {}, form::flat));
    CHECK(g.add(nested, {}, form::nested));
    CHECK_FALSE(g.add(flat, {}, form::flat));
    for (int i = 0; i != 49; ++i) {
        CHECK(g.add(small, {}, form::flat)); // what did not fit takes no room
    }
    CHECK_FALSE(g.add(small, {}, form::flat));
    CHECK_FALSE(g.add(small, {}, form::nested));
    CHECK(g.add(sized(1, 0), {}, form::flat));
}

TEST_CASE("a request has 256 KiB at the most, or one transaction", "[logic][group]") {
    const std::size_t kib = 1024;
    const txn large = txn().then(op::put("k", std::string(300 * kib, 'v')));
    const txn half = txn().then(op::put("k", std::string(95 * kib, 'v'))); // a third more, as JSON
    const txn key = txn().when(compare::version(std::string(95 * kib, 'k')) == 0);
    const txn got = txn().then(op::range(std::string(95 * kib, 'k')));
    const txn erased = txn().then(op::erase({"k", std::string(95 * kib, 'k')}));
    CHECK(room(large, form::flat) == 1);
    CHECK(room(large, form::nested) == 1);
    const txn same =
        txn().when(compare::value("k") == std::string(95 * kib, 'v')).then(op::range("k"));
    const txn within = txn().then(op::nested(half));
    const txn otherwise =
        txn().then(op::nested(txn().otherwise(op::put("k", std::string(95 * kib, 'v')))));
    for (const txn& t : {half, key, got, erased, same, within, otherwise}) {
        CHECK(room(t, form::flat) == 2);
        CHECK(room(t, form::nested) == 2);
    }
    const txn more = txn().then(op::put("k", std::string(110 * kib, 'v')));
    CHECK(room(more, form::flat) == 1);
    // What is not sent does not count.
    txn small = sized(1, 1);
    small.failure.push_back(op::put("k", std::string(95 * kib, 'v')));
    CHECK(room(small, form::flat) == 60);
    CHECK(room(small, form::nested) == 2);
}

TEST_CASE("what puts under several names shares a request with nothing under any of them",
          "[logic][group]") {
    const txn t = sized(1, 1);
    const std::vector<std::string> several{"a", "m/x", "z"};
    for (const char* name : {"a", "m", "m/x", "m/x/y", "z"}) {
        CAPTURE(name);
        group after;
        CHECK(after.add(t, several, form::flat));
        CHECK_FALSE(after.add(t, {name}, form::nested));
        CHECK(after.add(t, {"m/y", "n"}, form::flat)); // what did not fit has put nothing there
        group before;
        CHECK(before.add(t, {name}, form::flat));
        CHECK_FALSE(before.add(t, several, form::nested));
    }
    // Its own names may lie in one another's queues: it is one transaction.
    group own;
    CHECK(own.add(t, {"a", "a/b"}, form::flat));
    CHECK_FALSE(own.add(t, {"a/b/c"}, form::flat));
    CHECK(own.add(t, {"b"}, form::flat));
}

TEST_CASE("what has no place in a request leaves no trace in it", "[logic][group]") {
    const txn t = sized(1, 1);
    const txn large = sized(1, 119);
    group g;
    CHECK(g.add(t, {"a"}, form::flat));
    CHECK(g.add(t, {"b"}, form::flat));
    CHECK_FALSE(g.add(large, {"c"}, form::flat));
    CHECK_FALSE(g.add(t, {"a"}, form::flat));
    CHECK(g.size() == 2);
    CHECK(g.add(t, {"c"}, form::flat));
    CHECK(g.size() == 3);
}

TEST_CASE("a request is written with each transaction in its form", "[logic][group]") {
    group alone;
    REQUIRE(alone.add(a, {}, form::alone));
    CHECK(alone.body() == alone_a);
    // one that is asked no more than whether its conditions hold
    group one;
    REQUIRE(one.add(a, {}, form::flat));
    CHECK(one.body() ==
          R"({"compare":[{"key":"YQ=="}],"success":[{"request_range":{"key":"YQ=="}}]})");

    CHECK(body(form::flat, form::flat) ==
          R"({"compare":[{"key":"YQ=="},{"key":"Yg==","version":1},{"key":"Yw=="}],)"
          R"("success":[{"request_range":{"key":"YQ=="}},)"
          R"({"request_put":{"key":"Yg==","value":"MQ=="}},)"
          R"({"request_delete_range":{"key":"Yw=="}}]})");
    CHECK(body(form::nested, form::nested) ==
          R"({"success":[)" + std::string(nested_a) + "," + nested_b + "]}");
    CHECK(body(form::flat, form::nested) ==
          R"({"compare":[{"key":"YQ=="}],"success":[{"request_range":{"key":"YQ=="}},)" +
              std::string(nested_b) + "]}");
    CHECK(body(form::nested, form::flat) ==
          R"({"compare":[{"key":"Yg==","version":1},{"key":"Yw=="}],"success":[)" +
              std::string(nested_a) +
              R"(,{"request_put":{"key":"Yg==","value":"MQ=="}},)"
              R"({"request_delete_range":{"key":"Yw=="}}]})");
}

TEST_CASE("the answer to one alone is its own", "[logic][group]") {
    group g;
    REQUIRE(g.add(a, {}, form::alone));
    for (const bool succeeded : {true, false}) {
        const auto parts = g.split(whole(succeeded, {read("1")}));
        REQUIRE(parts);
        REQUIRE(parts->size() == 1);
        CHECK(parts->front().succeeded == succeeded);
        CHECK(keys_read(parts->front()) == std::vector<std::string>{"1"});
        CHECK(parts->front().header.revision == 50);
    }
}

TEST_CASE("an answer is split into those of its transactions", "[logic][group]") {
    const txn two = sized(1, 2);
    const txn none = sized(1, 0);
    group g;
    REQUIRE(g.add(two, {}, form::flat));
    REQUIRE(g.add(two, {}, form::nested));
    REQUIRE(g.add(none, {}, form::flat));
    REQUIRE(g.add(two, {}, form::nested));
    REQUIRE(g.add(a, {}, form::flat));
    const auto parts = g.split(whole(true,
                                     {read("1"),
                                      read("2"),
                                      answer(true, {read("3"), read("4")}),
                                      answer(false, {read("6")}),
                                      read("5")}));
    REQUIRE(parts);
    REQUIRE(parts->size() == 5);
    const bool succeeded[] = {true, true, true, false, true};
    const std::vector<std::string> keys[] = {{"1", "2"}, {"3", "4"}, {}, {"6"}, {"5"}};
    for (std::size_t i = 0; i != parts->size(); ++i) {
        CAPTURE(i);
        const txn_response& part = (*parts)[i];
        CHECK(part.succeeded == succeeded[i]);
        CHECK(keys_read(part) == keys[i]);
        CHECK(part.header.revision == 50); // a nested one has none of its own
        CHECK(part.header.raft_term == 2);
    }
}

TEST_CASE("a condition that does not hold refuses all", "[logic][group]") {
    group g;
    REQUIRE(g.add(a, {}, form::flat));
    REQUIRE(g.add(a, {}, form::nested));
    CHECK_FALSE(g.split(whole(false)));
    group one;
    REQUIRE(one.add(a, {}, form::flat));
    CHECK_FALSE(one.split(whole(false)));
}

TEST_CASE("an answer with fewer parts than were asked for, or others, is none", "[logic][group]") {
    const txn two = sized(1, 2);
    group g;
    REQUIRE(g.add(two, {}, form::flat));
    REQUIRE(g.add(a, {}, form::nested));
    const op_response one = read("1");
    const op_response inner = answer(true, {read("1")});
    const std::vector<op_response> bad[] = {
        {},
        {one},
        {one, one},
        {one, inner},
        {one, one, one},
        {one, one, inner, one},
        {one, one, inner, inner},
        {inner, one, one},
    };
    for (const auto& responses : bad) {
        CHECK(refused([&] { (void)g.split(whole(true, responses)); }));
    }
    CHECK(g.split(whole(true, {one, one, inner})));

    // Of one alone, or nested, by the list that was done.
    const op_response put = put_response();
    group alone;
    REQUIRE(alone.add(b, {}, form::alone));
    CHECK(alone.split(whole(true, {put, erase_response()})));
    CHECK(alone.split(whole(false, {one})));
    CHECK(refused([&] { (void)alone.split(whole(true, {put})); }));
    CHECK(refused([&] { (void)alone.split(whole(true, {put, put})); }));
    CHECK(refused([&] { (void)alone.split(whole(false, {})); }));
    CHECK(refused([&] { (void)alone.split(whole(false, {put})); }));
    CHECK(refused([&] { (void)alone.split(answer(false, {one})); })); // no header to speak of
    group nested;
    REQUIRE(nested.add(b, {}, form::nested));
    CHECK(nested.split(whole(true, {answer(true, {put, erase_response()})})));
    CHECK(nested.split(whole(true, {answer(false, {one})})));
    CHECK(refused([&] { (void)nested.split(whole(true, {answer(true)})); }));
    CHECK(refused([&] { (void)nested.split(whole(true, {answer(true, {put, put})})); }));
    CHECK(refused([&] { (void)nested.split(whole(true, {answer(false)})); }));
    CHECK(refused([&] { (void)nested.split(whole(true, {answer(false, {put})})); }));
}
