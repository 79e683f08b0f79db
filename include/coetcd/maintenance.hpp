// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/member_status.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

// Alarms, the databases of members, the leader, versions, snapshots.

namespace coetcd {

/// Why a member raises an alarm; in etcd's order.
enum class alarm_type {
    none,     ///< Of no alarm that is raised.
    no_space, ///< The quota of its database is used up: the cluster refuses all puts.
    corrupt,  ///< Its data differs from that of others: the cluster refuses all changes.
};

struct raised_alarm {
    std::uint64_t member_id = 0;
    alarm_type type = alarm_type::none;

    bool operator==(const raised_alarm&) const = default;
};

/// What a member's keys amount to at a revision. Members whose hashes differ, of the same revision
/// and with the same `compact_revision`, have different data.
struct kv_hash {
    std::uint64_t member_id = 0;
    std::uint32_t hash = 0;
    std::int64_t revision = 0;         ///< That of the store when it answered.
    std::int64_t compact_revision = 0; ///< What it is counted from; -1: from the beginning.
    std::int64_t hash_revision = 0;    ///< Up to which it is counted; 0 before etcd 3.6.
};

struct snapshot_progress {
    std::uint64_t received = 0; ///< Bytes.
    std::uint64_t total = 0;    ///< Bytes that the file will have.
};

struct snapshot_info {
    std::uint64_t size = 0; ///< Bytes of the file.
    std::string sha256;     ///< Of the database in it, in 64 hexadecimal digits.
    std::string version;    ///< Of etcd's storage, such as "3.6.0"; empty before etcd 3.6.
};

/// Looks after a cluster and its members. While authentication is enabled, it needs a user with the
/// role "root". It keeps the client alive.
///
/// Calls with an `endpoint` are made there and nowhere else, `http://host:port`, whether or not the
/// client has it. Name one member: behind a name of several, or a proxy, any of them may answer. It
/// must be one of the client's cluster; otherwise these calls throw `errc::wrong_cluster`.
///
/// All calls throw `error` as those of `client`, with `server_errc::unimplemented` if this etcd
/// lacks the call, and `std::invalid_argument`, before anything is sent, if an argument is invalid;
/// of an endpoint also if a client with credentials, or without TLS, could not have it.
/// @par Cancellation
/// `terminal`, at once. A change may have been made.
/// @par Thread safety
/// As `client`.
class maintenance {
public:
    /// @param by Whose endpoints, user and time limit are used: see `client::with_timeout`.
    explicit maintenance(client by);

    /// The alarms that are raised. One round trip; two before etcd 3.5, whose answer does not say
    /// which cluster it is of.
    boost::asio::awaitable<std::vector<raised_alarm>> alarms() const;
    /// Takes back an alarm. Two round trips. What has caused it is still there: make room first, by
    /// `compact` and `defragment`, or replace the member.
    /// @returns False if it is not raised.
    /// @throws error with `errc::outcome_unknown` if the answer was lost.
    boost::asio::awaitable<bool> disarm(raised_alarm alarm) const;

    /// The status of one member, even if it has no leader. One round trip.
    boost::asio::awaitable<member_status> status(std::string endpoint) const;

    /// Gives the unused space of a member's database back to its file system. Two round trips.
    /// The member serves nothing meanwhile, which takes seconds for each gigabyte: sessions that it
    /// alone could renew end. One member after the other, the leader last, with enough time:
    /// see `client::with_timeout`.
    /// @throws error with `errc::outcome_unknown` if it did not end in time: it goes on.
    boost::asio::awaitable<void> defragment(std::string endpoint) const;

    /// The hash of a member's keys. One round trip, and a read of all of its keys. Since etcd 3.5.
    /// @param revision Up to which; 0 for the newest one.
    /// @throws error with `server_errc::out_of_range` if it is compacted, or not there yet.
    boost::asio::awaitable<kv_hash> hash_kv(std::string endpoint, std::int64_t revision = 0) const;

    /// Makes a member the leader. One round trip for each endpoint of the client until the leader
    /// is found, and one.
    ///
    /// Nothing happens if it leads already.
    /// @throws error with `errc::unavailable` if the leader is at none of the client's endpoints;
    ///   `server_errc::failed_precondition` if no voting member has the id, or the leader has just
    ///   changed; `errc::outcome_unknown` if there was no answer: ask for the status. etcd 3.4
    ///   accepts a learner, waits for it, and gives up in the end.
    boost::asio::awaitable<void> move_leader(std::uint64_t member_id) const;

    // Since etcd 3.5, which can only be asked about it; 3.6 can do it. One round trip each. A
    // version is of the form "3.5": the one before the cluster's.

    /// Asks whether the cluster can be downgraded.
    /// @returns The version of the cluster.
    /// @throws error with `server_errc::invalid_argument` if not to this version, and
    ///   `server_errc::failed_precondition` if a downgrade is under way.
    boost::asio::awaitable<std::string> validate_downgrade(std::string version) const;
    /// Has the cluster accept members of this version: then replace each member's program.
    /// @returns The version of the cluster.
    boost::asio::awaitable<std::string> enable_downgrade(std::string version) const;
    /// Ends a downgrade that was enabled.
    /// @throws error with `server_errc::failed_precondition` if none was; not since etcd 3.6.
    boost::asio::awaitable<std::string> cancel_downgrade() const;

    /// Writes all of a member's database into a file, as `etcdctl snapshot save` does: for
    /// `etcdutl snapshot restore`. Two round trips and the time for the bytes; it is not tried
    /// again.
    ///
    /// The bytes go into a new file beside it, named `<file>.<16 hexadecimal digits>.part`, which
    /// only this user can read. Once all of them are there, and the SHA-256 at their end is right,
    /// the file is flushed to the disk and renamed. So `file` is whole, or as it was before. If the
    /// call fails, is cancelled or destroyed, the new file is removed; only a process that ends
    /// meanwhile, or a machine, leaves it behind. Such files can be deleted.
    ///
    /// It holds no more than a few messages in memory, of 32 KiB each. Writing blocks the client's
    /// executor, and so does the flush of each 8 MiB, which makes each of them short. Where locks
    /// are held, use a client on an executor of its own.
    ///
    /// The file has what this member had applied; a change that another member has just confirmed
    /// may be missing. A linearizable read by a client of this endpoint alone, before, waits for
    /// it.
    ///
    /// @param file Replaced if it exists. Its directory has to be there.
    /// @param progress Called after each message, on the client's executor; not called if empty.
    /// What
    ///   it throws ends the call.
    /// @throws error with `errc::unavailable` if it breaks off; `errc::timed_out` if etcd sends
    ///   nothing for the client's time limit (it may take twice that long to notice);
    ///   `errc::corrupt_snapshot` if it is not what etcd has sent; a code of the system if the file
    ///   cannot be written.
    boost::asio::awaitable<snapshot_info>
    snapshot(std::string endpoint,
             std::filesystem::path file,
             std::function<void(const snapshot_progress&)> progress = {}) const;

private:
    client by_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/maintenance.hpp>
#endif
