// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/retry.hpp>

#include <boost/asio/error.hpp>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::logic;
using namespace std::chrono_literals;

namespace {

const verdict final_none{effect::none, false, false};
const verdict others_may{effect::none, true, true};
const verdict unclear{effect::unresolved, true, true};

} // namespace

TEST_CASE("each error of etcd means what it did and whether to try again", "[logic][retry]") {
    struct {
        server_errc code;
        const char* message; // as etcd 3.4 to 3.7 write it
        verdict expected;
    } const rows[] = {
        // The request can never succeed, or not as it is.
        {server_errc::not_found, "etcdserver: requested lease not found", final_none},
        {server_errc::failed_precondition, "etcdserver: lease already exists", final_none},
        {server_errc::out_of_range, "etcdserver: too large lease TTL", final_none},
        {server_errc::out_of_range,
         "etcdserver: mvcc: required revision has been compacted",
         final_none},
        {server_errc::out_of_range,
         "etcdserver: mvcc: required revision is a future revision",
         final_none},
        {server_errc::invalid_argument, "etcdserver: request is too large", final_none},
        {server_errc::invalid_argument,
         "etcdserver: too many operations in txn request",
         final_none},
        {server_errc::invalid_argument,
         "etcdserver: duplicate key given in txn request",
         final_none},
        {server_errc::invalid_argument, "etcdserver: key is not provided", final_none},
        {server_errc::invalid_argument, "etcdserver: key not found", final_none},
        {server_errc::already_exists, "", final_none},
        {server_errc::unimplemented, "Not Found", others_may}, // others may be newer
        // authentication
        {server_errc::invalid_argument, "etcdserver: user name is empty", final_none},
        {server_errc::unauthenticated, "etcdserver: invalid auth token", final_none},
        {server_errc::invalid_argument, "etcdserver: revision of auth store is old", final_none},
        {server_errc::invalid_argument,
         "etcdserver: authentication failed, invalid user ID or password",
         final_none},
        {server_errc::permission_denied, "etcdserver: permission denied", final_none},
        {server_errc::failed_precondition, "etcdserver: authentication is not enabled", final_none},
        {server_errc::failed_precondition, "etcdserver: user name not found", final_none},
        // full, or busy
        {server_errc::resource_exhausted,
         "etcdserver: mvcc: database space exceeded",
         {effect::settled, false, false}},
        {server_errc::resource_exhausted, "etcdserver: too many requests", others_may},
        {server_errc::resource_exhausted,
         "grpc: received message larger than max (4194320 vs. 4194304)",
         {effect::settled, false, false}},
        // members that do not serve
        {server_errc::failed_precondition, "etcdserver: rpc not supported for learner", others_may},
        {server_errc::unavailable, "etcdserver: rpc not supported for learner", others_may},
        {server_errc::unavailable, "etcdserver: not capable", others_may},
        // members that are changed
        {server_errc::unavailable, "etcdserver: unhealthy cluster", others_may},
        {server_errc::failed_precondition,
         "etcdserver: can only promote a learner member which is in sync with leader",
         final_none},
        {server_errc::failed_precondition,
         "etcdserver: too many learner members in cluster",
         final_none},
        {server_errc::unknown,
         "etcdserver: re-configuration failed due to not enough started members",
         final_none},
        {server_errc::unavailable, "etcdserver: no leader", others_may},
        // It may still commit.
        {server_errc::unavailable, "etcdserver: leader changed", unclear},
        {server_errc::unavailable, "etcdserver: request timed out", unclear},
        {server_errc::unavailable,
         "etcdserver: request timed out, possibly due to previous leader failure",
         unclear},
        {server_errc::unavailable,
         "etcdserver: request timed out, possibly due to connection lost",
         unclear},
        {server_errc::unavailable, "error reading from server: EOF", unclear},
        {server_errc::unavailable, "transport is closing", unclear},
        {server_errc::unavailable, "", unclear},
        {server_errc::deadline_exceeded, "context deadline exceeded", unclear},
        {server_errc::unknown, "context deadline exceeded", unclear},
        {server_errc::unknown, "", unclear},
        {server_errc::canceled, "context canceled", unclear},
        {server_errc::aborted, "", unclear},
        {server_errc::internal, "server closed the stream without sending trailers", unclear},
        {server_errc::data_loss, "etcdserver: corrupt cluster", others_may}, // the alarm
        {server_errc::data_loss, "", unclear},
    };
    for (const auto& row : rows) {
        CAPTURE(static_cast<int>(row.code), row.message);
        const verdict v = judge({row.code, row.message});
        CHECK(v.left == row.expected.left);
        CHECK(v.transient == row.expected.transient);
        CHECK(v.blame == row.expected.blame);
    }
}

TEST_CASE("what is not etcd's blames the endpoint, and refuses nothing", "[logic][retry]") {
    for (int code = 1; code <= 16; ++code) {
        CAPTURE(code);
        const auto c = static_cast<server_errc>(code);
        const verdict v = judge({c, "etcdserver: permission denied", true});
        CHECK(v.transient);
        CHECK(v.blame);
        const bool turned_away =
            c == server_errc::invalid_argument || c == server_errc::permission_denied ||
            c == server_errc::unauthenticated || c == server_errc::unimplemented ||
            c == server_errc::failed_precondition || c == server_errc::resource_exhausted;
        CHECK(v.left == (turned_away ? effect::none : effect::unresolved));
    }
}

TEST_CASE("the code decides before the text", "[logic][retry]") {
    // Text that a user chose, a key or a name, may be part of a message.
    CHECK_FALSE(judge({server_errc::not_found, "no leader"}).transient);
    CHECK_FALSE(judge({server_errc::invalid_argument, "too many requests"}).transient);
    CHECK_FALSE(judge({server_errc::permission_denied, "learner"}).transient);
    CHECK(judge({server_errc::unknown, "no leader"}).left == effect::unresolved);
}

TEST_CASE("a code that there is not yet is no reason to believe that nothing happened",
          "[logic][retry]") {
    const verdict v = judge({static_cast<server_errc>(99), ""});
    CHECK(v.left == effect::unresolved);
    CHECK(v.transient);
}

TEST_CASE("what was not sent did nothing; what was sent without an answer may have",
          "[logic][retry]") {
    const error_code reasons[] = {boost::asio::error::connection_refused,
                                  boost::asio::error::connection_reset,
                                  boost::asio::error::eof,
                                  boost::asio::error::host_not_found,
                                  errc::timed_out,
                                  errc::protocol_error};
    for (const auto& ec : reasons) {
        CAPTURE(ec.message());
        for (const bool sent : {false, true}) {
            const verdict v = judge_transport(ec, sent);
            CHECK(v.left == (sent ? effect::unresolved : effect::none));
            CHECK(v.transient);
            CHECK(v.blame);
        }
    }
    // Others of ours were in its way.
    CHECK(judge_transport(errc::timed_out, false, true).transient);
    CHECK_FALSE(judge_transport(errc::timed_out, false, true).blame);
    // We lack something; no endpoint does.
    for (const error_code& ec : {error_code(boost::asio::error::no_descriptors),
                                 error_code(boost::asio::error::no_memory),
                                 error_code(boost::asio::error::no_buffer_space)}) {
        CHECK(is_lack(ec));
        CHECK(judge_transport(ec, false).transient);
        CHECK_FALSE(judge_transport(ec, false).blame);
    }
    CHECK_FALSE(is_lack(boost::asio::error::connection_refused));
    CHECK_FALSE(is_lack(errc::timed_out));
    CHECK_FALSE(is_lack({}));
    // It may be true.
    const verdict v = judge_transport(errc::too_large, true);
    CHECK(v.left == effect::unresolved);
    CHECK_FALSE(v.transient);
    CHECK_FALSE(v.blame);
}

TEST_CASE("a request that something else finds too large was not passed on, nor will be",
          "[logic][retry]") {
    const verdict v = judge(wire::decode_status(413, "too large"));
    CHECK(v.left == effect::none);
    CHECK_FALSE(v.transient);
    CHECK_FALSE(v.blame);
}

TEST_CASE("what is too large is etcd's only in the body of what it has to say", "[logic][retry]") {
    CHECK(transport_code(errc::too_large, 200, true) == errc::too_large);
    CHECK(transport_code(errc::too_large, 200, false) == errc::protocol_error);
    for (const bool may_be_large : {false, true}) {
        for (const unsigned status : {0U, 302U, 403U, 502U}) {
            CHECK(transport_code(errc::too_large, status, may_be_large) == errc::protocol_error);
        }
        CHECK(transport_code(errc::timed_out, 0, may_be_large) == errc::timed_out);
        CHECK_FALSE(transport_code(error_code(), 403, may_be_large));
    }
}

TEST_CASE("a call may succeed later unless it was refused", "[logic][retry]") {
    CHECK(is_transient(errc::timed_out));
    CHECK(is_transient(errc::unavailable));
    CHECK(is_transient(errc::outcome_unknown));
    CHECK(is_transient(errc::protocol_error)); // etcd may be back
    CHECK_FALSE(is_transient(errc::too_large));
    CHECK_FALSE(is_transient(server_errc::permission_denied));
    CHECK_FALSE(is_transient(error_code()));
}

TEST_CASE("effects are in order of trouble", "[logic][retry]") {
    CHECK(effect::none < effect::settled);
    CHECK(effect::settled < effect::unresolved);
}

TEST_CASE("the pause between attempts doubles up to a limit, with a jitter of a half",
          "[logic][retry]") {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    struct {
        unsigned attempt;
        std::chrono::milliseconds full;
    } const rows[] = {
        {0, 25ms},
        {1, 50ms},
        {2, 100ms},
        {3, 200ms},
        {4, 400ms},
        {5, 800ms},
        {6, 1000ms},
        {7, 1000ms},
        {16, 1000ms},
        {17, 1000ms},
        {63, 1000ms},
        {std::numeric_limits<unsigned>::max(), 1000ms},
    };
    for (const auto& row : rows) {
        CAPTURE(row.attempt);
        const auto half = std::chrono::nanoseconds(row.full) / 2;
        const auto span = static_cast<std::uint64_t>(half.count());
        CHECK(backoff(row.attempt, 0) == half);
        CHECK(backoff(row.attempt, span) == row.full);
        CHECK(backoff(row.attempt, span + 1) == half);
        for (const std::uint64_t chance : {std::uint64_t{987'654'321}, most / 7, most}) {
            CHECK(backoff(row.attempt, chance) >= half);
            CHECK(backoff(row.attempt, chance) <= row.full);
        }
    }
    CHECK(backoff(0, 0, 10ms, 20ms) == 5ms);
    CHECK(backoff(9, 0, 10ms, 20ms) == 10ms);
    CHECK(backoff(0, 0, 0ms, 0ms) == 0ms);
}

TEST_CASE("the words of an error are what was said besides its code", "[logic][retry]") {
    CHECK(words_of(error(errc::outcome_unknown, "grant: no answer")) == "grant: no answer");
    CHECK(words_of(error(server_errc::not_found, "")) == "");
    const error twice(errc::timed_out, error(errc::timed_out, "why").what());
    CHECK(words_of(twice) == error(errc::timed_out, "why").what());
}

TEST_CASE("a refusal that would cost a session counts only if all members agree",
          "[logic][retry]") {
    constexpr auto gone = "etcdserver: requested lease not found";
    struct {
        const char* what;
        rpc by;
        server_errc code;
        const char* message;
        bool movable;
        bool ask_others;
    } const rows[] = {
        {"of a renewal", rpc::lease_keep_alive, server_errc::permission_denied, "no", true, true},
        {"of one", rpc::lease_keep_alive, server_errc::invalid_argument, "odd", true, true},
        {"of one", rpc::lease_keep_alive, server_errc::unauthenticated, "who?", true, true},
        {"of one", rpc::lease_keep_alive, server_errc::resource_exhausted, "full", true, true},
        {"of one", rpc::lease_keep_alive, server_errc::not_found, "no route", true, true},
        {"that is the safe side", rpc::lease_keep_alive, server_errc::not_found, gone, true, false},
        {"of a place", rpc::txn, server_errc::permission_denied, "no", true, true},
        {"of a place", rpc::txn, server_errc::not_found, gone, true, true},
        {"all agree on that",
         rpc::txn,
         server_errc::resource_exhausted,
         "space exceeded",
         true,
         false},
        {"parts are asked one by one",
         rpc::txn,
         server_errc::permission_denied,
         "no",
         false,
         false},
        {"of a user's call", rpc::range, server_errc::permission_denied, "no", true, false},
        {"of a grant", rpc::lease_grant, server_errc::failed_precondition, "no", true, false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what, row.message);
        const verdict v = judge({row.code, row.message}, row.by, row.movable);
        CHECK(v.ask_others == row.ask_others);
        CHECK(v.transient == row.ask_others);
        CHECK_FALSE(v.blame);
    }
    // What passes is tried again as ever.
    const verdict busy =
        judge({server_errc::resource_exhausted, "etcdserver: too many requests"}, rpc::txn, true);
    CHECK(busy.transient);
    CHECK(busy.blame);
    CHECK_FALSE(busy.ask_others);
}

TEST_CASE("that a lease is gone is said in etcd's words", "[logic][retry]") {
    CHECK(is_lease_gone(server_errc::not_found,
                        "txn: etcdserver: requested lease not found, on http://h:1"));
    CHECK_FALSE(is_lease_gone(server_errc::not_found, "etcdserver: member not found"));
    CHECK_FALSE(is_lease_gone(server_errc::unknown, "etcdserver: requested lease not found"));
    CHECK_FALSE(is_lease_gone({}, "etcdserver: requested lease not found"));
}

TEST_CASE("a lease that lives is refused for good twice in a row", "[logic][retry]") {
    lease_refusals all;
    const auto are_final_after = [&all](std::optional<bool> gone) {
        all.add(gone);
        return all.are_final();
    };
    CHECK_FALSE(are_final_after(std::nullopt));
    CHECK_FALSE(are_final_after(std::nullopt)); // however often
    CHECK_FALSE(are_final_after(false));
    CHECK_FALSE(are_final_after(std::nullopt));
    CHECK_FALSE(are_final_after(true));
    CHECK(are_final_after(false));
    all.end_row();
    CHECK_FALSE(are_final_after(false));
    CHECK(are_final_after(false));
}

TEST_CASE("a refusal is what etcd says, and no trouble on the way", "[logic][retry]") {
    CHECK(is_refusal(server_errc::permission_denied));
    CHECK(is_refusal(server_errc::not_found));
    CHECK_FALSE(is_refusal({}));
    CHECK_FALSE(is_refusal(errc::timed_out));
    CHECK_FALSE(is_refusal(errc::protocol_error));
    CHECK_FALSE(is_refusal(errc::login_failed)); // it was not sent
}
