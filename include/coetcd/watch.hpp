// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace coetcd {

namespace detail {
class watcher_impl;
}

/// Options of a watch. Trivially destructible, so that a call may spell them in braces.
struct watch_options {
    /// The first revision to tell of; 0 for all that happens from the call on. Older history
    /// exists back to the last compaction.
    std::int64_t start_revision = 0;
    bool prev_kv = false;   ///< Tell what a key was before, too.
    bool no_put = false;    ///< Leave puts out.
    bool no_delete = false; ///< Leave erases out.
};

/// The changes of a range of keys, in order, each once, from `client::watch`.
///
/// All watches of a client share one connection. When it breaks, or its member of the cluster
/// stops, the watch goes on elsewhere after the last event it told of: without gap or duplicate.
/// Destroying it ends the watch; nothing is left in etcd.
///
/// @par Thread safety
/// Distinct objects: safe, if their clients are distinct. Shared objects: unsafe.
class [[nodiscard]] watcher {
public:
    /// Waits for the next changes.
    ///
    /// One call at a time. No round trip. This object may be destroyed before it completes; it then
    /// throws `operation_aborted`.
    ///
    /// @returns At least one event; the events of one revision are never split.
    /// @throws error with `errc::watch_compacted` if history that it needs was compacted (see
    ///   `compact_revision`), `errc::watch_canceled` if etcd ended the watch, `errc::too_large` if
    ///   a message of any watch of this client exceeds the limit. It then goes on throwing that.
    /// @par Cancellation
    /// `terminal`. Nothing is lost: the next call returns what this one would have.
    boost::asio::awaitable<std::vector<event>> next();

    /// After `errc::watch_compacted`: history exists from this revision on; else 0.
    std::int64_t compact_revision() const noexcept;

    explicit watcher(std::shared_ptr<detail::watcher_impl> impl);
    watcher(watcher&&) noexcept = default;
    watcher& operator=(watcher&&) noexcept;
    ~watcher();

private:
    std::shared_ptr<detail::watcher_impl> impl_;
};

} // namespace coetcd

#include <coetcd/impl/watch.hpp>
