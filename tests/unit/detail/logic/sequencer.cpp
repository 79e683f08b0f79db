// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/sequencer.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <variant>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using coetcd::compare;
using coetcd::erase_request;
using coetcd::txn;

namespace {

sequencer made(bool shared, std::int64_t token, std::string key) {
    sequencer s;
    s.shared = shared;
    s.token = token;
    s.key = std::move(key);
    return s;
}

const std::string fine = "coetcd1:exclusive:42:bS8xYS0zLTA"; // m/1a-3-0

} // namespace

TEST_CASE("a sequencer is written in one way, and read back", "[logic][sequencer]") {
    CHECK(write_sequencer(made(false, 42, "m/1a-3-0")) == fine);
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    for (const sequencer& s : {made(false, 1, "m/1a-3-0"),
                               made(true, most, "a/b/read/1-2-3"),
                               made(false, 7, std::string("\x00\xff/\xfb\xef\xbe\x0a", 7)),
                               made(false, 7, std::string(512, '\xff') + "/x"),
                               made(true, 10, "m//x")}) {
        const std::string text = write_sequencer(s);
        CAPTURE(text);
        CHECK(text.find_first_not_of(
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_") ==
              text.npos);
        const auto read = read_sequencer(text);
        REQUIRE(read);
        CHECK(read->shared == s.shared);
        CHECK(read->token == s.token);
        CHECK(read->key == s.key);
    }
}

TEST_CASE("what no library writes is no sequencer", "[logic][sequencer]") {
    REQUIRE(read_sequencer(fine));
    for (const std::string text : {
             "",
             "coetcd1",
             "coetcd1:",
             "coetcd1::",
             "coetcd1:exclusive:42",
             "coetcd1:exclusive:42:",
             "coetcd2:exclusive:42:bS8xYS0zLTA",
             " coetcd1:exclusive:42:bS8xYS0zLTA",
             "Coetcd1:exclusive:42:bS8xYS0zLTA",
             "coetcd1:exclusively:42:bS8xYS0zLTA",
             "coetcd1::42:bS8xYS0zLTA",
             "coetcd1:SHARED:42:bS8xYS0zLTA",
             "coetcd1:exclusive::bS8xYS0zLTA",
             "coetcd1:exclusive:0:bS8xYS0zLTA",
             "coetcd1:exclusive:-1:bS8xYS0zLTA",
             "coetcd1:exclusive:+1:bS8xYS0zLTA",
             "coetcd1:exclusive: 1:bS8xYS0zLTA",
             "coetcd1:exclusive:042:bS8xYS0zLTA",
             "coetcd1:exclusive:0x2a:bS8xYS0zLTA",
             "coetcd1:exclusive:42x:bS8xYS0zLTA",
             "coetcd1:exclusive:9223372036854775808:bS8xYS0zLTA",
             "coetcd1:exclusive:99999999999999999999999:bS8xYS0zLTA",
             "coetcd1:exclusive:42:bS8xYS0zLTA=", // padded
             "coetcd1:exclusive:42:bS8xYS0zLTB",  // unused bits
             "coetcd1:exclusive:42:bS8xYS0zLT",
             "coetcd1:exclusive:42:bS8xYS0zLTA:",
             "coetcd1:exclusive:42:bS8x YS0zLTA",
             "coetcd1:exclusive:42:bS8xYS0zLTA\n",
             "coetcd1:exclusive:42:L18",     // "/_": no name
             "coetcd1:exclusive:42:bS8",     // "m/": no id
             "coetcd1:exclusive:42:bQ",      // "m": no queue
             "coetcd1:exclusive:42:bS8++/8", // the other alphabet
         }) {
        CAPTURE(text);
        CHECK_FALSE(read_sequencer(text));
    }
    CHECK(read_sequencer("coetcd1:exclusive:42:bS8--_8")); // which this one is
    for (std::size_t i = 0; i != fine.size(); ++i) {
        CAPTURE(i);
        CHECK_FALSE(read_sequencer(fine.substr(0, i) + '\0' + fine.substr(i + 1)));
        CHECK_FALSE(read_sequencer(fine.substr(0, i) + '\xff' + fine.substr(i + 1)));
        CHECK_FALSE(read_sequencer(fine.substr(0, i) + '\0' + fine.substr(i)));
    }
    CHECK_FALSE(read_sequencer(write_sequencer(made(false, 1, std::string(1000, 'x') + "/y"))));
    CHECK_FALSE(read_sequencer(std::string(100'000'000, 'x')));
}

TEST_CASE("any byte changed makes another sequencer, or none", "[logic][sequencer]") {
    for (std::size_t i = 0; i != fine.size(); ++i) {
        for (int c = 0; c != 256; ++c) {
            std::string text = fine;
            text[i] = static_cast<char>(c);
            const auto read = read_sequencer(text);
            if (read && write_sequencer(*read) != text) {
                CAPTURE(i, c);
                FAIL_CHECK("it is written in another way");
            }
        }
    }
}

TEST_CASE("a sequencer is one of its own lock's", "[logic][sequencer]") {
    struct {
        const char* key;
        const char* name;
        bool is;
    } const rows[] = {
        {"m/1a-3-0", "m", true},
        {"m/read/1a-3-0", "m", true},
        {"m/write/1a-3-0", "m", true},
        {"m/keep/1a-3-0", "m", true}, // of a writer that reads now
        {"orders/42/1a-3-0", "orders/42", true},
        {"orders/42/1a-3-0", "orders", false}, // another lock below
        {"orders/42/read/1a-3-0", "orders/42", true},
        {"m/read/x/1a", "m", false},
        {"m/1a-3-0", "", false},
        {"m/1a-3-0", "m/", false},
        {"m/1a-3-0", "m/1a-3-0", false},
        {"m2/1a-3-0", "m", false},
        {"m/1a-3-0", "m2", false},
        {"m/1a-3-0", "M", false},
        {"m//1a-3-0", "m/", true},
    };
    for (const auto& row : rows) {
        CAPTURE(row.key, row.name);
        CHECK(is_of(made(false, 5, row.key), row.name) == row.is);
    }
}

TEST_CASE("a proof is a write that can change nothing", "[logic][sequencer]") {
    const txn t = prove(made(false, 5, "m/x"));
    REQUIRE(t.compares.size() == 1);
    REQUIRE(t.success.size() == 1);
    CHECK(t.failure.empty());
    const auto& outer = t.compares.front();
    const auto* inner = std::get_if<txn>(&t.success.front());
    REQUIRE(inner);
    REQUIRE(inner->compares.size() == 1);
    const auto& contradiction = inner->compares.front();
    for (const auto* c : {&outer, &contradiction}) {
        CHECK(c->what == compare::target::create);
        CHECK(c->how == compare::result::equal);
        CHECK(c->range.key == "m/x");
        CHECK(c->range.range_end.empty());
    }
    CHECK(std::get<std::int64_t>(outer.operand) == 5);
    CHECK(std::get<std::int64_t>(contradiction.operand) == 0);
    REQUIRE(inner->success.size() == 1);
    CHECK(std::holds_alternative<erase_request>(inner->success.front()));
}
