// SPDX-License-Identifier: BSL-1.0
#include <coetcd/prometheus.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <string>

#include "support/catch.hpp"
#include "support/locks.hpp"

using namespace std::chrono_literals;
using coetcd::connection_report;
using coetcd::errc;
using coetcd::prometheus_observer;
using support::contains;

namespace {

coetcd::lock_hold_report held_for(std::chrono::nanoseconds time, bool lost = false) {
    using coetcd::lock_end;
    return {"m", time, lost ? lock_end::key_deleted : lock_end::given_back, false, "mutex"};
}

} // namespace

TEST_CASE("what can be counted has a series before anything is told", "[prometheus]") {
    const std::string text = prometheus_observer().text();
    for (const char* line : {
             "coetcd_request_retries_total 0\n",
             "coetcd_renewals_failed_total 0\n",
             "coetcd_sessions 0\n",
             "coetcd_sessions_ended_total{reason=\"expired\"} 0\n",
             "coetcd_sessions_ended_total{reason=\"deadline\"} 0\n",
             "coetcd_sessions_ended_total{reason=\"closed\"} 0\n",
             "coetcd_sessions_ended_total{reason=\"orphaned\"} 0\n",
             "coetcd_sessions_ended_total{reason=\"cleanup_failed\"} 0\n",
             "coetcd_sessions_ended_total{reason=\"cluster_replaced\"} 0\n",
             "coetcd_lock_waiters{kind=\"semaphore\"} 0\n",
             "coetcd_lock_wait_seconds_count{outcome=\"acquired\"} 0\n",
             "coetcd_lock_wait_seconds_count{outcome=\"not_acquired\"} 0\n",
             "coetcd_lock_wait_seconds_count{outcome=\"cancelled\"} 0\n",
             "coetcd_lock_wait_seconds_count{outcome=\"failure\"} 0\n",
             "coetcd_locks_held{kind=\"mutex\"} 0\n",
             "coetcd_locks_held{kind=\"shared_mutex\"} 0\n",
             "coetcd_locks_held{kind=\"multi_lock\"} 0\n",
             "coetcd_locks_held{kind=\"semaphore\"} 0\n",
             "coetcd_locks_held{kind=\"election\"} 0\n",
             "coetcd_lock_hold_seconds_count 0\n",
             "coetcd_locks_lost_total{reason=\"session_lost\"} 0\n",
             "coetcd_locks_lost_total{reason=\"key_deleted\"} 0\n",
             "coetcd_locks_lost_total{reason=\"hold_expired\"} 0\n",
             "coetcd_locks_at_home_total 0\n",
             "coetcd_overruns_total 0\n",
         }) {
        CHECK_THAT(text, contains(line));
    }
    CHECK_THAT(text, !contains("margin"));
}

TEST_CASE("times are counted in buckets, each with those below it", "[prometheus]") {
    prometheus_observer o;
    o.on_lock_hold(held_for(1ms)); // the bound belongs to its bucket
    o.on_lock_hold(held_for(3ms));
    o.on_lock_hold(held_for(20s, true));
    const std::string text = o.text();
    CHECK_THAT(text, contains("# TYPE coetcd_lock_hold_seconds histogram\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_bucket{le=\"0.001\"} 1\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_bucket{le=\"0.0025\"} 1\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_bucket{le=\"0.005\"} 2\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_bucket{le=\"10\"} 2\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_bucket{le=\"+Inf\"} 3\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_sum 20.004\n"));
    CHECK_THAT(text, contains("coetcd_lock_hold_seconds_count 3\n"));
    CHECK_THAT(text, contains("# TYPE coetcd_locks_lost_total counter\n"));
    CHECK_THAT(text, contains("coetcd_locks_lost_total{reason=\"key_deleted\"} 1\n"));
    CHECK_THAT(text, contains("\ncoetcd_locks_at_home_total 0\n"));
    o.on_lock_hold({"m", 1ms, coetcd::lock_end::given_back, true, "mutex"});
    CHECK_THAT(o.text(), contains("\ncoetcd_locks_at_home_total 1\n"));
}

TEST_CASE("numbers are written in full", "[prometheus]") {
    prometheus_observer o;
    o.on_lock_hold(held_for(1'234'567'250ms));
    CHECK_THAT(o.text(), contains("coetcd_lock_hold_seconds_sum 1234567.25\n"));
}

TEST_CASE("each report has its metrics", "[prometheus]") {
    prometheus_observer o;
    o.on_request({"txn", "http://a\"\\\n:1", 0, 2ms, {}});
    o.on_request({"txn", "http://b:1", 1, 2ms, errc::timed_out});
    o.on_request({"put", "http://b:1", 0, 2ms, boost::asio::error::operation_aborted});
    o.on_connection({connection_report::opened, "http://a:1", 1ms, {}});
    o.on_connection({connection_report::opened, "http://a:1", 1ms, {}});
    o.on_connection({connection_report::closed, "http://a:1", 1s, {}});
    o.on_connection({connection_report::failed, "http://b:1", 1ms, errc::timed_out});
    o.on_renewal({1, 1ms, 2500ms, {}});
    o.on_renewal({1, 1ms, 500ms, errc::timed_out});
    o.on_session_open({1, 10s});
    o.on_session_open({2, 10s});
    o.on_session_end({1, coetcd::session_end::closed});
    for (int i = 0; i != 5; ++i) {
        o.on_lock_wait_begin({"m", "mutex"});
    }
    o.on_lock_wait({"m", 1ms, true, {}, "mutex"});
    o.on_lock_wait({"m", 1ms, false, {}, "mutex"});
    o.on_lock_wait({"m", 1ms, false, errc::session_lost, "mutex"});
    o.on_lock_wait({"m", 1ms, false, boost::asio::error::operation_aborted, "mutex"});
    o.on_overrun({"m", 1s, "mutex", 1, 1});
    o.on_watch_stream({"http://a:1", true, 1});
    const std::string text = o.text();
    for (const char* line : {
             "coetcd_request_seconds_count{rpc=\"txn\",endpoint=\"http://a\\\"\\\\\\n:1\","
             "outcome=\"success\"} 1\n",
             "coetcd_request_seconds_bucket{rpc=\"txn\",endpoint=\"http://b:1\","
             "outcome=\"failure\",le=\"0.0025\"} 1\n",
             "coetcd_request_seconds_count{rpc=\"put\",endpoint=\"http://b:1\","
             "outcome=\"cancelled\"} 1\n",
             "coetcd_request_retries_total 1\n",
             "# TYPE coetcd_connections gauge\ncoetcd_connections{endpoint=\"http://a:1\"} 1\n",
             "coetcd_connections_failed_total{endpoint=\"http://b:1\"} 1\n",
             "coetcd_renewal_margin_seconds 0.5\n",
             "coetcd_renewals_failed_total 1\n",
             "# TYPE coetcd_sessions gauge\ncoetcd_sessions 1\n",
             "coetcd_sessions_ended_total{reason=\"closed\"} 1\n",
             "coetcd_lock_waiters{kind=\"mutex\"} 1\n",
             "coetcd_locks_held{kind=\"mutex\"} 1\n",
             "coetcd_overruns_total 1\n",
             "coetcd_lock_wait_seconds_count{outcome=\"cancelled\"} 1\n",
             "coetcd_lock_wait_seconds_count{outcome=\"acquired\"} 1\n",
             "coetcd_lock_wait_seconds_count{outcome=\"not_acquired\"} 1\n",
             "coetcd_lock_wait_seconds_count{outcome=\"failure\"} 1\n",
             "coetcd_watch_streams{endpoint=\"http://a:1\"} 1\n",
         }) {
        CHECK_THAT(text, contains(line));
    }
}

TEST_CASE("a client reports to it", "[prometheus]") {
    support::world w;
    const auto o = std::make_shared<prometheus_observer>();
    coetcd::client_options options;
    options.observer = o;
    const coetcd::client client = w.client(options);
    coetcd::session s = w.await(coetcd::session::open(client));
    coetcd::mutex m(s, "m");
    w.await(m.lock());
    CHECK_THAT(o->text(), contains("coetcd_sessions 1\n"));
    CHECK_THAT(o->text(), contains("coetcd_locks_held{kind=\"mutex\"} 1\n"));
    w.await(m.unlock());
    w.await(s.close());
    CHECK_THAT(o->text(), contains("coetcd_sessions 0\n"));
    CHECK_THAT(o->text(), contains("coetcd_locks_held{kind=\"mutex\"} 0\n"));
    CHECK_THAT(o->text(), contains("coetcd_lock_waiters{kind=\"mutex\"} 0\n"));
    CHECK_THAT(o->text(), contains("coetcd_lock_hold_seconds_count 1\n"));
    CHECK_THAT(o->text(), contains("coetcd_sessions_ended_total{reason=\"closed\"} 1\n"));
}

TEST_CASE("sec.limits: the endpoints with metrics of their own are counted",
          "[prometheus][security]") {
    prometheus_observer o;
    const auto report = [&o](int i) {
        const std::string endpoint = "http://10.0.0.1:" + std::to_string(i);
        o.on_request({"txn", endpoint, 0, 1ms, {}});
        o.on_connection({connection_report::failed, endpoint, 1ms, errc::timed_out});
        o.on_watch_stream({endpoint, true, 1});
    };
    for (int i = 0; i != 100; ++i) {
        report(i);
    }
    const std::size_t size = o.text().size();
    CHECK_THAT(o.text(), contains("coetcd_watch_streams{endpoint=\"http://10.0.0.1:99\"} 1\n"));
    CHECK_THAT(o.text(), !contains("other"));
    for (int i = 100; i != 5000; ++i) {
        report(i);
    }
    CHECK(o.text().size() < size + 3000);
    CHECK_THAT(o.text(), contains("coetcd_watch_streams{endpoint=\"other\"} 4900\n"));
    report(99); // that one keeps its own
    CHECK_THAT(o.text(), contains("coetcd_watch_streams{endpoint=\"http://10.0.0.1:99\"} 2\n"));
}
