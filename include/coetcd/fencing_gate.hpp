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

/// A fence for a resource that cannot remember fencing tokens itself. It admits a token unless it
/// admitted a greater one before, and remembers the greatest one in etcd.
///
///     coetcd::fencing_gate gate(client, "stock-fence");
///     const bool admitted = co_await gate.admit(token); // of the lock's holder
///
/// All tokens must come from one lock. Work elsewhere that follows `admit` may still come after the
/// work of a later holder that was admitted meanwhile. Pass writes to etcd to `admit` as a
/// transaction: they cannot be late.
///
/// In etcd it is one key without a lease, whose value is the token in 16 hexadecimal digits. It
/// stays there until somebody deletes it; then any token is admitted.
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

    /// Admits the token unless a greater one was admitted before. One round trip.
    ///
    /// @returns False if a greater one was. If an answer is lost, the call asks again: then the
    ///   token may have been admitted just before the greater one.
    /// @throws std::invalid_argument if `token` is not positive.
    /// @throws error with `errc::wrong_kind` if the key holds something other than a token;
    ///   otherwise as `client`, with `errc::outcome_unknown` if no answer came at all.
    /// @par Cancellation
    /// `terminal`. The token may have been admitted.
    boost::asio::awaitable<bool> admit(std::int64_t token) const;

    /// The same, and carries out a transaction if the token is admitted, in the same instant. The
    /// transaction must not touch the gate's key, and is sent twice in one request.
    /// @returns The answer to the transaction; nothing if the token was not admitted.
    /// @throws error with `errc::wrong_kind` as above; otherwise as `client::txn`, with
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
