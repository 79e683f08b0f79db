// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/prometheus.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <iterator>
#include <locale>
#include <new>
#include <sstream>
#include <utility>

namespace coetcd {

namespace detail::prometheus {

/// `name="value"`, escaped as a value must be.
inline std::string label(std::string_view name, std::string_view value) {
    std::string out(name);
    out += "=\"";
    for (const char c : value) {
        if (c == '\\' || c == '"') {
            out += '\\';
        }
        out += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return out + '"';
}

/// The number in full, whatever the locale is.
inline std::string number(double value) {
    char text[32];
    const auto written = std::to_chars(std::begin(text), std::end(text), value);
    return std::string(std::begin(text), written.ptr);
}

inline double seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

inline std::string in_braces(const std::string& labels) {
    return labels.empty() ? std::string() : "{" + labels + "}";
}

} // namespace detail::prometheus

COETCD_DECL prometheus_observer::prometheus_observer() {
    using detail::prometheus::label;
    for (const char* name : {"coetcd_request_retries_total",
                             "coetcd_renewals_failed_total",
                             "coetcd_locks_at_home_total",
                             "coetcd_overruns_total"}) {
        counter(name);
    }
    gauge("coetcd_sessions");
    for (const char* kind : {"mutex", "shared_mutex", "multi_lock", "semaphore", "election"}) {
        gauge("coetcd_lock_waiters", label("kind", kind));
        gauge("coetcd_locks_held", label("kind", kind));
    }
    for (const char* outcome : {"acquired", "not_acquired", "cancelled", "failure"}) {
        times("coetcd_lock_wait_seconds", label("outcome", outcome));
    }
    times("coetcd_lock_hold_seconds");
    for (const lock_end reason :
         {lock_end::session_lost, lock_end::key_deleted, lock_end::hold_expired}) {
        counter("coetcd_locks_lost_total", label("reason", to_string(reason)));
    }
    for (const session_end reason : {session_end::expired,
                                     session_end::deadline,
                                     session_end::closed,
                                     session_end::orphaned,
                                     session_end::cleanup_failed,
                                     session_end::cluster_replaced}) {
        counter("coetcd_sessions_ended_total", label("reason", to_string(reason)));
    }
}

COETCD_DECL void prometheus_observer::histogram::add(std::chrono::nanoseconds time) {
    const double value = detail::prometheus::seconds(time);
    const auto at = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
    ++counts[static_cast<std::size_t>(at)];
    sum += value;
}

COETCD_DECL std::string prometheus_observer::endpoint_label(std::string_view endpoint) {
    if (endpoints_.size() < most_endpoints) {
        endpoints_.emplace(endpoint);
    }
    return detail::prometheus::label("endpoint",
                                     endpoints_.contains(endpoint) ? endpoint : "other");
}

COETCD_DECL double& prometheus_observer::counter(std::string_view name, std::string labels) {
    return numbers_[std::string(name)].values[std::move(labels)];
}

COETCD_DECL double& prometheus_observer::gauge(std::string_view name, std::string labels) {
    metric& m = numbers_[std::string(name)];
    m.grows = false;
    return m.values[std::move(labels)];
}

COETCD_DECL prometheus_observer::histogram& prometheus_observer::times(std::string_view name,
                                                                       std::string labels) {
    return times_[std::string(name)][std::move(labels)];
}

COETCD_DECL void prometheus_observer::on_request(const request_report& r) try {
    using detail::prometheus::label;
    const bool is_cancelled = r.outcome == boost::asio::error::operation_aborted;
    const char* outcome = !r.outcome ? "success" : is_cancelled ? "cancelled" : "failure";
    const std::lock_guard alone(access_);
    const std::string labels =
        label("rpc", r.rpc) + ',' + endpoint_label(r.endpoint) + ',' + label("outcome", outcome);
    times("coetcd_request_seconds", labels).add(r.latency);
    counter("coetcd_request_retries_total") += r.attempt > 0 ? 1 : 0;
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_connection(const connection_report& r) try {
    const std::lock_guard alone(access_);
    const std::string labels = endpoint_label(r.endpoint);
    if (r.what == connection_report::failed) {
        ++counter("coetcd_connections_failed_total", labels);
    } else {
        gauge("coetcd_connections", labels) += r.what == connection_report::opened ? 1 : -1;
    }
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_renewal(const renewal_report& r) try {
    const std::lock_guard alone(access_);
    gauge("coetcd_renewal_margin_seconds") = detail::prometheus::seconds(r.margin);
    counter("coetcd_renewals_failed_total") += r.outcome ? 1 : 0;
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_session_open(const session_open_report&) try {
    const std::lock_guard alone(access_);
    ++gauge("coetcd_sessions");
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_session_end(const session_report& r) try {
    const std::lock_guard alone(access_);
    --gauge("coetcd_sessions");
    ++counter("coetcd_sessions_ended_total",
              detail::prometheus::label("reason", to_string(r.reason)));
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_lock_wait_begin(const lock_wait_begin_report& r) try {
    const std::lock_guard alone(access_);
    ++gauge("coetcd_lock_waiters", detail::prometheus::label("kind", r.kind));
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_lock_wait(const lock_wait_report& r) try {
    using detail::prometheus::label;
    const char* outcome = r.acquired ? "acquired" : "not_acquired";
    if (r.failure) {
        const bool is_cancelled = r.failure == boost::asio::error::operation_aborted;
        outcome = is_cancelled ? "cancelled" : "failure";
    }
    const std::lock_guard alone(access_);
    --gauge("coetcd_lock_waiters", label("kind", r.kind));
    gauge("coetcd_locks_held", label("kind", r.kind)) += r.acquired ? 1 : 0;
    times("coetcd_lock_wait_seconds", label("outcome", outcome)).add(r.waited);
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_lock_hold(const lock_hold_report& r) try {
    using detail::prometheus::label;
    const std::lock_guard alone(access_);
    --gauge("coetcd_locks_held", label("kind", r.kind));
    times("coetcd_lock_hold_seconds").add(r.held);
    if (r.lost()) {
        ++counter("coetcd_locks_lost_total", label("reason", to_string(r.reason)));
    }
    counter("coetcd_locks_at_home_total") += r.at_home ? 1 : 0;
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_overrun(const overrun_report&) try {
    const std::lock_guard alone(access_);
    ++counter("coetcd_overruns_total");
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void prometheus_observer::on_watch_stream(const watch_stream_report& r) try {
    const std::lock_guard alone(access_);
    gauge("coetcd_watch_streams", endpoint_label(r.endpoint)) += r.opened ? 1 : -1;
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL std::string prometheus_observer::text() const {
    using detail::prometheus::in_braces;
    using detail::prometheus::number;
    std::ostringstream out;
    out.imbue(std::locale::classic());
    const std::lock_guard alone(access_);
    for (const auto& [name, series] : times_) {
        out << "# TYPE " << name << " histogram\n";
        for (const auto& [labels, h] : series) {
            std::uint64_t up_to = 0;
            for (std::size_t i = 0; i != h.counts.size(); ++i) {
                up_to += h.counts[i];
                out << name << "_bucket{" << labels << (labels.empty() ? "" : ",") << "le=\"";
                out << (i < bounds.size() ? number(bounds[i]) : "+Inf") << "\"} " << up_to << '\n';
            }
            out << name << "_sum" << in_braces(labels) << ' ' << number(h.sum) << '\n';
            out << name << "_count" << in_braces(labels) << ' ' << up_to << '\n';
        }
    }
    for (const auto& [name, m] : numbers_) {
        out << "# TYPE " << name << (m.grows ? " counter\n" : " gauge\n");
        for (const auto& [labels, value] : m.values) {
            out << name << in_braces(labels) << ' ' << number(value) << '\n';
        }
    }
    return out.str();
}

} // namespace coetcd
