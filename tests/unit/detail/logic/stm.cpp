// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/stm.hpp>

#include <algorithm>
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

using strings = std::vector<std::string>;

constexpr isolation levels[] = {isolation::serializable_snapshot,
                                isolation::serializable,
                                isolation::repeatable_reads,
                                isolation::read_committed};

key_value kv(const std::string& key, std::int64_t mod_revision, std::string value = "v") {
    key_value r;
    r.key = key;
    r.value = std::move(value);
    r.mod_revision = mod_revision;
    r.create_revision = mod_revision;
    r.version = 1;
    return r;
}

range_response holding(std::vector<key_value> kvs) {
    range_response r;
    r.kvs = std::move(kvs);
    return r;
}

std::string text(const key_range& r) {
    return r.range_end.empty() ? r.key : r.key + ".." + r.range_end;
}

strings sorted(strings all) {
    std::sort(all.begin(), all.end());
    return all;
}

/// The conditions, as `mod(k)=5`.
strings conditions(const txn& t) {
    strings all;
    for (const compare& c : t.compares) {
        CHECK(c.what == compare::target::mod);
        const bool equal = c.how == compare::result::equal;
        CHECK((equal || c.how == compare::result::less));
        all.push_back(text(c.range) + (equal ? "=" : "<") +
                      std::to_string(std::get<std::int64_t>(c.operand)));
    }
    return sorted(std::move(all));
}

strings reads(const std::vector<op>& ops) {
    strings all;
    for (const op& o : ops) {
        all.push_back(text(std::get<range_request>(o).range));
    }
    return all;
}

strings writes(const txn& t) {
    strings all;
    for (const op& o : t.success) {
        if (const auto* p = std::get_if<put_request>(&o)) {
            all.push_back(p->key + "=" + p->value);
        } else {
            all.push_back("no " + std::get<erase_request>(o).range.key);
        }
    }
    return sorted(std::move(all));
}

txn_response answer(std::int64_t revision, std::vector<op_response> responses) {
    txn_response r;
    r.header.revision = revision;
    r.responses = std::move(responses);
    return r;
}

strings keys(const std::vector<key_value>& kvs) {
    strings all;
    for (const key_value& each : kvs) {
        all.push_back(each.key + "=" + each.value);
    }
    return all;
}

const key_range r_range("r1", "r9");

/// It has read `a`, `b`, which does not exist, and a range; and written `a`, `w`, and a key of the
/// range. `h` is only at hand.
stm_view busy(isolation level) {
    stm_view v(level);
    v.learn("a", holding({kv("a", 5)}), 30);
    v.learn("b", holding({}), 31);
    v.learn("h", holding({kv("h", 6)}), 32);
    v.learn(r_range, holding({kv("r2", 7), kv("r1", 8)}), 33);
    CHECK(v.find("a"));
    CHECK(v.find("b"));
    CHECK(v.find_range(r_range));
    v.put("a", "1", {});
    v.put("w", "2", {});
    v.put("r3", "3", {});
    return v;
}

} // namespace

TEST_CASE("each level compares what it promises", "[logic][stm]") {
    struct {
        isolation level;
        strings expected;
    } const rows[] = {
        {isolation::serializable_snapshot, {"a=5", "b=0", "r1..r9<31", "r1=8", "r2=7", "w<31"}},
        {isolation::serializable, {"a=5", "b=0", "r1..r9<31", "r1=8", "r2=7"}},
        {isolation::repeatable_reads, {"a=5", "b=0", "r1..r9<34", "r1=8", "r2=7"}},
        {isolation::read_committed, {}},
    };
    for (const auto& row : rows) {
        CAPTURE(to_string(row.level));
        const stm_view v = busy(row.level);
        const txn t = v.commit();
        CHECK(conditions(t) == row.expected);
        CHECK(writes(t) == strings{"a=1", "r3=3", "w=2"});
        const bool asks = row.level != isolation::read_committed;
        CHECK(reads(t.failure) == (asks ? strings{"a", "b", "r1..r9"} : strings()));
        CHECK(v.needs_commit());
    }
}

TEST_CASE("an empty range is compared, too", "[logic][stm]") {
    stm_view v(isolation::serializable);
    v.learn(r_range, holding({}), 30);
    CHECK(v.find_range(r_range)->empty());
    v.put("w", "1", {});
    CHECK(conditions(v.commit()) == strings{"r1..r9<31"});
}

TEST_CASE("what is written without anything read is compared with nothing", "[logic][stm]") {
    for (const isolation level : levels) {
        stm_view v(level);
        v.learn("h", holding({kv("h", 6)}), 30); // at hand
        v.put("w", "1", {});
        v.erase("x");
        const txn t = v.commit();
        CHECK(t.compares.empty());
        CHECK(writes(t) == strings{"no x", "w=1"});
    }
}

TEST_CASE("a key that is erased without being read may not have changed", "[logic][stm]") {
    stm_view v(isolation::serializable_snapshot);
    v.learn("a", holding({kv("a", 5)}), 30);
    CHECK(v.find("a"));
    v.erase("w");
    CHECK(conditions(v.commit()) == strings{"a=5", "w<31"});
}

TEST_CASE("the first answer pins the others at the two upper levels", "[logic][stm]") {
    for (const isolation level : levels) {
        CAPTURE(to_string(level));
        stm_view v(level);
        const bool pins =
            level == isolation::serializable_snapshot || level == isolation::serializable;
        CHECK(v.pins() == pins);
        CHECK(v.read_at() == 0);
        v.learn("a", holding({}), 30);
        CHECK(v.read_at() == (pins ? 30 : 0));
        v.learn("b", holding({}), 40);
        CHECK(v.read_at() == (pins ? 30 : 0));
    }
}

TEST_CASE("what only reads needs no commit, unless its reads are of different times",
          "[logic][stm]") {
    for (const isolation level : levels) {
        CAPTURE(to_string(level));
        stm_view v(level);
        CHECK_FALSE(v.needs_commit());
        v.learn("a", holding({}), 30);
        v.learn("b", holding({}), 40);
        CHECK(v.find("a"));
        CHECK_FALSE(v.needs_commit());
        CHECK(v.find("b"));
        CHECK(v.needs_commit() == (level == isolation::repeatable_reads));
        v.erase("w");
        CHECK(v.needs_commit());
    }
}

TEST_CASE("what is read is what is in etcd; a range shows what was written", "[logic][stm]") {
    stm_view v;
    CHECK_FALSE(v.find("a"));
    CHECK_FALSE(v.find_range(r_range));
    v.learn("a", holding({kv("a", 5, "old")}), 30);
    v.learn(r_range, holding({kv("r4", 8, "4"), kv("r2", 7, "2"), kv("r3", 7, "3")}), 30);
    CHECK(keys(*v.find_range(r_range)) == strings{"r2=2", "r3=3", "r4=4"});
    v.put("a", "new", {});
    v.put("r3", "33", {});
    v.put("r1", "11", {});
    v.erase("r2");
    v.put("r9", "outside", {});
    v.erase("r8"); // which is not there
    CHECK(v.find("a")->kv->value == "old");
    REQUIRE(v.own("a"));
    CHECK(*v.own("a")->value == "new");
    CHECK_FALSE(v.own("r2")->value);
    CHECK_FALSE(v.own("b"));
    CHECK(keys(*v.find_range(r_range)) == strings{"r1=11", "r3=33", "r4=4"});
    CHECK(v.find("r2")->kv); // as it is in etcd
}

TEST_CASE("the last write of a key counts", "[logic][stm]") {
    stm_view v;
    v.put("a", "1", {});
    v.put("a", "2", {});
    v.put("b", "1", {});
    v.erase("b");
    v.erase("c");
    put_options leased;
    leased.lease = 7;
    v.put("c", "3", leased);
    const txn t = v.commit();
    CHECK(writes(t) == strings{"a=2", "c=3", "no b"});
    CHECK(std::get<put_request>(t.success[2]).options.lease == 7);
}

TEST_CASE("a key of a range that was read is known", "[logic][stm]") {
    stm_view v(isolation::serializable);
    v.learn(r_range, holding({kv("r2", 7)}), 30);
    SECTION("the range covers it") {
        CHECK(v.find_range(r_range));
        CHECK(v.find("r2")->kv->mod_revision == 7);
        CHECK(v.find("r3"));
        CHECK_FALSE(v.find("r3")->kv);
        CHECK_FALSE(v.find("r9"));
        CHECK(conditions(v.commit()) == strings{"r1..r9<31", "r2=7"});
        CHECK(reads(v.commit().failure) == strings{"r1..r9"});
    }
    SECTION("a range that is only at hand does not become a condition") {
        CHECK(v.find("r2")->kv);
        CHECK_FALSE(v.find("r3")->kv);
        CHECK(conditions(v.commit()) == strings{"r2=7", "r3=0"});
    }
}

TEST_CASE("a range of one key is that key", "[logic][stm]") {
    stm_view v(isolation::serializable);
    CHECK_FALSE(v.find_range(key_range("a")));
    v.learn("a", holding({kv("a", 5)}), 30);
    CHECK(keys(*v.find_range(key_range("a"))) == strings{"a=v"});
    CHECK(conditions(v.commit()) == strings{"a=5"});
    v.erase("a");
    CHECK(v.find_range(key_range("a"))->empty());
}

TEST_CASE("a refusal tells the next run what it has read", "[logic][stm]") {
    for (const isolation level :
         {isolation::serializable_snapshot, isolation::serializable, isolation::repeatable_reads}) {
        CAPTURE(to_string(level));
        stm_view next = busy(level).after(answer(
            40, {holding({kv("a", 35)}), holding({}), holding({kv("r1", 8), kv("r3", 36)})}));
        CHECK_FALSE(next.writes());
        CHECK_FALSE(next.needs_commit());
        CHECK(next.read_at() == (next.pins() ? 40 : 0));
        CHECK(next.commit().compares.empty()); // nothing was read yet
        CHECK(next.find("a")->kv->mod_revision == 35);
        CHECK(keys(*next.find_range(r_range)) == strings{"r1=v", "r3=v"});
        CHECK_FALSE(next.find("h")); // the body did not want it
        next.put("w", "2", {});
        strings expected{"a=35", "r1..r9<41", "r1=8", "r3=36"};
        if (level == isolation::serializable_snapshot) {
            expected.push_back("w<41");
        }
        CHECK(conditions(next.commit()) == expected);
    }
    const stm_view next = busy(isolation::read_committed).after(answer(40, {}));
    CHECK_FALSE(next.needs_commit());
}

TEST_CASE("a refusal that lacks what was asked for is not etcd's", "[logic][stm]") {
    const stm_view v = busy(isolation::serializable);
    CHECK_THROWS_AS(v.after(answer(40, {})), error);
    CHECK_THROWS_AS(v.after(answer(40, {put_response(), holding({}), holding({})})), error);
}

TEST_CASE("no more goes into a transaction than etcd accepts", "[logic][stm]") {
    for (const std::size_t count : {std::size_t{127}, std::size_t{128}, std::size_t{129}}) {
        stm_view puts(isolation::read_committed);
        stm_view reads(isolation::serializable);
        stm_view range(isolation::serializable);
        range_response many;
        for (std::size_t i = 0; i != count; ++i) {
            const std::string key = "k" + std::to_string(i);
            puts.put(key, "v", {});
            reads.learn(key, holding({}), 30);
            CHECK(reads.find(key));
            if (i != 0) {
                many.kvs.push_back(kv(key, 5));
            }
        }
        range.learn(key_range::prefix("k"), many, 30);
        CHECK(range.find_range(key_range::prefix("k")));
        range.put("w", "v", {});
        for (const stm_view* v : {&puts, &reads, &range}) {
            const txn t = v->commit();
            for (const std::size_t besides : {std::size_t{0}, std::size_t{1}}) {
                CAPTURE(count, besides);
                if (count + besides <= 128) {
                    CHECK_NOTHROW(require_fit(t, besides, "stm"));
                } else {
                    CHECK_THROWS_AS(require_fit(t, besides, "stm"), std::invalid_argument);
                }
            }
        }
    }
}

TEST_CASE("each level has its name", "[logic][stm]") {
    CHECK(to_string(isolation::serializable_snapshot) == std::string("serializable_snapshot"));
    CHECK(to_string(isolation::serializable) == std::string("serializable"));
    CHECK(to_string(isolation::repeatable_reads) == std::string("repeatable_reads"));
    CHECK(to_string(isolation::read_committed) == std::string("read_committed"));
    CHECK(to_string(static_cast<isolation>(9)) == std::string("unknown"));
}
