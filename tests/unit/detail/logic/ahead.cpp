// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/ahead.hpp>
#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/places.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
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

/// One name with one key, one with two, both, and one whose owners leave notes.
const attempt_keys one{0x1a, {exclusive_keys("m", 0x1a, 3, 2, 7)}};
const attempt_keys pair{
    0x1a, {{"s", {"s/write/i", "s/keep/i"}, key_range::prefix("s/"), "s.i", "s.void", 0}}};
const attempt_keys both{0x1a, {one.by_name[0], pair.by_name[0]}};
attempt_keys with_note() {
    attempt_keys a = one;
    a.by_name[0].note_key = "m.own";
    return a;
}

using ends = std::vector<std::int64_t>;

/// Where it stands behind these: of each name their create_revisions, and whether that is all.
struct told {
    std::vector<std::int64_t> ages;
    bool complete;
};
standing behind_all(const std::vector<told>& names) {
    standing now;
    now.at = where::behind;
    for (const told& name : names) {
        keys_ahead of;
        for (const std::int64_t age : name.ages) {
            of.newest.push_back(
                {"m/" + std::to_string(now.ahead.size()) + "-" + std::to_string(of.newest.size()),
                 age});
        }
        of.complete = name.complete;
        now.ahead.push_back(of);
    }
    return now;
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

} // namespace

TEST_CASE("an answer tells the newest of those ahead, and whether they are all", "[logic][ahead]") {
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

TEST_CASE("ends make an owner of who knows all, and of others one that asks", "[logic][ahead]") {
    struct {
        const char* what;
        std::vector<told> names;
        ends told_ends; // of all that are ahead
        where at;
    } const rows[] = {
        {"the only one", {{{40}, true}}, {60}, where::owner},
        {"the last of two", {{{40, 30}, true}}, {60, 0}, where::behind},
        {"the first of two", {{{40, 30}, true}}, {0, 60}, where::behind},
        {"both of two", {{{40, 30}, true}}, {60, 61}, where::owner},
        {"both keys of a writer", {{{40, 40}, true}}, {60, 60}, where::owner},
        {"one key of a writer that only reads now", {{{40, 40}, true}}, {60, 0}, where::behind},

        {"cut off, the older one", {{{40, 30}, false}}, {0, 60}, where::queued},
        {"cut off, the newer one", {{{40, 30}, false}}, {60, 0}, where::queued},
        {"cut off, both", {{{40, 30}, false}}, {60, 61}, where::queued},
        {"cut off, a semaphore's", {{{40}, false}}, {60}, where::queued},
        {"cut off, one of four readers", {{{40, 39, 38, 37}, false}}, {0, 60, 0, 0}, where::behind},
        {"cut off, two of four", {{{40, 39, 38, 37}, false}}, {60, 60, 0, 0}, where::behind},
        {"cut off, three of four", {{{40, 39, 38, 37}, false}}, {60, 0, 60, 62}, where::queued},
        {"cut off, half a writer", {{{40, 40, 30, 30}, false}}, {0, 0, 60, 0}, where::behind},
        {"cut off, a writer", {{{40, 40, 30, 30}, false}}, {0, 0, 60, 60}, where::queued},

        {"the first of two names", {{{40}, true}, {{30}, true}}, {60, 0}, where::behind},
        {"two names", {{{40}, true}, {{30}, true}}, {60, 61}, where::owner},
        {"one of two names is free", {{{}, true}, {{30}, true}}, {60}, where::owner},
        {"one is cut off", {{{40}, true}, {{30, 20}, false}}, {0, 0, 60}, where::queued},
        {"one is cut off, the other ends",
         {{{40}, true}, {{30, 20}, false}},
         {60, 0, 0},
         where::behind},
        {"both are cut off, one moves",
         {{{40, 35}, false}, {{30, 20}, false}},
         {0, 60, 0, 0},
         where::behind},
        {"both are cut off and move",
         {{{40, 35}, false}, {{30, 20}, false}},
         {0, 60, 0, 60},
         where::queued},
        {"all have ended, one is cut off",
         {{{40}, true}, {{30, 20}, false}},
         {60, 60, 60},
         where::queued},
        {"a note is to be left where nobody is", {{{40}, true}, {{}, false}}, {60}, where::queued},
        {"that is no reason to ask before",
         {{{40, 30}, true}, {{}, false}},
         {60, 0},
         where::behind},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        standing now = behind_all(row.names);
        heed_ends(now, row.told_ends);
        CHECK(now.at == row.at);
    }
}

TEST_CASE("in any order, ends make an owner with the last one and not before", "[logic][ahead]") {
    // Each set of lives, each order in which their ends are told, alone or several at once.
    for (const auto& names : std::vector<std::vector<told>>{
             {{{40}, true}},
             {{{40, 30}, true}},
             {{{40, 40, 30, 30}, true}},
             {{{40, 30}, true}, {{25}, true}},
             {{{40, 30}, false}},
             {{{40, 30}, true}, {{25, 20}, false}},
         }) {
        const standing all = behind_all(names);
        const bool complete = names.back().complete;
        const std::size_t many = still_ahead(all).size();
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i != many; ++i) {
            order.push_back(i);
        }
        do {
            for (std::size_t at_once = 1; at_once <= many; ++at_once) {
                standing now = all;
                std::set<std::string> ended;
                for (std::size_t next = 0; next < many; next += at_once) {
                    CHECK(now.at != where::owner);
                    ends told_now;
                    for (const held_life& life : still_ahead(now)) {
                        bool is_told = false;
                        for (std::size_t i = next; i < std::min(next + at_once, many); ++i) {
                            is_told = is_told || still_ahead(all)[order[i]] == life;
                        }
                        told_now.push_back(is_told ? 60 : 0);
                        if (is_told) {
                            ended.insert(life.key);
                        }
                    }
                    heed_ends(now, told_now);
                    CHECK(told_ended(now).size() == ended.size());
                    CHECK(still_ahead(now).size() == many - ended.size());
                }
                CHECK(now.at == (complete ? where::owner : where::queued));
            }
        } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST_CASE("a look shows all that is waited for, or calls for more", "[logic][ahead]") {
    const std::vector<held_life> lives{{"m/f", 40}, {"m/e", 39}, {"m/1a-3-2", 50}};
    CHECK(text(look_at(lives)) == "? get(m/f) get(m/e) get(m/1a-3-2) :");
    const op_response ahead = found({kv("m/f", 40)});
    const op_response before = found({kv("m/e", 39)});
    const op_response own = found({kv("m/1a-3-2", 50)});
    struct {
        std::vector<op_response> reads;
        bool all;
    } const rows[] = {
        {{ahead, before, own}, true},
        {{none, before, own}, false},
        {{ahead, none, own}, false},
        {{ahead, before, none}, false},
        {{none, none, none}, false},
        {{ahead, before, found({kv("m/1a-3-2", 51)})}, false}, // another life
        {{found({kv("m/f", 41)}), before, own}, false},
        {{found({kv("m/g", 40)}), before, own}, false},
    };
    for (const auto& row : rows) {
        CHECK(shows_all(yes(row.reads), lives) == row.all);
    }
    for (const auto& reads :
         std::vector<std::vector<op_response>>{{}, {put}, {ahead}, {ahead, before, put}}) {
        CHECK(refused([&] { (void)shows_all(yes(reads), lives); }));
    }
}
