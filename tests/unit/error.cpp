// SPDX-License-Identifier: BSL-1.0
#include <coetcd/error.hpp>

#include <boost/asio/error.hpp>

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "support/catch.hpp"

using namespace coetcd;

namespace {

constexpr errc all_errc[] = {
    errc::timed_out,       errc::unavailable,         errc::outcome_unknown,
    errc::protocol_error,  errc::too_large,           errc::session_lost,
    errc::session_closed,  errc::lock_lost,           errc::not_owner,
    errc::watch_compacted, errc::watch_canceled,      errc::tls_failed,
    errc::login_failed,    errc::cn_auth_unsupported, errc::revision_regressed,
    errc::conflict,        errc::wrong_kind,          errc::hold_expired,
    errc::exceeds_limit,   errc::wrong_cluster,       errc::corrupt_snapshot,
    errc::already_exists};
constexpr int last_server_errc = 16;

bool is_label(const std::string& text) {
    return !text.empty() &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
}

} // namespace

TEST_CASE("each error of the library says what it is", "[error]") {
    std::set<std::string> texts;
    int value = 0;
    for (const errc e : all_errc) {
        CHECK(static_cast<int>(e) == ++value);
        const error_code code = e;
        CHECK(code);
        CHECK(code == e);
        CHECK(&code.category() == &coetcd_category());
        CHECK_FALSE(code.message().empty());
        CHECK(texts.insert(code.message()).second);
    }
    const std::string unknown = coetcd_category().message(value + 1);
    CHECK_FALSE(unknown.empty());
    CHECK(texts.count(unknown) == 0);
    CHECK(coetcd_category().message(0) == unknown);
    CHECK(coetcd_category().name() == std::string_view("coetcd"));
}

TEST_CASE("each error of etcd says what it is", "[error]") {
    std::set<std::string> texts;
    for (int value = 1; value <= last_server_errc; ++value) {
        const error_code code = static_cast<server_errc>(value);
        CHECK(code.value() == value);
        CHECK(&code.category() == &server_category());
        CHECK_FALSE(code.message().empty());
        CHECK(texts.insert(code.message()).second);
    }
    const std::string unknown = server_category().message(last_server_errc + 1);
    CHECK_FALSE(unknown.empty());
    CHECK(texts.count(unknown) == 0);
    CHECK(server_category().name() == std::string_view("etcd"));
}

TEST_CASE("errors of the library and of etcd are never equal", "[error]") {
    CHECK(error_code(errc::timed_out) != error_code(server_errc::canceled));
    CHECK(error_code(errc::unavailable) != error_code(server_errc::unavailable));
}

TEST_CASE("a condition answers what the caller wants to know", "[error]") {
    struct {
        error_code code;
        bool retryable, outcome_unknown, ownership_lost;
    } const rows[] = {
        {errc::timed_out, true, false, false},
        {errc::unavailable, true, false, false},
        {errc::outcome_unknown, false, true, false},
        {errc::protocol_error, true, false, false},
        {errc::too_large, false, false, false},
        {errc::session_lost, false, false, true},
        {errc::session_closed, false, false, true},
        {errc::lock_lost, false, false, true},
        {errc::not_owner, false, false, true},
        {errc::watch_compacted, false, false, false},
        {errc::watch_canceled, false, false, false},
        {errc::tls_failed, false, false, false},
        {errc::login_failed, false, false, false},
        {errc::cn_auth_unsupported, false, false, false},
        {errc::revision_regressed, false, false, false},
        {errc::conflict, true, false, false},
        {errc::exceeds_limit, false, false, false},
        {errc::wrong_kind, false, false, false},
        {errc::hold_expired, false, false, true},
        {errc::wrong_cluster, false, false, false},
        {errc::already_exists, false, false, false},
        {server_errc::unavailable, false, false, false},
        {server_errc::deadline_exceeded, false, false, false},
        {server_errc::unknown, false, false, false},
        {server_errc::permission_denied, false, false, false},
        {server_errc::resource_exhausted, false, false, false},
        {error_code(boost::asio::error::operation_aborted), false, false, false},
        {error_code(), false, false, false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.code.message());
        CHECK((row.code == condition::retryable) == row.retryable);
        CHECK((row.code == condition::outcome_unknown) == row.outcome_unknown);
        CHECK((row.code == condition::ownership_lost) == row.ownership_lost);
    }
}

TEST_CASE("each condition says what it is", "[error]") {
    std::set<std::string> texts;
    for (const auto c :
         {condition::retryable, condition::outcome_unknown, condition::ownership_lost}) {
        const auto made = make_error_condition(c);
        CHECK_FALSE(made.message().empty());
        CHECK(texts.insert(made.message()).second);
    }
    CHECK_FALSE(condition_category().message(99).empty());
    CHECK(condition_category().name() == std::string_view("coetcd.condition"));
    CHECK_FALSE(condition_category().equivalent(error_code(errc::timed_out), 99));
}

TEST_CASE("each enumerator has its name as a label", "[error]") {
    for (const auto& [e, name] : {std::pair(errc::timed_out, "timed_out"),
                                  std::pair(errc::outcome_unknown, "outcome_unknown"),
                                  std::pair(errc::revision_regressed, "revision_regressed")}) {
        CHECK(to_string(e) == std::string_view(name));
    }
    CHECK(to_string(server_errc::canceled) == std::string_view("canceled"));
    CHECK(to_string(server_errc::permission_denied) == std::string_view("permission_denied"));
    CHECK(to_string(condition::ownership_lost) == std::string_view("ownership_lost"));
    std::set<std::string> all;
    for (const errc e : all_errc) {
        CHECK(is_label(to_string(e)));
        CHECK(all.insert(to_string(e)).second);
    }
    all.clear();
    for (int value = 1; value <= last_server_errc; ++value) {
        const char* const name = to_string(static_cast<server_errc>(value));
        CHECK(is_label(name));
        CHECK(all.insert(name).second);
    }
    CHECK(to_string(static_cast<errc>(99)) == std::string_view("unknown"));
    CHECK(to_string(static_cast<server_errc>(99)) == std::string_view("unknown"));
    CHECK(to_string(static_cast<condition>(99)) == std::string_view("unknown"));
}

TEST_CASE("an exception has the code for programs and the text for logs", "[error]") {
    try {
        throw error(errc::lock_lost, "mutex \"m\"");
    } catch (const boost::system::system_error& e) {
        CHECK(e.code() == errc::lock_lost);
        CHECK(e.code() == condition::ownership_lost);
        CHECK_THAT(e.what(), support::contains("mutex \"m\""));
        CHECK_THAT(e.what(), support::contains(error_code(errc::lock_lost).message()));
    }
}
