// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/delay.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using where = standing::where;

namespace {

name_keys delayed_keys() {
    name_keys all = exclusive_keys("m", 0x1a, 3, 2, 7);
    all.note_key = notes::key_of("m");
    return all;
}

const attempt_keys with_note{0x1a, {delayed_keys()}};
const std::string k = "m/1a-3-2";

key_value kv(std::string key,
             std::int64_t create_revision,
             std::int64_t mod_revision = 1,
             std::string value = {}) {
    key_value out;
    out.key = std::move(key);
    out.create_revision = create_revision;
    out.mod_revision = mod_revision;
    out.value = std::move(value);
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

/// What an answer says about the note.
op_response left() {
    txn_response r;
    r.succeeded = true;
    r.responses = {put};
    return r;
}
op_response there(std::vector<key_value> notes) {
    txn_response r;
    r.responses = {found(std::move(notes))};
    return r;
}

txn_response answer(bool succeeded, std::vector<op_response> responses) {
    txn_response r;
    r.succeeded = succeeded;
    r.header.revision = 50;
    r.responses = std::move(responses);
    return r;
}

const txn& inner(const op& o) {
    return std::get<txn>(o);
}

} // namespace

TEST_CASE("a note is beside the queue, and covered by what a user of the lock may do",
          "[logic][delay]") {
    const name_keys c = delayed_keys();
    CHECK(c.note_key == "m.own");
    CHECK(c.note_key > "m.");
    CHECK(c.note_key < "m/");
    CHECK(exclusive_keys("m", 0x1a, 3, 2, 7).note_key.empty());
}

TEST_CASE("an attempt that is the first one leaves a note, if there is none", "[logic][delay]") {
    const txn e = enter(with_note, "");
    REQUIRE(e.success.size() == 3);
    const txn& entering = inner(e.success.back());
    REQUIRE(entering.compares.size() == 2);
    CHECK(entering.compares[0].range.key == "m/");
    CHECK(entering.compares[0].range.range_end == "m0");
    CHECK(entering.compares[0].how == compare::result::equal);
    CHECK(std::get<std::int64_t>(entering.compares[0].operand) == 0);

    const txn c = confirm(with_note, 50);
    REQUIRE(c.success.size() == 3);
    const txn& confirming = inner(c.success.back());
    CHECK(confirming.compares[0].range.key == "m/");
    CHECK(confirming.compares[0].how == compare::result::greater);
    CHECK(std::get<std::int64_t>(confirming.compares[0].operand) == 49);

    for (const txn* t : {&entering, &confirming}) {
        CHECK(t->compares[1].range.key == "m.own");
        CHECK(t->compares[1].what == compare::target::create);
        CHECK(std::get<std::int64_t>(t->compares[1].operand) == 0);
        REQUIRE(t->success.size() == 1);
        const auto& note = std::get<put_request>(t->success.front());
        CHECK(note.key == "m.own");
        CHECK(note.value == k);
        CHECK(note.options.lease == 0); // it outlives its owner
        REQUIRE(t->failure.size() == 1);
        CHECK(std::get<range_request>(t->failure.front()).range.key == "m.own");
    }

    const txn t = take(with_note, "");
    REQUIRE(t.compares.size() == 3);
    CHECK(t.compares.back().range.key == "m.own");
    CHECK(std::get<put_request>(t.success.back()).key == "m.own");
}

TEST_CASE("an attempt that leaves takes its own note away, and no other", "[logic][delay]") {
    const name_keys& c = with_note.by_name.front();
    for (const txn& t : {end(c, 0x1a), erase_only(c)}) {
        const txn& note = inner(t.success.back());
        REQUIRE(note.compares.size() == 1);
        CHECK(note.compares.front().what == compare::target::value);
        CHECK(note.compares.front().how == compare::result::equal);
        CHECK(note.compares.front().range.key == "m.own");
        CHECK(std::get<std::string>(note.compares.front().operand) == k);
        REQUIRE(note.success.size() == 1);
        CHECK(std::get<erase_request>(note.success.front()).range.key == "m.own");
        CHECK(note.failure.empty());
    }
    // And none that an earlier life of its key has left, if it knows its own.
    for (const txn& t : {release(c, 50), end(c, 0x1a, 50), erase_only(c, 50)}) {
        const txn& note = inner(t.success.back());
        REQUIRE(note.compares.size() == 2);
        CHECK(note.compares.back().what == compare::target::mod);
        CHECK(note.compares.back().how == compare::result::greater);
        CHECK(note.compares.back().range.key == "m.own");
        CHECK(std::get<std::int64_t>(note.compares.back().operand) == 49);
    }
}

TEST_CASE("an owner that has vanished is told from oneself", "[logic][delay]") {
    struct {
        const char* what;
        op_response note;
        where at;
        std::int64_t seen;
    } const rows[] = {
        {"none before", left(), where::owner, 0},
        {"of another one", there({kv("m.own", 20, 30, "m/other")}), where::delayed, 30},
        {"of an earlier life of our key", there({kv("m.own", 20, 30, k)}), where::delayed, 30},
        {"of our own, put with the key", there({kv("m.own", 40, 40, k)}), where::owner, 0},
        {"of our own, put later", there({kv("m.own", 20, 45, k)}), where::owner, 0},
        {"of another one, as late", there({kv("m.own", 20, 45, "m/x")}), where::delayed, 45},
        {"none, nor put: the one before ended just now", there({}), where::queued, 0},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const standing now = after_confirm(answer(true, {erased, none, row.note}), with_note, 40);
        CHECK(now.at == row.at);
        CHECK(now.note == row.seen);
        CHECK(now.create_revision == 40);
    }
    const standing entered =
        after_enter(answer(true, {none, put, there({kv("m.own", 20, 30, "x")})}), with_note);
    CHECK(entered.at == where::delayed);
    CHECK(entered.note == 30);
    CHECK(after_enter(answer(true, {none, put, left()}), with_note).at == where::owner);
    CHECK(after_enter(answer(true, {none, put, there({})}), with_note).at == where::queued);
    // An attempt behind another one does not care about the note.
    const op_response ahead = found({kv("m/f", 30)});
    CHECK(after_enter(answer(true, {ahead, put, there({kv("m.own", 20, 30, "m/f")})}), with_note)
              .at == where::behind);
    CHECK(after_confirm(answer(true, {erased, ahead, there({})}), with_note, 40).at ==
          where::behind);
}

TEST_CASE("an answer that does not tell of the note is refused", "[logic][delay]") {
    txn_response silent;
    for (const txn_response& r : {answer(true, {none, put}),
                                  answer(true, {none, put, put}),
                                  answer(true, {none, put, op_response(silent)})}) {
        CHECK_THROWS_AS(after_enter(r, with_note), coetcd::error);
    }
}

TEST_CASE("after the delay our note takes the place of the one that was seen", "[logic][delay]") {
    const txn t = replace_note(with_note, 40, 30);
    REQUIRE(t.compares.size() == 2);
    for (const compare& each : t.compares) {
        CHECK(each.how == compare::result::equal);
    }
    CHECK(t.compares[0].range.key == k);
    CHECK(t.compares[0].what == compare::target::create);
    CHECK(std::get<std::int64_t>(t.compares[0].operand) == 40);
    CHECK(t.compares[1].range.key == "m.own");
    CHECK(t.compares[1].what == compare::target::mod);
    CHECK(std::get<std::int64_t>(t.compares[1].operand) == 30);
    REQUIRE(t.success.size() == 1);
    CHECK(std::get<put_request>(t.success.front()).value == k);

    const auto after = [](const txn_response& r) { return after_replacing_note(r, with_note, 40); };
    CHECK(after(answer(true, {put})).at == where::owner);
    CHECK(after(answer(false, {found({kv(k, 40)})})).at == where::queued);
    CHECK(after(answer(false, {found({kv(k, 45)})})).at == where::gone);
    CHECK(after(answer(false, {none})).at == where::gone);
    CHECK(after(answer(true, {put})).create_revision == 40);
    CHECK_THROWS_AS(after(answer(false, {})), coetcd::error);
}

TEST_CASE("the delay is over before its time with the note, or with our key", "[logic][delay]") {
    const txn t = look_at_note(with_note);
    REQUIRE(t.success.size() == 2);
    CHECK(std::get<range_request>(t.success[0]).range.key == k);
    CHECK(std::get<range_request>(t.success[1]).range.key == "m.own");
    const op_response ours = found({kv(k, 40)});
    struct {
        const char* what;
        std::int64_t revision;
        op_response key;
        op_response note;
        bool moved;
    } const rows[] = {
        {"both are there", 50, ours, found({kv("m.own", 20, 30)}), false},
        {"the note is gone", 50, ours, none, true},
        {"it is another one", 50, ours, found({kv("m.own", 20, 45)}), true},
        {"our key is gone", 50, none, found({kv("m.own", 20, 30)}), true},
        {"the note is gone as soon as we came", 40, ours, none, true},
        {"neither is there, in a state from before", 39, none, none, false},
        {"the note is not, in a state from before", 39, ours, none, false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        txn_response r = answer(true, {row.key, row.note});
        r.header.revision = row.revision;
        CHECK(has_note_moved(r, with_note, 40, 30) == row.moved);
    }
    CHECK_THROWS_AS(has_note_moved(answer(true, {ours}), with_note, 40, 30), coetcd::error);
}
