// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/event_scanner.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using coetcd::detail::wire::event_scanner;

namespace {

struct found {
    std::vector<std::size_t> commas;
    std::size_t head = 0;

    bool operator==(const found&) const = default;
};

/// What is found in a message that arrives up to each of these sizes, one after the other.
found scan(std::string_view message, const std::vector<std::size_t>& sizes) {
    event_scanner scanner;
    found result;
    std::size_t at = 0;
    for (const std::size_t size : sizes) {
        while (at != size && scanner.pass_comma(message.substr(0, size), at)) {
            result.commas.push_back(at - 1);
        }
        CHECK(at == size);
    }
    result.head = scanner.head();
    return result;
}

/// @param marked The message with a `^` behind the head, and instead of each comma that matters.
found expected(std::string& marked) {
    found result;
    for (std::size_t at = marked.find('^'); at != marked.npos; at = marked.find('^')) {
        if (result.head == 0) {
            result.head = at;
            marked.erase(at, 1);
        } else {
            result.commas.push_back(at);
            marked[at] = ',';
        }
    }
    return result;
}

} // namespace

TEST_CASE("the commas between events are found, however a message is sliced", "[wire][stream]") {
    struct {
        const char* name;
        std::string marked;
    } const rows[] = {
        {"of 3.4 to 3.6",
         R"({"result":{"header":{"cluster_id":"1","revision":"9"},"watch_id":"7","events":[^{"kv":{"key":"YQ==","mod_revision":"8"}}^{"type":"DELETE","kv":{"key":"Yg=="},"prev_kv":{"value":"Yg=="}}^{}]}})"},
        {"of 3.7, with spaces",
         R"({ "result" : {"header": {"cluster_id": "1"} , "watch_id" : "7", "events": [^ {"kv": {}} ^ {"kv": {}} ] } })"},
        {"what looks like one in a key, or in a value",
         R"({"result":{"header":{},"watch_id":"7","events":[^{"kv":{"key":"],[{\"","a\\":"}","b":[1,2,[3,4]]}}^{}]}})"},
        {"other fields, before and after",
         R"({"result":{"header":{"a":[1,2]},"watch_id":"7","canceled":false,"other":[{},{}],"events":[^{}^{}],"more":[{},{}],"events":[{},{}]}})"},
        {"one event, and none",
         R"({"result":{"header":{},"watch_id":"7","events":[^{"kv":{"key":"YQ==","version":"1"}}]}})"},
        {"none", R"({"result":{"header":{},"watch_id":"7","events":[^]}})"},
        {"the id comes too late", R"({"result":{"header":{},"events":[{},{}],"watch_id":"7"}})"},
        {"so does the header", R"({"result":{"watch_id":"7","events":[{},{}],"header":{}}})"},
        {"names as values",
         R"({"result":{"a":"header","b":"watch_id","events":[{},{}],"c":"events","d":[{},{}]}})"},
        {"names somewhere else",
         R"({"result":{"header":{"watch_id":"7"},"x":{"events":[{},{}]}},"events":[{},{}]})"},
        {"a longer name, and one with an escape",
         R"({"result":{"header":{},"watch_id":"7","events2":[{},{}],"event\u0073":[{},{}]}})"},
        {"a failure",
         R"({"error":{"header":{},"watch_id":"7","message":"a, b","events":[{},{}]}})"},
        {"another answer", R"({"header":{},"watch_id":"7","events":[{},{}]})"},
        {"an array of results", R"([{"result":{"header":{},"watch_id":"7","events":[{},{}]}}])"},
        {"no JSON", R"(<html>,",],[{}]}}}}{"result":{"header":{},"watch_id":"7","events":[,,])"},
    };
    for (const auto& row : rows) {
        INFO(row.name);
        std::string message = row.marked;
        const found right = expected(message);
        CHECK(scan(message, {message.size()}) == right);
        std::vector<std::size_t> bytes;
        for (std::size_t size = 1; size <= message.size(); ++size) {
            bytes.push_back(size);
            CHECK(scan(message, {size, message.size()}) == right);
        }
        CHECK(scan(message, bytes) == right);
    }
}
