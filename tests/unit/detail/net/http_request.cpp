// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/http_request.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace coetcd::detail::net;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

call_request to(const char* url, rpc what, std::string body) {
    return {logic::parse_endpoint(url), what, std::move(body), time_point::max()};
}

/// A request to a host that `parse_endpoint` would refuse.
std::string with_host(std::string host) {
    call_request r = to("http://h:1", rpc::range, "{}");
    r.to.host = std::move(host);
    return http_request(r, framing::whole, std::nullopt);
}

} // namespace

TEST_CASE("a request goes out in one piece", "[net][http_request]") {
    CHECK(http_request(to("http://etcd:2379", rpc::put, R"({"key":"YQ=="})"), framing::whole, 2s) ==
          "POST /v3/kv/put HTTP/1.1\r\n"
          "Host: etcd:2379\r\n"
          "Accept: application/json\r\n"
          "Content-Type: application/json\r\n"
          "User-Agent: coetcd\r\n"
          "Grpc-Metadata-hasleader: true\r\n"
          "Grpc-Timeout: 1900m\r\n"
          "Content-Length: 14\r\n"
          "\r\n"
          R"({"key":"YQ=="})");
    const std::string empty =
        http_request(to("http://[::1]:1", rpc::lease_leases, ""), framing::whole, std::nullopt);
    CHECK_THAT(empty, support::contains("\r\nHost: [::1]:1\r\n"));
    CHECK_THAT(empty, support::contains("\r\nContent-Length: 0\r\n\r\n"));
    CHECK(empty.find("Grpc-Timeout") == empty.npos);
    CHECK(empty.ends_with("\r\n\r\n"));
}

TEST_CASE("headers of an observer go with a request", "[net][http_request]") {
    call_request r = to("http://etcd:2379", rpc::put, "{}");
    r.headers = "traceparent: 00-1\r\n";
    CHECK_THAT(http_request(r, framing::whole, 2s),
               support::contains("\r\ntraceparent: 00-1\r\nGrpc-Timeout: 1900m\r\n"));
}

TEST_CASE("a member is asked how it is, also one without a leader", "[net][http_request]") {
    const std::string text = http_request(to("h:1", rpc::status, "{}"), framing::whole, 2s);
    CHECK_THAT(text, support::contains("POST /v3/maintenance/status HTTP/1.1\r\n"));
    CHECK_THAT(text, !support::contains("hasleader"));
}

TEST_CASE("a request that stays open begins with its first message", "[net][http_request]") {
    CHECK(http_request(to("http://etcd:2379", rpc::watch, R"({"create_request":{}})"),
                       framing::chunked,
                       std::nullopt) == "POST /v3/watch HTTP/1.1\r\n"
                                        "Host: etcd:2379\r\n"
                                        "Accept: application/json\r\n"
                                        "Content-Type: application/json\r\n"
                                        "User-Agent: coetcd\r\n"
                                        "Grpc-Metadata-hasleader: true\r\n"
                                        "Connection: close\r\n"
                                        "Transfer-Encoding: chunked\r\n"
                                        "\r\n"
                                        "15\r\n"
                                        R"({"create_request":{}})"
                                        "\r\n");
}

TEST_CASE("sec.token.raw: a token goes along as it is", "[net][http_request][security]") {
    call_request r = to("h:1", rpc::range, "{}");
    CHECK_THAT(http_request(r, framing::whole, 1s), !support::contains("Authorization"));
    r.token = "canary.17";
    CHECK_THAT(http_request(r, framing::whole, 1s),
               support::contains("\r\nAuthorization: canary.17\r\n"));
    r.token = "canary\r\nX-Injected: 1";
    try {
        (void)http_request(r, framing::whole, 1s);
        FAIL("it was sent");
    } catch (const std::invalid_argument& e) {
        CHECK_THAT(e.what(), !support::contains("canary"));
    }
}

TEST_CASE("each call goes to its path", "[net][http_request]") {
    for (const rpc_traits& each : rpcs) {
        const std::string text = http_request(to("h:1", each.what, "{}"), framing::whole, 1s);
        CHECK(text.starts_with("POST " + std::string(each.path) + " HTTP/1.1\r\n"));
    }
}

TEST_CASE("sec.header_injection: no byte of a host can end the header",
          "[net][http_request][security]") {
    for (int c = 0; c != 256; ++c) {
        const char byte = static_cast<char>(c);
        const bool fits = (c >= 0x20 && c < 0x7f) || c == '\t';
        CAPTURE(c);
        CHECK(coetcd::detail::wire::is_header_value("a"s + byte + "b") == fits);
        if (fits || byte == '%') {
            CHECK_NOTHROW(with_host("a"s + byte));
        } else {
            CHECK_THROWS_AS(with_host("a"s + byte), std::invalid_argument);
        }
    }
    CHECK_THROWS_AS(with_host("h\r\nX-Injected: 1"), std::invalid_argument);
    CHECK_THROWS_AS(with_host("h\n"), std::invalid_argument);
    CHECK_THROWS_AS(with_host("h\0"s), std::invalid_argument);
    CHECK(coetcd::detail::wire::is_header_value(""));
}

TEST_CASE("etcd is to give up a little before us", "[net][http_request]") {
    struct {
        std::chrono::nanoseconds left;
        const char* text;
    } const rows[] = {
        {10s, "9900m"},
        {2s, "1900m"},
        {1s, "900m"},
        {500ms, "450m"},
        {10ms, "9m"},
        {9ms, "9m"},
        {2ms, "2m"},
        {1ms, "1m"},
        {1ms - 1ns, "1m"},
        {1ns, "1m"},
        {0ns, "1m"}, // zero would be no limit at all
        {-1ns, "1m"},
        {-1h, "1m"},
        {99'999'999ms + 100ms, "99999999m"},
        {99'999'999ms + 101ms, "99999999m"}, // the most digits that there may be
        {std::chrono::nanoseconds::max(), "99999999m"},
        {std::chrono::nanoseconds::min(), "1m"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.left.count());
        CHECK(grpc_timeout(row.left) == row.text);
    }
}

TEST_CASE("a chunk begins with its size", "[net][http_request]") {
    CHECK(chunk("a") == "1\r\na\r\n");
    CHECK(chunk("a\r\n\0"s) == "4\r\na\r\n\0\r\n"s);
    struct {
        std::size_t size;
        const char* text;
    } const rows[] = {
        {9, "9"},
        {10, "a"},
        {15, "f"},
        {16, "10"},
        {255, "ff"},
        {256, "100"},
        {4096, "1000"},
        {65'535, "ffff"},
        {1'048'576, "100000"},
    };
    for (const auto& row : rows) {
        const std::string body(row.size, 'x');
        CHECK(chunk(body) == std::string(row.text) + "\r\n" + body + "\r\n");
    }
}
