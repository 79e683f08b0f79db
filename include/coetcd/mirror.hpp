// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/mirror_batch.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace coetcd {

namespace detail {
class access;
class mirror_impl;
struct mirror_reader;
} // namespace detail

/// Delivers the keys of a mirror, and then each change of them: see `mirror::changes`.
///
/// Each change comes once, in order. `was` of a change is what the change of that key before it
/// said in `is`. So a reader that does what it is told has, after each batch, the keys of
/// `mirror_batch::revision`.
///
/// A slow reader holds up nobody. It has at most `mirror_options::buffer` bytes of changes waiting,
/// and one message of etcd more. Beyond that it gets one change for each key that differs from what
/// it was told, with `mirror_change::by_comparison`. Until it calls, this takes what these keys
/// were, at most as many as the mirror had.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] mirror_changes {
public:
    using executor_type = boost::asio::any_io_executor;

    /// The first call returns all keys, each as a change from nothing. Later ones wait for changes,
    /// and return all that have arrived.
    ///
    /// No round trip. One call at a time. This object may be destroyed before it completes, and so
    /// may the mirror; it then throws `operation_aborted`.
    ///
    /// @throws error with `errc::revision_regressed`, once, if etcd was restored from a snapshot
    ///   that is older than what the mirror had, or replaced. The next call returns the difference.
    /// @throws error as `mirror::trouble` says, if the mirror has ended. All later calls throw the
    ///   same. An outage is not an error: the call waits until it is over.
    /// @par Cancellation
    /// `terminal`. Nothing is lost: the next call returns what this one would have.
    boost::asio::awaitable<mirror_batch> next();

    /// The client's executor.
    executor_type get_executor() const;

    /// No reader: it can only be assigned to and destroyed. Default-constructible because
    /// `co_spawn` requires it of results.
    mirror_changes() noexcept = default;
    mirror_changes(mirror_changes&&) noexcept = default;
    mirror_changes& operator=(mirror_changes&&) noexcept;
    ~mirror_changes();

private:
    friend class detail::access;
    mirror_changes(std::shared_ptr<detail::mirror_impl> of,
                   std::shared_ptr<detail::mirror_reader> reader);

    detail::handle<detail::mirror_impl> impl_;
    std::shared_ptr<detail::mirror_reader> reader_;
};

/// The keys of a prefix, or of a range, in memory, and kept current. From `open_mirror`.
///
/// What it tells is what etcd had at `revision()`: all keys of one revision, never a part of a
/// transaction, and never an older revision after a newer one. It follows etcd by a watch, within
/// milliseconds as a rule. If history was compacted before the watch got to it, the mirror reads
/// all keys again, and what has changed is found by comparison. It survives restarts of members and
/// the loss of any of them. Destroying it ends it; nothing is left in etcd.
///
/// While etcd cannot be reached, it goes on telling what it knows: see `trouble` and `age`. If etcd
/// was restored from a snapshot that is older than what the mirror had, or replaced, the mirror
/// begins anew with what is there then, and `revision()` is smaller. Everyone that waits, and every
/// reader of the changes, is told `errc::revision_regressed` once.
///
/// It takes the memory of its keys and values, and about 200 bytes for each; while it reads again,
/// 16 bytes more for each, and twice the keys and values that have changed.
///
/// @par Costs
/// Nothing for what it is asked, but for `wait`. Beside the watch, it looks about every 10 s
/// whether the keys are still those that it has, since servers have lost events: one round trip for
/// each 20,000 keys, with small answers. etcd goes through all keys for that, so the interval is
/// longer by 10 ms for each key.
/// @par Thread safety
/// As `client`. Besides, `get`, `size`, `revision`, `snapshot`, `trouble` and `age` may be called
/// from any thread at any time: they take a mutex for a moment, `snapshot` for as long as it copies
/// pointers.
class [[nodiscard]] mirror {
public:
    using executor_type = boost::asio::any_io_executor;

    /// A key as of `revision()`. No round trip.
    /// @returns Null if there is no such key, or if it is not of this mirror.
    mirror_entry get(std::string_view key) const;

    /// How many keys there are.
    std::size_t size() const;

    /// The keys are those that etcd had at this revision.
    std::int64_t revision() const;

    /// All keys, or those in `part`, at one revision. It takes one pointer for each.
    mirror_snapshot snapshot() const;
    mirror_snapshot snapshot(const key_range& part) const;

    /// The keys now, and each change from then on. There may be many readers. No I/O.
    mirror_changes changes() const;

    /// Waits until `revision()` is at least `revision`: a program that has written sees its own
    /// write from then on, and so does one that was told the revision of another's.
    ///
    /// As a rule the event is there already, or comes within milliseconds. If it does not come in
    /// 100 ms, because nothing was changed that is mirrored, it takes one round trip. It waits for
    /// as long as etcd cannot be reached. The mirror may be destroyed before it completes; it then
    /// throws `operation_aborted`.
    ///
    /// @throws std::invalid_argument at once if `revision` is negative.
    /// @throws error with `errc::revision_regressed` if etcd was restored from an older snapshot
    ///   meanwhile, and as `trouble` says if the mirror has ended.
    /// @par Cancellation
    /// `terminal`, at once.
    boost::asio::awaitable<void> wait(std::int64_t revision) const;

    /// The same, for a limited time; if that is not positive, it does not wait.
    /// @returns Whether `revision()` is at least `revision`.
    boost::asio::awaitable<bool> wait_for(std::int64_t revision,
                                          std::chrono::nanoseconds patience) const;

    /// Why the keys may be out of date; nothing if they are not, as far as is known.
    ///
    /// A connection that breaks is known at once, one that is silent after 12 s, and a member that
    /// etcd has no leader for after some seconds. All of them pass by themselves. The mirror has
    /// ended if etcd has refused it twice in a row, with `server_errc::permission_denied` or
    /// `server_errc::unauthenticated`, if the password was refused (`errc::login_failed`), or if
    /// memory has run out: it then tells the last keys that it knew.
    std::optional<error> trouble() const;

    /// For how long there has been trouble: the keys are at least as new as that, and may be
    /// current. Zero if there is none.
    std::chrono::nanoseconds age() const;

    /// The client's executor.
    executor_type get_executor() const;

    /// No mirror: it can only be assigned to and destroyed. Default-constructible because
    /// `co_spawn` requires it of results.
    mirror() noexcept = default;
    mirror(mirror&&) noexcept = default;
    mirror& operator=(mirror&&) noexcept;
    ~mirror();

private:
    friend class detail::access;
    explicit mirror(std::shared_ptr<detail::mirror_impl> impl);

    detail::handle<detail::mirror_impl> impl_;
};

/// Mirrors all keys that start with `prefix`; all keys if it is empty. Returns when they are there.
///
/// It reads pages of up to 8192 keys, as they fit into an answer, all of one revision: one round
/// trip for up to 512 keys. The watch then begins in the background. `by` may be destroyed at any
/// time.
///
/// @throws std::invalid_argument at once if `mirror_options::buffer` is 0.
/// @throws error as the calls of `client`, each page being one; with `errc::too_large` if one key
///   is over the limit of `client_options::max_answer`, and `server_errc::out_of_range` if history
///   was compacted faster than the pages came, six times in a row.
/// @par Cancellation
/// `terminal`, at once.
boost::asio::awaitable<mirror>
open_mirror(const client& by, std::string prefix, mirror_options options = {});

/// The same of any range: of one key, if it is one.
boost::asio::awaitable<mirror>
open_mirror_of(const client& by, key_range keys, mirror_options options = {});

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/mirror.hpp>
#endif
