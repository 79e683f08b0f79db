// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/json.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::wire;
using namespace std::string_literals;

namespace {

/// @returns Nothing if `function` throws `errc::protocol_error`.
template<class Function>
auto attempt(Function function) -> std::optional<decltype(function())> {
    try {
        return function();
    } catch (const error& e) {
        if (e.code() != errc::protocol_error) {
            throw;
        }
        return std::nullopt;
    }
}

bool parses(std::string_view text) {
    return attempt([&] { return parse(text).root().extent; }).has_value();
}

/// The field `f` of `{"f":value}`.
template<class Read>
auto field(const std::string& value, Read read) {
    const auto object = parse("{\"f\":" + value + "}");
    return attempt([&] { return read(object.root(), "f"); });
}

std::string nested(std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

enum class color { red, green };

} // namespace

TEST_CASE("JSON of etcd's kind is parsed", "[wire][json]") {
    const json list = parse(R"({"a":["x",true,[{"b":[1,2]},3],null,-1,{}],"b":4})");
    std::vector<json_value::kind> kinds;
    const auto items = read_array(list.root(), "a");
    for (const json_value& item : items) {
        kinds.push_back(item.type);
    }
    using enum json_value::kind;
    CHECK(kinds == std::vector{string, boolean, array, null, negative, object});
    CHECK(items.size() == 6);
    CHECK(read_int64(list.root(), "b") == 4);

    CHECK(json_items(parse(" {\n} \r\n").root()).size() == 0);
    const json twice = parse(R"({"a":1,"a":{"b":2}})"); // the last one counts
    CHECK(read_int64(require_object(twice.root(), "a"), "b") == 2);
    const json gone = parse(R"({"a":{"b":2,"c":3},"a":{}})");
    CHECK(json_items(require_object(gone.root(), "a")).size() == 0);
    CHECK(find_field(parse(R"({"a":1,"a":null})").root(), "a") == nullptr);
}

TEST_CASE("strings of JSON lose their escapes, and stay where they are", "[wire][json]") {
    std::string text =
        R"({"":"\u0000\"\\\/\b\f\n\r\t","\u00e4\ud83d\ude00":"\u00e4\ud83d\ude00x","s":[)";
    for (int i = 0; i != 1000; ++i) {
        text += "\"item " + std::to_string(i) + "\",";
    }
    json read = parse(text + "\"\"]}");
    const json moved = std::move(read);
    CHECK(read_text(moved.root(), "") == "\0\"\\/\b\f\n\r\t"s);
    CHECK(read_text(moved.root(), "\xc3\xa4\xf0\x9f\x98\x80") == "\xc3\xa4\xf0\x9f\x98\x80x");
    int i = 0;
    for (const json_value& item : read_array(moved.root(), "s")) {
        CHECK(item.text == (i == 1000 ? "" : "item " + std::to_string(i)));
        ++i;
    }
    CHECK(i == 1001);
}

TEST_CASE("text that is no JSON is a protocol error", "[wire][json]") {
    for (const auto& text : {""s,        " "s,          "{"s,        "}"s,
                             "]["s,      "{}}"s,        "{}x"s,      "{}{}"s,
                             "{\"a\"}"s, "{\"a\":1,}"s, "{'a':1}"s,  "[1e999]"s,
                             "[01]"s,    "[NaN]"s,      "\"\xff\""s, "\"\\ud800\""s,
                             "\"\n\""s,  "\"a"s,        "\"a\\"s,    "404 page not found\n"s,
                             "{}\0"s,    "{}\0{}"s,     "\"\0\""s,   "// note\n{}"s}) {
        CAPTURE(text);
        CHECK_FALSE(parses(text));
        CHECK_FALSE(try_parse(text));
    }
}

TEST_CASE("sec.json_depth: JSON that nests too deep is refused where it does",
          "[wire][json][security]") {
    CHECK(parses(nested(max_json_depth)));
    CHECK_FALSE(parses(nested(max_json_depth + 1)));
    CHECK_FALSE(parses(std::string(200'000, '[')));
    CHECK_FALSE(parses(nested(200'000)));

    std::string objects = "1";
    for (std::size_t i = 0; i != max_json_depth; ++i) {
        objects = "{\"a\":" + objects + "}";
    }
    CHECK(parses(objects));
    CHECK_FALSE(parses("[" + objects + "]"));

    std::string siblings = "[[]";
    for (int i = 0; i != 1000; ++i) {
        siblings += ",[]";
    }
    CHECK(parses(siblings + "]"));
}

TEST_CASE("sec.json_depth: brackets in a string do not nest", "[wire][json][security]") {
    const auto brackets = std::string(100, '[') + std::string(100, '{');
    CHECK(parses("[\"" + brackets + "\"]"));
    CHECK(parses("[\"\\\"" + brackets + "\"]"));
    CHECK(parses("{\"" + brackets + "\\\\\":1}"));
    CHECK_FALSE(parses("[\"\\\\\"," + nested(max_json_depth) + "]")); // the string ends before them
    CHECK(parses("[\"}}}]]]\"]"));
}

TEST_CASE("sec.json: JSON with more values than an answer has is refused",
          "[wire][json][security]") {
    const auto list = [](const std::string& item, std::size_t count) {
        std::string text = "[" + item;
        for (std::size_t i = 1; i < count; ++i) {
            text += "," + item;
        }
        return text + "]";
    };
    for (const char* item : {"{}", "[]", "1", "\"\"", "{\"\":0}", "[[]]"}) {
        CAPTURE(item);
        CHECK(parses(list(item, 1000)));
        CHECK_FALSE(parses(list(item, 100'000)));
    }
    CHECK_FALSE(parses("{\"a\":{" + std::string(100'000, ',') + "}}"));
    // What etcd sends, at its densest.
    CHECK(parses(list(R"({"ID":"12345"})", 100'000)));
    CHECK(parses(list(R"("YWJj")", 100'000)));
    CHECK(parses(list(R"({"key":"YWJj","create_revision":"12","mod_revision":"34","version":"5"})",
                      100'000)));
    CHECK(parses(list(R"({"response_put":{"header":{"revision":"12"}}})", 100'000)));
    CHECK(parses(list(R"({"type":"DELETE","kv":{"key":"YWJj","mod_revision":"9"}})", 100'000)));
    CHECK(
        parses("[\"" + std::string(100'000, ',') + "\"]")); // a comma in a string separates nothing
}

TEST_CASE("a field that is absent or null has its default", "[wire][json]") {
    for (const auto text : {"{}", R"({"f":null})"}) {
        const json whole = parse(text);
        const json_value& object = whole.root();
        CHECK(find_field(object, "f") == nullptr);
        CHECK(read_object(object, "f") == nullptr);
        CHECK(read_array(object, "f").size() == 0);
        CHECK(read_bytes(object, "f").empty());
        CHECK(read_text(object, "f").empty());
        CHECK_FALSE(read_bool(object, "f"));
        CHECK(read_int64(object, "f") == 0);
        CHECK(read_uint64(object, "f") == 0);
        CHECK(read_count(object, "f") == 0);
        CHECK(read_revision(object, "f") == 0);
        CHECK(read_enum<color>(object, "f", {{"RED", color::red}, {"GREEN", color::green}}) ==
              color::red);
        CHECK_FALSE(attempt([&] { return require_object(object, "f"); }));
    }
}

TEST_CASE("a field of something that is no object is a protocol error", "[wire][json]") {
    for (const auto text : {"null", "[]", "1", "true", "\"f\""}) {
        const auto value = parse(text);
        CHECK_FALSE(attempt([&] { return find_field(value.root(), "f"); }));
    }
}

TEST_CASE("sec.integers: 64-bit integers are read from strings and from numbers", "[wire][json]") {
    CHECK(field("\"12\"", read_int64) == 12);
    CHECK(field("12", read_int64) == 12);
    CHECK(field("\"-1\"", read_int64) == -1);
    CHECK(field("-1", read_int64) == -1);
    constexpr auto min = std::numeric_limits<std::int64_t>::min();
    constexpr auto max = std::numeric_limits<std::int64_t>::max();
    CHECK(field("\"-9223372036854775808\"", read_int64) == min);
    CHECK(field("-9223372036854775808", read_int64) == min);
    CHECK(field("\"9223372036854775807\"", read_int64) == max);
    CHECK(field("9223372036854775807", read_int64) == max);
    CHECK(field("\"13023500245440218411\"", read_uint64) == 13023500245440218411u);
    CHECK(field("13023500245440218411", read_uint64) == 13023500245440218411u);
    CHECK(field("\"18446744073709551615\"", read_uint64) == ~std::uint64_t(0));
    CHECK(field("18446744073709551615", read_uint64) == ~std::uint64_t(0));
    CHECK(field("0", read_count) == 0);
    CHECK(field("\"9223372036854775807\"", read_count) == max);
    CHECK(field("\"9223372036854775806\"", read_revision) == max - 1);
    CHECK_FALSE(field("\"9223372036854775807\"", read_revision)); // what comes after it?
    CHECK_FALSE(field("-1", read_revision));
}

TEST_CASE("sec.integers: integers that are out of range or no integers are protocol errors",
          "[wire][json]") {
    for (const auto text : {"\"9223372036854775808\"",
                            "9223372036854775808",
                            "\"-9223372036854775809\"",
                            "-9223372036854775809",
                            "18446744073709551615",
                            "18446744073709551616",
                            "1.0",
                            "1e0",
                            "-0.5",
                            "\"1.0\"",
                            "\"1e3\"",
                            "\"+1\"",
                            "\" 1\"",
                            "\"1 \"",
                            "\"0x1\"",
                            "\"\"",
                            "\"-\"",
                            "\"1\\u0000\"",
                            "true",
                            "[]",
                            "{}"}) {
        CAPTURE(text);
        CHECK_FALSE(field(text, read_int64));
        CHECK_FALSE(field(text, read_count));
    }
    for (const auto text : {"-1",
                            "\"-1\"",
                            "\"-0\"",
                            "\"18446744073709551616\"",
                            "18446744073709551616",
                            "1.0",
                            "false"}) {
        CAPTURE(text);
        CHECK_FALSE(field(text, read_uint64));
    }
    CHECK_FALSE(field("-1", read_count));
    CHECK_FALSE(field("\"-1\"", read_count));
}

TEST_CASE("a field of the wrong type is a protocol error", "[wire][json]") {
    CHECK(field("\"AP8=\"", read_bytes) == "\0\xff"s);
    CHECK_FALSE(field("\"A\"", read_bytes));
    CHECK_FALSE(field("1", read_bytes));
    CHECK_FALSE(field("[]", read_bytes));
    CHECK(field("\"x\"", read_text) == "x");
    CHECK_FALSE(field("1", read_text));
    CHECK(field("true", read_bool) == true);
    CHECK(field("false", read_bool) == false);
    CHECK_FALSE(field("1", read_bool));
    CHECK_FALSE(field("\"true\"", read_bool));
    CHECK_FALSE(field("{}", read_array));
    CHECK_FALSE(field("\"\"", read_array));
    CHECK_FALSE(field("[]", read_object));
    CHECK_FALSE(field("1", read_object));
}

TEST_CASE("enumerators are read by name and by number", "[wire][json]") {
    const auto read = [](const json_value& object, const char* name) {
        return read_enum<color>(object, name, {{"RED", color::red}, {"GREEN", color::green}});
    };
    CHECK(field("\"RED\"", read) == color::red);
    CHECK(field("\"GREEN\"", read) == color::green);
    CHECK(field("0", read) == color::red);
    CHECK(field("1", read) == color::green);
    for (const auto text : {"2", "-1", "1.0", "\"green\"", "\"1\"", "\"\"", "true", "[]"}) {
        CAPTURE(text);
        CHECK_FALSE(field(text, read));
    }
}

TEST_CASE("sec.server_text: a protocol error names the field but not its value",
          "[wire][json][security]") {
    try {
        read_int64(parse(R"({"lease":"secret"})").root(), "lease");
        FAIL("no exception");
    } catch (const error& e) {
        const std::string what = e.what();
        CHECK(what.find("'lease'") != what.npos);
        CHECK(what.find("secret") == what.npos);
    }
}
