// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/json.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "support/catch.hpp"

// An etcd 3.4.23 accepted each of these requests.

using namespace coetcd;
using namespace coetcd::detail::wire;
using coetcd::detail::secret;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

constexpr auto min = std::numeric_limits<std::int64_t>::min();
constexpr auto max = std::numeric_limits<std::int64_t>::max();

txn nest(int depth) {
    return depth == 0 ? txn().then(op::range("k")) : txn().otherwise(op::nested(nest(depth - 1)));
}

} // namespace

TEST_CASE("a range request is written without its defaults", "[wire][encode]") {
    CHECK(encode(range_request("nope")) == R"({"key":"bm9wZQ=="})");
    CHECK(encode(range_request(key_range("a", "b"))) == R"({"key":"YQ==","range_end":"Yg=="})");
    CHECK(encode(range_request(key_range::all())) == R"({"key":"AA==","range_end":"AA=="})");
    CHECK(encode(range_request("\0\xff\x80"s)) == R"({"key":"AP+A"})");
    CHECK(encode(range_request("")) == "{}");
}

TEST_CASE("a range request is written with all its options", "[wire][encode]") {
    CHECK(encode(range_request("k",
                               {.limit = 5,
                                .revision = 2,
                                .order = sort_order::descend,
                                .target = sort_target::mod,
                                .serializable = true,
                                .keys_only = true,
                                .count_only = true,
                                .min_mod_revision = 1,
                                .max_mod_revision = max,
                                .min_create_revision = 3,
                                .max_create_revision = 4})) ==
          R"({"key":"aw==","limit":5,"revision":2,"sort_order":2,"sort_target":3,)"
          R"("serializable":true,"keys_only":true,"count_only":true,)"
          R"("min_mod_revision":1,"max_mod_revision":9223372036854775807,)"
          R"("min_create_revision":3,"max_create_revision":4})");
    const auto sorted = [](sort_order order, sort_target target) {
        return encode(range_request("k", {.order = order, .target = target}));
    };
    CHECK(sorted(sort_order::ascend, sort_target::key) == R"({"key":"aw==","sort_order":1})");
    CHECK(sorted(sort_order::none, sort_target::version) == R"({"key":"aw==","sort_target":1})");
    CHECK(sorted(sort_order::none, sort_target::create) == R"({"key":"aw==","sort_target":2})");
    CHECK(sorted(sort_order::none, sort_target::value) == R"({"key":"aw==","sort_target":4})");
}

TEST_CASE("a put request is written", "[wire][encode]") {
    CHECK(encode(put_request("k", "v")) == R"({"key":"aw==","value":"dg=="})");
    CHECK(encode(put_request("k", "")) == R"({"key":"aw=="})");
    CHECK(encode(put_request("k", "\xff\0"s, {.lease = min, .prev_kv = true})) ==
          R"({"key":"aw==","value":"/wA=","lease":-9223372036854775808,"prev_kv":true})");
    CHECK(encode(put_request("k", "", {.ignore_value = true, .ignore_lease = true})) ==
          R"({"key":"aw==","ignore_value":true,"ignore_lease":true})");
}

TEST_CASE("a delete request is written", "[wire][encode]") {
    CHECK(encode(erase_request("k")) == R"({"key":"aw=="})");
    CHECK(encode(erase_request(key_range::prefix("wl/"), {.prev_kv = true})) ==
          R"({"key":"d2wv","range_end":"d2ww","prev_kv":true})");
}

TEST_CASE("a condition is written with its operand, even if that is zero or empty",
          "[wire][encode]") {
    const auto condition = [](compare c) { return encode(txn().when(std::move(c))); };
    struct {
        compare what;
        const char* text;
    } const rows[] = {
        {compare::create_revision("k") > 0,
         R"({"result":1,"target":1,"key":"aw==","create_revision":0})"},
        {compare::mod_revision("k") < max,
         R"({"result":2,"target":2,"key":"aw==","mod_revision":9223372036854775807})"},
        {compare::lease("k") != -5, R"({"result":3,"target":4,"key":"aw==","lease":-5})"},
        {compare::lease("k") == 0, R"({"target":4,"key":"aw==","lease":0})"},
        {compare::value("k") == ""s, R"({"target":3,"key":"aw==","value":""})"},
        {compare::value("k") == "\0"s, R"({"target":3,"key":"aw==","value":"AA=="})"},
        {compare::version("k") == 1, R"({"key":"aw==","version":1})"},
        {compare::version("k") != 0, R"({"result":3,"key":"aw==","version":0})"},
        {compare::create_revision("k") == 7, R"({"target":1,"key":"aw==","create_revision":7})"},
        {compare::version(key_range::prefix("k")) > 0,
         R"({"result":1,"key":"aw==","range_end":"bA==","version":0})"},
    };
    for (const auto& row : rows) {
        CHECK(condition(row.what) == R"({"compare":[)" + std::string(row.text) + "]}");
    }
}

TEST_CASE("that a key does not exist is written by its name alone", "[wire][encode]") {
    const auto condition = [](compare c) { return encode(txn().when(std::move(c))); };
    for (const auto what :
         {compare::target::version, compare::target::create, compare::target::mod}) {
        const auto none = [&](key_range of) {
            return compare(what, compare::result::equal, std::move(of), 0);
        };
        CHECK(condition(none("k")) == R"({"compare":[{"key":"aw=="}]})");
        CHECK(condition(none(key_range::prefix("k"))) ==
              R"({"compare":[{"key":"aw==","range_end":"bA=="}]})");
    }
}

TEST_CASE("a condition with an operand of the wrong kind is not written", "[wire][encode]") {
    const auto wrong = [](compare::target what, std::variant<std::int64_t, std::string> operand) {
        return txn().when(compare(what, compare::result::equal, "k", std::move(operand)));
    };
    CHECK_THROWS_AS(encode(wrong(compare::target::value, 0)), std::bad_variant_access);
    CHECK_THROWS_AS(encode(wrong(compare::target::version, "0")), std::bad_variant_access);
}

TEST_CASE("a transaction is written with operations of every kind", "[wire][encode]") {
    CHECK(encode(txn()) == "{}");
    CHECK(encode(txn()
                     .when(compare::version("a") == 0, compare::version("b") == 0)
                     .then(op::put("a", "1"), op::range("b", {.limit = 1}), op::erase("c"))
                     .otherwise(op::nested(txn().then(op::range("d"))), op::nested(txn()))) ==
          R"({"compare":[{"key":"YQ=="},{"key":"Yg=="}],)"
          R"("success":[{"request_put":{"key":"YQ==","value":"MQ=="}},)"
          R"({"request_range":{"key":"Yg==","limit":1}},)"
          R"({"request_delete_range":{"key":"Yw=="}}],)"
          R"("failure":[{"request_txn":{"success":[{"request_range":{"key":"ZA=="}}]}},)"
          R"({"request_txn":{}}]})");
}

TEST_CASE("a list is written if it has items", "[wire][encode]") {
    const auto list = [](int items) {
        std::string out;
        object_writer object(out);
        object.flag("before", true);
        list_writer all(object, out, "list");
        for (int i = 0; i != items; ++i) {
            all.next() += std::to_string(i);
        }
        all.end();
        object.flag("after", true);
        object.end();
        return out;
    };
    CHECK(list(0) == R"({"before":true,"after":true})");
    CHECK(list(1) == R"({"before":true,"list":[0],"after":true})");
    CHECK(list(3) == R"({"before":true,"list":[0,1,2],"after":true})");
}

TEST_CASE("transactions nest only as deep as their answers can be read", "[wire][encode]") {
    std::string expected = R"({"success":[{"request_range":{"key":"aw=="}}]})";
    for (int i = 0; i != max_nested_txns; ++i) {
        expected = R"({"failure":[{"request_txn":)" + expected + "}]}";
    }
    CHECK(encode(nest(max_nested_txns)) == expected);
    CHECK_THROWS_AS(encode(nest(max_nested_txns + 1)), std::invalid_argument);
}

TEST_CASE("no range asks for fewer keys than none, or for a time before the first",
          "[wire][encode]") {
    range_options fewer;
    fewer.limit = -1;
    range_options before;
    before.revision = -1;
    for (const range_options& how : {fewer, before}) {
        CHECK_THROWS_AS(encode(range_request("k", how)), std::invalid_argument);
        CHECK_THROWS_AS(encode(txn().then(op::range("k", how))), std::invalid_argument);
    }
}

TEST_CASE("a compaction is written", "[wire][encode]") {
    CHECK(encode(compaction_request{5, false}) == R"({"revision":5})");
    CHECK(encode(compaction_request{5, true}) == R"({"revision":5,"physical":true})");
}

TEST_CASE("lease requests are written", "[wire][encode]") {
    CHECK(encode(lease_grant_request{60s, 0}) == R"({"TTL":60})");
    CHECK(encode(lease_grant_request{2min, -5}) == R"({"TTL":120,"ID":-5})");
    CHECK(encode(lease_revoke_request{7587}) == R"({"ID":7587})");
    CHECK(encode(lease_keep_alive_request{7587}) == R"({"ID":7587})");
    CHECK(encode(lease_time_to_live_request{7587, false}) == R"({"ID":7587})");
    CHECK(encode(lease_time_to_live_request{7587, true}) == R"({"ID":7587,"keys":true})");
    CHECK(encode(lease_leases_request()) == "{}");
}

TEST_CASE("watch requests are written", "[wire][encode]") {
    watch_create_request request(key_range::prefix("wl/"));
    CHECK(encode(request) == R"({"create_request":{"key":"d2wv","range_end":"d2ww"}})");
    request.no_put = true;
    CHECK(encode(request) ==
          R"({"create_request":{"key":"d2wv","range_end":"d2ww","filters":["NOPUT"]}})");
    request.watch_id = 7;
    request.start_revision = 6;
    request.prev_kv = request.progress_notify = request.no_delete = true;
    CHECK(encode(request) ==
          R"({"create_request":{"key":"d2wv","range_end":"d2ww","start_revision":6,)"
          R"("progress_notify":true,"filters":["NOPUT","NODELETE"],"prev_kv":true,)"
          R"("watch_id":7}})");
    watch_create_request erased("k");
    erased.no_delete = true;
    CHECK(encode(erased) == R"({"create_request":{"key":"aw==","filters":["NODELETE"]}})");
    CHECK(encode(watch_cancel_request{8}) == R"({"cancel_request":{"watch_id":8}})");
}

TEST_CASE("sec.wiped: a login is written, and leaves no other copy of the password",
          "[wire][encode]") {
    const auto login = [](const std::string& user, std::string password) {
        return encode(authenticate_request(user, secret(std::move(password))));
    };
    CHECK(login("root", "pw") == R"({"name":"root","password":"pw"})");
    const std::string name = "a\"b\\c\x01\n\x7f\xc3\xa9";
    const std::string password(300, '\x1f'); // each takes six bytes
    const std::string text = login(name, password);
    const json request = parse(text);
    CHECK(read_text(request.root(), "name") == name);
    CHECK(read_text(request.root(), "password") == password);
    CHECK(text.capacity() >= 64 + 6 * (name.size() + password.size())); // it never grew
    CHECK(encode(member_list_request()) == R"({"linearizable":true})");
    CHECK(encode(status_request()) == "{}");
}

TEST_CASE("sec.header_injection: every request is JSON, whatever the bytes of its keys",
          "[wire][encode]") {
    std::string bytes;
    for (int c = 0; c != 256; ++c) {
        bytes += static_cast<char>(c);
        const json request = parse(encode(txn()
                                              .when(compare::value(bytes) == bytes)
                                              .then(op::put(bytes, bytes))
                                              .otherwise(op::erase({bytes, bytes}))));
        const auto& put =
            require_object(*read_array(request.root(), "success").begin(), "request_put");
        REQUIRE(read_bytes(put, "key") == bytes);
        REQUIRE(read_bytes(put, "value") == bytes);
        REQUIRE(read_bytes(*read_array(request.root(), "compare").begin(), "value") == bytes);
    }
}
