// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/ahead.hpp>
#include <coetcd/detail/logic/places.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/catch.hpp"
#include "support/transactions.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::logic;
using namespace support;
using where = standing::where;

namespace {

/// One claim with one key, one with two, and two claims.
const attempt_keys one{0x1a, {exclusive_keys("m", 0x1a, 3, 2, 7)}};
const attempt_keys pair{
    0x1a, {{"s", {"s/write/i", "s/keep/i"}, key_range::prefix("s/"), "s.i", "s.void", 0}}};
const attempt_keys both{0x1a, {one.by_name[0], pair.by_name[0]}};

/// One whose owners leave notes.
attempt_keys with_note() {
    attempt_keys a = one;
    a.by_name[0].note_key = "m.own";
    return a;
}

bool covers(const key_range& range, const std::string& key) {
    return key >= range.key && key < range.range_end;
}

op_response found_these(std::size_t many) {
    std::vector<key_value> all;
    for (std::size_t i = 0; i != many; ++i) {
        all.push_back(kv("m/" + std::to_string(i), 40 - static_cast<std::int64_t>(i)));
    }
    return found(std::move(all));
}
op_response and_more(op_response of) {
    std::get<range_response>(of).more = true;
    return of;
}
op_response no_note() {
    txn_response note;
    note.succeeded = true;
    return note;
}

using strings = std::vector<std::string>;
using revisions = std::vector<std::int64_t>;

} // namespace

TEST_CASE("a key tells the name, the lease, the session object and the slot", "[logic][places]") {
    const name_keys c = exclusive_keys("m", 0x1a, 0xb, 0xc, 5);
    CHECK(c.name == "m");
    CHECK(c.keys == strings{"m/1a-b-c"});
    CHECK(text(c.before) == "[m/,m0)");
    CHECK(c.epoch_key == "m.1a-b-c");
    CHECK(c.void_key == "m.1a-b-void");
    CHECK(c.epoch == 5);
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    CHECK(exclusive_keys("a/b", std::numeric_limits<lease_id>::max(), most, most, 0).keys[0] ==
          "a/b/7fffffffffffffff-ffffffffffffffff-ffffffffffffffff");
    CHECK(exclusive_keys("m", -1, 0, 0, 0).keys[0] == "m/ffffffffffffffff-0-0");
    // as etcdctl does
    CHECK(text(exclusive_keys("m/", 1, 0, 0, 0).before) == "[m//,m/0)");
}

TEST_CASE("the key is in the queue, what goes with it is not", "[logic][places]") {
    for (const std::string name :
         {"m", "m/", "m.", "m.x", "/", "\xff", "m\xff", "a b", "0", "m.x/1a"}) {
        CAPTURE(name);
        const name_keys c = exclusive_keys(name, 0x1a, 3, 2, 0);
        CHECK(covers(c.before, c.keys[0]));
        for (const std::string& other : {c.epoch_key, c.void_key}) {
            CHECK_FALSE(covers(c.before, other));
            // so that a role for the name's prefix is enough
            CHECK(covers({name + ".", name + "0"}, other));
        }
    }
    for (const std::string other : {"m", "m.x", "m.", "m.1a", "m.1a-3", "m.1a-3-2", "n", "l"}) {
        CAPTURE(other);
        const key_range queue = exclusive_keys(other, 0x1a, 3, 2, 0).before;
        CHECK_FALSE(covers(queue, one.by_name[0].epoch_key));
        CHECK_FALSE(covers(queue, one.by_name[0].void_key));
    }
}

TEST_CASE("no two slots share a key", "[logic][places]") {
    std::set<std::string> all;
    std::set<std::string> voids;
    for (const char* name : {"m", "m.x", "n"}) {
        for (const lease_id lease : {0x1, 0x11, 0x1a}) {
            for (const unsigned nonce : {0x1U, 0x11U, 0xa1U}) {
                for (const unsigned slot : {0x0U, 0x1U, 0x11U}) {
                    const name_keys c = exclusive_keys(name, lease, nonce, slot, 0);
                    CHECK(all.insert(c.keys[0]).second);
                    CHECK(all.insert(c.epoch_key).second);
                    voids.insert(c.void_key);
                }
            }
        }
    }
    CHECK(voids.size() == 27); // of the session object
    for (const std::string& key : voids) {
        CHECK_FALSE(all.contains(key)); // what is erased to confirm must not be an epoch
    }
}

TEST_CASE("what is put compares the epoch, and is asked why if it is refused", "[logic][places]") {
    const std::string k = "m/1a-3-2";
    const std::string e = "m.1a-3-2";
    CHECK(text(enter(one, "who")) == "m(" + e + ")=7 c(" + k + ")=0 ? newest3([m/,m0)) put(" + k +
                                         ",who,1a) : get(" + k + ") get(" + e + ")");
    CHECK(text(enter(pair, "who")) ==
          "m(s.i)=0 c(s/write/i)=0 c(s/keep/i)=0 ? newest5([s/,s0)) put(s/write/i,who,1a) "
          "put(s/keep/i,who,1a) : get(s/write/i) get(s/keep/i) get(s.i)");
    CHECK(text(enter(both, "")) == "m(" + e + ")=7 c(" + k +
                                       ")=0 m(s.i)=0 c(s/write/i)=0 c(s/keep/i)=0 ? " +
                                       "newest3([m/,m0)) newest3([s/,s0)) put(" + k +
                                       ",,1a) put(s/write/i,,1a) put(s/keep/i,,1a) : get(" + k +
                                       ") get(" + e + ") get(s/write/i) get(s/keep/i) get(s.i)");

    CHECK(text(take(one, "who")) ==
          "m(" + e + ")=7 c([m/,m0))=0 ? put(" + k + ",who,1a) : get(" + k + ") get(" + e + ")");
    CHECK(text(take(pair, "who")) ==
          "m(s.i)=0 c([s/,s0))=0 ? put(s/write/i,who,1a) put(s/keep/i,who,1a) : "
          "get(s/write/i) get(s/keep/i) get(s.i)");
    CHECK(text(take(both, "who")) ==
          "m(" + e + ")=7 c([m/,m0))=0 m(s.i)=0 c([s/,s0))=0 ? put(" + k +
              ",who,1a) put(s/write/i,who,1a) put(s/keep/i,who,1a) : get(" + k + ") get(" + e +
              ") get(s/write/i) get(s/keep/i) get(s.i)");
}

TEST_CASE("a key that is not in the queue it waits for is compared, too", "[logic][places]") {
    const attempt_keys reader{
        0x1a, {{"s", {"s/read/i"}, key_range::prefix("s/write/"), "s.i", "s.void", 0}}};
    // Else a repeated request would find the queue free, and put it in another life.
    CHECK(text(take(reader, "who")) == "m(s.i)=0 c([s/write/,s/write0))=0 c(s/read/i)=0 ? "
                                       "put(s/read/i,who,1a) : get(s/read/i) get(s.i)");
    CHECK(text(enter(reader, "who")) ==
          "m(s.i)=0 c(s/read/i)=0 ? newest3([s/write/,s/write0)) put(s/read/i,who,1a) : "
          "get(s/read/i) get(s.i)");
}

TEST_CASE("to confirm is to erase what is not there, and to read the older keys",
          "[logic][places]") {
    CHECK(text(confirm(one, 50)) == "c(m/1a-3-2)=50 ? erase(m.1a-3-void) newest3([m/,m0) to 49) :");
    CHECK(text(confirm(pair, 50)) ==
          "c(s/write/i)=50 c(s/keep/i)=50 ? erase(s.void) newest5([s/,s0) to 49) :");
    CHECK(text(confirm(both, 50)) ==
          "c(m/1a-3-2)=50 c(s/write/i)=50 c(s/keep/i)=50 ? "
          "erase(m.1a-3-void) newest3([m/,m0) to 49) newest3([s/,s0) to 49) :");
}

TEST_CASE("to release is to erase a life, to end is to erase under an epoch and to put another",
          "[logic][places]") {
    const name_keys& m = one.by_name[0];
    const name_keys& s = pair.by_name[0];
    CHECK(text(release(m, 50)) == "c(m/1a-3-2)=50 ? erase(m/1a-3-2) : get(m.1a-3-2) get(m/1a-3-2)");
    CHECK(text(release(s, 50)) == "c(s/write/i)=50 c(s/keep/i)=50 ? erase(s/write/i) "
                                  "erase(s/keep/i) : get(s.i) get(s/write/i) get(s/keep/i)");
    CHECK(text(end(m, 0x1a)) == "m(m.1a-3-2)=7 ? erase_and_tell(m/1a-3-2) put(m.1a-3-2,,1a) : "
                                "get(m.1a-3-2) get(m/1a-3-2)");
    CHECK(text(end(s, 0x1a)) ==
          "m(s.i)=0 ? erase_and_tell(s/write/i) erase_and_tell(s/keep/i) put(s.i,,1a) : "
          "get(s.i) get(s/write/i) get(s/keep/i)");
    // with a key that was put later: it goes too, whatever life it has
    name_keys later{"s", {"s/read/i"}, key_range::prefix("s/write/"), "s.i", "s.void", 4};
    later.later = {{"s/write/i", 60}};
    CHECK(text(release(later, 50)) == "c(s/read/i)=50 ? erase(s/read/i) erase(s/write/i) : "
                                      "get(s.i) get(s/read/i) get(s/write/i)");
    CHECK(text(end(later, 0x1a)) == "m(s.i)=4 ? erase_and_tell(s/read/i) "
                                    "erase_and_tell(s/write/i) put(s.i,,1a) : "
                                    "get(s.i) get(s/read/i) get(s/write/i)");
    CHECK(text(erase_only(later)) == "m(s.i)=4 ? erase(s/read/i) erase(s/write/i) :");
    // where nothing can be put
    CHECK(text(erase_only(m)) == "m(m.1a-3-2)=7 ? erase(m/1a-3-2) :");
    CHECK(text(erase_only(s)) == "m(s.i)=0 ? erase(s/write/i) erase(s/keep/i) :");
}

TEST_CASE("the answer to enter tells the place in the queue", "[logic][places]") {
    struct {
        const char* what;
        const attempt_keys& keys;
        txn_response response;
        where at;
        std::vector<std::string> ahead;
    } const rows[] = {
        {"nobody", one, yes({none, put}), where::owner, {}},
        {"somebody", one, yes({found({kv("m/f", 40)}), put}), where::behind, {"m/f 40"}},
        {"nobody, two keys", pair, yes({none, put, put}), where::owner, {}},
        {"somebody, two keys",
         pair,
         yes({found({kv("s/read/f", 40)}), put, put}),
         where::behind,
         {"s/read/f 40"}},
        {"nobody, two claims", both, yes({none, none, put, put, put}), where::owner, {}},
        {"somebody at the first",
         both,
         yes({found({kv("m/f", 40)}), none, put, put, put}),
         where::behind,
         {"m/f 40"}},
        {"somebody at the second",
         both,
         yes({none, found({kv("s/f", 41)}), put, put, put}),
         where::behind,
         {"s/f 41"}},
        {"somebody at each",
         both,
         yes({found({kv("m/f", 40)}), found({kv("s/f", 41)}), put, put, put}),
         where::behind,
         {"m/f 40", "s/f 41"}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const standing now = after_enter(row.response, row.keys);
        CHECK(now.at == row.at);
        CHECK(now.create_revision == 50);
        CHECK(names(still_ahead(now)) == row.ahead);
        CHECK(now.epochs.empty());
    }
}

TEST_CASE("the answer to take tells that the place is ours", "[logic][places]") {
    for (const auto& response : {yes({put}), yes({})}) {
        const standing now = after_take(response, one);
        CHECK(now.at == where::owner);
        CHECK(now.create_revision == 50);
        CHECK(now.ahead.empty());
    }
    // it was not asked why it was refused
    CHECK(after_take(no({}), both).at == where::taken);
}

TEST_CASE("a refusal to enter or to take tells what is there of us, and which epoch counts",
          "[logic][places]") {
    const std::string m = one.by_name[0].keys[0];
    const std::string em = one.by_name[0].epoch_key;
    const op_response own = found({kv(m, 45)});
    const op_response same = found({kv(em, 6, 7)});
    const op_response moved = found({kv(em, 6, 9)});
    const op_response write = found({kv("s/write/i", 45)});
    const op_response keep = found({kv("s/keep/i", 45)});
    const op_response moved_s = found({kv("s.i", 8, 8)});
    const attempt_keys no_epoch{0x1a, {exclusive_keys("m", 0x1a, 3, 2, 0)}};
    struct {
        const char* what;
        const attempt_keys& keys;
        std::vector<op_response> reads;
        where enter;
        where take;
        std::int64_t revision;
        revisions epochs; // where it has ended
    } const rows[] = {
        {"all, same", one, {own, same}, where::queued, where::owner, 45, {}},
        {"all, moved", one, {own, moved}, where::queued, where::owner, 45, {}},
        {"all, no epoch any more", one, {own, none}, where::queued, where::owner, 45, {}},
        {"none, same", one, {none, same}, where::gone, where::taken, 0, {}},
        {"none, moved", one, {none, moved}, where::ended, where::ended, 0, {9}},
        {"none, no epoch any more", one, {none, none}, where::gone, where::taken, 0, {}},
        {"all, none yet", no_epoch, {own, none}, where::queued, where::owner, 45, {}},
        {"none, none yet", no_epoch, {none, none}, where::gone, where::taken, 0, {}},
        {"none, the first one", no_epoch, {none, same}, where::ended, where::ended, 0, {7}},
        {"others' keys", one, {found({kv("m/f", 4)}), same}, where::gone, where::taken, 0, {}},

        {"two keys", pair, {write, keep, none}, where::queued, where::owner, 45, {}},
        {"only the first", pair, {write, none, none}, where::gone, where::gone, 0, {}},
        {"only the second", pair, {none, keep, none}, where::gone, where::gone, 0, {}},
        {"only one, moved", pair, {none, keep, moved_s}, where::ended, where::ended, 0, {8}},
        {"of two lives",
         pair,
         {write, found({kv("s/keep/i", 46)}), none},
         where::gone,
         where::gone,
         0,
         {}},

        {"both claims", both, {own, same, write, keep, none}, where::queued, where::owner, 45, {}},
        {"one of both claims",
         both,
         {own, same, none, none, none},
         where::gone,
         where::gone,
         0,
         {}},
        {"neither, the first moved",
         both,
         {none, moved, none, none, none},
         where::ended,
         where::ended,
         0,
         {9, 0}},
        {"neither, the second moved, the first lost its epoch",
         both,
         {none, none, none, none, moved_s},
         where::ended,
         where::ended,
         0,
         {7, 8}},
        {"neither, both moved",
         both,
         {none, moved, none, none, moved_s},
         where::ended,
         where::ended,
         0,
         {9, 8}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const standing entered = after_enter(no(row.reads), row.keys);
        CHECK(entered.at == row.enter);
        CHECK(entered.create_revision == row.revision);
        const standing taken = after_take(no(row.reads), row.keys);
        CHECK(taken.at == row.take);
        CHECK(taken.create_revision == row.revision);
        const bool partly = row.take == where::gone || row.what == std::string("only one, moved");
        CHECK(entered.partly == partly);
        CHECK(taken.partly == partly);
        if (row.enter != where::gone) {
            CHECK(entered.epochs == row.epochs);
            CHECK(taken.epochs == row.epochs);
        }
    }
}

TEST_CASE("the answer to confirm tells which keys are ahead", "[logic][places]") {
    const op_response older = found({kv("m/f", 40)});
    struct {
        const char* what;
        const attempt_keys& keys;
        txn_response response;
        where at;
        std::vector<std::string> ahead;
    } const rows[] = {
        {"nobody", one, yes({erased(0), none}), where::owner, {}},
        {"somebody", one, yes({erased(0), older}), where::behind, {"m/f 40"}},
        {"nobody, two keys", pair, yes({erased(0), none}), where::owner, {}},
        {"nobody, two claims", both, yes({erased(0), none, none}), where::owner, {}},
        {"somebody at the first", both, yes({erased(0), older, none}), where::behind, {"m/f 40"}},
        {"somebody at the second",
         both,
         yes({erased(0), none, found({kv("s/f", 41)})}),
         where::behind,
         {"s/f 41"}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const standing now = after_confirm(row.response, row.keys, 45);
        CHECK(now.at == row.at);
        CHECK(now.create_revision == 45);
        CHECK(names(still_ahead(now)) == row.ahead);
    }
    const standing gone = after_confirm(no({}), both, 45);
    CHECK(gone.at == where::gone);
    CHECK(gone.create_revision == 0);
}

TEST_CASE("an answer tells the newest of those ahead, and whether they are all",
          "[logic][places]") {
    const attempt_keys noted = with_note();
    struct {
        const char* what;
        const attempt_keys& keys;
        std::vector<op_response> reads; // for each name
        std::vector<std::size_t> told;
        std::vector<bool> complete;
    } const rows[] = {
        {"one", one, {found_these(1)}, {1}, {true}},
        {"as many as are waited for", one, {found_these(2)}, {2}, {true}},
        {"one more", one, {found_these(3)}, {2}, {false}},
        {"many more", one, {found_these(30)}, {2}, {false}},
        {"a server with a limit of its own", one, {and_more(found_these(1))}, {1}, {false}},
        {"two writers", pair, {found_these(4)}, {4}, {true}},
        {"more than two writers", pair, {found_these(5)}, {4}, {false}},
        {"two names", both, {found_these(2), found_these(2)}, {2, 2}, {true, true}},
        {"two names, one free", both, {none, found_these(3)}, {0, 2}, {true, false}},
        {"an owner is to leave a note", noted, {found_these(1)}, {1}, {false}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        std::vector<op_response> entering = row.reads;
        std::vector<op_response> confirming{erased(0)};
        confirming.insert(confirming.end(), row.reads.begin(), row.reads.end());
        for (const name_keys& c : row.keys.by_name) {
            entering.insert(entering.end(), c.keys.size(), put);
        }
        for (const name_keys& c : row.keys.by_name) {
            if (!c.note_key.empty()) {
                entering.push_back(no_note());
                confirming.push_back(no_note());
            }
        }
        for (const standing& now :
             {after_enter(yes(entering), row.keys), after_confirm(yes(confirming), row.keys, 50)}) {
            CHECK(now.at == where::behind);
            REQUIRE(now.ahead.size() == row.told.size());
            for (std::size_t i = 0; i != now.ahead.size(); ++i) {
                CHECK(now.ahead[i].newest.size() == row.told[i]);
                CHECK(now.ahead[i].complete == row.complete[i]);
            }
        }
    }
    // A key that exists has a revision, and the end of a life is told by it.
    const std::vector<op_response> nameless{erased(0), found({kv("m/f", 0)})};
    CHECK(refused([&] { (void)after_confirm(yes(nameless), one, 45); }));
}

TEST_CASE("a place is given up when an answer says that nothing of it is there, or can come",
          "[logic][places]") {
    const name_keys& m = one.by_name[0]; // of epoch 7
    const name_keys fresh = exclusive_keys("m", 0x1a, 3, 2, 0);
    const name_keys& s = pair.by_name[0]; // of epoch 0
    const op_response same = found({kv(m.epoch_key, 6, 7)});
    const op_response moved = found({kv(m.epoch_key, 6, 9)});
    const op_response own = found({kv(m.keys[0], 45)});
    const op_response keep = found({kv("s/keep/i", 45)});
    const op_response moved_s = found({kv("s.i", 9, 9)});
    name_keys later{"s", {"s/read/i"}, key_range::prefix("s/write/"), "s.i", "s.void", 0};
    later.later = {{"s/write/i", 48}};
    name_keys perhaps = later;
    perhaps.later.front().create_revision = 0;
    constexpr bool releases = false;
    constexpr bool bumps = true;
    struct {
        const char* what;
        const name_keys& of;
        bool bumps;
        txn_response response;
        bool over;
        bool was_there;
        std::int64_t epoch;
    } const rows[] = {
        {"released", m, releases, yes({erased(1)}), true, true, 7},
        {"released, two keys", s, releases, yes({erased(1), erased(1)}), true, true, 0},
        {"ended", m, bumps, yes({erased(1, {kv("m/1a-3-2", 45)}), put}), true, true, 50},
        {"ended, another life of it was there",
         m,
         bumps,
         yes({erased(1, {kv("m/1a-3-2", 46)}), put}),
         true,
         false,
         50},
        {"ended, it was not there", m, bumps, yes({erased(0), put}), true, false, 50},
        {"ended, one was there",
         s,
         bumps,
         yes({erased(0), erased(1, {kv("s/keep/i", 45)}), put}),
         true,
         false,
         50},
        {"released, one was there", s, releases, yes({erased(1), erased(0)}), true, false, 0},

        {"gone before", m, releases, no({same, none}), true, false, 7},
        {"gone before, without an epoch", fresh, releases, no({none, none}), true, false, 0},
        {"ended by somebody else", m, releases, no({moved, none}), true, false, 9},
        {"ended by somebody else, the first epoch",
         fresh,
         releases,
         no({same, none}),
         true,
         false,
         7},
        {"the epoch was deleted by hand", m, releases, no({none, none}), false, false, 0},
        {"another life of it is there", m, releases, no({same, own}), false, false, 7},
        {"one of two is there", s, releases, no({none, none, keep}), false, false, 0},
        {"neither of two is there", s, releases, no({none, none, none}), true, false, 0},

        {"released, with one that was put later",
         later,
         releases,
         yes({erased(1), erased(1)}),
         true,
         true,
         0},
        {"released, the one that was put later was not there",
         later,
         releases,
         yes({erased(1), erased(0)}),
         true,
         false,
         0},
        {"released, one that may have been put was not there",
         perhaps,
         releases,
         yes({erased(1), erased(0)}),
         true,
         true,
         0},
        {"to release: the one that was put later is there",
         perhaps,
         releases,
         no({none, none, found({kv("s/write/i", 47)})}),
         false,
         false,
         0},
        {"ended, with one that was put later",
         later,
         bumps,
         yes({erased(1, {kv("s/read/i", 45)}), erased(1, {kv("s/write/i", 48)}), put}),
         true,
         true,
         50},
        {"ended, the one that was put later has another life",
         later,
         bumps,
         yes({erased(1, {kv("s/read/i", 45)}), erased(1, {kv("s/write/i", 49)}), put}),
         true,
         false,
         50},

        {"to end: ended by an earlier copy", m, bumps, no({moved, none}), true, false, 9},
        {"to end: something is still there", m, bumps, no({moved, own}), false, false, 9},
        {"to end: one of two is still there", s, bumps, no({moved_s, none, keep}), false, false, 9},
        {"to end: the epoch was deleted by hand", m, bumps, no({none, none}), false, false, 0},
        {"to end: no epoch, and something is there", m, bumps, no({none, own}), false, false, 0},
        {"to end: there was no epoch, nor is there one",
         fresh,
         bumps,
         no({none, none}),
         false,
         false,
         0},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const left_place left = after_leaving(row.response, row.of, 45, row.bumps);
        CHECK(left.over == row.over);
        CHECK(left.was_there == row.was_there);
        CHECK(left.epoch == row.epoch);
    }
}

TEST_CASE("an answer that lacks something is none", "[logic][places]") {
    const op_response own = found({kv("m/1a-3-2", 45)});
    const op_response same = found({kv("m.1a-3-2", 6, 7)});
    const std::vector<op_response> few[] = {{}, {put}, {none}, {none, put}};
    for (const auto& reads : few) {
        CHECK(refused([&] { (void)after_enter(no(reads), one); }));
        CHECK(refused([&] { (void)after_enter(yes(reads), both); }));
        CHECK(refused([&] { (void)after_leaving(no(reads), one.by_name[0], 45, false); }));
        CHECK(refused([&] { (void)after_leaving(no(reads), one.by_name[0], 45, true); }));
        CHECK(refused([&] { (void)after_confirm(yes(reads), both, 45); }));
        if (!reads.empty()) { // it was not asked
            CHECK(refused([&] { (void)after_take(no(reads), one); }));
        }
    }
    CHECK(refused([&] { (void)after_enter(yes({}), one); }));
    CHECK(refused([&] { (void)after_enter(yes({put}), one); }));
    CHECK(refused([&] { (void)after_enter(no({own, same, none, none}), both); }));
    CHECK(refused([&] { (void)after_confirm(yes({erased(0)}), one, 45); }));
    CHECK(refused([&] { (void)after_confirm(yes({none, erased(0)}), one, 45); }));
    CHECK(refused([&] { (void)after_leaving(no({none, none}), pair.by_name[0], 45, false); }));
}

TEST_CASE("an answer without the revision of what is there is none", "[logic][places]") {
    const op_response nameless = found({kv("m/1a-3-2", 0)});
    const op_response same = found({kv("m.1a-3-2", 6, 7)});
    const op_response no_epoch = found({kv("m.1a-3-2", 6, 0)});
    CHECK(refused([&] { (void)after_enter(without_revision(yes({none, put})), one); }));
    CHECK(refused([&] { (void)after_enter(no({nameless, same}), one); }));
    CHECK(refused([&] { (void)after_enter(no({none, no_epoch}), one); }));
    CHECK(refused([&] { (void)after_take(without_revision(yes({put})), one); }));
    CHECK(refused([&] { (void)after_take(no({nameless, same}), one); }));
    const name_keys& m = one.by_name[0];
    CHECK(refused([&] {
        (void)after_leaving(without_revision(yes({erased(1), put})), m, 45, true);
    }));
    CHECK(refused([&] { (void)after_leaving(no({no_epoch, none}), m, 45, true); }));
    // a release needs none: the epoch stays
    CHECK(after_leaving(without_revision(yes({erased(1)})), m, 45, false).over);
}

TEST_CASE("a read from before the key was put does not tell that it is gone", "[logic][places]") {
    response_header header;
    range_response read;
    header.revision = 6;
    CHECK_FALSE(is_gone(header, read, "k", 7));
    header.revision = 7;
    CHECK(is_gone(header, read, "k", 7));
    read.kvs = {kv("k", 7)};
    CHECK_FALSE(is_gone(header, read, "k", 7));
    read.kvs = {kv("k", 9)}; // another life
    CHECK(is_gone(header, read, "k", 7));
    read.kvs = {kv("l", 7)};
    CHECK(is_gone(header, read, "k", 7));
}
