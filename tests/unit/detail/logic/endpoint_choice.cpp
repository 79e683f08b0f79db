// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/endpoint_choice.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;

namespace {

using time_point = std::chrono::steady_clock::time_point;

constexpr time_point start(1000h);

endpoint at(std::size_t i) {
    return parse_endpoint("h:" + std::to_string(i + 1));
}

std::vector<endpoint> cluster(std::size_t count) {
    std::vector<endpoint> out;
    for (std::size_t i = 0; i != count; ++i) {
        out.push_back(at(i));
    }
    return out;
}

/// An `endpoint_choice` whose endpoints are numbers.
class choice {
public:
    choice(std::size_t count, std::uint64_t chance)
        : choice_(cluster(count), chance) {}
    std::size_t size() const { return choice_.size(); }
    std::size_t pick(time_point now) const { return choice_.pick(now).port - 1U; }
    std::size_t pick_but(std::size_t i, time_point now) const {
        const endpoint not_there = at(i);
        return choice_.pick(now, {&not_there, 1}).port - 1U;
    }
    std::size_t pick_but(std::size_t i, std::size_t k, time_point now) const {
        const std::vector<endpoint> not_there{at(i), at(k)};
        return choice_.pick(now, not_there).port - 1U;
    }
    bool succeeded(std::size_t i, endpoint_use with = endpoint_use::call) {
        return choice_.succeeded(at(i), with);
    }
    void failed(std::size_t i, time_point now, endpoint_use with = endpoint_use::call) {
        choice_.failed(at(i), now, with);
    }
    void measured(std::size_t i, std::chrono::nanoseconds t) { choice_.measured(at(i), t); }
    void learn(std::initializer_list<std::size_t> others) {
        std::vector<endpoint> next;
        for (const std::size_t i : others) {
            next.push_back(at(i));
        }
        choice_.learn(next);
    }
    std::vector<endpoint> all() const { return choice_.all(); }

private:
    endpoint_choice<time_point> choice_;
};

} // namespace

TEST_CASE("clients spread over the endpoints", "[logic][endpoint_choice]") {
    std::set<std::size_t> first;
    for (std::uint64_t chance = 0; chance != 6; ++chance) {
        CHECK(choice(3, chance).pick(start) == chance % 3);
    }
    const auto most = std::numeric_limits<std::uint64_t>::max();
    CHECK(choice(3, most).pick(start) == most % 3);
    CHECK(choice(1, most).pick(start) == 0);
    CHECK(choice(3, 0).size() == 3);
}

TEST_CASE("a client stays with the endpoint that works", "[logic][endpoint_choice]") {
    choice c(3, 1);
    CHECK(c.pick(start) == 1);
    c.succeeded(1);
    CHECK(c.pick(start + 1h) == 1);
    c.succeeded(2); // that is no reason to leave it
    CHECK(c.pick(start + 1h) == 1);
    for (std::size_t i = 0; i != 3; ++i) {
        c.failed(i, start);
    }
    c.succeeded(2); // but this is
    CHECK(c.pick(start + 1h) == 2);
}

TEST_CASE("an endpoint that failed makes room for the next one", "[logic][endpoint_choice]") {
    choice c(3, 2);
    c.failed(2, start);
    CHECK(c.pick(start) == 0);
    c.failed(0, start);
    CHECK(c.pick(start) == 1);
    // The failure of another one does not move the preferred one.
    choice d(3, 0);
    d.failed(1, start);
    CHECK(d.pick(start) == 0);
    d.failed(0, start);
    CHECK(d.pick(start) == 2);
}

TEST_CASE("another endpoint can be had, if there is one", "[logic][endpoint_choice]") {
    choice c(3, 1);
    CHECK(c.pick_but(1, start) == 2);
    CHECK(c.pick_but(2, start) == 1);
    c.measured(2, 8ms);
    c.measured(0, 5ms);
    CHECK(c.pick_but(1, start) == 0);
    c.failed(0, start);
    CHECK(c.pick_but(1, start) == 2);
    c.failed(2, start + 1ms);
    CHECK(c.pick_but(1, start) == 0); // sooner than the other
    CHECK(c.pick_but(0, start) == 1);
    CHECK(choice(1, 0).pick_but(0, start) == 0);
    CHECK(choice(3, 0).pick_but(0, 2, start) == 1);
    CHECK(choice(2, 1).pick_but(0, 1, start) == 1); // there is no other
    choice d(3, 0);
    d.failed(1, start);
    CHECK(d.pick_but(0, start + 100ms - 1ns) == 2);
    CHECK(d.pick_but(0, start + 100ms) == 1); // it is free, and comes first
}

TEST_CASE("a client does not go back by itself from one that works", "[logic][endpoint_choice]") {
    choice c(2, 0);
    c.failed(0, start);
    c.succeeded(1);
    CHECK(c.pick(start + 1h) == 1);
}

TEST_CASE("the time that an endpoint is shunned doubles up to a limit",
          "[logic][endpoint_choice]") {
    const std::chrono::milliseconds expected[] = {
        100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms, 5000ms};
    for (std::size_t failures = 1; failures <= std::size(expected); ++failures) {
        choice c(2, 0);
        for (std::size_t i = 0; i != failures; ++i) {
            c.failed(0, start);
        }
        c.failed(1, start - 1h); // so that 0 is preferred again
        CAPTURE(failures);
        CHECK(c.pick(start + expected[failures - 1] - 1ns) == 1);
        CHECK(c.pick(start + expected[failures - 1]) == 0);
    }
}

TEST_CASE("an endpoint is forgiven all failures with one success", "[logic][endpoint_choice]") {
    choice c(2, 0);
    for (int i = 0; i != 5; ++i) {
        c.failed(0, start);
    }
    c.failed(1, start);
    c.succeeded(0);
    CHECK(c.pick(start) == 0);
    c.failed(0, start);
    c.failed(1, start - 1h);
    CHECK(c.pick(start + 100ms - 1ns) == 1);
    CHECK(c.pick(start + 100ms) == 0);
}

TEST_CASE("if all endpoints are shunned the first to be free is tried",
          "[logic][endpoint_choice]") {
    choice c(3, 0);
    c.failed(0, start + 20ms);
    c.failed(1, start + 10ms);
    c.failed(2, start + 30ms);
    CHECK(c.pick(start + 30ms) == 1);
    c.failed(1, start + 30ms);
    CHECK(c.pick(start + 30ms) == 0);
    choice one(1, 0);
    for (int i = 0; i != 1000; ++i) {
        one.failed(0, start);
        CHECK(one.pick(start) == 0);
    }
}

TEST_CASE("a client moves to an endpoint that is much nearer", "[logic][endpoint_choice]") {
    choice c(3, 0);
    c.succeeded(0);
    c.measured(1, 1ms); // nothing is known of 0, which works
    CHECK(c.pick(start) == 0);
    c.measured(2, 5ms);
    c.measured(0, 10ms); // now it is, and only one of them is that much nearer
    CHECK(c.pick(start) == 1);
    c.succeeded(1);
    for (int i = 0; i != 10; ++i) {
        c.measured(0, 500us); // nearer by now, but not by enough to matter
    }
    CHECK(c.pick(start) == 1);
    // Less than half as far, and by more than a millisecond.
    for (const auto& [near, moves] : {std::pair{4500us, false}, {4499us, true}}) {
        choice d(2, 0);
        d.measured(0, 10ms);
        d.measured(1, near);
        CHECK(d.pick(start) == (moves ? 1 : 0));
    }
}

TEST_CASE("one slow answer does not make an endpoint far", "[logic][endpoint_choice]") {
    choice c(2, 0);
    for (int i = 0; i != 10; ++i) {
        c.measured(0, 10ms);
    }
    c.measured(1, 9ms);
    c.measured(0, 25ms);
    c.measured(1, 9ms);
    CHECK(c.pick(start) == 0);
    c.measured(0, 100ms);
    c.measured(1, 9ms);
    CHECK(c.pick(start) == 1);
}

TEST_CASE("a fast answer makes up for slow ones", "[logic][endpoint_choice]") {
    choice c(2, 0);
    c.measured(0, 20ms);
    for (int i = 0; i != 3; ++i) {
        c.measured(1, 1500ms);
    }
    CHECK(c.pick(start) == 0);
    c.measured(1, 1ms);
    CHECK(c.pick(start) == 1);
}

TEST_CASE("from an endpoint that failed a client goes to the nearest", "[logic][endpoint_choice]") {
    choice c(4, 0);
    c.measured(1, 3ms);
    c.measured(2, 1ms);
    c.measured(3, 2ms);
    c.measured(0, 1ms);
    CHECK(c.pick(start) == 0);
    c.failed(0, start);
    CHECK(c.pick(start) == 2);
    c.failed(2, start);
    CHECK(c.pick(start) == 3);
    c.failed(1, start);
    c.failed(3, start + 10ms);
    CHECK(c.pick(start + 10ms) == 0); // the first to be free
}

TEST_CASE("an endpoint that answers a question is not shunned", "[logic][endpoint_choice]") {
    choice c(2, 0);
    c.failed(0, start);
    c.failed(1, start);
    c.measured(1, 1ms);
    CHECK(c.pick(start) == 1);
}

TEST_CASE("that a stream works says nothing of calls that fail", "[logic][endpoint_choice]") {
    constexpr endpoint_use call = endpoint_use::call, stream = endpoint_use::stream;
    choice c(2, 0);
    c.failed(0, start);
    CHECK_FALSE(c.succeeded(0, stream));
    c.measured(0, 1ms); // it answers again
    c.measured(1, 5ms);
    CHECK(c.pick(start) == 0);
    c.failed(0, start);
    c.failed(0, start, stream);
    CHECK_FALSE(c.succeeded(0, stream));
    c.measured(1, 5ms);
    CHECK(c.pick(start + 10s) == 1); // though the other one is nearer
    CHECK(c.succeeded(0, call));
    c.measured(1, 5ms);
    CHECK(c.pick(start) == 0);
    c.failed(0, start, stream);
    CHECK(c.pick(start) == 1);
    CHECK(c.succeeded(0, stream)); // only streams had failed
    c.measured(1, 5ms);
    CHECK(c.pick(start) == 0);
}

TEST_CASE("endpoints come and go, and what is known of the others stays",
          "[logic][endpoint_choice]") {
    choice c(1, 0);
    c.learn({2, 1, 5});
    CHECK(c.size() == 4);
    CHECK(c.all() == std::vector<endpoint>{at(0), at(2), at(1), at(5)});
    c.failed(0, start);
    c.failed(2, start);
    CHECK(c.pick(start) == 1);
    c.succeeded(1);
    c.learn({1, 5});
    CHECK(c.pick(start) == 1); // wherever it stands
    c.learn({5, 1, 7});
    CHECK(c.all() == std::vector<endpoint>{at(0), at(5), at(1), at(7)});
    CHECK(c.pick(start) == 1);
    c.failed(1, start);
    CHECK(c.pick(start) == 7); // 0 is shunned still
    c.failed(7, start);
    c.learn({8}); // the preferred one has gone
    CHECK(c.pick(start) == 8);
    c.succeeded(1); // too late to tell
    c.failed(5, start);
    c.measured(7, 1ms);
    CHECK(c.size() == 2);
    CHECK(c.pick(start) == 8);
}

TEST_CASE("an endpoint that was named stays, whatever is learned", "[logic][endpoint_choice]") {
    choice c(2, 0);
    c.succeeded(0);
    c.learn({7, 8});
    CHECK(c.size() == 4);
    CHECK(c.pick(start) == 0); // it works
    for (int i = 0; i != 10; ++i) {
        c.failed(7, start);
        c.failed(8, start);
    }
    c.failed(0, start);
    CHECK(c.pick(start) == 1);
    c.learn({});
    CHECK(c.all() == std::vector<endpoint>{at(0), at(1)});
    CHECK(c.pick(start) == 1);
}

TEST_CASE("the user names other endpoints, and what is known of those that stay is kept",
          "[logic][endpoint_choice]") {
    endpoint_choice<time_point> c(cluster(3), 2);
    c.learn({at(7)});
    CHECK(c.size() == 4);
    c.failed(at(0), start, endpoint_use::call);
    c.name({at(5), at(0), at(2)});
    CHECK(c.all() == std::vector<endpoint>{at(5), at(0), at(2)});
    CHECK(c.named() == c.all());
    CHECK(c.pick(start) == at(2)); // still the preferred one
    c.failed(at(2), start, endpoint_use::call);
    CHECK(c.pick(start) == at(5));              // 0 is still shunned
    c.failed(at(7), start, endpoint_use::call); // gone
    c.name({at(9)});
    CHECK(c.pick(start) == at(9));
}
