// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/administration.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::logic;

TEST_CASE("text that JSON cannot hold is found", "[administration]") {
    struct {
        std::string text;
        bool utf8;
        bool printable;
    } const rows[] = {
        {"", true, true},
        {"plain", true, true},
        {"gr\xc3\xbc\xc3\x9f", true, true},
        {"\xf0\x9f\x94\x92", true, true},
        {std::string("a\0b", 3), true, false},
        {"tab\t", true, false},
        {"\xc2\x85", true, false}, // a control character
        {"\x7f", true, false},
        {"\xff", false, false},
        {"\xc3", false, false},
        {"\xc2\x20", false, false},
        {"\xed\xa0\x80", false, false}, // a surrogate
        {"\xc0\x80", false, false},     // overlong
    };
    for (const auto& row : rows) {
        CAPTURE(row.text);
        CHECK(is_utf8(row.text) == row.utf8);
        CHECK(is_printable(row.text) == row.printable);
    }
}

TEST_CASE("passwords have a length that etcd honours", "[administration]") {
    CHECK_NOTHROW(require_password("p"));
    CHECK_NOTHROW(require_password(std::string(72, 'p')));
    CHECK_THROWS_AS(require_password(std::string(73, 'p')), std::invalid_argument);
    CHECK_THROWS_AS(require_password(""), std::invalid_argument);
}

TEST_CASE("ranges of permissions begin before they end", "[administration]") {
    CHECK_NOTHROW(require_range("a"));
    CHECK_NOTHROW(require_range({"a", "b"}));
    CHECK_NOTHROW(require_range(key_range::all()));
    CHECK_NOTHROW(require_range(key_range::from("z")));
    CHECK_NOTHROW(require_range(key_range::prefix("a/")));
    CHECK_THROWS_AS(require_range({"b", "a"}), std::invalid_argument);
    CHECK_THROWS_AS(require_range({"a", "a"}), std::invalid_argument);
    CHECK_THROWS_AS(require_range(""), std::invalid_argument);
}

TEST_CASE("a bad URL of a peer is named by its place, and not quoted", "[administration]") {
    CHECK_NOTHROW(require_peer_urls({"http://10.0.0.1:2380", "https://[fe80::1]:2380"}));
    const auto reason = [](const std::vector<std::string>& urls) {
        try {
            require_peer_urls(urls);
        } catch (const std::invalid_argument& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    CHECK_THAT(reason({"http://a:1", "http://a"}), support::contains("the 2. has no port"));
    CHECK_THAT(reason({"https://[::1]"}), support::contains("the 1. has no port"));
    CHECK_THAT(reason({"a:1"}), support::contains("begins with neither"));
    CHECK_THAT(reason({"http://a:1", "http://a:1"}), support::contains("the 2. is there twice"));
    CHECK(reason({"http://user:canary@a:1"}).find("canary") == std::string::npos);
}

TEST_CASE("etcd's words about users and members become codes", "[administration]") {
    const error_code precondition = server_errc::failed_precondition;
    struct {
        error_code ec;
        const char* text;
        error_code expected;
    } const rows[] = {
        {precondition, "etcdserver: user name already exists", server_errc::already_exists},
        {precondition, "etcdserver: role name already exists", server_errc::already_exists},
        {precondition, "etcdserver: Peer URLs already exists", server_errc::already_exists},
        {precondition, "etcdserver: user name not found", server_errc::not_found},
        {precondition, "etcdserver: role name not found", server_errc::not_found},
        {precondition, "etcdserver: role is not granted to the user", server_errc::not_found},
        {precondition, "etcdserver: permission is not granted to the role", server_errc::not_found},
        {precondition, "etcdserver: root user does not exist", precondition},
        {precondition, "etcdserver: authentication is not enabled", precondition},
        {server_errc::unknown, "etcdserver: user name not found", server_errc::unknown},
        {errc::outcome_unknown, "etcdserver: user name not found", errc::outcome_unknown},
        {{}, "", {}},
    };
    for (const auto& row : rows) {
        CAPTURE(row.text);
        CHECK(meaning_of(row.ec, row.text) == row.expected);
    }
}

TEST_CASE("only what came later is explained by the version", "[administration]") {
    CHECK_THAT(advice(rpc::hash_kv, server_errc::unimplemented), support::contains("3.5"));
    CHECK(advice(rpc::user_add, server_errc::unimplemented).empty());
    CHECK(advice(rpc::hash_kv, server_errc::unavailable).empty());
}
