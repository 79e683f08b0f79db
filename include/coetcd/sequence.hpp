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
struct named_recipe;
} // namespace detail

/// The numbers 1, 2, 3 and so on, each given once in the whole cluster.
///
/// A number is the version of the key `<name>` after it was put; the key's value is empty, and
/// erasing the key makes the numbers begin at 1 again. The keys that begin with `<name>.` are the
/// sequence's, too: each session that draws has some, which go with its lease.
///
/// @par Thread safety
/// As `client`. Calls at the same time get different numbers, in any order.
class sequence {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a sequence; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    sequence(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Draws the next number. One round trip, however many draw at the same time: nobody needs to
    /// read first or to try again. One more if an answer is lost, and one or two for the first
    /// number of all.
    ///
    /// @throws error with
    /// - `errc::outcome_unknown` if it was sent and no answer came in time, the session was lost
    ///   meanwhile, or the history that would show it is compacted: one number may be left out;
    /// - `errc::session_lost` or `errc::session_closed` if the session had already ended;
    /// - `errc::wrong_kind` if the key holds a value: it belongs to something else;
    /// - otherwise as `client`: no number was drawn.
    /// @par Cancellation
    /// `terminal`, at once. One number may be left out.
    boost::asio::awaitable<std::int64_t> next();

    /// The last number that was drawn by anybody; 0 if none was. One round trip.
    /// @throws error with `errc::wrong_kind` as `next`; otherwise as `client`.
    boost::asio::awaitable<std::int64_t> last() const;

private:
    detail::handle<const detail::named_recipe> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/sequence.hpp>
#endif
