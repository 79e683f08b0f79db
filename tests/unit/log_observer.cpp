// SPDX-License-Identifier: BSL-1.0
#include <coetcd/log_observer.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::connection_report;
using coetcd::errc;
using coetcd::lock_end;
using support::contains;

namespace {

/// What an observer has written.
struct written {
    explicit written(coetcd::log_options which = {})
        : log(std::make_shared<coetcd::log_observer>(
              [this](std::string_view line) { lines.emplace_back(line); }, which)) {}
    std::vector<std::string> lines;
    const std::shared_ptr<coetcd::log_observer> log;
};

using all = std::vector<std::string>;

} // namespace

TEST_CASE("what fails again and again is logged once, and at its end how often", "[log]") {
    written w;
    coetcd::log_observer& log = *w.log;
    log.on_request({"txn", "http://a:1", 0, 1ms, {}});
    log.on_request({"txn", "http://a:1", 0, 1ms, boost::asio::error::operation_aborted});
    CHECK(w.lines.empty());
    log.on_request({"txn", "http://a:1", 0, 1ms, errc::timed_out});
    log.on_request({"range", "http://a:1", 1, 1ms, errc::timed_out});
    log.on_connection({connection_report::failed, "http://a:1", 1ms, errc::timed_out});
    log.on_request({"txn", "http://a:1", 0, 1ms, {}});
    log.on_connection({connection_report::failed, "http://b:1", 1ms, errc::tls_failed, "old"});
    log.on_connection({connection_report::opened, "http://b:1", 1ms, {}});
    log.on_connection({connection_report::opened, "http://c:1", 1ms, {}, "ca_file: is empty"});
    log.on_connection({connection_report::opened, "http://c:1", 1ms, {}, "ca_file: is empty"});
    log.on_connection({connection_report::opened, "http://c:1", 1ms, {}});
    log.on_request({"txn", "http://b:1", 0, 1ms, {}});
    const std::string timed_out = coetcd::error_code(errc::timed_out).message();
    const std::string tls_failed = coetcd::error_code(errc::tls_failed).message();
    CHECK(w.lines == all{"http://a:1: txn: " + timed_out,
                         "http://a:1: well again, after 3 failures",
                         "http://b:1: no connection: " + tls_failed + ": old",
                         "http://c:1, TLS: ca_file: is empty",
                         "http://c:1, TLS: well again, after 2 failures",
                         "http://b:1: well again, after 1 failure"});
}

TEST_CASE("what etcd refuses for good is no fault of its endpoint", "[log]") {
    written w;
    w.log->on_request({"put", "http://a:1", 0, 1ms, coetcd::server_errc::permission_denied});
    CHECK(w.lines.empty());
    w.log->on_request({"put", "http://a:1", 0, 1ms, coetcd::server_errc::unavailable});
    CHECK(w.lines.size() == 1);
    w.log->on_request({"put", "http://a:1", 0, 1ms, coetcd::server_errc::permission_denied});
    REQUIRE(w.lines.size() == 2); // it answers
    CHECK_THAT(w.lines[1], contains("well again"));
    w.log->on_request({"put", "http://a:1", 0, 1ms, coetcd::server_errc::resource_exhausted});
    CHECK(w.lines.size() == 3); // it has no space, or is behind
}

TEST_CASE("each of many sessions has one line for all its failures", "[log]") {
    written w;
    for (int round = 0; round != 3; ++round) {
        for (coetcd::lease_id each = 1; each != 1001; ++each) {
            w.log->on_renewal({each, 1ms, 5s, errc::timed_out});
        }
    }
    CHECK(w.lines.size() == 1000);
}

TEST_CASE("sessions are logged with their lease", "[log]") {
    written w;
    coetcd::log_observer& log = *w.log;
    log.on_session_open({0x1234, 10s});
    log.on_renewal({0x1234, 1ms, 6s, {}});
    log.on_renewal({0x1234, 1ms, 5s, errc::timed_out});
    log.on_renewal({0x1234, 1ms, 4s, errc::timed_out});
    log.on_renewal({0x1234, 1ms, 3s, {}});
    log.on_renewal({0x1234, 1ms, 5s, errc::timed_out});
    log.on_session_end({0x1234, coetcd::session_end::expired});
    const std::string s = "session 0000000000001234: ";
    const std::string failed =
        s + "a renewal failed, with 5000 ms left: " + coetcd::error_code(errc::timed_out).message();
    CHECK(w.lines == all{s + "opened, with a ttl of 10 s",
                         failed,
                         s + "well again, after 2 failures",
                         failed,
                         s + "ended: its lease expired or was revoked"});
}

TEST_CASE("locks that are lost are logged, and others if that is wanted", "[log]") {
    coetcd::log_options which;
    which.slow_wait = 2s;
    const bool every = GENERATE(false, true);
    which.every_lock = every;
    written w(which);
    coetcd::log_observer& log = *w.log;
    const auto end = [&log](lock_end reason) {
        log.on_lock_hold({"orders/42", 1500ms, reason, false, "mutex", 77, 0x1234});
    };
    log.on_lock_wait({"orders/42", 1ms, true, {}, "mutex"});
    log.on_lock_wait({"orders/42", 1ms, false, {}, "mutex"});
    log.on_lock_wait({"orders/42", 1ms, false, boost::asio::error::operation_aborted, "mutex"});
    end(lock_end::given_back);
    all expected;
    if (every) {
        expected = {"mutex \"orders/42\": got after 1 ms",
                    "mutex \"orders/42\": not got after 1 ms",
                    "mutex \"orders/42\": cancelled after 1 ms",
                    "mutex \"orders/42\": given back after 1500 ms; token 77, session "
                    "0000000000001234"};
    }
    CHECK(w.lines == expected);
    w.lines.clear();
    log.on_lock_wait({"orders/42", 2s, true, {}, "mutex"});
    log.on_lock_wait({"orders/42", 1ms, false, errc::session_lost, "mutex"});
    end(lock_end::key_deleted);
    log.on_overrun({"orders/42", 1s, "mutex", 77, 0x1234});
    CHECK(w.lines ==
          all{"mutex \"orders/42\": got after 2000 ms",
              "mutex \"orders/42\": not got after 1 ms: " +
                  coetcd::error_code(errc::session_lost).message(),
              "mutex \"orders/42\": LOST, key_deleted, after 1500 ms; token 77, session "
              "0000000000001234",
              "mutex \"orders/42\": its body still runs 1000 ms after the loss; token 77, session "
              "0000000000001234"});
}

TEST_CASE("sec.terminal: a line of the log is fit for a terminal", "[log][security]") {
    coetcd::log_options which;
    which.every_lock = true;
    written w(which);
    coetcd::log_observer& log = *w.log;
    const std::string hostile = "a\n\x1b[31mb\xff";
    log.on_request({"txn", hostile, 0, 1ms, errc::timed_out});
    log.on_connection({connection_report::failed, "http://a:1", 1ms, errc::timed_out, hostile});
    log.on_lock_wait({hostile, 1ms, true, {}, "mutex"});
    log.on_lock_hold({hostile, 1ms, lock_end::key_deleted, false, "mutex", 1, 1});
    log.on_overrun({hostile, 1ms, "mutex", 1, 1});
    REQUIRE(w.lines.size() == 5);
    for (const std::string& line : w.lines) {
        CHECK(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c < 127; }));
    }
}

TEST_CASE("sec.limits: what fails is remembered for so many endpoints only", "[log][security]") {
    written w;
    for (int i = 0; i != 5000; ++i) {
        w.log->on_request({"txn", "http://10.0.0.1:" + std::to_string(i), 0, 1ms, errc::timed_out});
    }
    CHECK(w.lines.size() == 5000); // a new fault is always told
    w.lines.clear();
    for (int i = 0; i != 5000; ++i) {
        w.log->on_request({"txn", "http://10.0.0.1:" + std::to_string(i), 0, 1ms, {}});
    }
    CHECK(w.lines.size() == 100); // those that were remembered
}

TEST_CASE("a renewal that ends after its session leaves nothing behind", "[log]") {
    support::world etcd;
    written w;
    coetcd::client_options options;
    options.observer = w.log;
    {
        const coetcd::client client = etcd.client(options);
        const coetcd::session_keeper keeper(client, coetcd::session_keeper_options(2s));
        etcd.env->renews = false;
        etcd.env->pass(60s);
    }
    etcd.env->pass(10s);
    std::string last;
    int ends = 0;
    for (const std::string& line : w.lines) {
        if (const auto at = line.find(": ended"); at != line.npos) {
            last = line.substr(0, at);
            ++ends;
        } else {
            CHECK((last.empty() || !line.starts_with(last))); // no word of one that has ended
        }
    }
    CHECK(ends > 5);
}

TEST_CASE("a lock that ends with its session was not given back", "[log]") {
    coetcd::log_options which;
    which.every_lock = true;
    written w(which);
    w.log->on_lock_hold({"m", 1s, lock_end::session_closed, false, "mutex", 7, 1});
    CHECK(w.lines == all{"mutex \"m\": ended, session_closed, after 1000 ms; token 7, session "
                         "0000000000000001"});
}

TEST_CASE("a client reports to a log", "[log]") {
    support::world etcd;
    written w;
    coetcd::client_options options;
    options.observer = w.log;
    {
        const coetcd::client client = etcd.client(options);
        coetcd::session s = etcd.await(coetcd::session::open(client));
        coetcd::mutex m(s, "m");
        etcd.await(m.lock());
        etcd.etcd->erase(etcd.etcd->under("m/").at(0));
        etcd.env->pass(5s);
        etcd.await(s.close());
    }
    REQUIRE(w.lines.size() == 3);
    CHECK_THAT(w.lines[1], contains("mutex \"m\": LOST, key_deleted, after "));
    CHECK_THAT(w.lines[2], contains("ended: it was closed"));
}
