// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/permit_rule.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using where = standing::where;
using strings = std::vector<std::string>;

namespace {

// Transactions as texts.

std::string text(const key_range& range) {
    return range.range_end.empty() ? range.key : "[" + range.key + "," + range.range_end + ")";
}

std::string text(const compare& c) {
    const bool create = c.what == compare::target::create;
    if ((!create && c.what != compare::target::mod) || c.how != compare::result::equal) {
        throw std::logic_error("a condition of another kind");
    }
    return (create ? "c(" : "m(") + text(c.range) +
           ")=" + std::to_string(std::get<std::int64_t>(c.operand));
}

std::string text(const txn& t);

std::string text(const op& o) {
    if (const auto* p = std::get_if<put_request>(&o)) {
        return "put(" + p->key + "," + p->value + "," + hex(std::uint64_t(p->options.lease)) + ")";
    }
    if (const auto* d = std::get_if<erase_request>(&o)) {
        return "erase(" + text(d->range) + ")";
    }
    if (const auto* inner = std::get_if<txn>(&o)) {
        return "{" + text(*inner) + "}";
    }
    const auto& r = std::get<range_request>(o);
    if (r.options.serializable || r.options.revision != 0) {
        throw std::logic_error("a read of another kind");
    }
    if (r.options.count_only) {
        return "count(" + text(r.range) + ")";
    }
    if (r.options.limit == 16 && r.options.order == sort_order::descend && !r.options.keys_only) {
        const std::int64_t last = r.options.max_create_revision;
        return "newest(" + text(r.range) + (last == 0 ? "" : " to " + std::to_string(last)) + ")";
    }
    if (!r.options.keys_only) {
        return "value(" + text(r.range) + ")";
    }
    return "get(" + text(r.range) + ")";
}

std::string text(const std::vector<op>& all) {
    std::string out;
    for (const op& o : all) {
        out += " " + text(o);
    }
    return out;
}

std::string text(const txn& t) {
    std::string out;
    for (const compare& c : t.compares) {
        out += text(c) + " ";
    }
    out += "?" + text(t.success) + " :" + text(t.failure);
    // what is asked of all bits, and of the limit, in one word
    std::vector<op> asked;
    permits::ask_room("s", asked);
    const std::string room = text(asked);
    const std::size_t at = out.find(room);
    return at == std::string::npos ? out : out.replace(at, room.size(), " room");
}

// Answers.

key_value kv(std::string key, std::int64_t create_revision, std::int64_t mod_revision = 1) {
    key_value out;
    out.key = std::move(key);
    out.create_revision = create_revision;
    out.mod_revision = mod_revision;
    return out;
}

op_response found(std::vector<key_value> kvs) {
    range_response r;
    r.kvs = std::move(kvs);
    return r;
}
const op_response none = found({});
const op_response put = put_response();
const op_response erased = erase_response();
const op_response nested = txn_response();

using responses = std::vector<op_response>;

/// @param limit Of none if it is not stored.
/// @param changed When the limit was.
responses tells(std::int64_t used, std::optional<int> limit, std::int64_t changed = 30) {
    responses all;
    for (std::size_t bit = 0; bit != permit_bits; ++bit) {
        range_response r;
        r.count = bit == 0 ? used : 0;
        all.push_back(r);
    }
    all.push_back(none);
    if (limit) {
        key_value stored = kv("s.limit", 20, changed);
        stored.value = std::to_string(*limit);
        all.back() = found({stored});
    }
    return all;
}

/// The newest first, from 30 on.
std::vector<key_value> waiters(int number, int weight) {
    std::vector<key_value> all;
    for (int i = 0; i != number; ++i) {
        all.push_back(kv("s/wait/" + std::to_string(i), 30 - i));
        all.back().value = std::to_string(weight) + " who";
    }
    return all;
}

responses operator+(responses a, const responses& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

txn_response answer(bool succeeded, std::int64_t revision, responses all) {
    txn_response r;
    r.succeeded = succeeded;
    r.header.revision = revision;
    r.responses = std::move(all);
    return r;
}
txn_response yes(std::int64_t revision, responses all) {
    return answer(true, revision, std::move(all));
}
txn_response no(responses all) {
    return answer(false, 90, std::move(all));
}

const std::string w = "s/wait/1a-3-2";
const std::string h0 = "s/hold/00/1a-3-2";
const std::string h2 = "s/hold/02/1a-3-2";
const std::string e = "s.1a-3-2";

/// One attempt, for a permit of weight 5: two keys.
struct attempt {
    explicit attempt(std::int64_t weight = 5, std::optional<std::int64_t> initial = 6)
        : keys{0x1a, {permit_keys("s", 0x1a, 3, 2, 7)}}
        , rule("s", weight, initial) {
        rule.prepare(keys);
    }
    strings own() const { return keys.by_name.front().keys; }
    strings others() const {
        strings out;
        for (const held_life& l : keys.by_name.front().later) {
            CHECK(l.create_revision == 0); // not counted on
            out.push_back(l.key);
        }
        return out;
    }
    /// In the queue, since 40, where no key is before it and there is no room.
    attempt& waits() {
        REQUIRE(rule.after_enter(yes(40, responses{none, put} + tells(4, 6)), keys).at ==
                where::no_room);
        return *this;
    }
    /// With a permit, since 41, that does not fit.
    attempt& is_over() {
        REQUIRE(rule.after_take(yes(41, responses{nested, put, put} + tells(9, 6)), keys).at ==
                where::too_many);
        return *this;
    }
    attempt_keys keys;
    permit_rule rule;
};

bool refused(const std::function<void()>& read) {
    try {
        read();
        return false;
    } catch (const error& failure) {
        return failure.code() == errc::protocol_error;
    }
}

} // namespace

TEST_CASE("a permit has a key for each bit of its weight", "[logic][permit_rule]") {
    const struct {
        std::int64_t weight;
        strings keys;
    } rows[] = {
        {1, {h0}},
        {4, {h2}},
        {5, {h0, h2}},
        {0x8000, {"s/hold/0f/1a-3-2"}},
    };
    for (const auto& row : rows) {
        attempt a(row.weight);
        CHECK(a.own() == strings{w});
        CHECK(a.others() == row.keys);
    }
    CHECK(attempt(most_permits).others().size() == permit_bits);
}

TEST_CASE("to take is to put a permit where no key waits, and to count it",
          "[logic][permit_rule]") {
    attempt a;
    CHECK(text(a.rule.take(a.keys, "who")) ==
          "m(" + e + ")=7 c([s/wait/,s/wait0))=0 c(" + h0 + ")=0 c(" + h2 +
              ")=0 ? {c(s.limit)=0 ? put(s.limit,6,0) :} put(" + h0 + ",who,1a) put(" + h2 +
              ",who,1a) room : get(" + h0 + ") get(" + h2 + ") get(" + e + ")");
}

TEST_CASE("to enter is to stand in the queue, and to give up what does not fit",
          "[logic][permit_rule]") {
    attempt a;
    CHECK(text(a.rule.enter(a.keys, "who")) == "m(" + e + ")=7 c(" + w + ")=0 c(" + h0 + ")=0 c(" +
                                                   h2 + ")=0 ? newest([s/wait/,s/wait0)) put(" + w +
                                                   ",5 who,1a) room : get(" + w + ") get(" + h0 +
                                                   ") get(" + h2 + ") get(" + e + ")");
    a.is_over();
    CHECK(text(a.rule.enter(a.keys, "who")) ==
          "m(" + e + ")=7 c(" + w + ")=0 c(" + h0 + ")=41 c(" + h2 +
              ")=41 ? newest([s/wait/,s/wait0)) erase(" + h0 + ") erase(" + h2 + ") put(" + w +
              ",5 who,1a) room : get(" + w + ") get(" + h0 + ") get(" + h2 + ") get(" + e + ")");
}

TEST_CASE("what tells where it stands comes after what gives back", "[logic][permit_rule]") {
    attempt a;
    CHECK(a.rule.turn(asking::admit) == 0);
    CHECK(a.rule.turn(asking::enter) == 2);
    CHECK(a.rule.turn(asking::take) == 2);
    a.is_over();
    CHECK(a.rule.turn(asking::enter) == 1); // it tells, and gives back
    CHECK(plain_rule().turn(asking::enter) == 0);
}

TEST_CASE("to confirm goes through etcd's consensus, and counts", "[logic][permit_rule]") {
    attempt a;
    a.waits();
    CHECK(text(a.rule.confirm(a.keys, 40)) == "c(" + w +
                                                  ")=40 ? erase(s.1a-3-void) "
                                                  "newest([s/wait/,s/wait0) to 39) room :");
    attempt b;
    b.is_over();
    CHECK(text(b.rule.confirm(b.keys, 41)) ==
          "c(" + h0 + ")=41 c(" + h2 + ")=41 ? erase(s.1a-3-void) room :");
}

TEST_CASE("to be admitted is to exchange the place for the permit, by the limit that was seen",
          "[logic][permit_rule]") {
    attempt a;
    a.waits();
    const std::string before = "m(" + e + ")=7 c(" + w + ")=40 m(s.limit)=";
    const std::string after = "put(" + h0 + ",who,1a) put(" + h2 + ",who,1a) room : get(" + w +
                              ") get(" + h0 + ") get(" + h2 + ") get(" + e + ")";
    CHECK(text(a.rule.admit(a.keys, 40, "who")) == before + "30 ? erase(" + w + ") " + after);
    // where none is stored it is put
    REQUIRE(a.rule.after_confirm(yes(50, responses{erased, none} + tells(0, {})), a.keys, 40).at ==
            where::room);
    CHECK(text(a.rule.admit(a.keys, 40, "who")) ==
          before + "0 ? erase(" + w + ") put(s.limit,6,0) " + after);
}

TEST_CASE("a look for room reads the place as well", "[logic][permit_rule]") {
    attempt a;
    a.waits();
    CHECK(text(a.rule.look(a.keys, 40)) ==
          "? get(" + w + ") newest([s/wait/,s/wait0) to 39) room :");
    const auto signs = a.rule.signs_of_room();
    REQUIRE(signs.size() == 2);
    CHECK(text(signs[0]) == "[s/hold/,s/wait0)");
    CHECK(text(signs[1]) == "s.limit");

    const auto moved =
        [&](std::vector<key_value> own, std::int64_t used, int limit, std::int64_t changed = 30) {
            const responses first{found(std::move(own)), none};
            return a.rule.has_moved(yes(60, first + tells(used, limit, changed)), a.keys, 40);
        };
    CHECK_FALSE(moved({kv(w, 40)}, 4, 6));
    CHECK(moved({kv(w, 40)}, 2, 6));     // an event was missed
    CHECK(moved({kv(w, 40)}, 4, 6, 31)); // the limit was changed
    CHECK(moved({}, 4, 6));              // our place is gone
    CHECK(moved({kv(w, 42)}, 4, 6));
}

TEST_CASE("what the answer to take means", "[logic][permit_rule]") {
    const struct {
        const char* what;
        txn_response response;
        where at;
        std::int64_t create_revision;
        bool in;
        bool crowded;
    } rows[] = {
        {"it fits",
         yes(41, responses{nested, put, put} + tells(5, 9)),
         where::owner,
         41,
         true,
         false},
        {"just", yes(41, responses{nested, put, put} + tells(9, 9)), where::owner, 41, true, true},
        {"it does not",
         yes(41, responses{nested, put, put} + tells(10, 9)),
         where::too_many,
         41,
         true,
         true},
        {"it never will",
         yes(41, responses{nested, put, put} + tells(5, 4)),
         where::exceeds,
         41,
         true,
         true},
        {"refused, not asked why", no({}), where::taken, 0, false, false},
        {"somebody waits", no({none, none, found({kv(e, 3, 7)})}), where::taken, 0, false, false},
        {"nothing is there", no({none, none, none}), where::taken, 0, false, false},
        {"it was put before",
         no({found({kv(h0, 39)}), found({kv(h2, 39)}), none}),
         where::queued,
         39,
         true,
         false},
        {"another epoch", no({none, none, found({kv(e, 3, 8)})}), where::ended, 0, false, false},
        {"half of it", no({found({kv(h0, 39)}), none, none}), where::gone, 0, false, false},
        {"of two ages",
         no({found({kv(h0, 39)}), found({kv(h2, 40)}), none}),
         where::gone,
         0,
         false,
         false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        attempt a;
        const standing now = a.rule.after_take(row.response, a.keys);
        CHECK(now.at == row.at);
        CHECK(now.create_revision == row.create_revision);
        CHECK(now.crowded == row.crowded);
        CHECK(a.own() == (row.in ? strings{h0, h2} : strings{w}));
        CHECK(a.others() == (row.in ? strings{w} : strings{h0, h2}));
        if (row.at == where::ended) {
            CHECK(now.epochs == std::vector<std::int64_t>{8});
        }
    }
}

TEST_CASE("what the answer to enter means", "[logic][permit_rule]") {
    const op_response ahead = found(waiters(16, 1));
    const struct {
        const char* what;
        bool over; // with a permit that does not fit
        txn_response response;
        where at;
        std::int64_t create_revision;
        bool in;
    } rows[] = {
        {"room", false, yes(50, responses{none, put} + tells(4, 9)), where::room, 50, false},
        {"none", false, yes(50, responses{none, put} + tells(5, 9)), where::no_room, 50, false},
        {"many are before us",
         false,
         yes(50, responses{ahead, put} + tells(0, 99)),
         where::behind,
         50,
         false},
        {"more than have to count",
         false,
         yes(50, responses{found(waiters(11, 1)), put} + tells(0, 6)),
         where::behind,
         50,
         false},
        {"as many as have to count",
         false,
         yes(50, responses{found(waiters(10, 1)), put} + tells(0, 6)),
         where::no_room,
         50,
         false},
        {"room beside one that is before us",
         false,
         yes(50, responses{found(waiters(1, 2)), put} + tells(2, 9)),
         where::room,
         50,
         false},
        {"none, beside it",
         false,
         yes(50, responses{found(waiters(1, 2)), put} + tells(3, 9)),
         where::no_room,
         50,
         false},
        {"one that has no weight",
         false,
         yes(50, responses{found({kv("s/wait/f", 12)}), put} + tells(0, 9)),
         where::no_room,
         50,
         false},
        {"never, even so",
         false,
         yes(50, responses{ahead, put} + tells(0, 4)),
         where::exceeds,
         50,
         false},
        {"never", false, yes(50, responses{none, put} + tells(0, 4)), where::exceeds, 50, false},
        {"instead of a permit",
         true,
         yes(50, responses{none, erased, erased, put} + tells(4, 9)),
         where::room,
         50,
         false},
        {"instead, full",
         true,
         yes(50, responses{none, erased, erased, put} + tells(5, 9)),
         where::no_room,
         50,
         false},
        {"it was put before",
         false,
         no({found({kv(w, 44)}), none, none, none}),
         where::queued,
         44,
         false},
        {"instead, before",
         true,
         no({found({kv(w, 44)}), none, none, none}),
         where::queued,
         44,
         false},
        {"a late take",
         false,
         no({none, found({kv(h0, 43)}), found({kv(h2, 43)}), none}),
         where::queued,
         43,
         true},
        {"another epoch",
         false,
         no({none, none, none, found({kv(e, 3, 8)})}),
         where::ended,
         0,
         false},
        {"another epoch, over",
         true,
         no({none, none, none, found({kv(e, 3, 8)})}),
         where::ended,
         0,
         false},
        {"another epoch only",
         true,
         no({none, found({kv(h0, 41)}), found({kv(h2, 41)}), found({kv(e, 3, 8)})}),
         where::ended,
         41,
         true},
        {"for no reason",
         true,
         no({none, found({kv(h0, 41)}), found({kv(h2, 41)}), none}),
         where::gone,
         0,
         true},
        {"the permit is gone", true, no({none, none, none, none}), where::gone, 0, true},
        {"half of it is", true, no({none, found({kv(h0, 41)}), none, none}), where::gone, 0, true},
        {"nothing is there",
         false,
         no({none, none, none, found({kv(e, 3, 7)})}),
         where::gone,
         0,
         false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        attempt a;
        if (row.over) {
            a.is_over();
        }
        const standing now = a.rule.after_enter(row.response, a.keys);
        CHECK(now.at == row.at);
        CHECK(now.create_revision == row.create_revision);
        CHECK(a.own() == (row.in ? strings{h0, h2} : strings{w}));
        CHECK(a.others() == (row.in ? strings{w} : strings{h0, h2}));
        if (row.at == where::behind) {
            REQUIRE(now.ahead.size() == 1);
            REQUIRE(now.ahead[0].newest.size() == 1);
            // The last of those that may count, when that one's turn has come.
            const bool all = row.response.responses[0].range().kvs.size() == 16;
            CHECK(now.ahead[0].newest[0].key == (all ? "s/wait/15" : "s/wait/10"));
            CHECK(now.ahead[0].newest[0].create_revision == (all ? 15 : 20));
            CHECK_FALSE(now.ahead[0].complete);
        }
        if (row.at == where::no_room) {
            CHECK(now.seen == 50);
        }
        if (row.at == where::ended) {
            CHECK(now.epochs == std::vector<std::int64_t>{8});
        }
    }
}

TEST_CASE("what the answer to confirm means", "[logic][permit_rule]") {
    const op_response ahead = found(waiters(16, 1));
    const struct {
        const char* what;
        bool over;
        txn_response response;
        where at;
    } rows[] = {
        {"room", false, yes(60, responses{erased, none} + tells(4, 9)), where::room},
        {"none", false, yes(60, responses{erased, none} + tells(5, 9)), where::no_room},
        {"behind", false, yes(60, responses{erased, ahead} + tells(0, 9)), where::behind},
        {"never", false, yes(60, responses{erased, none} + tells(0, 4)), where::exceeds},
        {"the place is gone", false, no({}), where::gone},
        {"the permit fits", true, yes(60, responses{erased} + tells(9, 9)), where::owner},
        {"it does not", true, yes(60, responses{erased} + tells(10, 9)), where::too_many},
        {"it never will", true, yes(60, responses{erased} + tells(5, 4)), where::exceeds},
        {"it is gone", true, no({}), where::gone},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        attempt a;
        if (row.over) {
            a.is_over();
        } else {
            a.waits();
        }
        const std::int64_t life = row.over ? 41 : 40;
        const standing now = a.rule.after_confirm(row.response, a.keys, life);
        CHECK(now.at == row.at);
        CHECK(now.create_revision == (row.at == where::gone ? 0 : life));
        CHECK(a.own() == (row.over ? strings{h0, h2} : strings{w}));
    }
}

TEST_CASE("what the answer to admit means", "[logic][permit_rule]") {
    const struct {
        const char* what;
        txn_response response;
        where at;
        std::int64_t create_revision;
        bool in;
    } rows[] = {
        {"admitted", yes(70, responses{erased, put, put} + tells(6, 6)), where::owner, 70, true},
        {"there are too many", // a member has told of an end that was none
         yes(70, responses{erased, put, put} + tells(7, 6)),
         where::too_many,
         70,
         true},
        {"another limit", no({found({kv(w, 40)}), none, none, none}), where::queued, 40, false},
        {"admitted before",
         no({none, found({kv(h0, 69)}), found({kv(h2, 69)}), none}),
         where::queued,
         69,
         true},
        {"gone", no({none, none, none, none}), where::gone, 0, false},
        {"another place", no({found({kv(w, 66)}), none, none, none}), where::gone, 0, false},
        {"half a permit", no({none, none, found({kv(h2, 69)}), none}), where::gone, 0, false},
        {"another epoch",
         no({found({kv(w, 40)}), none, none, found({kv(e, 3, 8)})}),
         where::gone,
         0,
         false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        attempt a;
        a.waits();
        const standing now = a.rule.after_admit(row.response, a.keys, 40);
        CHECK(now.at == row.at);
        CHECK(now.create_revision == row.create_revision);
        CHECK(a.own() == (row.in ? strings{h0, h2} : strings{w}));
        CHECK(a.others() == (row.in ? strings{w} : strings{h0, h2}));
    }
}

TEST_CASE("the next one is told to expect no room, where it was so for us",
          "[logic][permit_rule]") {
    const auto admitted = [](attempt& a, std::int64_t used) {
        return a.rule.after_admit(yes(70, responses{erased, put, put} + tells(used, 9)), a.keys, 50)
            .crowded;
    };
    attempt waited;
    waited.waits();
    CHECK(admitted(waited, 5));
    attempt at_once;
    (void)at_once.rule.after_enter(yes(50, responses{none, put} + tells(3, 9)), at_once.keys);
    CHECK_FALSE(admitted(at_once, 8));
    attempt last;
    (void)last.rule.after_enter(yes(50, responses{none, put} + tells(4, 9)), last.keys);
    CHECK(admitted(last, 9));
}

TEST_CASE("the reason for a refusal names both numbers", "[logic][permit_rule]") {
    attempt a;
    (void)a.rule.after_enter(yes(50, responses{none, put} + tells(0, 4)), a.keys);
    CHECK(a.rule.why_not() == "it asks for 5, and the limit is 4");
}

TEST_CASE("an attempt that brings no limit stores none, and is refused where none is stored",
          "[logic][permit_rule]") {
    attempt a(5, std::nullopt);
    CHECK(text(a.rule.take(a.keys, "who")) ==
          "m(" + e + ")=7 c([s/wait/,s/wait0))=0 c(" + h0 + ")=0 c(" + h2 +
              ")=0 ? {c(s.limit)=0 ? :} put(" + h0 + ",who,1a) put(" + h2 + ",who,1a) room : get(" +
              h0 + ") get(" + h2 + ") get(" + e + ")");
    CHECK(a.rule.after_take(yes(41, responses{nested, put, put} + tells(5, {})), a.keys).at ==
          where::exceeds);
    CHECK(a.rule.why_not() == permits::no_limit);
    CHECK(a.rule.after_confirm(yes(45, responses{erased} + tells(5, 9)), a.keys, 41).at ==
          where::owner);
    CHECK(a.rule.after_confirm(yes(45, responses{erased} + tells(5, 4)), a.keys, 41).at ==
          where::exceeds);
    CHECK(a.rule.why_not() == "it asks for 5, and the limit is 4"); // one is stored

    attempt b(5, std::nullopt);
    CHECK(b.rule.after_enter(yes(40, responses{none, put} + tells(0, {})), b.keys).at ==
          where::exceeds);
    CHECK(b.rule.why_not() == permits::no_limit);
    b.waits();
    CHECK(b.rule.why_not() == "it asks for 5, and the limit is 6");
    CHECK(b.rule.after_confirm(yes(50, responses{erased, none} + tells(0, {})), b.keys, 40).at ==
          where::exceeds); // deleted since
    CHECK(b.rule.why_not() == permits::no_limit);
    CHECK_FALSE(b.rule.has_room());
}

TEST_CASE("an answer without what was asked for is none", "[logic][permit_rule]") {
    const auto each = [](txn_response full, const std::function<void(const txn_response&)>& read) {
        REQUIRE_FALSE(refused([&] { read(full); }));
        while (!full.responses.empty()) {
            full.responses.pop_back();
            INFO(full.responses.size());
            if (full.responses.empty() && !full.succeeded) {
                break; // it was not asked why
            }
            CHECK(refused([&] { read(full); }));
        }
    };
    each(yes(41, responses{nested, put, put} + tells(5, 9)), [](const txn_response& r) {
        attempt a;
        (void)a.rule.after_take(r, a.keys);
    });
    each(no({none, none, none}), [](const txn_response& r) {
        attempt a;
        (void)a.rule.after_take(r, a.keys);
    });
    each(yes(70, responses{erased, put, put} + tells(6, 6)), [](const txn_response& r) {
        attempt a;
        a.waits();
        (void)a.rule.after_admit(r, a.keys, 40);
    });
    each(yes(50, responses{none, put} + tells(4, 9)), [](const txn_response& r) {
        attempt a;
        (void)a.rule.after_enter(r, a.keys);
    });
    each(no({none, none, none, none}), [](const txn_response& r) {
        attempt a;
        (void)a.rule.after_enter(r, a.keys);
    });
    each(yes(60, responses{erased, none} + tells(4, 9)), [](const txn_response& r) {
        attempt a;
        (void)a.waits().rule.after_confirm(r, a.keys, 40);
    });
    // without a revision there is no token
    CHECK(refused([] {
        attempt a;
        (void)a.rule.after_take(yes(0, responses{nested, put, put} + tells(5, 9)), a.keys);
    }));
    CHECK(refused([] {
        attempt a;
        (void)a.rule.after_enter(yes(0, responses{none, put} + tells(4, 9)), a.keys);
    }));
    CHECK(refused([] {
        attempt a;
        (void)a.waits().rule.after_admit(yes(0, {erased, put, put}), a.keys, 40);
    }));
}
