// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/login.hpp>

#include <boost/asio/error.hpp>

#include <chrono>
#include <string>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace std::chrono_literals;

namespace {

using time_point = std::chrono::steady_clock::time_point;
using state = logic::login_state<time_point>;
using step = state::step;

constexpr time_point start(1000h);

} // namespace

TEST_CASE("without a user there is nothing to do", "[logic][login]") {
    const state s(false);
    CHECK(s.next(start) == step::go);
    CHECK(s.token().empty());
}

TEST_CASE("sec.token.single_flight: there is one login at a time", "[logic][login]") {
    state s(true);
    CHECK(s.next(start) == step::log_in);
    s.begin();
    CHECK(s.next(start) == step::wait);
    CHECK(s.not_before() == time_point::max());
    s.succeeded("one", start, 0);
    CHECK(s.next(start) == step::go);
    CHECK(s.token() == "one");
    CHECK(s.number() == 1);
}

TEST_CASE("sec.token.single_flight: only the token in use can be rejected", "[logic][login]") {
    state s(true);
    s.begin();
    s.succeeded("one", start, 0);
    s.accepted(1);
    s.rejected(1);
    CHECK(s.next(start + 1s) == step::log_in);
    s.begin();
    s.succeeded("two", start + 1s, 0);
    s.rejected(1); // by a request that was sent before
    CHECK(s.next(start + 1s) == step::go);
    CHECK(s.token() == "two");
}

TEST_CASE("sec.token.granter: a granter whose token was never accepted is told of once",
          "[logic][login]") {
    state s(true);
    s.begin();
    s.succeeded("one", start, 0);
    CHECK(s.rejected(1));
    CHECK_FALSE(s.rejected(1)); // by another request
    s.begin();
    s.succeeded("two", start + 1s, 0);
    CHECK_FALSE(s.rejected(1));
    s.accepted(2);
    CHECK_FALSE(s.rejected(2)); // it has expired
}

TEST_CASE("sec.token.backoff: logins that are of no use become rarer", "[logic][login]") {
    state s(true);
    time_point now = start;
    for (const auto pause :
         {25ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms}) {
        CAPTURE(pause.count());
        REQUIRE(s.next(now) == step::log_in);
        s.begin();
        s.succeeded("t", now, ~std::uint64_t{0});
        s.rejected(s.number());
        CHECK(s.next(now) == step::wait);
        CHECK(s.not_before() - now >= pause / 2);
        CHECK(s.not_before() - now <= pause);
        CHECK(s.next(s.not_before() - 1ns) == step::wait);
        now = s.not_before();
    }
    // One token that is accepted makes good for all.
    s.begin();
    s.succeeded("t", now, 0);
    s.accepted(s.number());
    s.rejected(s.number());
    now += 5s;
    s.begin();
    s.succeeded("t", now, 0);
    CHECK(s.not_before() - now <= 25ms);
}

TEST_CASE("sec.token.backoff: a refusal is told until it is time to ask again", "[logic][login]") {
    state s(true);
    s.begin();
    s.failed(true, errc::login_failed, "no", start, 0);
    CHECK(s.next(start) == step::fail);
    CHECK(s.failure() == errc::login_failed);
    CHECK(s.text() == "no");
    CHECK(s.next(s.not_before()) == step::log_in);
    s.begin();
    s.succeeded("t", start + 1s, 0);
    CHECK(s.next(start + 1s) == step::go);
    s.rejected(s.number());
    CHECK(s.next(start + 1s) == step::wait); // the refusal is forgotten
}

TEST_CASE("a login that no member answered was not refused", "[logic][login]") {
    state s(true);
    s.begin();
    s.failed(true, errc::login_failed, "no", start, 0);
    s.begin();
    s.failed(false, errc::unavailable, "nobody", start, 0);
    CHECK(s.next(start) == step::wait);
    CHECK(s.failure() == errc::unavailable);
    CHECK(s.next(s.not_before()) == step::log_in);
}

TEST_CASE("a call that cannot wait for a login is told what has become of it so far",
          "[logic][login]") {
    state s(true);
    s.begin();
    CHECK_FALSE(s.failure());
    s.tried(errc::timed_out, "no answer yet");
    CHECK(s.failure() == errc::timed_out);
    s.tried(boost::asio::error::connection_refused, "refused");
    CHECK(s.failure() == errc::unavailable); // as a call says it that needs no login
    CHECK(s.text() == "refused");
    CHECK(s.next(start) == step::wait);
    s.succeeded("one", start, 0);
    CHECK_FALSE(s.failure());
    CHECK(s.text().empty());
    // It says nothing of the password.
    s.rejected(1);
    s.begin();
    s.tried(server_errc::deadline_exceeded, "late");
    CHECK(s.failure() == errc::timed_out);
    CHECK(s.next(start + 1h) == step::wait);
}

TEST_CASE("etcd says in several ways that it wants a token", "[logic][login]") {
    struct {
        server_errc code;
        const char* message;
        bool wants;
    } const rows[] = {
        {server_errc::unauthenticated, "etcdserver: invalid auth token", true},
        {server_errc::unauthenticated, "", true},
        {server_errc::invalid_argument, "etcdserver: user name is empty", true},
        {server_errc::invalid_argument, "etcdserver: revision of auth store is old", true},
        {server_errc::invalid_argument, "etcdserver: key is not provided", false},
        {server_errc::invalid_argument,
         "etcdserver: authentication failed, invalid user ID or password",
         false},
        {server_errc::permission_denied, "etcdserver: permission denied", false},
        {server_errc::failed_precondition, "etcdserver: user name is empty", false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.message);
        CHECK(logic::wants_token(wire::status{row.code, row.message}) == row.wants);
    }
    const std::string off = "authenticate: etcdserver: authentication is not enabled";
    CHECK(logic::is_login_off(server_errc::failed_precondition, off));
    CHECK_FALSE(logic::is_login_off(server_errc::invalid_argument, off));
    CHECK_FALSE(logic::is_login_off(server_errc::failed_precondition, "no"));
}

TEST_CASE("etcd's codes are passed on, but for the certificate that names a user",
          "[logic][login]") {
    const std::string cn = "CommonName of client sending a request against gateway will be ignored "
                           "and not used as expected";
    CHECK(logic::code_of({server_errc::invalid_argument, cn}) == errc::cn_auth_unsupported);
    CHECK(logic::code_of({server_errc::invalid_argument, "x"}) == server_errc::invalid_argument);
    CHECK(logic::code_of({server_errc::unknown, cn}) == server_errc::unknown);
}
