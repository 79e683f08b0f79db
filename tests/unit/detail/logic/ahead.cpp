// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/ahead.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using where = standing::where;

namespace {

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

} // namespace

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
