// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/observer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace coetcd {

/// An observer that sums up what clients do, for Prometheus. The program itself serves the numbers.
///
/// | metric | kind | labels |
/// |---|---|---|
/// | `coetcd_request_seconds` | histogram | `rpc`, `endpoint`, `outcome` |
/// | `coetcd_request_retries_total` | counter | |
/// | `coetcd_connections` | gauge | `endpoint` |
/// | `coetcd_connections_failed_total` | counter | `endpoint` |
/// | `coetcd_renewal_margin_seconds` | gauge | |
/// | `coetcd_renewals_failed_total` | counter | |
/// | `coetcd_sessions` | gauge | |
/// | `coetcd_sessions_ended_total` | counter | `reason` |
/// | `coetcd_lock_waiters` | gauge | `kind` |
/// | `coetcd_lock_wait_seconds` | histogram | `outcome` |
/// | `coetcd_locks_held` | gauge | `kind` |
/// | `coetcd_lock_hold_seconds` | histogram | |
/// | `coetcd_locks_lost_total` | counter | `reason` |
/// | `coetcd_locks_at_home_total` | counter | |
/// | `coetcd_overruns_total` | counter | |
/// | `coetcd_watch_streams` | gauge | `endpoint` |
///
/// An `outcome` is `success`, `cancelled` or `failure`; for the wait for a lock it is `acquired`,
/// `not_acquired`, `cancelled` or `failure`. A `kind` is `mutex`, `shared_mutex`, `multi_lock`,
/// `semaphore` or `election`: this process leads if `coetcd_locks_held{kind="election"}` is not 0.
/// A `reason` is the name of an enumerator, of `session_end` or of `lock_end`.
///
/// All series exist from the start, with 0, but for those with the label `endpoint` and for
/// `coetcd_renewal_margin_seconds`, which begins with the first renewal. Names of locks are not
/// labels: there may be too many. Only the first 100 endpoints have labels, since a cluster can
/// list new members without end; the others share the label `other`.
///
/// @par Thread safety
/// All functions may be called from any thread. One object may serve several clients.
class prometheus_observer final : public observer {
public:
    prometheus_observer();

    /// All numbers, in Prometheus' text format, version 0.0.4.
    std::string text() const;

    void on_request(const request_report& r) override;
    void on_connection(const connection_report& r) override;
    void on_renewal(const renewal_report& r) override;
    void on_session_open(const session_open_report& r) override;
    void on_session_end(const session_report& r) override;
    void on_lock_wait_begin(const lock_wait_begin_report& r) override;
    void on_lock_wait(const lock_wait_report& r) override;
    void on_lock_hold(const lock_hold_report& r) override;
    void on_overrun(const overrun_report& r) override;
    void on_watch_stream(const watch_stream_report& r) override;

private:
    static constexpr std::array<double, 13> bounds{
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}; // seconds
    struct histogram {
        std::array<std::uint64_t, bounds.size() + 1> counts{}; // the last one is for longer times
        double sum = 0;
        void add(std::chrono::nanoseconds time);
    };
    struct metric {
        bool grows = true; // a counter, else a gauge
        std::map<std::string, double> values;
    };

    /// `access_` must be held.
    std::string endpoint_label(std::string_view endpoint);
    double& counter(std::string_view name, std::string labels = {});
    double& gauge(std::string_view name, std::string labels = {});
    histogram& times(std::string_view name, std::string labels = {});

    static constexpr std::size_t most_endpoints = 100;

    mutable std::mutex access_;
    std::set<std::string, std::less<>> endpoints_; // with a label of their own
    std::map<std::string, std::map<std::string, histogram>, std::less<>> times_; // name, labels
    std::map<std::string, metric, std::less<>> numbers_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/prometheus.hpp>
#endif
