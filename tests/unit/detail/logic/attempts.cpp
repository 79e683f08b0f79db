// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/attempts.hpp>

#include <boost/asio/error.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::logic;
using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;
using tries = attempts<time_point>;
using step = tries::step;

namespace {

const time_point start(1000h);

attempt_end success() {
    return {};
}
attempt_end failed(error_code code, effect left, bool transient = true) {
    return {code, "why", verdict{left, transient, transient}, false};
}
attempt_end not_sent() {
    return failed(boost::asio::error::connection_refused, effect::none);
}
attempt_end lost() {
    return failed(boost::asio::error::eof, effect::unresolved);
}
attempt_end too_late() {
    return failed(errc::timed_out, effect::unresolved);
}
attempt_end refused() {
    return failed(server_errc::permission_denied, effect::none, false);
}
attempt_end refused_by_one() {
    attempt_end e = failed(server_errc::permission_denied, effect::none, false);
    e.meaning.transient = true;
    e.meaning.ask_others = true;
    return e;
}
attempt_end full() {
    return failed(server_errc::resource_exhausted, effect::settled, false);
}
attempt_end garbled() {
    return failed(errc::protocol_error, effect::unresolved);
}
attempt_end unknown_call() {
    return failed(server_errc::unimplemented, effect::none);
}
attempt_end corrupt() {
    return failed(server_errc::data_loss, effect::none);
}
attempt_end of_another_cluster() {
    return failed(errc::wrong_cluster, effect::settled);
}
attempt_end untrusted() {
    return failed(errc::tls_failed, effect::none);
}
attempt_end too_large() {
    return failed(errc::too_large, effect::unresolved, false);
}
attempt_end no_token() {
    attempt_end e = failed(server_errc::unauthenticated, effect::none, false);
    e.wants_token = true;
    return e;
}

struct row {
    const char* what;
    std::vector<attempt_end> ends;
    std::vector<step> steps; // after each
    error_code code;         // at the end
    effect left;
};

void check(const row& r, impact does, bool logs_in, std::size_t endpoints) {
    CAPTURE(r.what, static_cast<int>(does), logs_in, endpoints);
    REQUIRE(r.ends.size() == r.steps.size());
    tries t(does, start + 5s, logs_in);
    for (std::size_t i = 0; i != r.ends.size(); ++i) {
        CAPTURE(i);
        REQUIRE((t.begin(start, {}, "") == step::go));
        CHECK(t.made() == i);
        const std::string where = "http://h:" + std::to_string(i % endpoints + 1);
        REQUIRE((t.ended(r.ends[i], where, endpoints, endpoints) == r.steps[i]));
    }
    CHECK(t.code() == r.code);
    CHECK((t.left() == r.left));
    CHECK(t.text().empty() == !r.code);
}

} // namespace

TEST_CASE("what happens to each request, whatever it does", "[logic][attempts]") {
    const row rows[] = {
        {"it succeeds", {success()}, {step::succeed}, {}, effect::none},
        {"the second endpoint is there",
         {not_sent(), success()},
         {step::again, step::succeed},
         {},
         effect::none},
        {"the first of them is, later",
         {not_sent(), not_sent(), not_sent(), success()},
         {step::again, step::again, step::pause, step::succeed},
         {},
         effect::none},
        {"pauses come after each round",
         {not_sent(), not_sent(), not_sent(), not_sent(), not_sent(), not_sent()},
         {step::again, step::again, step::pause, step::again, step::again, step::pause},
         boost::asio::error::connection_refused,
         effect::none},
        {"etcd refuses it",
         {not_sent(), refused()},
         {step::again, step::give_up},
         server_errc::permission_denied,
         effect::none},
        {"etcd is full",
         {full()},
         {step::give_up},
         server_errc::resource_exhausted,
         effect::settled},
        {"no endpoint is trusted, and each was asked",
         {untrusted(), untrusted(), untrusted(), untrusted()},
         {step::again, step::again, step::pause, step::give_up},
         errc::tls_failed,
         effect::none},
        {"no member knows the call",
         {unknown_call(), unknown_call(), unknown_call(), unknown_call()},
         {step::again, step::again, step::pause, step::give_up},
         server_errc::unimplemented,
         effect::none},
        {"one member refuses what others do",
         {refused_by_one(), success()},
         {step::elsewhere, step::succeed},
         {},
         effect::none},
        {"all members refuse it",
         {refused_by_one(), refused_by_one(), refused_by_one()},
         {step::elsewhere, step::elsewhere, step::give_up},
         server_errc::permission_denied,
         effect::none},
        {"one refuses it, another one has the last word",
         {refused_by_one(), full()},
         {step::elsewhere, step::give_up},
         server_errc::resource_exhausted,
         effect::settled},
        {"all that are there do",
         {refused_by_one(), not_sent(), not_sent()},
         {step::elsewhere, step::again, step::give_up},
         server_errc::permission_denied,
         effect::none},
        {"some were not there before",
         {not_sent(), refused_by_one(), refused_by_one(), success()},
         {step::again, step::elsewhere, step::elsewhere, step::succeed},
         {},
         effect::none},
        {"its alarm stops all changes",
         {corrupt(), corrupt(), corrupt(), corrupt()},
         {step::again, step::again, step::pause, step::give_up},
         server_errc::data_loss,
         effect::none},
        {"some members do not",
         {unknown_call(), unknown_call(), success()},
         {step::again, step::again, step::succeed},
         {},
         effect::none},
        {"some are not",
         {untrusted(), untrusted(), not_sent(), untrusted(), untrusted(), untrusted(), untrusted()},
         {step::again,
          step::again,
          step::pause,
          step::again,
          step::again,
          step::pause,
          step::give_up},
         errc::tls_failed,
         effect::none},
    };
    for (const row& r : rows) {
        for (const impact does : {impact::none, impact::idempotent, impact::once}) {
            for (const bool logs_in : {false, true}) {
                check(r, does, logs_in, 3);
            }
        }
    }
}

TEST_CASE("what may be repeated is, and the first success counts", "[logic][attempts]") {
    const row rows[] = {
        {"its answer is lost",
         {lost(), too_late(), success()},
         {step::again, step::pause, step::succeed},
         {},
         effect::unresolved},
        {"etcd does not want the second one",
         {lost(), refused()},
         {step::again, step::give_up},
         server_errc::permission_denied,
         effect::unresolved},
        {"it is full", {full()}, {step::give_up}, server_errc::resource_exhausted, effect::settled},
        {"another cluster has done it, and then ours does",
         {of_another_cluster(), of_another_cluster(), of_another_cluster(), success()},
         {step::again, step::pause, step::again, step::succeed},
         {},
         effect::settled},
        {"the answer cannot be read",
         {garbled(), garbled(), garbled(), garbled(), success()},
         {step::again, step::pause, step::again, step::pause, step::succeed},
         {},
         effect::unresolved},
        {"or is too large",
         {too_large(), too_large()},
         {step::elsewhere, step::give_up},
         errc::too_large,
         effect::unresolved},
        {"and cannot be compared",
         {too_large(), lost(), too_large()},
         {step::elsewhere, step::pause, step::give_up},
         errc::too_large,
         effect::unresolved},
        {"but not where it is true",
         {too_large(), success()},
         {step::elsewhere, step::succeed},
         {},
         effect::unresolved},
    };
    for (const row& r : rows) {
        check(r, impact::none, false, 2);
        check(r, impact::idempotent, false, 2);
    }
}

TEST_CASE("a single endpoint has the last word on how large an answer is", "[logic][attempts]") {
    const row large{"it is", {too_large()}, {step::give_up}, errc::too_large, effect::unresolved};
    check(large, impact::none, false, 1);
    check(large, impact::idempotent, false, 1);
}

TEST_CASE("what must not be repeated is not, once it may have been applied", "[logic][attempts]") {
    for (const attempt_end& end : {lost(), too_late(), garbled(), too_large()}) {
        const row r{"lost", {end}, {step::give_up}, errc::outcome_unknown, effect::unresolved};
        check(r, impact::once, false, 2);
    }
    const row settled{"the answer tells that it was done, or was not",
                      {failed(server_errc::unknown, effect::settled)},
                      {step::give_up},
                      server_errc::unknown,
                      effect::settled};
    check(settled, impact::once, false, 2);
    check({"not sent at first",
           {not_sent(), lost()},
           {step::again, step::give_up},
           errc::outcome_unknown,
           effect::unresolved},
          impact::once,
          false,
          2);
}

TEST_CASE("a token that is refused is replaced once", "[logic][attempts]") {
    const row rows[] = {
        {"it had expired",
         {no_token(), success()},
         {step::log_in, step::succeed},
         {},
         effect::none},
        {"no token is good enough",
         {no_token(), no_token()},
         {step::log_in, step::give_up},
         server_errc::unauthenticated,
         effect::none},
    };
    for (const row& r : rows) {
        for (const impact does : {impact::none, impact::idempotent, impact::once}) {
            check(r, does, true, 1);
        }
    }
    // There is no user to log in.
    tries t(impact::none, start + 5s, false);
    CHECK((t.ended(no_token(), "http://h:1", 1, 1) == step::give_up));
    CHECK(t.text() == "why, on http://h:1; etcd wants a user: set client_options::credentials");
}

TEST_CASE("a member that refuses a token says that nothing was done", "[logic][attempts]") {
    tries late(impact::idempotent, start + 5s, true);
    CHECK((late.begin(start, {}, "") == step::go));
    CHECK((late.ended(no_token(), "http://h:1", 1, 1) == step::log_in));
    CHECK((late.left() == effect::none));
    CHECK((late.begin(start + 5s, {}, "") == step::give_up));
    CHECK(late.code() == errc::unavailable);
    CHECK((late.left() == effect::settled));

    tries locked_out(impact::idempotent, start + 5s, true);
    CHECK((locked_out.begin(start, {}, "") == step::go));
    CHECK((locked_out.ended(no_token(), "http://h:1", 1, 1) == step::log_in));
    CHECK((locked_out.begin(start, errc::unavailable, "why") == step::give_up));
    CHECK(locked_out.code() == errc::unavailable);
    CHECK((locked_out.left() == effect::settled));
}

TEST_CASE("a call ends with its deadline", "[logic][attempts]") {
    struct {
        const char* what;
        std::vector<attempt_end> ends;
        impact does;
        error_code code;
        const char* text;
    } const rows[] = {
        {"no attempt", {}, impact::once, errc::timed_out, "no attempt was made"},
        {"nobody there", {not_sent()}, impact::once, errc::unavailable, "why, on http://h:1"},
        {"nobody answers", {too_late()}, impact::none, errc::timed_out, "why, on http://h:1"},
        {"etcd is late",
         {failed(server_errc::deadline_exceeded, effect::unresolved)},
         impact::none,
         errc::timed_out,
         "why, on http://h:1"},
        {"answers are lost", {lost()}, impact::none, errc::unavailable, "why, on http://h:1"},
        {"answers are not etcd's",
         {failed(errc::protocol_error, effect::none)},
         impact::once,
         errc::protocol_error,
         "why, on http://h:1"},
        {"answers are not etcd's, and the last one does not come",
         {failed(errc::protocol_error, effect::none), not_sent(), too_late()},
         impact::none,
         errc::protocol_error,
         "why, on http://h:1"},
        {"etcd has answered since",
         {failed(errc::protocol_error, effect::none),
          failed(server_errc::unavailable, effect::none),
          too_late()},
         impact::none,
         errc::timed_out,
         "why, on http://h:1"},
        {"answers are not etcd's, of a change",
         {garbled()},
         impact::idempotent,
         errc::outcome_unknown,
         "why, on http://h:1"},
        {"answers are lost, of a change",
         {lost(), not_sent()},
         impact::idempotent,
         errc::outcome_unknown,
         "why, on http://h:1"},
    };
    for (const auto& r : rows) {
        CAPTURE(r.what);
        tries t(r.does, start + 5s, false);
        for (const attempt_end& end : r.ends) {
            CHECK((t.begin(start + 5s - 1ns, {}, "") == step::go));
            (void)t.ended(end, "http://h:1", 1, 1);
        }
        CHECK((t.begin(start + 5s, {}, "") == step::give_up));
        CHECK(t.code() == r.code);
        CHECK(t.text() == "the deadline passed; last: " + std::string(r.text));
    }
}

TEST_CASE("what can be split is given up where no answer is etcd's", "[logic][attempts]") {
    tries t(impact::idempotent, start + 5s, false, true);
    CHECK((t.ended(garbled(), "http://h:1", 2, 2) == step::again));
    CHECK((t.ended(garbled(), "http://h:2", 2, 2) == step::pause));
    CHECK((t.ended(garbled(), "http://h:1", 2, 2) == step::give_up));
    CHECK(t.code() == errc::protocol_error);
    CHECK((t.left() == effect::unresolved));
}

TEST_CASE("one endpoint that is asked again does not speak for the others", "[logic][attempts]") {
    // The other one is shunned for longer, as it has failed more often.
    tries t(impact::idempotent, start + 5s, false);
    for (int round = 0; round != 4; ++round) {
        CHECK((t.ended(unknown_call(), "http://h:1", 2, 2) == step::again));
        CHECK((t.ended(unknown_call(), "http://h:1", 2, 2) == step::pause));
    }
    CHECK((t.ended(unknown_call(), "http://h:2", 2, 2) == step::give_up));
    CHECK(t.code() == server_errc::unimplemented);
    // Addresses are not told apart, but each is asked.
    tries one(impact::idempotent, start + 5s, false);
    CHECK((one.ended(unknown_call(), "http://h:1", 1, 2) == step::again));
    CHECK((one.ended(unknown_call(), "http://h:1", 1, 2) == step::pause));
    CHECK((one.ended(unknown_call(), "http://h:1", 1, 2) == step::give_up));
    // An answer that is too large may be smaller from another address.
    tries large(impact::none, start + 5s, false);
    CHECK((large.ended(too_large(), "http://h:1", 1, 2) == step::elsewhere));
    CHECK((large.ended(too_large(), "http://h:1", 1, 2) == step::give_up));
}

TEST_CASE("without a token there is no attempt", "[logic][attempts]") {
    struct {
        const char* what;
        std::vector<attempt_end> ends;
        impact does;
        error_code code;
    } const rows[] = {
        {"at first", {}, impact::once, errc::login_failed},
        {"later", {not_sent()}, impact::once, errc::login_failed},
        {"of a read", {lost()}, impact::none, errc::login_failed},
        {"of a change", {lost()}, impact::idempotent, errc::outcome_unknown},
    };
    for (const auto& r : rows) {
        CAPTURE(r.what);
        tries t(r.does, start + 5s, true);
        for (const attempt_end& end : r.ends) {
            (void)t.ended(end, "http://h:1", 1, 1);
        }
        tries late = t;
        CHECK((t.begin(start, errc::login_failed, "wrong password") == step::give_up));
        CHECK(t.code() == r.code);
        CHECK(t.text() == "wrong password");
        // The deadline comes first.
        CHECK((late.begin(start + 5s, errc::login_failed, "wrong password") == step::give_up));
        CHECK(late.code() == (r.code == errc::login_failed ? errc::unavailable : r.code));
        CHECK(late.text() == "the deadline passed; last: wrong password");
    }
}

TEST_CASE("the pauses of a call become longer with each round", "[logic][attempts]") {
    for (const std::size_t endpoints : {std::size_t{1}, std::size_t{3}}) {
        tries t(impact::none, start + 5s, false);
        for (unsigned round = 0; round != 8; ++round) {
            for (std::size_t i = 0; i != endpoints; ++i) {
                (void)t.ended(not_sent(), "http://h:1", endpoints, endpoints);
            }
            CHECK(t.pause(endpoints, 12345) == backoff(round, 12345));
        }
    }
    CHECK(tries(impact::none, start, false).repeatable());
    CHECK(tries(impact::idempotent, start, false).repeatable());
    CHECK_FALSE(tries(impact::once, start, false).repeatable());
}

TEST_CASE("that an attempt was refused is told, however the call ends", "[logic][attempts]") {
    const attempt_end unknown_path = failed(server_errc::unimplemented, effect::none);
    for (const attempt_end& first : {refused_by_one(), unknown_path, not_sent(), lost()}) {
        CAPTURE(first.code.message());
        tries t(impact::idempotent, start + 1s, false);
        CHECK_FALSE(t.refused());
        (void)t.ended(first, "http://h:1", 2, 2);
        (void)t.ended(not_sent(), "http://h:2", 2, 2);
        REQUIRE((t.begin(start + 1s, {}, {}) == step::give_up));
        CHECK(t.left() != effect::settled);
        CHECK(t.refused() == (first.code.category() == coetcd::server_category()));
    }
}

TEST_CASE("a member that refuses what others do is to blame; if all refuse, none is",
          "[logic][attempts]") {
    tries t(impact::none, start + 5s, false);
    (void)t.ended(refused_by_one(), "http://h:1", 2, 2);
    tries alone = t;
    tries late = t;
    (void)t.ended(success(), "http://h:2", 2, 2);
    CHECK(t.blames_doubted());
    CHECK((alone.ended(refused_by_one(), "http://h:2", 2, 2) == step::give_up));
    CHECK_FALSE(alone.blames_doubted());
    CHECK(alone.text() == "why, on http://h:2");
    // There was no time to ask the others.
    CHECK((late.begin(start + 5s, {}, "") == step::give_up));
    CHECK(late.blames_doubted());
    // One endpoint may be several members.
    tries two(impact::none, start + 5s, false);
    CHECK((two.ended(refused_by_one(), "http://h:1", 1, 2) == step::elsewhere));
    CHECK((two.ended(refused_by_one(), "http://h:1", 1, 2) == step::give_up));
}
