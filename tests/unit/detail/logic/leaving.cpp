// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/leaving.hpp>

#include <chrono>
#include <string>
#include <tuple>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::error_code;
using coetcd::server_errc;
using coetcd::detail::logic::failing_time;
using coetcd::detail::logic::remedy;
using coetcd::detail::logic::remedy_for;

TEST_CASE("only a refusal of etcd's own ends a clean-up", "[logic][leaving]") {
    for (const auto& [ec, text, expected] : {
             // Nothing got through.
             std::tuple{error_code(errc::timed_out), "", remedy::again},
             {errc::unavailable, "", remedy::again},
             {errc::outcome_unknown, "", remedy::again},
             // It cannot be read, or not asked.
             {errc::protocol_error, "<html>", remedy::later},
             {errc::too_large, "", remedy::later},
             {errc::tls_failed, "", remedy::later},
             {errc::login_failed, "", remedy::later},
             {errc::cn_auth_unsupported, "", remedy::later},
             {boost::system::errc::make_error_code(boost::system::errc::io_error),
              "",
              remedy::later},
             // etcd is in trouble, or its gateway, or it is not etcd.
             {server_errc::canceled, "", remedy::later},
             {server_errc::unknown, "", remedy::later},
             {server_errc::deadline_exceeded, "", remedy::later},
             {server_errc::aborted, "", remedy::later},
             {server_errc::unimplemented, "Not Found", remedy::later},
             {server_errc::internal, "", remedy::later},
             {server_errc::unavailable, "", remedy::later},
             {server_errc::data_loss, "", remedy::later},
             {server_errc::unauthenticated, "etcdserver: invalid auth token", remedy::later},
             {static_cast<server_errc>(99), "", remedy::later},
             // It is its answer.
             {server_errc::not_found, "etcdserver: requested lease not found", remedy::forget},
             {server_errc::not_found, "etcdserver: member not found", remedy::later},
             {server_errc::resource_exhausted,
              "etcdserver: mvcc: database space exceeded",
              remedy::erase},
             {server_errc::resource_exhausted, "etcdserver: too big", remedy::surrender},
             {server_errc::permission_denied, "", remedy::surrender},
             {server_errc::invalid_argument, "", remedy::surrender},
             {server_errc::already_exists, "", remedy::surrender},
             {server_errc::failed_precondition, "", remedy::surrender},
             {server_errc::out_of_range, "", remedy::surrender},
         }) {
        INFO(ec.message() << ": " << text);
        CHECK(remedy_for(ec, text) == expected);
    }
}

TEST_CASE("clean-ups fail for as long as none succeeds and renewals do", "[logic][leaving]") {
    using time = std::chrono::steady_clock::time_point;
    const time now{1000h};
    const time well = now - 1h;
    failing_time<time> f;
    CHECK_FALSE(f.has_lasted(10s, now, well));
    f.failed(now);
    f.failed(now + 5s);
    CHECK_FALSE(f.has_lasted(10s, now + 10s - 1ns, well));
    CHECK(f.has_lasted(10s, now + 10s, well));
    CHECK_FALSE(f.has_lasted(10s, now + 18s, now + 9s)); // there was an outage
    CHECK(f.has_lasted(10s, now + 19s, now + 9s));
    f.succeeded();
    CHECK_FALSE(f.has_lasted(10s, now + 100s, well));
    f.failed(now + 100s);
    CHECK_FALSE(f.has_lasted(10s, now + 109s, well));
    CHECK(f.has_lasted(10s, now + 110s, well));
}
