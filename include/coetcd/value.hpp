// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/feed.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace coetcd {

namespace detail {
struct value_impl;
} // namespace detail

/// Delivers the value, and then each change of it; an empty optional while there is none. See
/// `feed`. A change takes no request.
using value_feed = feed<std::optional<key_value>>;

/// A value that the whole cluster shares: the key `<name>`, without a lease.
///
/// With a session each write is made once, even if its answer is lost. It then also puts a key of
/// the session, `<name>.<lease>-<nonce>-w<number>`, which goes with the lease. With a client, a
/// write whose answer is lost throws `errc::outcome_unknown`.
///
/// All calls throw `error` as those of `client`. With a session, writes also throw
/// `errc::session_lost` or `errc::session_closed` if it had already ended, and
/// `errc::outcome_unknown` if it is lost while a write is under way, or no answer comes in time.
///
/// @par Cancellation
/// `terminal`, at once. A write that was sent may or may not be made.
/// @par Thread safety
/// As `client`.
class value {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a value; no I/O. `by` or `owner` may be destroyed first: that loses the session, if it
    /// is one.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    value(const client& by, std::string name);
    value(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// The value now, and the revision at which it was written. One round trip.
    /// @returns Nothing if there is none.
    boost::asio::awaitable<std::optional<key_value>> get() const;

    /// Writes a value. One round trip.
    /// @returns The revision at which it was written.
    boost::asio::awaitable<std::int64_t> set(std::string desired);

    /// Writes the value only if its mod_revision is still `expected`. One round trip.
    /// @param expected `mod_revision` of what was read; 0: there is none.
    /// @returns The revision at which it was written; nothing if somebody else has written, or
    ///   erased it.
    /// @throws std::invalid_argument at once if `expected` is negative.
    boost::asio::awaitable<std::optional<std::int64_t>> compare_exchange(std::int64_t expected,
                                                                         std::string desired);

    /// The value, now and from now on. No I/O before the first `next`.
    value_feed changes() const;

private:
    detail::handle<const detail::value_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/value.hpp>
#endif
