// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/decode.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::wire;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

// Answers of an etcd 3.4.23, of which all 3.4 and 3.5 have the dialect.

#define HEADER(revision)                                                                           \
    R"("header":{"cluster_id":"15802999476161674196","member_id":"4470922990693301824",)"          \
    R"("revision":")" revision R"(","raft_term":"2"})"

constexpr auto range_none = "{" HEADER("6") "}";
constexpr auto range_two = "{" HEADER(
    "6") R"(,"kvs":[{"key":"d2wvAP+A","create_revision":"2","mod_revision":"4",)"
         R"("version":"3","lease":"7587"},{"key":"d2wvYg==","create_revision":"5","mod_revision":"5",)"
         R"("version":"1","value":"dg=="}],"more":true,"count":"3"})";
constexpr auto put_prev =
    "{" HEADER("3") R"(,"prev_kv":{"key":"d2wvAP+A","create_revision":"2","mod_revision":"2",)"
                    R"("version":"1","value":"/wA=","lease":"7587"}})";
constexpr auto erased_two = "{" HEADER(
    "9") R"(,"deleted":"2","prev_kvs":[{"key":"d2wvZQ==","create_revision":"6",)"
         R"("mod_revision":"8","version":"2","value":"Nw=="},{"key":"d2wvbg==","create_revision":"7",)"
         R"("mod_revision":"7","version":"1","value":"Mg=="}]})";
constexpr auto txn_all = "{" HEADER(
    "7") R"(,"succeeded":true,"responses":[{"response_put":{"header":{"revision":"7"}}},)"
         R"({"response_range":{"header":{"revision":"7"},"kvs":[{"key":"d2wvAP+A",)"
         R"("create_revision":"2","mod_revision":"4","version":"3","lease":"7587"}],"more":true,)"
         R"("count":"4"}},{"response_delete_range":{"header":{"revision":"7"},"deleted":"1",)"
         R"("prev_kvs":[{"key":"d2wvYg==","create_revision":"5","mod_revision":"5","version":"1",)"
         R"("value":"dg=="}]}},{"response_txn":{"header":{},"succeeded":true,"responses":[)"
         R"({"response_txn":{"header":{},"succeeded":true,"responses":[{"response_txn":{"header":{},)"
         R"("succeeded":true,"responses":[{"response_range":{"header":{"revision":"7"},"kvs":[)"
         R"({"key":"d2wvZQ==","create_revision":"6","mod_revision":"6","version":"1"}],"count":"1"}},)"
         R"({"response_delete_range":{"header":{"revision":"7"}}},)"
         R"({"response_put":{"header":{"revision":"7"}}}]}}]}}]}}]})";
constexpr auto txn_failed = "{" HEADER(
    "8") R"(,"responses":[{"response_put":{"header":{"revision":"8"},"prev_kv":)"
         R"({"key":"d2wvZQ==","create_revision":"6","mod_revision":"6","version":"1"}}}]})";
constexpr auto granted = "{" HEADER("1") R"(,"ID":"-5","TTL":"2"})";
constexpr auto ttl_alive =
    "{" HEADER("8") R"(,"ID":"7587","TTL":"59","grantedTTL":"60","keys":["d2wvAP+A"]})";
constexpr auto ttl_gone = "{" HEADER("8") R"(,"ID":"7588","TTL":"-1"})";
constexpr auto leases_two = "{" HEADER("8") R"(,"leases":[{"ID":"-5"},{"ID":"7587"}]})";
constexpr auto kept = R"({"result":{)" HEADER("8") R"(,"ID":"7587","TTL":"60"}})";
constexpr auto not_kept = R"({"result":{)" HEADER("8") R"(,"ID":"9"}})";
constexpr auto watch_created = R"({"result":{)" HEADER("9") R"(,"watch_id":"7","created":true}})";
constexpr auto watch_events = R"({"result":{)" HEADER(
    "9") R"(,"watch_id":"7","events":[{"kv":{"key":"d2wvZQ==",)"
         R"("create_revision":"6","mod_revision":"8","version":"2","value":"Nw=="},"prev_kv":)"
         R"({"key":"d2wvZQ==","create_revision":"6","mod_revision":"6","version":"1"}},)"
         R"({"type":"DELETE","kv":{"key":"d2wvAP+A","mod_revision":"9"},"prev_kv":{"key":"d2wvAP+A",)"
         R"("create_revision":"2","mod_revision":"4","version":"3","lease":"7587"}}]}})";
constexpr auto watch_compacted =
    R"({"result":{"header":{"cluster_id":"15802999476161674196",)"
    R"("member_id":"4470922990693301824","raft_term":"2"},"watch_id":"9","canceled":true,)"
    R"("compact_revision":"5"}})";
constexpr auto watch_refused =
    R"({"result":{)" HEADER("9") R"(,"watch_id":"-1","created":true,"canceled":true,)"
                                 R"("cancel_reason":"mvcc: watcher range is empty"}})";
constexpr auto watch_progress = R"({"result":{)" HEADER("9") R"(,"watch_id":"-1"}})";
constexpr auto stream_error =
    R"({"error":{"grpc_code":4,"http_code":504,"message":"context deadline exceeded",)"
    R"("http_status":"Gateway Timeout"}})";

/// @returns Nothing if `function` throws `errc::protocol_error`. Nothing else may escape.
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

template<class Response>
constexpr bool is_streamed =
    std::is_same_v<Response, watch_response> || std::is_same_v<Response, lease_keep_alive_response>;

/// Decodes, from a buffer of exactly that size, so that ASan sees a read too far.
template<class Response>
bool accepts(std::string_view text) {
    const std::vector<char> exact(text.begin(), text.end());
    const std::string_view view(exact.data(), exact.size());
    if constexpr (is_streamed<Response>) {
        return attempt([&] { return decode_stream<Response>(view); }).has_value();
    } else {
        return attempt([&] { return decode<Response>(view); }).has_value();
    }
}

/// An answer with a header and these fields.
std::string answer(const std::string& fields) {
    return "{" HEADER("6") + (fields.empty() ? "" : "," + fields) + "}";
}

template<class Response>
bool accepts_fields(const std::string& fields) {
    return accepts<Response>(is_streamed<Response> ? "{\"result\":" + answer(fields) + "}"
                                                   : answer(fields));
}

template<class Response>
Response streamed(std::string_view line) {
    return std::get<Response>(decode_stream<Response>(line));
}

/// Calls `visit` with each recorded answer and its decoder.
template<class Visitor>
void for_each_answer(Visitor visit) {
    const auto each = [&](auto type, std::initializer_list<std::string_view> answers) {
        for (const auto text : answers) {
            visit(text, [](std::string_view t) { return accepts<decltype(type)>(t); });
        }
    };
    each(range_response(), {range_none, range_two});
    each(put_response(), {range_none, put_prev});
    each(erase_response(), {range_none, erased_two});
    each(txn_response(), {range_none, txn_all, txn_failed});
    each(compaction_response(), {range_none});
    each(lease_grant_response(), {granted});
    each(lease_revoke_response(), {range_none});
    each(lease_time_to_live_response(), {ttl_alive, ttl_gone});
    each(lease_leases_response(), {range_none, leases_two});
    each(lease_keep_alive_response(), {kept, not_kept, stream_error});
    each(watch_response(),
         {watch_created,
          watch_events,
          watch_compacted,
          watch_refused,
          watch_progress,
          stream_error});
}

} // namespace

TEST_CASE("sec.integers: a header is decoded, with ids over the signed range", "[wire][decode]") {
    const auto header = decode<put_response>(range_none).header;
    CHECK(header.cluster_id == 15802999476161674196u);
    CHECK(header.member_id == 4470922990693301824u);
    CHECK(header.revision == 6);
    CHECK(header.raft_term == 2);
}

TEST_CASE("a range's answer is decoded", "[wire][decode]") {
    const auto none = decode<range_response>(range_none);
    CHECK(none.kvs.empty());
    CHECK_FALSE(none.more);
    CHECK(none.count == 0);

    const auto two = decode<range_response>(range_two);
    CHECK(two.more);
    CHECK(two.count == 3);
    REQUIRE(two.kvs.size() == 2);
    CHECK(two.kvs[0].key == "wl/\0\xff\x80"s);
    CHECK(two.kvs[0].value.empty());
    CHECK(two.kvs[0].create_revision == 2);
    CHECK(two.kvs[0].mod_revision == 4);
    CHECK(two.kvs[0].version == 3);
    CHECK(two.kvs[0].lease == 7587);
    CHECK(two.kvs[1].key == "wl/b");
    CHECK(two.kvs[1].value == "v");
    CHECK(two.kvs[1].lease == 0);
}

TEST_CASE("an answer names its cluster, in the name that etcd has for it", "[wire][decode]") {
    CHECK(accepts<put_response>(R"({"header":{"cluster_id":"5"}})"));
    CHECK_FALSE(accepts<put_response>(R"({"header":{}})"));
    CHECK_FALSE(accepts<put_response>(R"({"header":{"clusterId":"5","revision":"7"}})"));
    CHECK_FALSE(accepts<put_response>(R"({"header":{"cluster_id":"0","revision":"7"}})"));
    CHECK_FALSE(accepts<lease_keep_alive_response>(
        R"({"result":{"header":{"clusterId":"5","raftTerm":"2"},"ID":"7","TTL":"9"}})"));
    CHECK_FALSE(accepts<watch_response>(
        R"({"result":{"header":{"clusterId":"5"},"watchId":"1","created":true}})"));
}

TEST_CASE("numbers may be strings or numbers, and spaces do not matter", "[wire][decode]") {
    const auto response = decode<range_response>(
        R"({"header":{"cluster_id":13023500245440218411, "revision":6}, "kvs":[ {"key":"YQ", )"
        R"("mod_revision":9223372036854775806, "lease":-9223372036854775808, "value":null} ], )"
        R"("count":1, "more":false, "new_in_etcd_4":[[{}]]} )");
    CHECK(response.header.cluster_id == 13023500245440218411u);
    CHECK(response.header.revision == 6);
    REQUIRE(response.kvs.size() == 1);
    CHECK(response.kvs[0].key == "a");
    CHECK(response.kvs[0].mod_revision == std::numeric_limits<std::int64_t>::max() - 1);
    CHECK(response.kvs[0].lease == std::numeric_limits<std::int64_t>::min());
    CHECK(response.count == 1);
}

TEST_CASE("a put's answer is decoded", "[wire][decode]") {
    CHECK_FALSE(decode<put_response>(range_none).prev_kv);
    const auto response = decode<put_response>(put_prev);
    REQUIRE(response.prev_kv);
    CHECK(response.prev_kv->value == "\xff\0"s);
    CHECK(response.header.revision == 3);
}

TEST_CASE("a deletion's answer is decoded", "[wire][decode]") {
    CHECK(decode<erase_response>(range_none).deleted == 0);
    const auto response = decode<erase_response>(erased_two);
    CHECK(response.deleted == 2);
    REQUIRE(response.prev_kvs.size() == 2);
    CHECK(response.prev_kvs[1].key == "wl/n");
}

TEST_CASE("a transaction's answer is decoded, with those nested in it", "[wire][decode]") {
    const auto empty = decode<txn_response>(range_none);
    CHECK_FALSE(empty.succeeded);
    CHECK(empty.responses.empty());

    const auto failed = decode<txn_response>(txn_failed);
    CHECK_FALSE(failed.succeeded);
    REQUIRE(failed.responses.size() == 1);
    CHECK(failed.responses[0].put().prev_kv->key == "wl/e");

    const auto all = decode<txn_response>(txn_all);
    CHECK(all.succeeded);
    REQUIRE(all.responses.size() == 4);
    CHECK(all.responses[0].put().header.revision == 7);
    CHECK(all.responses[1].range().count == 4);
    CHECK(all.responses[1].range().kvs.size() == 1);
    CHECK(all.responses[2].erase().deleted == 1);
    CHECK(all.responses[2].erase().prev_kvs[0].value == "v");
    const auto& inner = all.responses[3].nested().responses[0].nested().responses[0].nested();
    REQUIRE(inner.responses.size() == 3);
    CHECK(inner.responses[0].range().kvs[0].key == "wl/e");
    CHECK(inner.responses[1].erase().deleted == 0);
    CHECK(inner.responses[2].put().header.revision == 7);
}

TEST_CASE("an operation's answer of no known kind is a protocol error", "[wire][decode]") {
    CHECK(accepts_fields<txn_response>(R"("responses":[{"response_put":{}}])"));
    CHECK_FALSE(accepts_fields<txn_response>(R"("responses":[{}])"));
    CHECK_FALSE(accepts_fields<txn_response>(R"("responses":[null])"));
    CHECK_FALSE(accepts_fields<txn_response>(R"("responses":[{"response_put":null}])"));
    CHECK_FALSE(accepts_fields<txn_response>(R"("responses":[{"response_put":[]}])"));
    CHECK_FALSE(accepts_fields<txn_response>(R"("responses":[{"response_copy":{}}])"));
    CHECK_FALSE(accepts_fields<txn_response>(R"("responses":{"response_put":{}})"));
}

TEST_CASE("lease answers are decoded", "[wire][decode]") {
    const auto grant = decode<lease_grant_response>(granted);
    CHECK(grant.id == -5);
    CHECK(grant.ttl == 2s);

    const auto alive = decode<lease_time_to_live_response>(ttl_alive);
    CHECK(alive.id == 7587);
    CHECK(alive.ttl == 59s);
    CHECK(alive.granted_ttl == 60s);
    CHECK(alive.keys == std::vector{"wl/\0\xff\x80"s});
    CHECK(decode<lease_time_to_live_response>(ttl_gone).ttl == -1s);
    CHECK(decode<lease_time_to_live_response>(range_none).ttl == 0s);

    CHECK(decode<lease_leases_response>(leases_two).leases == std::vector<lease_id>{-5, 7587});
    CHECK(decode<lease_leases_response>(range_none).leases.empty());
    CHECK(decode<lease_revoke_response>(range_none).header.revision == 6);
    CHECK(decode<compaction_response>(range_none).header.revision == 6);
}

TEST_CASE("a keep-alive's answer without a time to live means that the lease is gone",
          "[wire][decode]") {
    CHECK(streamed<lease_keep_alive_response>(kept).id == 7587);
    CHECK(streamed<lease_keep_alive_response>(kept).ttl == 60s);
    CHECK(streamed<lease_keep_alive_response>(not_kept).id == 9);
    CHECK(streamed<lease_keep_alive_response>(not_kept).ttl == 0s);
}

TEST_CASE("a grant of nothing is a protocol error", "[wire][decode]") {
    CHECK(accepts_fields<lease_grant_response>(R"("ID":"5","TTL":"1")"));
    CHECK_FALSE(accepts_fields<lease_grant_response>(""));
    CHECK_FALSE(accepts_fields<lease_grant_response>(R"("TTL":"60")"));
    CHECK_FALSE(accepts_fields<lease_grant_response>(R"("ID":"5")"));
    CHECK_FALSE(accepts_fields<lease_grant_response>(R"("ID":"5","TTL":"-1")"));
}

TEST_CASE("watch messages are decoded", "[wire][decode]") {
    const auto created = streamed<watch_response>(watch_created);
    CHECK(created.watch_id == 7);
    CHECK(created.created);
    CHECK_FALSE(created.canceled);

    const auto changes = streamed<watch_response>(watch_events);
    CHECK_FALSE(changes.created);
    REQUIRE(changes.events.size() == 2);
    CHECK(changes.events[0].type == event_type::put);
    CHECK(changes.events[0].kv.value == "7");
    CHECK(changes.events[0].prev_kv->mod_revision == 6);
    CHECK(changes.events[1].type == event_type::erase);
    CHECK(changes.events[1].kv.key == "wl/\0\xff\x80"s);
    CHECK(changes.events[1].kv.mod_revision == 9);
    CHECK(changes.events[1].prev_kv->lease == 7587);

    const auto compacted = streamed<watch_response>(watch_compacted);
    CHECK(compacted.header.revision == 0);
    CHECK(compacted.canceled);
    CHECK(compacted.compact_revision == 5);
    CHECK(compacted.cancel_reason.empty());

    const auto refused = streamed<watch_response>(watch_refused);
    CHECK(refused.watch_id == -1);
    CHECK((refused.created && refused.canceled));
    CHECK(refused.cancel_reason == "mvcc: watcher range is empty");

    CHECK(streamed<watch_response>(watch_progress).watch_id == -1);
}

TEST_CASE("sec.server_text: a watch's reason is fit for a log", "[wire][decode][security]") {
    const auto response = streamed<watch_response>(
        R"({"result":{"header":{"cluster_id":"5"},"cancel_reason":"a\nb\u001b)" +
        std::string(300, 'x') + "\"}}");
    CHECK(response.cancel_reason == "a b?" + std::string(252, 'x'));
}

TEST_CASE("a stream's failure is a value, in each form", "[wire][decode]") {
    for (const auto line :
         {stream_error,
          R"({"error":{"code":4, "message":"context deadline exceeded"}})",
          R"({"error":"context deadline exceeded","message":"context deadline exceeded","code":4})",
          R"({"code":4, "message":"context deadline exceeded", "details":[]})"}) {
        CAPTURE(line);
        const auto message = decode_stream<watch_response>(line);
        REQUIRE(std::holds_alternative<status>(message));
        CHECK(std::get<status>(message).code == server_errc::deadline_exceeded);
        CHECK(std::get<status>(message).message == "context deadline exceeded");
    }
    CHECK(std::get<status>(decode_stream<lease_keep_alive_response>(R"({"error":{}})")).code ==
          server_errc::unknown);
}

TEST_CASE("a stream that has ended is decoded, up to the failure that ended it", "[wire][decode]") {
    const std::string one = R"({"result":{"header":{"cluster_id":"5"},"ID":"1","TTL":"9"}})";
    const std::string two = R"({"result":{"header":{"cluster_id":"5"},"ID":"2"}})";
    const std::string failure = R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})";
    struct {
        std::string body;
        std::vector<std::int64_t> ids;
        bool fails;
    } const rows[] = {
        {"", {}, false},
        {"\n", {}, false},
        {one, {1}, false},
        {one + "\n" + two + "\n", {1, 2}, false},
        {two + "\r\n\n" + one, {2, 1}, false},
        {failure, {}, true},
        {one + "\n" + failure, {1}, true},
        {one + "\n" + failure + "\n" + two + "\n", {1}, true},
    };
    for (const auto& row : rows) {
        CAPTURE(row.body);
        const auto all = decode_whole_stream<lease_keep_alive_response>(row.body);
        std::vector<std::int64_t> ids;
        for (const auto& message : all.messages) {
            ids.push_back(message.id);
        }
        CHECK(ids == row.ids);
        REQUIRE(all.failure.has_value() == row.fails);
        CHECK((!row.fails || all.failure->code == server_errc::unavailable));
    }
    for (const std::string& body : {one + two, one + "\n{", one + "\nno", "[]\n" + one}) {
        CAPTURE(body);
        CHECK_THROWS_AS(decode_whole_stream<lease_keep_alive_response>(body), error);
    }
}

TEST_CASE("sec.header_injection: a login has a token", "[wire][decode]") {
    CHECK(decode<authenticate_response>(
              R"({"header":{"cluster_id":"5","revision":"3"},"token":"abc.12"})")
              .token == "abc.12");
    CHECK_FALSE(accepts<authenticate_response>(R"({"header":{"cluster_id":"5"}})"));
    CHECK_FALSE(
        accepts<authenticate_response>(R"({"header":{"cluster_id":"5"},"token":"a\r\nX: 1"})"));
    CHECK_FALSE(accepts<authenticate_response>(R"({"header":{"cluster_id":"5"},"token":"a b"})"));
    const auto token = [](std::size_t size) {
        return R"({"header":{"cluster_id":"5"},"token":")" + std::string(size, 't') + "\"}";
    };
    CHECK(accepts<authenticate_response>(token(4096)));
    CHECK_FALSE(accepts<authenticate_response>(token(4097)));
    CHECK_FALSE(accepts<authenticate_response>(R"({"header":{"cluster_id":"5"},"token":7})"));
    CHECK_FALSE(accepts<authenticate_response>(R"({"token":"abc.12"})"));
}

TEST_CASE("members tell where they listen", "[wire][decode]") {
    const auto r = decode<member_list_response>(
        R"({"header":{"cluster_id":"5"},"members":[{"ID":"1","name":"a","peerURLs":["http://p:1"],)"
        R"("clientURLs":["http://a:1","http://a:2"]},{"ID":"2","isLearner":true,)"
        R"("clientURLs":["http://b:1"]},{"ID":"3","peerURLs":["http://c:2"]}]})");
    REQUIRE(r.members.size() == 3);
    CHECK(r.members[0].client_urls == std::vector<std::string>{"http://a:1", "http://a:2"});
    CHECK_FALSE(r.members[0].is_learner);
    CHECK(r.members[1].is_learner);
    CHECK(r.members[2].client_urls.empty());
    CHECK_FALSE(accepts<member_list_response>(R"({"header":{"cluster_id":"5"},"members":{}})"));
    CHECK_FALSE(accepts<member_list_response>(
        R"({"header":{"cluster_id":"5"},"members":[{"clientURLs":[1]}]})"));
}

TEST_CASE("a member tells how it is", "[wire][decode]") {
    using coetcd::member_status;
    const auto r = decode<member_status>(
        R"({"header":{"cluster_id":"5","member_id":"7","raft_term":"3"},"version":"3.6.5","dbSize":"20480",)"
        R"("leader":"7","raftIndex":"12","errors":["memberID:7 alarm:NOSPACE "]})");
    CHECK(r.version == "3.6.5");
    CHECK(r.db_size == 20480);
    CHECK(r.leader == 7);
    CHECK(r.is_leader());
    CHECK(r.raft_index == 12);
    CHECK_FALSE(r.is_learner);
    CHECK(r.errors == std::vector<std::string>{"memberID:7 alarm:NOSPACE "});
    CHECK_FALSE(decode<member_status>(R"({"header":{"cluster_id":"5"}})")
                    .is_leader()); // it knows no leader
    CHECK_FALSE(
        decode<member_status>(R"({"header":{"cluster_id":"5","member_id":"7"},"leader":"8"})")
            .is_leader());
    CHECK(decode<member_status>(R"({"header":{"cluster_id":"5"},"isLearner":true})").is_learner);
    CHECK_FALSE(accepts<member_status>("{}"));
    CHECK_FALSE(accepts<member_status>(R"({"header":{"cluster_id":"5"},"errors":[1]})"));
    CHECK_FALSE(accepts<member_status>(R"({"header":{"cluster_id":"5"},"dbSize":"-1"})"));
    CHECK_FALSE(accepts<member_status>(R"({"header":{"cluster_id":"5"},"version":3})"));
}

TEST_CASE("a stream's line that is neither result nor failure is a protocol error",
          "[wire][decode]") {
    for (const auto line : {"{}",
                            "null",
                            "[]",
                            "{\"result\":null}",
                            "{\"result\":[]}",
                            "{\"result\":{}}",
                            "{\"error\":null}",
                            "{\"error\":\"x\"}",
                            "Not Found"}) {
        CAPTURE(line);
        CHECK_FALSE(accepts<watch_response>(line));
        CHECK_FALSE(accepts<lease_keep_alive_response>(line));
    }
}

TEST_CASE("an answer without a header is not etcd's", "[wire][decode][security]") {
    for (const auto body : {"{}",
                            "null",
                            "[]",
                            "1",
                            "\"\"",
                            R"({"header":null})",
                            R"({"header":1})",
                            R"({"status":"ok"})",
                            R"({"code":5,"message":"m"})"}) {
        CAPTURE(body);
        CHECK_FALSE(accepts<put_response>(body));
        CHECK_FALSE(accepts<range_response>(body));
        CHECK_FALSE(accepts<txn_response>(body));
        CHECK_FALSE(accepts<lease_revoke_response>(body));
    }
    CHECK(accepts<put_response>(R"({"header":{"cluster_id":"5"}})"));
}

TEST_CASE("sec.integers: numbers that etcd never sends are protocol errors",
          "[wire][decode][security]") {
    CHECK_FALSE(accepts<put_response>(R"({"header":{"cluster_id":"5","revision":"-1"}})"));
    CHECK_FALSE(accepts<put_response>(R"({"header":{"cluster_id":"-1"}})"));
    CHECK_FALSE(accepts<put_response>(R"({"header":{"member_id":"18446744073709551616"}})"));
    CHECK_FALSE(accepts_fields<range_response>(R"("count":"-1")"));
    CHECK_FALSE(accepts_fields<range_response>(R"("count":1.0)"));
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":[{"mod_revision":"-1"}])"));
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":[{"create_revision":"-1"}])"));
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":[{"version":"-1"}])"));
    CHECK_FALSE(accepts_fields<erase_response>(R"("deleted":"-1")"));
    CHECK_FALSE(accepts_fields<watch_response>(R"("compact_revision":"-1")"));
    CHECK(accepts_fields<lease_time_to_live_response>(R"("TTL":"9000000000")"));
    CHECK_FALSE(accepts_fields<lease_time_to_live_response>(R"("TTL":"9000000001")"));
    CHECK_FALSE(accepts_fields<lease_time_to_live_response>(R"("TTL":"-2")"));
    CHECK_FALSE(accepts_fields<lease_time_to_live_response>(R"("grantedTTL":"9000000001")"));
    CHECK_FALSE(accepts_fields<lease_keep_alive_response>(R"("TTL":"9000000001")"));
    CHECK_FALSE(accepts_fields<lease_grant_response>(R"("ID":"5","TTL":"9223372036854775807")"));
}

TEST_CASE("fields of the wrong type are protocol errors", "[wire][decode]") {
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":{})"));
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":[null])"));
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":["a"])"));
    CHECK_FALSE(accepts_fields<range_response>(R"("kvs":[{"key":"a b="}])"));
    CHECK_FALSE(accepts_fields<range_response>(R"("more":"true")"));
    CHECK_FALSE(accepts_fields<put_response>(R"("prev_kv":[])"));
    CHECK_FALSE(accepts_fields<lease_time_to_live_response>(R"("keys":[1])"));
    CHECK_FALSE(accepts_fields<lease_time_to_live_response>(R"("keys":[null])"));
    CHECK_FALSE(accepts_fields<lease_leases_response>(R"("leases":["5"])"));
    CHECK_FALSE(accepts_fields<watch_response>(R"("events":[{}])"));
    CHECK_FALSE(accepts_fields<watch_response>(R"("events":[{"type":"COPY","kv":{}}])"));
    CHECK(accepts_fields<watch_response>(R"("events":[{"type":1,"kv":{}}])"));
    CHECK_FALSE(accepts_fields<watch_response>(R"("cancel_reason":5)"));
}

TEST_CASE("an answer that was cut off is a protocol error", "[wire][decode][security]") {
    for_each_answer([](std::string_view text, auto decoder) {
        REQUIRE(decoder(text));
        for (std::size_t size = 0; size != text.size(); ++size) {
            CAPTURE(text, size);
            REQUIRE_FALSE(decoder(text.substr(0, size)));
        }
    });
}

TEST_CASE("an answer with any byte changed is a value or a protocol error",
          "[wire][decode][security]") {
    using namespace std::string_view_literals;
    // One change for each byte, in turn: an exception is slow with some sanitizers.
    std::size_t turn = 0;
    for_each_answer([&](std::string_view text, auto decoder) {
        constexpr std::string_view others = "\"\\}[:,-.\0\xff"sv;
        std::string mutated(text);
        for (char& c : mutated) {
            const char original = c;
            const std::size_t which = turn++ % (others.size() + 1);
            c = which < others.size() ? others[which] : static_cast<char>(original ^ 1);
            decoder(mutated); // throws what it should not
            c = original;
        }
        CHECK(decoder(mutated));
    });
}

TEST_CASE("garbage is a value or a protocol error", "[wire][decode][security]") {
    const std::string_view words[] = {"{",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      ":",
                                      "\"",
                                      "\\",
                                      "null",
                                      "true",
                                      "-1",
                                      "1e9",
                                      "\"5\"",
                                      "{\"header\":{}",
                                      "\"kvs\":[{",
                                      "\"responses\":[{\"response_txn\":",
                                      "\"result\":",
                                      "\"error\":{\"code\":",
                                      "\"ID\":",
                                      "\xff",
                                      " "};
    std::mt19937 random(5);
    for (int round = 0; round != 5000; ++round) {
        std::string text = round % 2 ? "{\"header\":{}," : "";
        for (auto n = random() % 12; n != 0; --n) {
            text += words[random() % std::size(words)];
        }
        accepts<range_response>(text);
        accepts<txn_response>(text);
        accepts<lease_grant_response>(text);
        accepts<watch_response>(text);
    }
}

TEST_CASE("sec.json: of duplicate fields the last one counts, and unknown ones do not",
          "[wire][decode][security]") {
    const auto twice = decode<range_response>(
        R"({"header":{"cluster_id":"5","revision":"1"},"count":"7","count":"8",)"
        R"("header":{"cluster_id":"5","revision":"2"}})");
    CHECK(twice.count == 8);
    CHECK(twice.header.revision == 2);
    CHECK_FALSE(
        accepts<range_response>(R"({"header":{"cluster_id":"5"},"count":"7","count":"-1"})"));
    CHECK(
        decode<range_response>(
            R"({"header":{"cluster_id":"5","x":[{}]},"count":"7","Count":"8","x":{"count":"9"},"":null})")
            .count == 7);
}

TEST_CASE("sec.json_depth: an answer that nests too deep is a protocol error",
          "[wire][decode][security]") {
    CHECK_FALSE(accepts<txn_response>(std::string(200'000, '[')));
    std::string bomb;
    for (int i = 0; i != 50'000; ++i) {
        bomb += R"({"header":{"cluster_id":"5"},"responses":[{"response_txn":)";
    }
    CHECK_FALSE(accepts<txn_response>(bomb));
}

TEST_CASE("the watch of a message is found in its beginning", "[wire][decode]") {
    using id = std::optional<std::int64_t>;
    const std::string_view v1 =
        R"({"result":{"header":{"revision":"9"},"watch_id":"7","events":[{"kv":{"key":"YQ)";
    for (std::size_t n = 0; n <= v1.size(); ++n) {
        CAPTURE(n);
        CHECK(find_watch_id(v1.substr(0, n)) == (n < 51 ? id() : id(7)));
    }
    CHECK(find_watch_id(R"({"result": {"watch_id" : 12, "events":[)") == id(12));
    CHECK(find_watch_id(R"({"result":{"watch_id":"-1","events":[)") == id(-1));
    CHECK(find_watch_id(R"({"result":{"header":{},"events":[{"watch_id":"7"}]}})") == id());
    CHECK(find_watch_id(R"({"result":{"cancel_reason":"\"watch_id\":7","watch_id":"8"}})") ==
          id(8));
    for (const std::string_view none : {R"("watch_id":"x")",
                                        R"("watch_id":)",
                                        R"("watch_id")",
                                        R"("watch_id":"99999999999999999999")",
                                        "",
                                        "\0\xff"}) {
        CHECK(find_watch_id(none) == id());
    }
}

TEST_CASE("the beginning of an event tells its revision", "[wire][decode]") {
    using revision = std::optional<std::int64_t>;
    const std::string v1 =
        R"({"result":{"header":{},"watch_id":"7","events":[{"type":"DELETE","kv":{"key":"YQ==","create_revision":"3","mod_revision":"12","val)";
    for (std::size_t n = 0; n <= v1.size(); ++n) {
        CAPTURE(n);
        CHECK(find_revision(v1.substr(0, n)) == (n < 125 ? revision() : revision(12)));
    }
    CHECK(find_revision(R"({"mod_revision":"1", "events" : [{"kv":{"mod_revision" : 12, )") ==
          revision(12));
    CHECK(find_revision(R"({"result":{"mod_revision":"12"}})") == revision());
}

TEST_CASE("the beginning of a message of a stream tells whether it may be etcd's",
          "[wire][decode]") {
    CHECK(begins_message(R"({"result":{"header":{)"));
    CHECK(begins_message(" { \"result\" : {"));
    CHECK_FALSE(begins_message(""));
    CHECK_FALSE(begins_message("{"));
    CHECK_FALSE(begins_message("<html>"));
    CHECK_FALSE(begins_message(R"({"error":{)"));
    CHECK_FALSE(begins_message(R"(["result")"));
}
