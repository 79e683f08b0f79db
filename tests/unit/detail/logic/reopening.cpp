// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/reopening.hpp>

#include <boost/asio/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "support/catch.hpp"

using namespace coetcd;
using coetcd::detail::logic::reopening;
using namespace std::chrono_literals;

TEST_CASE("pauses between openings grow until one succeeds", "[logic][reopening]") {
    const std::uint64_t least = 0;
    reopening r(100ms, 1000ms);
    for (int round = 0; round != 2; ++round) {
        CHECK(r.pause(least) == 50ms);
        CHECK(r.pause(least) == 100ms);
        CHECK(r.pause(least) == 200ms);
        CHECK(r.pause(least) == 400ms);
        CHECK(r.pause(least) == 500ms); // half of the longest
        for (int i = 0; i != 100; ++i) {
            (void)r.pause(least);
        }
        CHECK(r.pause(least) == 500ms);
        r.failed(error(errc::unavailable, "")); // that alone is no success
        CHECK(r.pause(least) == 500ms);
        r.opened();
    }
    // Never more than asked for, and not all at the same moment.
    reopening other(100ms, 100ms);
    CHECK(other.pause(50'000'000) == 100ms);
    CHECK(other.pause(25'000'000) == 75ms);
    CHECK(other.pause(~std::uint64_t{0}) <= 100ms);
}

TEST_CASE("what a waiter is told is why there is no session", "[logic][reopening]") {
    struct {
        error_code failure;
        bool may_pass;
    } const rows[] = {
        {errc::unavailable, true},
        {errc::timed_out, true},
        {errc::outcome_unknown, true},
        {errc::protocol_error, true}, // etcd may be back behind what answers in its place
        {server_errc::permission_denied, false},
        {server_errc::unauthenticated, false},
        {server_errc::invalid_argument, false},
        {server_errc::resource_exhausted, false}, // no space: an operator has to act
        {server_errc::unimplemented, false},
        {errc::tls_failed, false},
        {errc::login_failed, false},
        {errc::cn_auth_unsupported, false},
        {errc::too_large, false},
    };
    for (const auto& row : rows) {
        INFO(row.failure);
        reopening r(1ms, 1ms);
        r.failed(error(row.failure, "lease_grant: this is why"));
        CHECK(r.may_pass() == row.may_pass);
        const error told = r.told();
        CHECK(told.code() == (row.may_pass ? error_code(errc::timed_out) : row.failure));
        CHECK_THAT(told.what(), support::contains("this is why"));
        // It says once what is to be done, and nothing of what may have been applied: that was a
        // lease, and no session has it.
        const std::string what = told.what();
        const std::size_t advice = what.find(told.code().message());
        CHECK(advice != what.npos);
        CHECK(what.find(told.code().message(), advice + 1) == what.npos);
        if (row.failure != told.code()) {
            CHECK(what.find(row.failure.message()) == what.npos);
        }
        CHECK((what.find("a lease that it may have left is given back") != what.npos) ==
              (row.failure == errc::outcome_unknown));
        const bool nothing = what.find("nothing was changed") != what.npos;
        const bool maybe = what.find("may have been applied") != what.npos;
        CHECK_FALSE((nothing && maybe));

        r.opened();
        CHECK(r.may_pass());
        CHECK_THAT(r.told().what(), !support::contains("this is why"));
    }
}

TEST_CASE("what a waiter is told has the cause before the first attempt is over",
          "[logic][reopening]") {
    reopening r(1ms, 1ms);
    r.tried("lease_grant: refused");
    CHECK(r.may_pass());
    CHECK_THAT(r.told().what(), support::contains("not open yet: lease_grant: refused"));
    r.failed(error(errc::unavailable, "this is why"));
    CHECK_THAT(r.told().what(), !support::contains("lease_grant: refused"));
    r.tried("lease_grant: refused"); // the next one: the last one tells more
    CHECK_THAT(r.told().what(), support::contains("this is why"));
    CHECK_THAT(r.told().what(), !support::contains("refused"));
    r.opened();
    r.lost(session_end::expired);
    CHECK_THAT(r.told().what(), !support::contains("refused"));
    r.tried("lease_grant: refused");
    CHECK_THAT(r.told().what(), support::contains("refused"));
    CHECK_THAT(r.told().what(), support::contains(describe(session_end::expired)));
}

TEST_CASE("what a waiter is told is also that nothing has failed", "[logic][reopening]") {
    reopening r(1ms, 1ms);
    CHECK(r.may_pass());
    CHECK(r.told().code() == errc::timed_out);
    CHECK_THAT(r.told().what(), support::contains("the first one is not open yet"));
    r.opened();
    r.lost(session_end::expired);
    CHECK(r.may_pass());
    CHECK(r.told().code() == errc::timed_out);
    CHECK_THAT(r.told().what(), support::contains(describe(session_end::expired)));
    // Why it cannot be replaced is more important.
    r.failed(error(errc::unavailable, "this is why"));
    CHECK_THAT(r.told().what(), support::contains("this is why"));
    CHECK_THAT(r.told().what(), !support::contains(describe(session_end::expired)));
}
