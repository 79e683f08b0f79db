// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/bulk_options.hpp>
#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coetcd {

namespace detail {
class access;
class bulk_impl;
} // namespace detail

/// Many writes, made in transactions that etcd accepts, one after the other: from `put_all`,
/// `erase_all` and `erase_range`. No I/O before the first call.
///
/// Each transaction is atomic; all of them together are not: others see the state in between, and
/// after a failure some are applied and the rest is not. `total` says how many keys are certain.
///
/// @par Thread safety
/// As `client`; `total` may be called from anywhere.
class [[nodiscard]] bulk {
public:
    using executor_type = boost::asio::any_io_executor;

    bulk(bulk&&) noexcept = default;
    bulk& operator=(bulk&&) noexcept = default;

    /// The client's executor.
    executor_type get_executor() const;

    /// Makes the next transaction. One round trip; two with `erase_range`. Calls under way at the
    /// same time take turns. This object may be destroyed before they complete.
    ///
    /// @returns What has been done so far; nothing if all was done before.
    /// @throws error as `client::txn`; the text says how many keys were written before. The next
    ///   call makes the same transaction again. After `errc::outcome_unknown` this is right if
    ///   nobody else writes these keys: see `bulk_options::repeat`.
    /// @par Cancellation
    /// `terminal`, at once. As with `errc::outcome_unknown`, if the transaction was sent.
    boost::asio::awaitable<std::optional<bulk_step>> next();

    /// Makes all that are left. Stops at the first that fails.
    /// @returns `total`.
    /// @throws As `next`. Another call goes on where this one stopped.
    /// @par Cancellation
    /// As `next`.
    boost::asio::awaitable<std::size_t> run();

    /// How many keys were written, or erased, for certain. A transaction whose outcome is unknown
    /// does not count; of an erase that was repeated, only what the last copy has erased.
    std::size_t total() const;

private:
    friend class detail::access;
    explicit bulk(std::shared_ptr<detail::bulk_impl> impl);

    detail::handle<detail::bulk_impl> impl_;
};

/// Writes many keys, in the given order. If a key is there twice, the later value counts.
///
///     std::size_t n = co_await coetcd::put_all(client, std::move(orders)).run();
///
/// @throws std::invalid_argument if a key is empty, a request asks for `prev_kv`, or an option is
///   invalid.
bulk put_all(const client& by, std::vector<put_request> all, bulk_options options = {});

/// Erases many keys. It is no error if some do not exist; they are not counted.
/// @throws std::invalid_argument if a key is empty, or an option is invalid.
bulk erase_all(const client& by, std::vector<std::string> keys, bulk_options options = {});

/// Erases a range in bounded steps. Each step reads up to `options.keys` keys, and erases them with
/// all that was put between them meanwhile. So etcd is never busy with a large erase, and no
/// watch receives a large revision. A key that is put while this runs may or may not stay.
/// @throws std::invalid_argument if the first key is empty (for all keys, use `key_range::all`), or
///   an option is invalid.
bulk erase_range(const client& by, key_range keys, bulk_options options = {});

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/bulk.hpp>
#endif
