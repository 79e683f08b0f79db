// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/line_splitter.hpp>

#include <cstddef>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::wire;

namespace {

struct outcome {
    std::vector<std::string> lines;
    bool overflowed = false;
    std::string beginning;

    bool operator==(const outcome&) const = default;
};

/// What a reader gets from a stream that arrives in `parts` and then ends.
outcome split(const std::vector<std::string_view>& parts, std::size_t max_line) {
    line_splitter splitter(max_line);
    outcome result;
    std::string line;
    for (const auto part : parts) {
        splitter.feed(part);
        while (!splitter.overflowed() && splitter.next(line)) {
            result.lines.push_back(line);
        }
    }
    while (splitter.finish(line)) {
        result.lines.push_back(line);
    }
    result.overflowed = splitter.overflowed();
    result.beginning = splitter.beginning();
    return result;
}

/// The same in the plainest way.
outcome expected(std::string_view stream, std::size_t max_line) {
    outcome result;
    while (!stream.empty() && !result.overflowed) {
        const auto end = stream.find('\n');
        auto line = stream.substr(0, end);
        stream = end == stream.npos ? "" : stream.substr(end + 1);
        result.overflowed = line.size() > max_line;
        result.beginning = result.overflowed ? line.substr(0, max_line) : "";
        if (line.ends_with('\r')) {
            line.remove_suffix(1);
        }
        if (!line.empty() && !result.overflowed) {
            result.lines.emplace_back(line);
        }
    }
    return result;
}

/// How many of the ways to slice `stream` into three parts, or into bytes, give another result.
int differences(std::string_view stream, std::size_t max_line) {
    const auto whole = expected(stream, max_line);
    int count = 0;
    for (std::size_t i = 0; i <= stream.size(); ++i) {
        for (std::size_t j = i; j <= stream.size(); ++j) {
            const auto parts = {stream.substr(0, i), stream.substr(i, j - i), stream.substr(j)};
            count += split(parts, max_line) != whole;
        }
    }
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i != stream.size(); ++i) {
        bytes.push_back(stream.substr(i, 1));
    }
    return count + (split(bytes, max_line) != whole);
}

// Recorded from etcd 3.4.23, shortened; the last error of a stream has no newline.
constexpr std::string_view recorded =
    "{\"result\":{\"header\":{\"revision\":\"9\"},\"watch_id\":\"7\",\"created\":true}}\n"
    "{\"result\":{\"header\":{\"revision\":\"9\"},\"watch_id\":\"-1\"}}\n\n\r\n"
    "{\"result\":{\"header\":{},\"watch_id\":\"9\",\"canceled\":true}}\r\n"
    "{\"error\":{\"grpc_code\":4,\"message\":\"context deadline exceeded\"}}";

} // namespace

TEST_CASE("a stream is split into its lines", "[wire][stream]") {
    const auto result = split({recorded}, 4096);
    REQUIRE(result.lines.size() == 4);
    CHECK(result.lines[0] ==
          R"({"result":{"header":{"revision":"9"},"watch_id":"7","created":true}})");
    CHECK(result.lines[2] == R"({"result":{"header":{},"watch_id":"9","canceled":true}})");
    CHECK(result.lines[3] == R"({"error":{"grpc_code":4,"message":"context deadline exceeded"}})");
    CHECK_FALSE(result.overflowed);
}

TEST_CASE("a line is there as soon as its newline is", "[wire][stream]") {
    line_splitter splitter(100);
    std::string line = "old";
    splitter.feed("ab");
    CHECK_FALSE(splitter.next(line));
    splitter.feed("c\nd");
    REQUIRE(splitter.next(line));
    CHECK(line == "abc");
    CHECK_FALSE(splitter.next(line));
    REQUIRE(splitter.finish(line));
    CHECK(line == "d");
    CHECK_FALSE(splitter.finish(line));
    CHECK_FALSE(splitter.next(line));
}

TEST_CASE("finish returns the complete lines first", "[wire][stream]") {
    line_splitter splitter(100);
    splitter.feed("a\n\nb\nc\r");
    std::string line;
    for (const auto text : {"a", "b", "c"}) {
        REQUIRE(splitter.finish(line));
        CHECK(line == text);
    }
    CHECK_FALSE(splitter.finish(line));
}

TEST_CASE("a carriage return counts only before the end of a line", "[wire][stream]") {
    CHECK(split({"a\rb\r\r\n\r\r\n"}, 100).lines == std::vector<std::string>{"a\rb\r", "\r"});
}

TEST_CASE("slicing never changes the lines", "[wire][stream]") {
    CHECK(differences(recorded, 4096) == 0);
    CHECK(differences("\r\n\n\r\na\r\n\r\r\nb", 100) == 0);
}

TEST_CASE("slicing never changes the verdict on a line's length", "[wire][stream][security]") {
    const std::string_view stream = "ab\n\nabcd\r\nabcde\n\r\nabc";
    for (std::size_t max_line = 0; max_line != 8; ++max_line) {
        CAPTURE(max_line);
        CHECK(differences(stream, max_line) == 0);
    }
    for (std::size_t max_line = 50; max_line != 75; ++max_line) {
        CAPTURE(max_line);
        CHECK(differences(recorded.substr(0, 160), max_line) == 0);
    }
}

TEST_CASE("sec.limits: a line may be as long as the limit and no longer",
          "[wire][stream][security]") {
    for (const std::size_t limit : {1u, 2u, 1000u}) {
        const std::string fits(limit, 'x');
        const auto exact = split({fits, "\n", fits, "\n", fits}, limit);
        CHECK(exact.lines == std::vector<std::string>{fits, fits, fits});
        CHECK_FALSE(exact.overflowed);

        const auto complete = split({fits, "\n", fits, "x\n", "y\n"}, limit);
        CHECK(complete.lines == std::vector<std::string>{fits});
        CHECK(complete.overflowed);

        const auto open = split({fits, "\n", fits, "x"}, limit);
        CHECK(open == complete);
    }
}

TEST_CASE("of a line that is too long the beginning is kept", "[wire][stream]") {
    std::string line(5000, 'x');
    line.replace(0, 3, "abc");
    line.replace(1023, 2, "yz");
    for (const std::size_t first : {0u, 1u, 1023u, 1024u, 2000u}) {
        CAPTURE(first);
        const auto parts = {std::string_view(line).substr(0, first),
                            std::string_view(line).substr(first)};
        CHECK(split(parts, 3000).beginning == line.substr(0, 1024));
    }
    CHECK(split({"abcd", "efgh"}, 6).beginning == "abcdef");
    CHECK(split({"abcd\n", "efgh"}, 6).beginning.empty());
}

TEST_CASE("an overflow is told after the lines before it, and for ever", "[wire][stream]") {
    line_splitter splitter(3);
    splitter.feed("abc\nabcd");
    CHECK_FALSE(splitter.overflowed());
    std::string line;
    REQUIRE(splitter.next(line));
    CHECK(line == "abc");
    CHECK(splitter.overflowed());
    splitter.feed("\nabc\n");
    CHECK_FALSE(splitter.next(line));
    CHECK_FALSE(splitter.finish(line));
    CHECK(splitter.overflowed());
}

TEST_CASE("splitting takes linear time, however lines are taken", "[wire][stream]") {
    constexpr int count = 300'000; // quadratic time would be minutes
    std::string line;
    SECTION("a long line that arrives byte by byte") {
        line_splitter splitter(count);
        for (int i = 0; i != count; ++i) {
            splitter.feed("x");
            REQUIRE_FALSE(splitter.next(line));
        }
        splitter.feed("\n");
        REQUIRE(splitter.next(line));
        CHECK(line.size() == count);
    }
    SECTION("many lines at once, taken one at a time while others arrive") {
        std::string stream;
        for (int i = 0; i != count; ++i) {
            stream += std::string(50, 'x') + '\n';
        }
        line_splitter splitter(50);
        splitter.feed(stream);
        int lines = 0;
        while (splitter.next(line)) {
            if (++lines < count) {
                splitter.feed("y\n");
            }
        }
        CHECK(lines == 2 * count - 1);
    }
}

TEST_CASE("random streams are split as the plainest splitter would", "[wire][stream]") {
    std::mt19937 random(3);
    for (int round = 0; round != 3000; ++round) {
        std::string stream(random() % 60, '\0');
        for (char& c : stream) {
            c = "ab\r\n"[random() % 4];
        }
        std::vector<std::string_view> parts;
        for (std::string_view rest = stream; !rest.empty();) {
            parts.push_back(rest.substr(0, random() % 8));
            rest.remove_prefix(parts.back().size());
        }
        const std::size_t max_line = 1 + random() % 12;
        REQUIRE(split(parts, max_line) == expected(stream, max_line));
    }
}
