// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/service_endpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::logic;

namespace {

key_value at(std::string key, std::string value, std::int64_t mod = 4) {
    key_value kv;
    kv.key = "s/" + std::move(key);
    kv.value = std::move(value);
    kv.create_revision = 3;
    kv.mod_revision = mod;
    kv.lease = 8;
    return kv;
}
std::string told(const std::optional<endpoint_list>& all) {
    std::string text = all ? "" : "look";
    for (const service_endpoint& e : all.value_or(endpoint_list())) {
        text += e.key.substr(2) + '=' + e.address + ' ';
    }
    return text;
}
event put(key_value kv) {
    event e;
    e.kv = std::move(kv);
    return e;
}
std::string nested(std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
}

} // namespace

TEST_CASE("an endpoint is written as Go writes it", "[logic][registry]") {
    CHECK(endpoint_value("10.0.0.7:80", "null") ==
          R"({"Op":0,"Addr":"10.0.0.7:80","Metadata":null})");
    CHECK(endpoint_value("a", R"({"zone":"b"})") ==
          R"({"Op":0,"Addr":"a","Metadata":{"zone":"b"}})");
    CHECK(endpoint_value("\"\\\n", "1") == R"({"Op":0,"Addr":"\"\\\n","Metadata":1})");
    CHECK(endpoint_value("a", nested(12)).size() > 24);
    CHECK_THROWS_WITH(endpoint_value("\xff", "null"), support::contains("address"));
    for (const std::string& bad : {std::string(),
                                   std::string("{"),
                                   std::string("x"),
                                   std::string("1,2"),
                                   std::string("1]],[[2"),
                                   nested(13),
                                   nested(100'000),
                                   std::string("1\0", 2)}) {
        CHECK_THROWS_AS(endpoint_value("a", bad), std::invalid_argument);
    }
    CHECK(endpoint_key("s", "a:1") == "s/a:1");
    CHECK_THROWS_AS(endpoint_key("", "a"), std::invalid_argument);
    CHECK_THROWS_AS(endpoint_key("s", ""), std::invalid_argument);
    CHECK_THROWS_AS(endpoint_key("s", std::string(511, 'x')), std::invalid_argument);
    CHECK(endpoint_key("s", std::string(510, 'x')).size() == 512);
}

TEST_CASE("an endpoint is read as Go writes it, and nothing else is one", "[logic][registry]") {
    for (const std::string metadata : {"null", R"({"zone":"b"})", "[1,2.5,\"x\"]", "true"}) {
        const auto read = endpoint_in(at("x", endpoint_value("a:1", metadata)));
        REQUIRE(read);
        CHECK(read->key == "s/x");
        CHECK(read->address == "a:1");
        CHECK(read->metadata == metadata);
        CHECK(read->revision == 4);
        CHECK(read->lease == 8);
    }
    const auto lean = endpoint_in(at("x", R"({"Addr":"a"})"));
    REQUIRE(lean);
    CHECK(lean->metadata == "null");
    for (const std::string& none :
         {std::string(),
          std::string("x"),
          std::string("[]"),
          std::string("{}"),
          std::string(R"({"Addr":7})"),
          std::string(R"({"Addr":"a","Metadata":)") + nested(100'000) + "}"}) {
        CHECK_FALSE(endpoint_in(at("x", none)));
    }
}

TEST_CASE("the endpoints of a service follow the changes of its keys", "[logic][registry]") {
    const auto value = [](const std::string& address) { return endpoint_value(address, "null"); };
    range_response read;
    read.kvs = {at("b", value("2")), at("x", "no endpoint"), at("a", value("1"))};
    const endpoint_list now = endpoints_in(read);
    CHECK(told(now) == "a=1 b=2 ");
    event gone;
    gone.type = event_type::erase;
    gone.kv.key = "s/a";
    gone.kv.mod_revision = 9;
    CHECK(told(endpoints_after(now, gone)) == "b=2 ");
    gone.kv.key = "s/x";
    CHECK(told(endpoints_after(now, gone)) == "a=1 b=2 ");
    CHECK(told(endpoints_after(now, put(at("c", value("3"))))) == "a=1 b=2 c=3 ");
    CHECK(told(endpoints_after(now, put(at("aa", value("3"))))) == "a=1 aa=3 b=2 ");
    CHECK(told(endpoints_after(now, put(at("b", value("3"))))) == "a=1 b=3 ");
    CHECK(told(endpoints_after(now, put(at("b", "no endpoint any more")))) == "a=1 ");
    CHECK(told(endpoints_after(now, put(at("c", "none")))) == "a=1 b=2 ");
    const auto q = who_serves("service \"s\"", "s");
    CHECK(q.read.range.key == "s/");
    CHECK(q.title == "service \"s\", resolve");
}
