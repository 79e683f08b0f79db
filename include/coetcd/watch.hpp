// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
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
    /// Tell also how far it has come when nothing happens: about every ten minutes, unless etcd is
    /// configured otherwise.
    bool progress_notify = false;
    /// How much may wait to be read, in bytes of keys, values and what holds them. Beyond it, etcd
    /// is told to stop, and goes on where it stopped when all that waits was read. Must be
    /// positive.
    std::size_t buffer = 1024 * 1024;
};

/// Changes, in the order in which they happened.
struct watch_batch {
    /// All changes up to this revision were told: a watch from `revision + 1` on tells of all
    /// others, in any client.
    std::int64_t revision = 0;
    /// The changes of one revision are never split. None: nothing has happened up to `revision`.
    std::vector<event> events;
};

/// What a watch throws with `errc::watch_compacted`: history that it needs is gone.
class compacted_error : public error {
public:
    compacted_error(std::int64_t compact_revision, const std::string& text)
        : error(errc::watch_compacted, text)
        , compact_revision_(compact_revision) {}

    /// The first revision from which a watch can start.
    std::int64_t compact_revision() const noexcept { return compact_revision_; }

private:
    std::int64_t compact_revision_;
};

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

    explicit watcher(std::shared_ptr<detail::watcher_impl> impl);
    watcher(watcher&&) noexcept = default;
    watcher& operator=(watcher&&) noexcept;
    ~watcher();

private:
    std::shared_ptr<detail::watcher_impl> impl_;
};

} // namespace coetcd

#include <coetcd/impl/watch.hpp>
