// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/rank.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using coetcd::detail::logic::older_waiter;
using coetcd::detail::logic::rank;
using events = std::vector<event>;

namespace {

event change(event_type how, std::string key, std::int64_t revision) {
    event e;
    e.type = how;
    e.kv.key = std::move(key);
    e.kv.mod_revision = revision;
    return e;
}
event put(std::string key, std::int64_t revision) {
    return change(event_type::put, std::move(key), revision);
}
event end(std::string key, std::int64_t revision) {
    return change(event_type::erase, std::move(key), revision);
}
events operator+(events a, const events& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

const events a_moves{end("s/wait/a", 51), put("s/hold/01/a", 51)};

} // namespace

TEST_CASE("what comes before a waiter shrinks by what is told", "[logic][rank]") {
    const struct {
        const char* what;
        events told;
        std::int64_t before;
        bool in_doubt = false;
    } rows[] = {
        {"nothing", {}, 13},
        {"a permit is given back", {end("s/hold/02/x", 51)}, 9},
        {"one of two bits, and the other", {end("s/hold/00/x", 51), end("s/hold/01/x", 51)}, 10},
        {"an older one leaves", {end("s/wait/a", 51)}, 11},
        {"an older one is admitted", a_moves, 13},
        {"and gives back", a_moves + events{end("s/hold/01/a", 52)}, 11},
        {"told in another order", {put("s/hold/01/a", 51), end("s/wait/a", 51)}, 13},
        {"not in the same transaction", {end("s/wait/a", 51), put("s/hold/01/a", 52)}, 11},
        {"another one is admitted as it leaves", {end("s/wait/a", 51), put("s/hold/00/b", 51)}, 11},
        {"two older ones leave", {end("s/wait/a", 51), end("s/wait/b", 51)}, 10},
        {"one leaves twice", {end("s/wait/a", 51), end("s/wait/a", 52)}, 11},
        {"a younger one comes", {put("s/wait/y", 51)}, 13},
        {"a younger one leaves", {end("s/wait/y", 51)}, 13},
        {"a younger one is admitted", {end("s/wait/y", 51), put("s/hold/02/y", 51)}, 13},
        {"from before the proof", {end("s/hold/02/x", 49), end("s/wait/a", 48)}, 13},
        {"of the proof's revision", {end("s/hold/02/x", 50)}, 13},
        {"an older one, of that", {end("s/wait/a", 50)}, 13},
        {"the limit", {put("s.limit", 51)}, 13, true},
        {"the limit, from before", {put("s.limit", 49)}, 13},
        {"the limit, of the proof's", {end("s.limit", 50)}, 13},
        {"of another name", {end("t/hold/02/x", 51), end("s/wait2/a", 51)}, 13},
        {"an older one gives back, and its admission was missed", {end("s/hold/01/a", 52)}, 11},
        {"the same, and its id leaves as a younger one's",
         {end("s/hold/01/a", 52), end("s/wait/a", 54)},
         11},
        {"of no bit", {end("s/hold/1f/x", 51), end("s/hold/x", 51)}, 13},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        rank after("s");
        after.asking();
        after.proved(10, {{"a", 2}, {"b", 1}}, 50);
        after.heed(row.told);
        CHECK(after.before() == row.before);
        CHECK(after.is_in_doubt() == row.in_doubt);
        // The same, told before the answer came.
        rank meanwhile("s");
        meanwhile.asking();
        meanwhile.heed(row.told);
        meanwhile.proved(10, {{"a", 2}, {"b", 1}}, 50);
        CHECK(meanwhile.before() == row.before);
        CHECK(meanwhile.is_in_doubt() == row.in_doubt);
        // The same, one message for each.
        rank single("s");
        single.asking();
        single.proved(10, {{"a", 2}, {"b", 1}}, 50);
        for (auto first = row.told.begin(); first != row.told.end();) {
            const auto last = std::find_if(first, row.told.end(), [&](const event& e) {
                return e.kv.mod_revision != first->kv.mod_revision;
            });
            single.heed(events(first, last));
            first = last;
        }
        CHECK(single.before() == row.before);
        CHECK(single.is_in_doubt() == row.in_doubt);
    }
}

TEST_CASE("a proof tells of what was told before it was asked for", "[logic][rank]") {
    rank r("s");
    r.asking();
    r.heed({end("s/hold/00/x", 49), put("s.limit", 50)});
    r.proved(10, {{"a", 2}}, 50);
    CHECK(r.before() == 12);
    CHECK_FALSE(r.is_in_doubt());
    r.heed({put("s.limit", 51)});
    REQUIRE(r.is_in_doubt());
    r.asking(); // once more: by now it is of the past
    r.proved(9, {{"a", 2}}, 51);
    CHECK_FALSE(r.is_in_doubt());
    CHECK(r.before() == 11);

    r.asking();
    r.heed({end("s/hold/00/y", 52)}); // which counts at once
    CHECK(r.before() == 10);
    r.heed({end("s/hold/00/y", 54)}); // and this is not in the answer
    r.proved(8, {{"a", 2}}, 53);
    CHECK(r.before() == 9);
    r.asking(); // and again, with no answer
    r.heed({end("s/hold/00/z", 55)});
    r.asking();
    r.proved(7, {}, 55);
    CHECK(r.before() == 7);
    CHECK_FALSE(r.is_in_doubt());
}

TEST_CASE("without a proof there is no room", "[logic][rank]") {
    rank r("s");
    CHECK_FALSE(r.fits(1, coetcd::detail::logic::most_limit));
    r.asking();
    r.heed({end("s/hold/0f/x", 7)}); // what is watched ahead may be told before it is answered
    CHECK_FALSE(r.fits(1, coetcd::detail::logic::most_limit));
    r.proved(1, {}, 6);
    CHECK(r.fits(1, coetcd::detail::logic::most_limit));
    r.heed({end("s.limit", 8)});
    CHECK_FALSE(r.fits(1, coetcd::detail::logic::most_limit));
}
