// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/observer.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace coetcd {

/// Which lines a `log_observer` writes besides those about faults.
struct log_options {
    /// A line for each lock that is got or given back. A server may have thousands a second.
    bool every_lock = false;
    /// A line for each lock that was waited for at least that long.
    std::chrono::nanoseconds slow_wait = std::chrono::nanoseconds::max();
};

/// An observer that writes a log: a line for each session, for each lock that is lost, and for each
/// wait that fails. An endpoint or a session that keeps failing has one line at the first failure,
/// and one with the number of failures when it recovers; at most 100 endpoints are
/// remembered. What etcd refuses for good is no failure of an endpoint.
///
///     options.observer = std::make_shared<coetcd::log_observer>(
///         [](std::string_view line) { std::clog << "etcd: " << line << '\n'; });
///
/// Each line is fit for a terminal, and has no newline. Times are in ms. Leases and tokens are
/// written as `coetcd who` shows them.
///
/// @par Thread safety
/// One object may serve several clients. It calls the sink from the threads of these clients, one
/// call at a time.
class log_observer final : public observer {
public:
    /// @param sink Called for each line; it must not throw or block.
    explicit log_observer(std::function<void(std::string_view line)> sink, log_options which = {});

    void on_request(const request_report& r) override;
    void on_connection(const connection_report& r) override;
    void on_renewal(const renewal_report& r) override;
    void on_session_open(const session_open_report& r) override;
    void on_session_end(const session_report& r) override;
    void on_lock_wait(const lock_wait_report& r) override;
    void on_lock_hold(const lock_hold_report& r) override;
    void on_overrun(const overrun_report& r) override;

private:
    using failures = std::map<std::string, unsigned long>; // how many, in a row
    /// @param failure Empty: it succeeded.
    void failed_or_not(failures& all, const std::string& what, const std::string& failure);

    static constexpr std::size_t most_endpoints = 100; // a cluster can list new ones without end

    std::mutex access_;
    const std::function<void(std::string_view line)> sink_;
    const log_options which_;
    failures endpoints_;
    failures sessions_; // that live
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/log_observer.hpp>
#endif
