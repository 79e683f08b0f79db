// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace coetcd {

/// A fence for what cannot remember fencing tokens itself: it lets through a token that is not
/// below the greatest one that came through before, and remembers it, in etcd.
///
///     coetcd::fencing_gate gate(client, "stock-fence");
///     const bool admitted = co_await gate.admit(token); // of the lock's holder
///
/// All tokens have to come from one lock. What is done elsewhere after `admit` may still come after
/// the work of a later holder that was admitted meanwhile; what is done in etcd need not: give it
/// to `admit` as a transaction.
///
/// In etcd it is one key without a lease, whose value is the token in 16 hexadecimal digits. It
/// stays there until somebody deletes it: all tokens are admitted then.
///
/// @par Thread safety
/// As `client`.
class fencing_gate {
public:
    using executor_type = boost::asio::any_io_executor;

    /// @throws std::invalid_argument if `key` is empty.
    fencing_gate(client by, std::string key);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& key() const;

    /// Lets the token through unless a greater one came through before. One round trip.
    ///
    /// @returns False if a greater one did. If an answer is lost it asks again: then it may have
    ///   come through just before the greater one.
    /// @throws std::invalid_argument if `token` is not positive.
    /// @throws error with `errc::wrong_kind` if the key holds something else than a token; else as
    ///   `client`, with `errc::outcome_unknown` if no answer came at all.
    /// @par Cancellation
    /// `terminal`. It may have come through.
    boost::asio::awaitable<bool> admit(std::int64_t token) const;

    /// The same, and carries out a transaction if it comes through, in the same instant. It must
    /// not touch the gate's key, and is sent twice in one request: see `client_options` for limits.
    /// @returns What the transaction came to; nothing if the token was not admitted.
    /// @throws error with `errc::wrong_kind` as above; else as `client::txn`, with
    ///   `errc::outcome_unknown` if the answer is lost.
    boost::asio::awaitable<std::optional<txn_response>> admit(std::int64_t token, txn work) const;

private:
    client client_;
    std::string key_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/fencing_gate.hpp>
#endif
