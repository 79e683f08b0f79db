// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>
#include <coetcd/txn_outcome.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <string>

namespace coetcd {

namespace detail {
struct named_recipe;
} // namespace detail

/// Carries out each transaction exactly once, even if its answer is lost. `client::txn` would then
/// throw `errc::outcome_unknown`.
///
/// Each transaction also puts a key of the session, `<name>.<lease>-<nonce>-w<number>`, which
/// records whether it was carried out, and how it ended. The key is reused, and goes with the
/// lease. A user needs to read and write the keys from `<name>.` up to, but not including,
/// `<name>0`.
///
/// @par Thread safety
/// As `client`. Several transactions may be under way; their order is not that of the calls.
class exactly_once {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a key; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    exactly_once(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Carries out a transaction. One round trip; if an answer was lost, one for each time that the
    /// request is sent, and one to read again what the answer said.
    ///
    /// @param what At most 127 conditions and 126 operations in a list, and two levels of
    ///   transactions within it.
    /// @throws std::invalid_argument at once if etcd would not accept it.
    /// @throws error with
    /// - `errc::outcome_unknown` if it was sent and no answer came in time, or the session was lost
    ///   meanwhile: it may have been carried out, or may still be until a later transaction of the
    ///   same name and session is;
    /// - `errc::session_lost` or `errc::session_closed` if the session had already ended;
    /// - otherwise as `client`: nothing was changed.
    /// @par Cancellation
    /// `terminal`, at once. If it was sent, it may or may not be carried out.
    boost::asio::awaitable<txn_outcome> txn(coetcd::txn what) const;

private:
    detail::handle<const detail::named_recipe> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/exactly_once.hpp>
#endif
