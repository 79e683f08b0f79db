// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/watch_stream.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;
using watched = watch_stream<time_point>;
using step = watched::step;
using kind = stream_kind;

namespace {

const time_point start(1000h);
constexpr bool two_way = true;

} // namespace

TEST_CASE("a stream is asked whether it is alive, and given up if it is not",
          "[logic][watch_stream]") {
    struct {
        const char* what;
        kind whose;
        bool ways;
        std::function<void(watched&)> history; // from its start on
        std::chrono::nanoseconds patience;     // until something is to be done, since the start
        step then;
    } const rows[] = {
        {"silent, with nothing to answer",
         kind::everybody,
         two_way,
         [](watched&) {},
         10s,
         step::ask},
        {"etcd has said something",
         kind::everybody,
         two_way,
         [](watched& s) { s.heard_something(start + 7s); },
         17s,
         step::ask},
        {"a watch is not answered",
         kind::everybody,
         two_way,
         [](watched& s) { s.asked(1, start + 5s); },
         7s,
         step::give_up},
        {"another one was asked for since: the first counts",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.asked(2, start + 6s);
         },
         7s,
         step::give_up},
        {"but events come",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.heard_something(start + 6s);
         },
         8s,
         step::give_up},
        {"but a large answer is on its way",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.heard_bytes(start + 6s, 20'000);
         },
         8s,
         step::give_up},
        {"but the same bytes are only counted again",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.heard_bytes(start + 6s, 20'000);
             s.heard_bytes(start + 7s, 20'000);
             s.heard_bytes(start + 7s, 36'383);
         },
         8s,
         step::give_up},
        {"but all that comes is a drop now and then",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.heard_bytes(start + 6s, 16'383);
         },
         7s,
         step::give_up},
        {"but the bytes are those of messages",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.heard_something(start + 6s, 20'000);
             s.heard_bytes(start + 7s, 20'000);
         },
         8s,
         step::give_up},
        {"but events come, again and again",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.asked(2, start + 6s);
             for (auto t = start + 6s; t != start + 15s; t += 1s) {
                 s.heard_something(t);
             }
         },
         15s,
         step::give_up},
        {"likewise, and later ones are answered",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.asked(2, start + 6s);
             s.heard_something(start + 14s);
             s.created(2);
         },
         15s,
         step::give_up},
        {"likewise, and earlier ones are answered, in order",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.asked(2, start + 5s);
             s.asked(3, start + 5s);
             for (auto t = start + 6s; t != start + 24s; t += 1s) {
                 s.heard_something(t);
                 if (t == start + 14s || t == start + 20s) {
                     s.created(t == start + 14s ? 1 : 2);
                 }
             }
         },
         25s,
         step::give_up},
        {"but large answers are on their way, again and again",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             std::uint64_t bytes = 0;
             for (auto t = start + 6s; t != start + 15s; t += 1s) {
                 s.heard_bytes(t, bytes += 20'000);
             }
         },
         16s,
         step::give_up},
        {"a watch is answered",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.heard_something(start + 6s);
             s.created(1);
         },
         16s,
         step::ask},
        {"one of two is",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.asked(2, start + 5s);
             s.heard_something(start + 6s);
             s.created(1);
         },
         8s,
         step::give_up},
        {"out of order",
         kind::everybody,
         two_way,
         [](watched& s) {
             s.asked(1, start + 5s);
             s.asked(2, start + 5s);
             s.heard_something(start + 6s);
             s.created(2);
             s.created(1);
         },
         16s,
         step::ask},
        {"a question is not",
         kind::everybody,
         two_way,
         [](watched& s) { (void)s.ask(start + 10s); },
         12s,
         step::give_up},
        {"a question is",
         kind::everybody,
         two_way,
         [](watched& s) {
             const std::int64_t id = s.ask(start + 10s);
             s.heard_something(start + 11s);
             s.created(id);
         },
         21s,
         step::ask},
        {"all that there is is a question",
         kind::question,
         two_way,
         [](watched& s) { (void)s.ask(start); },
         1s,
         step::give_up},
        {"likewise, in one piece",
         kind::question,
         !two_way,
         [](watched& s) { (void)s.ask(start); },
         1s,
         step::give_up},
        {"one watch, which is not answered",
         kind::one_watch,
         !two_way,
         [](watched& s) { s.asked(1, start); },
         2s,
         step::give_up},
        {"one watch, and nobody can ask",
         kind::one_watch,
         !two_way,
         [](watched&) {},
         60s,
         step::ask_beside},
        {"etcd is still there",
         kind::one_watch,
         !two_way,
         [](watched& s) { s.heard_beside(start + 61s); },
         121s,
         step::ask_beside},
        {"etcd is, but has not told of progress for too long",
         kind::one_watch,
         !two_way,
         [](watched& s) { s.heard_beside(start + 11min + 1s); },
         12min + 1s,
         step::give_up},
        {"it has",
         kind::one_watch,
         !two_way,
         [](watched& s) {
             s.heard_something(start + 10min);
             s.heard_beside(start + 12min);
         },
         13min,
         step::ask_beside},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        watched s(row.whose, row.ways, start);
        s.opened(start);
        row.history(s);
        CHECK(s.until() == start + row.patience);
        CHECK((s.next(start + row.patience - 1ns) == step::wait));
        CHECK((s.next(start + row.patience) == row.then));
        CHECK((s.next(start + row.patience + 1ns) == row.then));
    }
}

TEST_CASE("a stream that is not read is not asked, and has time again when it is read",
          "[logic][watch_stream]") {
    for (const bool ways : {two_way, !two_way}) {
        for (const bool unanswered : {false, true}) {
            CAPTURE(ways, unanswered);
            watched s(ways ? kind::everybody : kind::one_watch, ways, start);
            s.opened(start);
            if (unanswered) {
                s.asked(1, start);
            }
            s.hold();
            CHECK(s.next(start + 1000h) == step::wait);
            CHECK(s.until() == time_point::max());
            const auto now = start + 1000h;
            s.go_on(now);
            CHECK(s.until() == now + (unanswered ? 2s : ways ? 10s : 60s));
        }
    }
}

TEST_CASE("what is asked before a stream is open counts from then on", "[logic][watch_stream]") {
    watched s(kind::everybody, two_way, start);
    s.asked(1, start);
    s.opened(start + 1s);
    CHECK(s.until() == start + 3s);
    for (auto t = start + 2s; t != start + 11s; t += 1s) {
        s.heard_something(t);
    }
    CHECK(s.until() == start + 11s);
}

TEST_CASE("etcd answers in order, and a refusal names no watch", "[logic][watch_stream]") {
    watched s(kind::everybody, two_way, start);
    CHECK_FALSE(s.next_answer());
    s.asked(4, start);
    s.asked(7, start);
    s.asked(5, start);
    CHECK(s.next_answer() == 4);
    s.created(4);
    CHECK(s.next_answer() == 7);
    s.created(5);
    CHECK(s.next_answer() == 7);
    s.created(99); // not asked for
    s.created(7);
    CHECK_FALSE(s.next_answer());
}

TEST_CASE("questions have ids that no watch has", "[logic][watch_stream]") {
    watched s(kind::everybody, two_way, start);
    const std::int64_t first = s.ask(start);
    const std::int64_t second = s.ask(start);
    CHECK(first != second);
    for (const std::int64_t id : {first, second}) {
        CHECK(id > std::int64_t{1} << 53);
        CHECK(s.next_answer() == id);
        s.created(id);
    }
}

TEST_CASE("a stream on which etcd has not said a word is mute", "[logic][watch_stream]") {
    watched s(kind::everybody, two_way, start);
    CHECK_FALSE(s.mute()); // it may never have been open
    s.opened(start);
    CHECK(s.mute());
    s.heard_something(start); // it may have been a proxy
    CHECK(s.mute());
    CHECK_FALSE(s.answered());
    s.heard_etcd();
    CHECK_FALSE(s.mute());
    CHECK(s.answered());
}

TEST_CASE("a stream that broke soon is a reason to wait longer", "[logic][watch_stream]") {
    const watched s(kind::one_watch, !two_way, start);
    CHECK_FALSE(s.has_lasted(start + 1s - 1ns));
    CHECK(s.has_lasted(start + 1s));
    CHECK(s.patience() == 2s);
    CHECK(watched(kind::everybody, two_way, start).patience() == 2s);
    CHECK(watched(kind::question, two_way, start).patience() == 1s);
}
