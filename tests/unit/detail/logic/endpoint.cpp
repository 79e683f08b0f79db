// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/endpoint.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::string_literals;

namespace {

/// What `parse_endpoint` says of a bad input; empty if it takes it.
std::string refusal(std::string_view url) {
    try {
        parse_endpoint(url);
        return {};
    } catch (const std::invalid_argument& e) {
        return e.what();
    }
}

} // namespace

TEST_CASE("an endpoint may leave out its scheme and its port", "[logic][endpoint]") {
    struct {
        const char* url;
        bool tls;
        const char* host;
        std::uint16_t port;
    } const rows[] = {
        {"http://127.0.0.1:2379", false, "127.0.0.1", 2379},
        {"http://127.0.0.1:2379/", false, "127.0.0.1", 2379},
        {"https://etcd-1.example.com:443", true, "etcd-1.example.com", 443},
        {"https://etcd/", true, "etcd", 2379},
        {"etcd:1", false, "etcd", 1},
        {"etcd_1:65535", false, "etcd_1", 65535},
        {"etcd", false, "etcd", 2379},
        {"etcd/", false, "etcd", 2379},
        {"[::1]:2379", false, "::1", 2379},
        {"[::1]", false, "::1", 2379},
        {"HTTP://h:1", false, "h", 1},
        {"hTTpS://Etcd-1.Example.COM", true, "etcd-1.example.com", 2379},
        {"10.0.0.255", false, "10.0.0.255", 2379},
        {"1and1.de", false, "1and1.de", 2379},
        {"etcd.example.", false, "etcd.example.", 2379},
        {"https://[FE80::1%Eth0]", true, "fe80::1%Eth0", 2379},
        {"http://[::ffff:10.0.0.1]:80/", false, "::ffff:10.0.0.1", 80},
        {"https://[fe80::1%eth0.1]:23", true, "fe80::1%eth0.1", 23},
    };
    for (const auto& row : rows) {
        CAPTURE(row.url);
        const auto result = parse_endpoint(row.url);
        CHECK(result.tls == row.tls);
        CHECK(result.host == row.host);
        CHECK(result.port == row.port);
    }
}

TEST_CASE("an endpoint is written for people and for the Host header", "[logic][endpoint]") {
    CHECK(parse_endpoint("etcd").text() == "http://etcd:2379");
    CHECK(parse_endpoint("https://etcd:80/").text() == "https://etcd:80");
    CHECK(parse_endpoint("[::1]:80").text() == "http://[::1]:80");
    CHECK(parse_endpoint("[fe80::1%eth0]").text() == "http://[fe80::1%eth0]:2379");
    CHECK(parse_endpoint("etcd").authority() == "etcd:2379");
    CHECK(parse_endpoint("[::1]:80").authority() == "[::1]:80");
    CHECK(parse_endpoint("[fe80::1%eth0]").authority() == "[fe80::1]:2379");
}

TEST_CASE("what is written is read again", "[logic][endpoint]") {
    for (const auto url : {"http://a:1",
                           "https://a.b-c_d:2",
                           "http://[::1]:3",
                           "https://[a:b::]:4",
                           "http://[fe80::1%eth0]:5"}) {
        CHECK(parse_endpoint(url).text() == url);
    }
}

TEST_CASE("what is no endpoint is refused with the reason", "[logic][endpoint]") {
    struct {
        std::string url;
        const char* reason;
    } const rows[] = {
        {"", "no host"},
        {"/", "no host"},
        {":2379", "no host"},
        {"http://", "no host"},
        {"http://:2379", "no host"},
        {"http:///", "no host"},
        {"[]:2379", "no host"},
        {"ftp://h", "scheme"},
        {"HTTPX://h", "scheme"},
        {"unix://h", "scheme"},
        {"://h", "scheme"},
        {" http://h", "scheme"},
        {"http://http://h", "path"},
        {"http:/h", "path"},
        {"http://h//", "path"},
        {"http://h/v3", "path"},
        {"h/v3/", "path"},
        {"http://h?q", "path or a query"},
        {"http://h#f", "path or a query"},
        {"http://u@h", "user name"},
        {"http://u:p@h:1", "user name"},
        {"h:0", "port"},
        {"h:65536", "port"},
        {"h:99999999999999999999", "port"},
        {"h:", "port"},
        {"h:-1", "port"},
        {"h:+1", "port"},
        {"h:1x", "port"},
        {"h:x", "port"},
        {"h: 1", "port"},
        {"h:1 ", "port"},
        {"h:1\r\n", "port"},
        {"h:1\0"s, "port"},
        {"[::1]:", "port"},
        {"[::1]1", "port"},
        {"[::1]x:1", "port"},
        {"::1", "brackets"},
        {"fe80::1", "brackets"},
        {"h:1:2", "brackets"},
        {"[::1", "closing bracket"},
        {"::1]", "brackets"},
        {"h]", "bad host"},
        {"[127.0.0.1]", "bad host"},
        {"[etcd]", "bad host"},
        {"[::g]", "bad host"},
        {"[::1%]", "bad host"},
        {"[::1%e%f]", "bad host"},
        {"[%eth0]", "bad host"},
        {"[[::1]]", "bad host"},
        {"a b", "bad host"},
        {"h\r\nX: y", "bad host"},
        {"h\\x", "bad host"},
        {"h,g", "a comma: pass each endpoint as a string of its own"},
        {"a:1,b:2", "a comma"},
        {"http://a:1,http://b:2", "a comma"},
        {"2379", "bad host"}, // for which resolvers have an address
        {"127.1", "bad host"},
        {"127.0.0.1.", "bad host"},
        {"127.0.0.1.5", "bad host"},
        {"127.0.0.256", "bad host"},
        {"127.0.0.01", "bad host"},
        {"a.1", "bad host"},
        {".example.com", "bad host"}, // which a certificate of any name below it would fit
        {".", "bad host"},
        {"\xc3\xa9tcd", "bad host"},
        {std::string(254, 'a'), "bad host"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.url, row.reason);
        const auto text = refusal(row.url);
        CHECK(text.rfind("endpoints: \"", 0) == 0);
        CHECK(text.find(row.reason) != text.npos);
        CHECK(text.find("expected http://host:port") != text.npos);
    }
    CHECK(refusal(std::string(253, 'a')).empty());
}

TEST_CASE("only what is written as this machine may be it", "[logic][endpoint][security]") {
    const auto local = [](const char* host) {
        endpoint e;
        e.host = host;
        return is_local(e);
    };
    for (const auto host : {"localhost", "127.0.0.1", "127.255.0.7", "::1"}) {
        CAPTURE(host);
        CHECK(local(host));
    }
    for (const auto host : {"127.0.0.1.2",
                            "127.0.0.1.",
                            "127.0.0",
                            "127.0.0.256",
                            "127.0.0.01",
                            "127.",
                            "127..0.1",
                            "127.example.org",
                            "128.0.0.1",
                            "localhost.example.org",
                            "::2"}) {
        CAPTURE(host);
        CHECK_FALSE(local(host));
    }
}

TEST_CASE("sec.server_text: the quoted input is fit for a log", "[logic][endpoint][security]") {
    CHECK(refusal("ftp://h").find("\"ftp://h\"") != std::string::npos);
    CHECK(refusal("a\r\n\x1b[1m").find("\"a  ?[1m\"") != std::string::npos);
    CHECK(refusal(std::string(100'000, '@')).size() < 1000);
    for (const auto url : {"http://root:secret@h:1",
                           "root:secret@h",
                           "http://root:s@secret@h",
                           "ftp://root:secret@h",
                           "http://root:secret@",
                           "http://h/?password=secret",
                           "root:secret",
                           "http://[::1]secret",
                           "http://h#secret"}) {
        CAPTURE(url);
        const auto text = refusal(url);
        CHECK_FALSE(text.empty());
        CHECK(text.find("secret") == text.npos);
    }
}

TEST_CASE("sec.header_injection: no byte but those of names gets into a host",
          "[logic][endpoint][security]") {
    for (int c = 0; c != 256; ++c) {
        const auto byte = static_cast<char>(c);
        const bool name = std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789-._")
                              .find(byte) != std::string_view::npos;
        CAPTURE(c);
        CHECK(refusal("http://a"s + byte + "b:1").empty() == name);
        CHECK(refusal("[::1%a"s + byte + "b]:1").empty() == name);
        const bool digit =
            std::string_view("0123456789abcdefABCDEF:.").find(byte) != std::string_view::npos;
        CHECK(refusal("[::1"s + byte + "1]:1").empty() == (digit || byte == '%'));
    }
}
