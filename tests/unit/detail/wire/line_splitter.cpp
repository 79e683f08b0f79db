// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/line_splitter.hpp>

#include <algorithm>
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
    line.resize(100'000, 'x');
    line.replace(65535, 2, "yz");
    for (const std::size_t first : {0u, 1u, 1023u, 65535u, 65536u, 70000u}) {
        CAPTURE(first);
        const auto parts = {std::string_view(line).substr(0, first),
                            std::string_view(line).substr(first)};
        CHECK(split(parts, 80'000).beginning == line.substr(0, 65536));
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

namespace {

const std::string head_of_events =
    R"({"result":{"header":{"cluster_id":"1","revision":"99"},"watch_id":"7","events":[)";

std::string event_of(int number, std::size_t value) {
    const std::string n = std::to_string(number);
    return R"({"kv":{"key":"YQ==","mod_revision":")" + n + R"(","value":")" +
           std::string(value, 'A') + R"("}})";
}

std::string message_of(const std::vector<std::size_t>& values) {
    std::string text = head_of_events;
    for (std::size_t i = 0; i != values.size(); ++i) {
        text += (i == 0 ? "" : ",") + event_of(static_cast<int>(i), values[i]);
    }
    return text + "]}}";
}

struct piece {
    std::string text;
    bool more;

    bool operator==(const piece&) const = default;
};

/// What a reader gets from a stream that arrives in `parts` and then ends.
std::vector<piece>
cut(const std::vector<std::string_view>& parts, std::size_t max_line, std::size_t size) {
    line_splitter splitter(max_line, size);
    std::vector<piece> result;
    std::string line;
    for (const auto part : parts) {
        splitter.feed(part);
        while (splitter.next(line)) {
            result.push_back({line, splitter.more()});
        }
    }
    while (splitter.finish(line)) {
        result.push_back({line, splitter.more()});
    }
    if (splitter.overflowed()) {
        result.push_back({"too long: " + splitter.beginning(), false});
    }
    return result;
}

/// The same of one message of events, in the plainest way.
std::vector<piece> plainly_cut(const std::vector<std::size_t>& values, std::size_t size) {
    std::vector<std::string> events;
    for (std::size_t i = 0; i != values.size(); ++i) {
        events.push_back(event_of(static_cast<int>(i), values[i]));
    }
    std::vector<piece> result;
    for (std::size_t at = 0; at != events.size();) {
        std::string text = head_of_events + events[at];
        std::string best = text; // at least one
        std::size_t end = ++at;
        for (std::size_t next = at; next != events.size(); ++next) {
            if (text.size() <= size) { // and a comma follows
                best = text;
                end = next;
            }
            text += ',' + events[next];
        }
        const bool whole = text.size() + 3 <= size || at == events.size();
        at = whole ? events.size() : end;
        result.push_back({(whole ? text : best) + "]}}", !whole});
    }
    return result;
}

} // namespace

TEST_CASE("a long message is cut between its events", "[wire][stream]") {
    const std::string head = head_of_events;
    const std::size_t fits = head.size() + 3 * event_of(0, 10).size() + 2;
    const auto all = cut({message_of({10, 10, 10, 10, 10, 10, 10}) + "\nnext\n"}, 4000, fits);
    REQUIRE(all.size() == 4);
    CHECK(all[0] == piece{message_of({10, 10, 10}), true});
    CHECK(all[1].text ==
          head + event_of(3, 10) + ',' + event_of(4, 10) + ',' + event_of(5, 10) + "]}}");
    CHECK(all[1].more);
    CHECK(all[2] == piece{head + event_of(6, 10) + "]}}", false});
    CHECK(all[3] == piece{"next", false});

    // One that is no longer than a piece is not, nor is what has no events.
    const std::string whole = message_of({10, 10, 10});
    CHECK(cut({whole}, 4000, whole.size()) == std::vector<piece>{{whole, false}});
    CHECK(cut({whole}, 4000, whole.size() - 1).size() == 2);
    const std::string other = R"({"result":{"kvs":[{"key":"YQ=="},{"key":"Yg=="}]}})";
    CHECK(cut({other}, 4000, 1) == std::vector<piece>{{other, false}});
}

TEST_CASE("what is behind the events goes with the last of them", "[wire][stream]") {
    std::string text = message_of({1, 1, 1});
    text.replace(text.size() - 2, 2, R"(,"canceled":true}})");
    const auto all = cut({text}, 4000, 1);
    REQUIRE(all.size() == 3);
    CHECK(all[2] == piece{head_of_events + event_of(2, 1) + R"(],"canceled":true}})", false});
}

TEST_CASE("slicing never changes the pieces", "[wire][stream]") {
    const std::string stream =
        message_of({3, 30, 0}) + "\r\n" + message_of({}) + "\n{\"error\":{}}\n" + message_of({9});
    for (const std::size_t size : {1U, 100U, 130U, 150U, 200U, 250U, 300U}) {
        CAPTURE(size);
        for (const std::size_t most : {120U, 160U, 4000U}) {
            const auto whole = cut({stream}, most, size);
            int differences = 0;
            std::vector<std::string_view> bytes;
            for (std::size_t i = 0; i != stream.size(); ++i) {
                const std::string_view all = stream;
                bytes.push_back(all.substr(i, 1));
                differences += cut({all.substr(0, i), all.substr(i)}, most, size) != whole;
                for (std::size_t j = i; j < stream.size(); j += 7) {
                    differences +=
                        cut({all.substr(0, i), all.substr(i, j - i), all.substr(j)}, most, size) !=
                        whole;
                }
            }
            differences += cut(bytes, most, size) != whole;
            CHECK(differences == 0);
        }
    }
}

TEST_CASE("sec.limits: each event may be as long as the limit and no longer",
          "[wire][stream][security]") {
    const std::size_t limit = head_of_events.size() + event_of(0, 500).size() + 1; // a comma
    for (const std::size_t more : {0U, 1U}) {
        std::string text = head_of_events;
        for (int i = 0; i != 50; ++i) {
            text += event_of(0, 10) + ',';
        }
        text += event_of(0, 500 + more);
        const auto all = cut({text + ',' + event_of(1, 1) + "]}}\n"}, limit, limit / 2);
        const std::string last = head_of_events + event_of(0, 500) + "]}}";
        const bool passes = std::any_of(
            all.begin(), all.end(), [&](const piece& p) { return p.text == last && p.more; });
        CHECK(passes == (more == 0));
        CHECK(all.back().text.starts_with("too long: " + head_of_events +
                                          R"({"kv":{"key":"YQ==","mod_revision":"0","value)") ==
              (more != 0));
    }
}

TEST_CASE("sec.limits: what all pieces would begin with has a limit", "[wire][stream][security]") {
    std::string text = message_of({1, 1, 1});
    text.insert(text.find("\"watch_id\""), R"("a":")" + std::string(1000, 'x') + R"(",)");
    CHECK(cut({text}, 4000, 100) == std::vector<piece>{{text, false}});
}

TEST_CASE("random messages are cut as the plainest splitter would", "[wire][stream]") {
    std::mt19937 random(5);
    for (int round = 0; round != 2000; ++round) {
        std::vector<std::size_t> values(1 + random() % 8);
        for (std::size_t& v : values) {
            v = random() % 3 == 0 ? random() % 400 : random() % 20;
        }
        const std::string text = message_of(values);
        std::vector<std::string_view> parts;
        for (std::string_view rest = text; !rest.empty();) {
            parts.push_back(rest.substr(0, random() % 200));
            rest.remove_prefix(parts.back().size());
        }
        const std::size_t size = 1 + random() % 700;
        REQUIRE(cut(parts, 4000, size) == plainly_cut(values, size));
    }
}

TEST_CASE("cutting takes linear time", "[wire][stream]") {
    // 15 MB, all at once or in small slices; quadratic time would be minutes.
    const std::string text = message_of(std::vector<std::size_t>(200'000, 20));
    for (const std::size_t slice : {text.size(), std::size_t{100}}) {
        std::vector<std::string_view> parts;
        for (std::string_view rest = text; !rest.empty();) {
            parts.push_back(rest.substr(0, slice));
            rest.remove_prefix(parts.back().size());
        }
        const auto all = cut(parts, text.size(), 4096);
        CHECK(all.size() > 1000);
        CHECK(all.size() < 10'000);
    }
}
