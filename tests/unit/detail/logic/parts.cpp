// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/parts.hpp>

#include <string>
#include <vector>

#include "support/catch.hpp"

using coetcd::lock_mode;
using coetcd::detail::logic::each_once;

namespace {

struct part {
    std::string name;
    lock_mode mode;
};

/// As "a+ b": a plus for those that are exclusive.
std::string text(const std::vector<part>& parts) {
    std::string out;
    for (const part& p : parts) {
        out += (out.empty() ? "" : " ") + p.name + (p.mode == lock_mode::exclusive ? "+" : "");
    }
    return out;
}

std::vector<part> parts(const std::string& text) {
    std::vector<part> out;
    for (const char c : text) {
        if (c == '+') {
            out.back().mode = lock_mode::exclusive;
        } else {
            out.push_back({std::string(1, c), lock_mode::shared});
        }
    }
    return out;
}

} // namespace

TEST_CASE("each name counts once, and as exclusive if it is so anywhere", "[logic][parts]") {
    struct {
        const char* given;
        const char* result;
    } const rows[] = {
        {"", ""},
        {"a", "a"},
        {"a+", "a+"},
        {"ba", "a b"},
        {"c+ab+", "a b+ c+"},
        {"aa", "a"},
        {"a+a+", "a+"},
        {"aa+", "a+"},
        {"a+a", "a+"},
        {"aba+ab+b", "a+ b+"},
        {"baab", "a b"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.given);
        CHECK(text(each_once(parts(row.given))) == row.result);
    }
}

TEST_CASE("the modes of a lock have names", "[lock_mode]") {
    CHECK(to_string(lock_mode::exclusive) == std::string("exclusive"));
    CHECK(to_string(lock_mode::shared) == std::string("shared"));
    CHECK(to_string(static_cast<lock_mode>(7)) == std::string("unknown"));
}
