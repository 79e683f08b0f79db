// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/secret.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail;

TEST_CASE("sec.wiped: what is wiped leaves nothing behind", "[secret][security]") {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{5}, std::size_t{15}, std::size_t{1000}}) {
        std::string text(size, 'x');
        const char* const memory = text.data();
        const std::size_t capacity = text.capacity();
        wipe(text);
        CHECK(text.empty());
        CHECK(text.capacity() == capacity);
        text.resize(capacity, 'y'); // its memory may be looked at again
        CHECK(text.data() == memory);
    }
    std::vector<char> bytes(100, 'x');
    wipe(bytes.data(), bytes.size());
    CHECK(std::count(bytes.begin(), bytes.end(), '\0') == 100);
}

TEST_CASE("sec.wiped: a string is wiped at the end of the block", "[secret][security]") {
    std::string text = "short";
    const char* const memory = text.data();
    {
        const wipe_at_end guard(text);
        CHECK(text == "short");
    }
    CHECK(text.empty());
    for (int i = 0; i != 5; ++i) {
        CHECK(memory[i] == '\0'); // short strings live in the object itself
    }
}

TEST_CASE("sec.wiped: a secret wipes what it was made of, and is copied on demand",
          "[secret][security]") {
    std::string text = "canary";
    const char* const memory = text.data();
    secret first(std::move(text));
    CHECK(memory[0] == '\0');
    CHECK(memory[5] == '\0');
    CHECK(first.copy() == "canary");
    CHECK(first.view() == "canary");
    secret second(std::move(first));
    CHECK(second.copy() == "canary");
    CHECK(first.copy().empty()); // NOLINT: that is the point
    secret third;
    third = std::move(second);
    CHECK(third.copy() == "canary");
}
