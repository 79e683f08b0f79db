// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/addresses.hpp>

#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <string>
#include <string_view>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace std::chrono_literals;

namespace {

constexpr time_point start{100s};

asio::ip::address address(char c) { // a digit: IPv4; a letter: IPv6
    const std::string text(1, c);
    return asio::ip::make_address(c <= '9' ? "10.0.0." + text : "fd00::" + text);
}
logic::addresses addresses_of(std::string_view text) {
    logic::addresses out;
    for (const char c : text) {
        out.push_back(address(c));
    }
    return out;
}
std::string text_of(const logic::addresses& all) {
    std::string out;
    for (const auto& a : all) {
        out += a.to_string().back();
    }
    return out;
}

struct record : logic::name_record<time_point> {
    record() = default;
    explicit record(std::string_view all) { look_up(start, all); }
    void look_up(time_point now, std::string_view all) {
        begin(now);
        found(addresses_of(all));
    }
    std::string text() const { return text_of(known()); }
    void avoid_all(std::string_view all) {
        for (const char c : all) {
            avoid(address(c));
        }
    }
};

} // namespace

TEST_CASE("IPv6 and IPv4 take turns", "[logic][addresses]") {
    struct {
        const char* found;
        const char* order;
    } const rows[] = {
        {"", ""},
        {"1", "1"},
        {"123", "123"},
        {"abc12", "a1b2c"},
        {"12abc", "1a2bc"},
        {"1a2b", "1a2b"},
        {"aab1a1", "a1b"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.found);
        CHECK(text_of(logic::in_turns(addresses_of(row.found))) == row.order);
    }
}

TEST_CASE("a name is looked up again when all of its addresses have failed", "[logic][addresses]") {
    struct {
        const char* failed;
        std::chrono::milliseconds later;
        bool due;
    } const rows[] = {
        {"", 9999ms, false},
        {"", 10s, true},
        {"1", 9999ms, false},
        {"13", 9999ms, false},
        {"123", 499ms, false},
        {"123", 500ms, true},
        {"312", 500ms, true},
    };
    for (const auto& row : rows) {
        CAPTURE(row.failed, row.later.count());
        record r("123");
        r.avoid_all(row.failed);
        CHECK(r.is_due(start + row.later) == row.due);
    }
    record r("12");
    r.avoid_all("12");
    r.prefer(address('2')); // it works after all
    CHECK_FALSE(r.is_due(start + 9s));
    r.avoid_all("2");
    CHECK(r.is_due(start + 9s));
    r.begin(start + 9s);
    CHECK_FALSE(r.is_due(start + 99s)); // one at a time
    r.found(addresses_of("12"));        // as before
    CHECK_FALSE(r.is_due(start + 9499ms));
    CHECK(r.is_due(start + 9500ms));
    r.look_up(start + 10s, "3");
    CHECK_FALSE(r.is_due(start + 19s));
}

TEST_CASE("a name of which nothing is known is looked up at once, and then in due time",
          "[logic][addresses]") {
    record r;
    CHECK(r.is_due(start));
    r.begin(start);
    CHECK_FALSE(r.is_due(start + 5s));
    r.failed();
    CHECK_FALSE(r.is_due(start + 499ms));
    CHECK(r.is_due(start + 500ms));
}

TEST_CASE("a call waits for a lookup, and not for one that hangs if anything is known",
          "[logic][addresses]") {
    record r;
    r.begin(start);
    CHECK(r.patience(start, start + 1s) == start + 1s);
    r.found(addresses_of("1"));
    CHECK(r.patience(start + 1s, start + 2s) == start + 1s); // nothing is under way
    r.begin(start + 10s);
    CHECK(r.patience(start + 10s, start + 12s) == start + 10500ms);
    CHECK(r.patience(start + 10s, start + 10200ms) == start + 10100ms);
    CHECK(r.patience(start + 10400ms, start + 12s) == start + 10500ms);
    CHECK(r.patience(start + 11s, start + 12s) <= start + 11s);
    CHECK(r.patience(start + 10s, time_point::max()) == start + 10500ms);
}

TEST_CASE("what works comes first, then what is new, then what does not work",
          "[logic][addresses]") {
    record r("123");
    CHECK(r.text() == "123");
    r.prefer(address('3'));
    CHECK(r.text() == "312");
    r.avoid(address('1'));
    CHECK(r.text() == "321");
    r.avoid(address('9')); // which is none of them
    r.prefer(address('9'));
    CHECK(r.text() == "321");
    r.look_up(start, "1243");
    CHECK(r.text() == "3241");
    r.avoid(address('3'));
    CHECK(r.text() == "2413");
    r.look_up(start, "35a1");
    CHECK(r.text() == "a513"); // in turns, in what is new
    r.prefer(address('3'));
    CHECK(r.text() == "3a51");
    r.begin(start);
    r.failed(); // what is known stays
    CHECK(r.text() == "3a51");
}
