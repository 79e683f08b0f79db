// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/refused_lately.hpp>

#include <chrono>
#include <string>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;
using namespace std::chrono_literals;

namespace {
using clock_type = std::chrono::steady_clock;
using memory = refused_lately<clock_type::time_point>;
} // namespace

TEST_CASE("a transaction is about what its first key belongs to", "[logic][refused_lately]") {
    const attempt_keys a{1, {exclusive_keys("some/n.ame", 1, 2, 3, 0)}};
    for (const txn& what : {enter(a, ""),
                            take(a, ""),
                            confirm(a, 5),
                            release(a.by_name[0], 5),
                            end(a.by_name[0], 1),
                            look_at({{"some/n.ame/1-2-4", 4}})}) {
        CHECK(subject_of(what) == "some/n.ame");
    }
    CHECK(subject_of(txn().then(op::put("a/b", ""))) == "a");
    CHECK(subject_of(txn().then(op::erase("a.b"))) == "a");
    CHECK(subject_of(txn().then(op::range("plain"))) == "plain");
    CHECK(subject_of(txn().then(op::nested(txn()))).empty());
    CHECK(subject_of(txn()).empty());
}

TEST_CASE("a refusal is about keys, or about something that passes", "[logic][refused_lately]") {
    CHECK(is_about_keys(server_errc::permission_denied));
    CHECK(is_about_keys(server_errc::invalid_argument));
    CHECK(is_about_keys(errc::protocol_error));
    CHECK_FALSE(is_about_keys({}));
    CHECK_FALSE(is_about_keys(server_errc::not_found));          // a lease
    CHECK_FALSE(is_about_keys(server_errc::resource_exhausted)); // the space
    CHECK_FALSE(is_about_keys(errc::timed_out));
}

TEST_CASE("what was refused is remembered for ten seconds", "[logic][refused_lately]") {
    const clock_type::time_point now{};
    memory m;
    CHECK(m.empty());
    m.add("a", now);
    m.add("b", now + 5s);
    CHECK_FALSE(m.empty());
    CHECK(m.contains("a", now + 10s - 1ns));
    CHECK_FALSE(m.contains("a", now + 10s));
    CHECK_FALSE(m.contains("c", now));
    m.add("a", now + 9s); // again
    CHECK(m.contains("a", now + 18s));
    m.remove("a");
    m.remove("never there");
    CHECK_FALSE(m.contains("a", now + 9s));
    CHECK(m.contains("b", now + 14s));
    m.add("c", now + 15s); // what is over goes
    m.remove("c");
    CHECK(m.empty());
}

TEST_CASE("no more than 64 refusals are remembered, the latest", "[logic][refused_lately]") {
    const clock_type::time_point now{};
    memory m;
    for (int i = 0; i != 65; ++i) {
        m.add(std::to_string(i), now + std::chrono::milliseconds(i));
    }
    CHECK_FALSE(m.contains("0", now + 1s));
    CHECK(m.contains("1", now + 1s));
    CHECK(m.contains("64", now + 1s));
}
