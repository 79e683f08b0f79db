// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/page_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <optional>

namespace coetcd {

namespace detail {
class pages_impl;
} // namespace detail

/// Reads a range of keys page by page, all of them as they were at one revision, however long that
/// takes.
///
///     coetcd::pages orders(client, coetcd::key_range::prefix("orders/"));
///     while (const auto page = co_await orders.next()) {
///         use(page->kvs);
///     }
///
/// A page whose answer is over `client_options::max_answer` is read again with half as many keys;
/// the pages after it grow again where there is room. So the pages may be smaller than was asked
/// for, and the program never has more than one answer of each reader in memory.
///
/// It leaves nothing in etcd, and holds nothing there: see `next` for what a compaction does.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] pages {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a range; no I/O. `by` may be destroyed first.
    /// @throws std::invalid_argument if the first key is empty (for all keys, use
    ///   `key_range::all`), `size` is not positive, or `revision` is negative.
    pages(const client& by, key_range keys, page_options options = {});
    pages(pages&&) noexcept = default;
    pages& operator=(pages&&) noexcept = default;

    /// The client's executor.
    executor_type get_executor() const;

    /// Reads the next page. One round trip, and one for each time that the answer was too large.
    /// Calls under way at the same time take turns, and get different pages. This object may be
    /// destroyed before they complete.
    ///
    /// @returns Nothing after the last page. The first page may have no keys, if there are none.
    /// @throws error as `client::range`: nothing is lost, and the next call reads the same page.
    ///   In particular
    /// - `server_errc::out_of_range` if the revision of the pages was compacted, or
    ///   `page_options::revision` does not exist yet. The rest can never be read: all later calls
    ///   throw the same. Begin again with another object, or let etcd keep history for longer.
    /// - `errc::revision_regressed` if etcd was restored from a snapshot that is older than the
    ///   pages. All later calls throw the same.
    /// - `errc::too_large` if one key with its value is over the limit.
    /// @par Cancellation
    /// `terminal`, at once. Nothing is lost: the next call returns what this one would have.
    boost::asio::awaitable<std::optional<key_page>> next();

private:
    detail::handle<detail::pages_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/pages.hpp>
#endif
