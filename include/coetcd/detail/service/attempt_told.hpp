// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/error.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Tells the observer, if there is one, that an attempt of a request begins, and that it has ended:
/// with its cancellation, unless it is told how.
class attempt_told {
public:
    /// @param headers Gets those that the observer adds.
    attempt_told(env& world,
                 std::shared_ptr<observer> to,
                 rpc what,
                 const logic::endpoint& where,
                 std::size_t attempt,
                 std::string& headers)
        : env_(world)
        , to_(std::move(to)) {
        if (!to_) {
            return;
        }
        began_ = env_.now();
        endpoint_ = where.text();
        report_.rpc = name(what);
        report_.endpoint = endpoint_;
        report_.attempt = static_cast<unsigned>(attempt);
        report_.id = ++last_id();
        request_headers more;
        to_->on_request_begin({report_.rpc, endpoint_, report_.attempt, report_.id}, more);
        headers = more.lines();
    }
    ~attempt_told() { end({}, began_, asio::error::operation_aborted); }
    attempt_told(const attempt_told&) = delete;
    attempt_told& operator=(const attempt_told&) = delete;

    /// @param waited Before it was sent.
    void end(std::chrono::nanoseconds waited, time_point sent, const error_code& outcome) {
        if (const std::shared_ptr<observer> to = std::exchange(to_, nullptr)) {
            report_.latency = env_.now() - sent;
            report_.outcome = outcome;
            report_.waited = waited;
            to->on_request(report_);
        }
    }

private:
    static std::atomic<std::uint64_t>& last_id() {
        static std::atomic<std::uint64_t> id{0};
        return id;
    }

    env& env_;
    std::shared_ptr<observer> to_;
    time_point began_{};
    std::string endpoint_;
    request_report report_{};
};

} // namespace coetcd::detail
