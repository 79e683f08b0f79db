// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/watch_options.hpp>

#include <boost/asio/awaitable.hpp>

#include <memory>

namespace coetcd {

namespace detail {
class access;
class watcher_impl;
} // namespace detail

/// The changes of a range of keys, in order, each once, from `client::watch`.
///
/// All watches of a client share one connection. When it breaks, or its member of the cluster
/// stops, the watch goes on elsewhere after the last event it told of: without gap or duplicate.
/// Destroying it ends the watch; nothing is left in etcd.
///
/// What etcd sends is held until it is read, up to `watch_options::buffer` and one message. A
/// reader that is slower than its keys change slows neither etcd nor other watches, and misses
/// nothing unless history is compacted before it gets there.
///
/// Behind a proxy that passes a request on only once it is complete, each watch has a connection of
/// its own.
///
/// @par Thread safety
/// Distinct objects: safe, if their clients are distinct. Shared objects: unsafe.
class [[nodiscard]] watcher {
public:
    /// Waits for the next changes, and returns all that there are.
    ///
    /// One call at a time. No round trip. This object may be destroyed before it completes; it then
    /// throws `operation_aborted`.
    ///
    /// @throws compacted_error if history that it needs was compacted.
    /// @throws error with `errc::revision_regressed` if etcd was restored from a snapshot that is
    ///   older than what this watch has told of.
    /// @throws error with `errc::watch_canceled` or a `server_errc` if etcd ended or refused the
    ///   watch, `errc::too_large` if a message exceeds the limit of `client_options`. It then goes
    ///   on throwing that.
    /// @par Cancellation
    /// `terminal`. Nothing is lost: the next call returns what this one would have.
    boost::asio::awaitable<watch_batch> next();

    watcher(watcher&&) noexcept = default;
    watcher& operator=(watcher&&) noexcept;
    ~watcher();

private:
    friend class detail::access;
    explicit watcher(std::shared_ptr<detail::watcher_impl> impl);

    std::shared_ptr<detail::watcher_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/watch.hpp>
#endif
