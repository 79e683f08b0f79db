// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/watch_history.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using coetcd::detail::logic::footprint;
using coetcd::detail::logic::watch_history;

namespace {

using revisions = std::vector<std::int64_t>;

/// Takes a message with one event for each of these revisions.
revisions
take(watch_history& h, const revisions& message, bool more = false, std::size_t bytes = 100) {
    std::vector<event> events;
    for (const std::int64_t r : message) {
        event e;
        e.kv.key = std::to_string(r);
        e.kv.mod_revision = r;
        events.push_back(e);
    }
    revisions out;
    for (const event& e : h.take(events, more, bytes)) {
        CHECK(e.kv.key == std::to_string(e.kv.mod_revision));
        out.push_back(e.kv.mod_revision);
    }
    return out;
}

} // namespace

TEST_CASE("a watch resumes after the last event that it told of", "[logic][watch_history]") {
    watch_history h(5);
    CHECK(h.next() == 5);
    CHECK(take(h, {5, 7}) == revisions{5, 7});
    CHECK(h.next() == 8);
    CHECK(take(h, {9, 9, 9}) == revisions{9, 9, 9});
    CHECK(h.next() == 10);
    CHECK(take(h, {}).empty());
    CHECK(h.next() == 10);
}

TEST_CASE("what was told before is not told again", "[logic][watch_history]") {
    watch_history h(5);
    CHECK(take(h, {3, 4, 5, 6}) == revisions{5, 6});
    CHECK(take(h, {5, 6}).empty());
    CHECK(take(h, {6, 7}) == revisions{7});
    h.reached(9);
    CHECK(take(h, {8, 9, 10}) == revisions{10});
}

TEST_CASE("the pieces of one revision are counted in bytes", "[logic][watch_history]") {
    struct {
        const char* name;
        revisions message;
        std::size_t bytes;
        bool more;
        std::size_t held;
        std::int64_t unfinished;
    } const rows[] = {
        {"one that begins with others does not count yet", {4, 5, 6}, 100, true, 0, 6},
        {"what has nothing else does", {6, 6}, 20, true, 20, 6},
        {"and what has been told before, too", {4}, 3, true, 23, 6},
        {"not with the next one", {6, 7}, 100, true, 0, 7},
        {"of which there is more", {7}, 5, true, 5, 7},
        {"until its end", {7}, 7, false, 0, 0},
        {"and from another beginning", {8}, 100, true, 0, 8},
        {"to another end", {8, 9}, 9, false, 0, 0},
        {"a message by itself never does", {10, 10, 10}, 1000, false, 0, 0},
    };
    watch_history h(5);
    CHECK(h.held() == 0);
    CHECK(h.unfinished() == 0);
    for (const auto& row : rows) {
        INFO(row.name);
        take(h, row.message, row.more, row.bytes);
        CHECK(h.held() == row.held);
        CHECK(h.unfinished() == row.unfinished);
    }
    take(h, {11}, true, 1);
    take(h, {11}, true, 1);
    CHECK(h.held() == 1);
    h.restart();
    CHECK(h.held() == 0);
    CHECK(h.unfinished() == 0);

    // Whatever comes, it is counted.
    watch_history any(0);
    take(any, {0}, true, 9);
    take(any, {0}, true, 8);
    CHECK(any.held() == 8);
}

TEST_CASE("an event takes its bytes, and some more", "[logic][watch_history]") {
    event e;
    const std::size_t empty = footprint(e);
    CHECK(empty >= sizeof(event));
    e.kv.key = "12";
    e.kv.value = "345";
    CHECK(footprint(e) == empty + 5);
    e.prev_kv.emplace();
    e.prev_kv->value = "6789";
    CHECK(footprint(e) == empty + 9);
}

TEST_CASE("progress moves on, and never back", "[logic][watch_history]") {
    watch_history h(5);
    h.reached(20);
    CHECK(h.next() == 21);
    h.reached(7);
    CHECK(h.next() == 21);
}

TEST_CASE("what was told counts, not what comes before the start", "[logic][watch_history]") {
    CHECK(watch_history(100).told() == 0);
    watch_history h(100, 7); // in the future
    CHECK(h.told() == 7);
    h.reached(5);
    CHECK(h.told() == 7);
    h.reached(9);
    CHECK(h.told() == 9);
    CHECK(h.next() == 100);
    take(h, {101});
    CHECK(h.told() == 101);
}

TEST_CASE("of a piece, the last revision waits for the rest", "[logic][watch_history]") {
    watch_history h(5);
    CHECK(take(h, {5, 6, 7, 7}, true) == revisions{5, 6});
    CHECK(h.next() == 7);
    CHECK(take(h, {7, 7}, true).empty());
    CHECK(take(h, {}, true).empty());
    CHECK(h.next() == 7);
    CHECK(take(h, {7, 8, 9}, true) == revisions{7, 7, 7, 7, 7, 8});
    CHECK(take(h, {9, 10}) == revisions{9, 9, 10});
    CHECK(h.next() == 11);
    // The last piece may hold nothing.
    CHECK(take(h, {11}, true).empty());
    CHECK(take(h, {}) == revisions{11});
}

TEST_CASE("what was incomplete when the stream broke comes again, whole",
          "[logic][watch_history]") {
    watch_history h(5);
    CHECK(take(h, {5, 6, 6}, true) == revisions{5});
    h.restart();
    CHECK(h.next() == 6);
    CHECK(take(h, {6, 6, 6}) == revisions{6, 6, 6});
}

TEST_CASE("a watch of whatever comes keeps no account", "[logic][watch_history]") {
    watch_history h(0);
    CHECK(take(h, {7}) == revisions{7});
    h.reached(9);
    CHECK(h.next() == 0);
    CHECK(take(h, {3}) == revisions{3});
}

TEST_CASE("however a history is cut and repeated, it is told once", "[logic][watch_history]") {
    for (unsigned seed = 0; seed != 2000; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](std::size_t n) { return random() % n; };
        revisions all;
        for (std::int64_t r = 2; r != 20; ++r) {
            all.insert(all.end(), below(4), r);
        }
        all.push_back(20);
        watch_history h(2);
        revisions told;
        while (h.next() <= 20) {
            // A stream: all from where to resume on, and perhaps some that were told already.
            h.restart();
            const auto from = h.next() - static_cast<std::int64_t>(below(2));
            auto at = std::lower_bound(all.begin(), all.end(), from);
            while (at != all.end() && below(6) != 0) {
                auto end =
                    at + 1 +
                    static_cast<std::ptrdiff_t>(below(static_cast<std::size_t>(all.end() - at)));
                const bool splits = end != all.end() && *end == end[-1];
                const auto part = take(h, {at, end}, splits || (end != all.end() && below(2) == 0));
                told.insert(told.end(), part.begin(), part.end());
                at = end;
            }
        }
        CAPTURE(seed);
        CHECK(told == all);
    }
}
