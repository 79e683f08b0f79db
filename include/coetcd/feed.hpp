// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <memory>

namespace coetcd {

namespace detail {
class access;
template<class T>
class feed;
} // namespace detail

/// Delivers the state of something, and then each change of it: see `election::observe`,
/// `value::changes`.
///
/// It survives compaction, restarts of members and the loss of any of them; it never ends by
/// itself. A reader that is slow, or does not call, costs nothing: it gets the newest state, and
/// misses what was in between. It never gets an older state after a newer one. Destroying it leaves
/// nothing in etcd.
///
/// @par Thread safety
/// As `client`.
template<class T>
class [[nodiscard]] feed {
public:
    using value_type = T;
    using executor_type = boost::asio::any_io_executor;

    /// No feed: it can only be assigned to and destroyed. Default-constructible because `co_spawn`
    /// requires it of results.
    feed() noexcept = default;
    feed(feed&&) noexcept = default;
    feed& operator=(feed&&) noexcept;
    ~feed();

    /// The client's executor.
    executor_type get_executor() const;

    /// The first call returns the present state; later ones wait until it differs from the one that
    /// was returned last.
    ///
    /// The first call costs a watch, on the client's connection for those, and one round trip. Each
    /// later change costs at most one, and while a call waits there is one about every 10 s, since
    /// servers have lost events. One call at a time. This object may be destroyed before it
    /// completes; it then throws `operation_aborted`.
    ///
    /// @throws error with `errc::revision_regressed` if etcd was restored from a snapshot that is
    ///   older than what was returned. The next call begins anew, with what is there then.
    /// @throws error with a `server_errc` if etcd refuses; the next call asks again. An outage is
    ///   not an error: the call waits until it is over.
    /// @par Cancellation
    /// `terminal`. Nothing is lost: the next call returns what this one would have.
    boost::asio::awaitable<T> next();

private:
    friend class detail::access;
    using impl = detail::feed<T>;
    explicit feed(std::shared_ptr<impl> made);

    detail::handle<impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/feed.hpp>
#endif
