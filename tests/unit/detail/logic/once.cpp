// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/once.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using fate = written::how;

namespace {

constexpr lease_id lease = 0x1f;

marker used(std::string value, std::uint64_t number) {
    marker m = marker_table().fresh("n", lease, 0xab);
    m.value = std::move(value);
    m.number = number;
    return m;
}

/// A read of the marker: of one that does not exist if `value` is empty.
range_response read(const marker& m, const std::string& value, std::int64_t mod_revision = 40) {
    range_response r;
    if (!value.empty()) {
        key_value& kv = r.kvs.emplace_back();
        kv.key = m.key;
        kv.value = value;
        kv.mod_revision = mod_revision;
    }
    return r;
}

txn_response refusal(const marker& m, const std::string& value) {
    txn_response r;
    r.header.revision = 50;
    r.responses.emplace_back(read(m, value));
    return r;
}

txn_response success(std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = true;
    r.header.revision = 50;
    r.responses = std::move(responses);
    return r;
}

} // namespace

TEST_CASE("a marker has a key that no lock has, and no other marker", "[logic][once]") {
    marker_table all;
    std::set<std::string> keys;
    for (int i = 0; i != 20; ++i) {
        const marker m = all.fresh("n", lease, 0xab);
        CHECK(m.key.starts_with("n.1f-ab-w"));
        CHECK(m.lease == lease);
        CHECK(m.value.empty());
        CHECK(keys.insert(m.key).second);
    }
    CHECK(all.fresh("n", lease, 0xab).key == "n.1f-ab-w14");
    // A slot's epoch key is n.<lease>-<nonce>-<hex>.
    CHECK(exclusive_keys("n", lease, 0xab, 0, 0).epoch_key == "n.1f-ab-0");
}

TEST_CASE("the marker of an adopted lease is not taken for one's own", "[logic][once]") {
    marker_table earlier;
    marker_table heir;
    CHECK(earlier.take("n", lease, 0xab).key != heir.take("n", lease, 0xac).key);
}

TEST_CASE("a marker is used again for the same name, the last one first", "[logic][once]") {
    marker_table all;
    marker a = all.take("n", lease, 1);
    marker b = all.take("n", lease, 1);
    marker other = all.take("o", lease, 1);
    CHECK(a.key != b.key);
    a.value = "1";
    b.value = "2";
    const std::string key_a = a.key;
    const std::string key_b = b.key;
    CHECK_FALSE(all.give_back(std::move(a)));
    CHECK_FALSE(all.give_back(std::move(b)));
    CHECK_FALSE(all.give_back(std::move(other)));
    const marker again = all.take("n", lease, 1);
    CHECK(again.key == key_b);
    CHECK(again.value == "2");
    CHECK(all.take("n", lease, 1).key == key_a);
    const std::string third = all.take("n", lease, 1).key;
    CHECK(third != key_a);
    CHECK(third != key_b);
}

TEST_CASE("markers that are not in use are erased, the oldest first", "[logic][once]") {
    marker_table all;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i != marker_table::most_idle; ++i) {
        marker m = all.fresh("n" + std::to_string(i), lease, 1);
        m.value = "1";
        m.erasable = i != 1;
        keys.push_back(m.key);
        CHECK_FALSE(all.give_back(std::move(m)));
    }
    const auto one_more = [&](std::string value) {
        marker m = all.fresh("more", lease, 1);
        m.value = std::move(value);
        return all.give_back(std::move(m));
    };
    const std::optional<marker> first = one_more("1");
    REQUIRE(first);
    CHECK(first->key == keys[0]);
    CHECK_FALSE(one_more("1")); // a request may still come that expects it not to exist
    const std::optional<marker> third = one_more("");
    REQUIRE(third);
    CHECK(third->key == keys[2]);
    for (std::size_t i = 3; i != marker_table::most_idle; ++i) {
        REQUIRE(one_more("1"));
    }
    CHECK(one_more("1"));       // the first of those that came later
    CHECK(one_more("1"));       // the second
    CHECK_FALSE(one_more("1")); // the third never existed
}

TEST_CASE("a mark has a number, and perhaps a branch", "[logic][once]") {
    const std::vector<std::pair<std::string, std::uint64_t>> rows = {{"1", 1},
                                                                     {"ff", 255},
                                                                     {"1+", 1},
                                                                     {"ff-", 255},
                                                                     {"", 0},
                                                                     {"+", 0},
                                                                     {"1++", 0},
                                                                     {"1 ", 0},
                                                                     {"x", 0},
                                                                     {"1x", 0},
                                                                     {"10000000000000000", 0}};
    for (const auto& [mark, number] : rows) {
        INFO(mark);
        CHECK(marks::number_of(mark) == number);
    }
    CHECK(marks::of(255) == "ff");
    CHECK(marks::of(255, marks::then) == "ff+");
    CHECK(marks::number_of(marks::of(77, marks::otherwise)) == 77);
}

TEST_CASE("a write compares the marker as it was, and puts its own number", "[logic][once]") {
    txn own =
        txn().when(compare::version("k") == 3).then(op::put("k", "v")).otherwise(op::range("k"));
    for (const bool first : {true, false}) {
        const marker m = first ? used("", 1) : used("e", 15);
        const txn t = write_once(m, own);
        REQUIRE(t.compares.size() == 2);
        CHECK(t.compares[0].range.key == m.key);
        CHECK(t.compares[0].how == compare::result::equal);
        if (first) {
            CHECK(t.compares[0].what == compare::target::create);
            CHECK(std::get<std::int64_t>(t.compares[0].operand) == 0);
        } else {
            CHECK(t.compares[0].what == compare::target::value);
            CHECK(std::get<std::string>(t.compares[0].operand) == "e");
        }
        CHECK(t.compares[1].range.key == "k");
        REQUIRE(t.success.size() == 2);
        CHECK(std::get<put_request>(t.success[0]).key == "k");
        const auto& mark = std::get<put_request>(t.success[1]);
        CHECK(mark.key == m.key);
        CHECK(mark.value == (first ? "1" : "f"));
        CHECK(mark.options.lease == lease);
        REQUIRE(t.failure.size() == 2);
        CHECK(std::get<range_request>(t.failure[0]).range.key == m.key);
        CHECK(std::get<range_request>(t.failure[1]).range.key == "k");
    }
}

TEST_CASE("a transaction that does something either way is marked either way", "[logic][once]") {
    const marker m = used("e+", 15);
    const txn t =
        write_either_once(m, txn().when(compare::version("k") == 3).then(op::put("k", "v")));
    REQUIRE(t.compares.size() == 1);
    CHECK(std::get<std::string>(t.compares[0].operand) == "e+");
    REQUIRE(t.success.size() == 1);
    const txn& inner = std::get<txn>(t.success[0]);
    CHECK(inner.compares.size() == 1);
    REQUIRE(inner.success.size() == 2);
    REQUIRE(inner.failure.size() == 1);
    CHECK(std::get<put_request>(inner.success[1]).value == "f+");
    CHECK(std::get<put_request>(inner.failure[0]).value == "f-");
    CHECK(std::get<put_request>(inner.failure[0]).options.lease == lease);
    REQUIRE(t.failure.size() == 1);
    CHECK(std::get<range_request>(t.failure[0]).range.key == m.key);
}

TEST_CASE("an answer tells whether a write was applied, and by which copy", "[logic][once]") {
    struct {
        std::string before, now;
        fate how;
    } const rows[] = {
        {"", "", fate::refused},      // nothing was written; a condition does not hold
        {"", "2", fate::told},        // an earlier copy of this one
        {"", "2+", fate::told},       // an earlier copy of this one, too
        {"", "1", fate::overtaken},   // one that was given up
        {"1", "1", fate::refused},    // a condition does not hold
        {"1", "2-", fate::told},      // an earlier copy
        {"1", "", fate::vanished},    // the lease has ended, or it was erased
        {"1-", "1", fate::overtaken}, // of something else
        {"1", "rubbish", fate::overtaken},
    };
    for (const auto& row : rows) {
        CAPTURE(row.before, row.now);
        const marker m = used(row.before, 2);
        const written w = after_write(refusal(m, row.now), m);
        CHECK(w.end == row.how);
        CHECK(w.mark == row.now);
        CHECK(w.revision == (row.how == fate::told ? 40 : 0));
    }
}

TEST_CASE("an answer that succeeded tells the mark and the revision", "[logic][once]") {
    const marker m = used("1", 2);
    const written plain = after_write(success({range_response(), put_response()}), m);
    CHECK(plain.end == fate::applied);
    CHECK(plain.mark == "2");
    CHECK(plain.revision == 50);
    for (const bool then : {true, false}) {
        txn_response inner = success({put_response()});
        inner.succeeded = then;
        const written either = after_write(success({inner}), m);
        CHECK(either.end == fate::applied);
        CHECK(either.mark == (then ? "2+" : "2-"));
        CHECK(either.revision == 50);
    }
}

TEST_CASE("an answer without revisions is not etcd's", "[logic][once]") {
    const marker m = used("1", 2);
    txn_response r = success({put_response()});
    r.header.revision = 0;
    CHECK_THROWS_AS(after_write(r, m), error);
    CHECK_THROWS_AS(after_look(read(m, "2", 0), m), error);
    CHECK_THROWS_AS(after_write(txn_response(), m), error);
}

TEST_CASE("what concerns the marker is taken out of the answer", "[logic][once]") {
    const marker m = used("1", 2);
    range_response mine;
    mine.count = 7;
    txn_response plain = without_marker(success({mine, put_response()}));
    REQUIRE(plain.responses.size() == 1);
    CHECK(plain.responses[0].range().count == 7);

    txn_response no = refusal(m, "1");
    no.responses.emplace_back(mine);
    no = without_marker(std::move(no));
    REQUIRE(no.responses.size() == 1);
    CHECK(no.responses[0].range().count == 7);
    CHECK(no.header.revision == 50);

    txn_response inner = success({mine, put_response()});
    inner.succeeded = false;
    inner.header.revision = 0;
    const txn_response either = without_marker(success({inner}));
    CHECK_FALSE(either.succeeded);
    CHECK(either.header.revision == 50);
    REQUIRE(either.responses.size() == 1);
    CHECK(either.responses[0].range().count == 7);
}

TEST_CASE("an answer fits a request as deep as that goes", "[logic][once]") {
    const txn inner = txn().then(op::put("k", "v")).otherwise(op::range("k"));
    const txn outer = txn().then(op::nested(inner), op::erase("k"));
    txn_response said = success({put_response()});
    CHECK(fits(outer, success({said, erase_response()})));
    CHECK_FALSE(fits(outer, success({said})));
    CHECK_FALSE(fits(outer, success({erase_response(), said})));
    CHECK_FALSE(fits(outer, success({said, erase_response(), put_response()})));
    said.succeeded = false;
    CHECK_FALSE(fits(outer, success({said, erase_response()})));
    said.responses = {range_response()};
    CHECK(fits(outer, success({said, erase_response()})));
    txn_response refused;
    CHECK(fits(outer, refused));
    refused.responses.emplace_back(put_response());
    CHECK_FALSE(fits(outer, refused));
}
