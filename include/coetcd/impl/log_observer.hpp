// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>
#include <coetcd/log_observer.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/session_options.hpp>

#include <boost/asio/error.hpp>

#include <charconv>
#include <cstdint>
#include <iterator>
#include <new>
#include <utility>

namespace coetcd {

namespace detail::log {

inline std::string ms(std::chrono::nanoseconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
           " ms";
}
inline std::string session_text(lease_id lease) {
    char digits[16];
    const auto end =
        std::to_chars(std::begin(digits), std::end(digits), static_cast<std::uint64_t>(lease), 16);
    const std::string hex(std::begin(digits), end.ptr);
    return "session " + std::string(std::size(digits) - hex.size(), '0') + hex;
}
inline std::string lock_text(std::string_view kind, std::string_view name) {
    return std::string(kind) + " \"" + printable(name) + "\"";
}
/// Which ownership it was.
inline std::string which_one(std::int64_t token, lease_id lease) {
    return "; token " + std::to_string(token) + ", " + session_text(lease);
}

/// Whether the endpoint is well, and has refused a call. One without space or time is not well.
inline bool is_refusal(const error_code& outcome) {
    if (outcome.category() != server_category() || outcome == server_errc::resource_exhausted) {
        return false;
    }
    const wire::status said{static_cast<server_errc>(outcome.value()), {}};
    return !logic::judge(said).transient;
}

} // namespace detail::log

COETCD_DECL log_observer::log_observer(std::function<void(std::string_view line)> sink,
                                       log_options which)
    : sink_(std::move(sink))
    , which_(which) {}

COETCD_DECL void
log_observer::failed_or_not(failures& all, const std::string& what, const std::string& failure) {
    const std::lock_guard alone(access_);
    const auto found = all.find(what);
    if (found == all.end()) {
        if (!failure.empty()) {
            if (&all == &endpoints_ && all.size() == most_endpoints) {
                all.erase(all.begin()); // it may never be heard of again
            }
            all.emplace(what, 1);
            sink_(what + ": " + failure);
        }
    } else if (!failure.empty()) {
        ++found->second;
    } else {
        const unsigned long times = found->second;
        all.erase(found);
        sink_(what + ": well again, after " + std::to_string(times) +
              (times == 1 ? " failure" : " failures"));
    }
}

COETCD_DECL void log_observer::on_request(const request_report& r) try {
    if (r.outcome == boost::asio::error::operation_aborted) {
        return; // by its caller
    }
    const bool has_failed = r.outcome && !detail::log::is_refusal(r.outcome);
    failed_or_not(endpoints_,
                  printable(r.endpoint),
                  has_failed ? std::string(r.rpc) + ": " + r.outcome.message() : "");
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_connection(const connection_report& r) try {
    if (r.what == connection_report::opened) {
        failed_or_not(endpoints_, printable(r.endpoint) + ", TLS", printable(r.text));
    }
    if (r.what == connection_report::failed) {
        const std::string more = r.text.empty() ? "" : ": " + printable(r.text);
        failed_or_not(
            endpoints_, printable(r.endpoint), "no connection: " + r.reason.message() + more);
    }
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_renewal(const renewal_report& r) try {
    using namespace detail::log;
    const std::string left = ", with " + ms(r.margin) + " left";
    failed_or_not(sessions_,
                  session_text(r.lease),
                  r.outcome ? "a renewal failed" + left + ": " + r.outcome.message() : "");
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_session_open(const session_open_report& r) try {
    const std::lock_guard alone(access_);
    sink_(detail::log::session_text(r.lease) + ": opened, with a ttl of " +
          std::to_string(r.ttl.count()) + " s");
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_session_end(const session_report& r) try {
    const std::string what = detail::log::session_text(r.lease);
    const std::lock_guard alone(access_);
    sessions_.erase(what);
    sink_(what + ": ended: " + describe(r.reason));
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_lock_wait(const lock_wait_report& r) try {
    using namespace detail::log;
    const bool is_cancelled = r.failure == boost::asio::error::operation_aborted;
    const bool is_fault = r.failure && !is_cancelled;
    if (is_fault || which_.every_lock || r.waited >= which_.slow_wait) {
        const char* outcome = r.acquired ? ": got" : is_cancelled ? ": cancelled" : ": not got";
        const std::string why = is_fault ? ": " + r.failure.message() : "";
        const std::lock_guard alone(access_);
        sink_(lock_text(r.kind, r.name) + outcome + " after " + ms(r.waited) + why);
    }
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_lock_hold(const lock_hold_report& r) try {
    using namespace detail::log;
    if (r.lost() || which_.every_lock) {
        const bool is_given_back = r.reason == lock_end::given_back;
        const std::string how = r.lost() ? ": LOST, " : ": ended, ";
        const std::string what = is_given_back ? ": given back" : how + to_string(r.reason) + ",";
        const std::lock_guard alone(access_);
        sink_(lock_text(r.kind, r.name) + what + " after " + ms(r.held) +
              which_one(r.token, r.lease));
    }
} catch (const std::bad_alloc&) { // an observer must not throw
}

COETCD_DECL void log_observer::on_overrun(const overrun_report& r) try {
    using namespace detail::log;
    const std::lock_guard alone(access_);
    sink_(lock_text(r.kind, r.name) + ": its body still runs " + ms(r.overrun) + " after the loss" +
          which_one(r.token, r.lease));
} catch (const std::bad_alloc&) { // an observer must not throw
}

} // namespace coetcd
