// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <string>

namespace coetcd {

namespace detail {
class counter_impl;
} // namespace detail

/// A number in etcd that many programs can raise and lower. Each change is made exactly once, even
/// if an answer is lost.
///
/// It is the value of the key `<name>`, in decimal digits; 0 if the key does not exist. The keys
/// that begin with `<name>.` are the counter's, too: each session has one while it counts, which
/// goes with its lease. For numbers that only need to be different, `sequence` is faster.
///
/// Copies share one counter; their calls take turns.
///
/// @par Thread safety
/// As `client`.
class counter {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a counter; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    counter(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Adds to the number. One round trip if nobody else writes it; one more the first time, if the
    /// number exists already, and one more, after a pause, each time that somebody was faster.
    ///
    /// @returns The sum.
    /// @throws error with
    /// - `errc::conflict` if others were faster each time, for as long as a call may take;
    /// - `errc::wrong_kind` if the key holds something other than a number;
    /// - `errc::outcome_unknown` if it was sent and no answer came in time, or the session was lost
    ///   meanwhile: it may have been added, or may still be until the session adds again;
    /// - `errc::session_lost` or `errc::session_closed` if the session had already ended;
    /// - otherwise as `client`: nothing was changed.
    /// @throws std::overflow_error if the sum does not fit: nothing was changed.
    /// @par Cancellation
    /// `terminal`, at once. If the request was sent, the number may or may not be added.
    boost::asio::awaitable<std::int64_t> add(std::int64_t by = 1);

    /// The number now. One round trip.
    /// @throws error with `errc::wrong_kind` as `add`; otherwise as `client`.
    boost::asio::awaitable<std::int64_t> get() const;

private:
    detail::handle<detail::counter_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/counter.hpp>
#endif
