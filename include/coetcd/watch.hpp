// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/watch_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <memory>

namespace coetcd {

namespace detail {
class access;
class watcher_impl;
} // namespace detail

/// A watch, from `client::watch`. It delivers every change to a key or range exactly once, in
/// order, and never splits a revision.
///
/// The watches of a client share one connection; those of its locks and feeds share another. A
/// watch that brings much, 256 KiB at once or 64 KB a second, or whose reader falls behind, has one
/// of its own from then on: no reader holds up another. Behind a proxy that buffers requests, each
/// watch has its own.
///
/// When its connection breaks, or its member of the cluster stops, the watch resumes elsewhere
/// after the last event that it delivered, without gap or duplicate. Destroying it ends the watch;
/// nothing is left in etcd.
///
/// It buffers at most `watch_options::buffer` bytes, plus one revision or 64 KiB of a message. Then
/// nothing more is read until you call `next`. If that takes over 10 s, the connection is given up,
/// and a new one continues from there when you do. So a slow reader misses nothing, unless history
/// is compacted before it gets there.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] watcher {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Waits for changes, and returns all that have arrived.
    ///
    /// One call at a time. No round trip. This object may be destroyed before it completes; it then
    /// throws `operation_aborted`.
    ///
    /// @throws compacted_error if changes that it has yet to deliver were compacted.
    /// @throws error with `errc::revision_regressed` if etcd was restored from a snapshot that is
    ///   older than what this watch has delivered.
    /// @throws oversized_error if a revision exceeds `client_options::max_answer`.
    /// @throws error with `errc::watch_canceled` or a `server_errc` if etcd ended or refused the
    ///   watch. All later calls throw the same.
    /// @par Cancellation
    /// `terminal`. Nothing is lost: the next call returns what this one would have.
    boost::asio::awaitable<watch_batch> next();

    /// The client's executor.
    executor_type get_executor() const;

    /// No watch: it can only be assigned to and destroyed. Default-constructible because `co_spawn`
    /// requires it of results.
    watcher() noexcept = default;
    watcher(watcher&&) noexcept = default;
    watcher& operator=(watcher&&) noexcept;
    ~watcher();

private:
    friend class detail::access;
    explicit watcher(std::shared_ptr<detail::watcher_impl> impl);

    detail::handle<detail::watcher_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/watch.hpp>
#endif
