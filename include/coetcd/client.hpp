// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client_options.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>
#include <coetcd/member_status.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace coetcd {

namespace detail {
class env;
class access;
class client_impl;
} // namespace detail

/// An etcd cluster, as seen from one executor. A cheap handle: copies share connections.
///
/// It performs no I/O until it is used. It may be destroyed at any moment: operations under way,
/// sessions and watchers keep alive what they need. All of them must be destroyed before the
/// executor's context is.
///
/// Calls try the next endpoint when one fails. A call that changes the store is tried again only if
/// the failed attempt cannot have been applied; otherwise it throws `errc::outcome_unknown`.
///
/// All calls throw `error` with
/// - `errc::timed_out` or `errc::unavailable` if no endpoint answered in time, and
///   `errc::protocol_error` if something answered, but not etcd: nothing was changed;
/// - `errc::outcome_unknown` if a change was sent and its answer was lost, or is not etcd's;
/// - `errc::too_large` if the answer is over the limit, and another endpoint did not give a smaller
///   one;
/// - `errc::tls_failed` if no endpoint is trusted, or none trusts us: nothing was changed;
/// - a `server_errc` if etcd refused, with its message in `what()`.
///
/// and `std::invalid_argument` at once, before anything is sent, if an argument is invalid. The
/// calls of a client that was moved from throw `std::logic_error`, as do those of other classes.
///
/// @par Cancellation
/// `terminal`, for all calls, at once. The connection is closed; a change may have been applied.
/// @par Executors
/// All work is done on the client's executor, one handler at a time: see `get_executor`. Calls may
/// be awaited from any executor: the work is done on the client's, and the result comes back. The
/// caller's executor must exist until then. On the client's own executor this costs nothing.
/// @par Thread safety
/// A client, and its sessions, mutexes and watchers, may be used from any thread if its executor is
/// a strand. If it is that of an `io_context`, exactly one thread must run that; other threads may
/// await. Distinct objects, and `const` functions of shared ones: safe. Other functions of shared
/// objects: unsafe. Calls that take effect at once, such as destructors, do so completely on the
/// client's executor. From another executor the visible state changes at once; the rest follows
/// there.
class client {
public:
    using executor_type = boost::asio::any_io_executor;

    /// @param executor Where all work is done: a strand, or an `io_context` that one thread runs.
    ///   On any other, such as that of a thread pool, the client makes a strand of its own.
    /// @throws std::invalid_argument naming the field, if an endpoint or an option is invalid.
    client(executor_type executor, endpoints cluster, client_options options = {});

    /// Where all work is done: the executor of the constructor, or the strand that it made.
    executor_type get_executor() const;

    /// The same client, with another `request_timeout` for calls made through the returned handle,
    /// through sessions opened with it, and their locks; `session::close` has its own.
    client with_timeout(std::chrono::milliseconds timeout) const;

    /// The keys that begin with `prefix`, as a cluster of their own: Go's `clientv3/namespace`.
    ///
    /// The prefix stands before the key in all that goes to etcd, and is taken off all that comes
    /// back: in calls, ranges, transactions and watches of the returned client, and in all that is
    /// made from it, such as sessions and their locks. "All keys" and "all keys from here on" end
    /// with the namespace. A lock `m` in the namespace `app/` is the lock `app/m` of other clients.
    /// In a namespace, a prefix is added to the one there is: `app/` and then `eu/` is `app/eu/`.
    ///
    /// Keys and names in errors, sequencers and reports to an observer are without the prefix, but
    /// the keys for which an error names a permission have it: that is for who grants it. What is
    /// about the cluster as a whole has no namespace: leases and their ids, `compact`, `status`,
    /// `auth` with the keys of its permissions, `cluster`, and `maintenance` with its snapshots.
    /// `lease_time_to_live` leaves out keys that are not in the namespace.
    ///
    /// Endpoints, connections, logins and renewals are shared with this client. Calls and watches
    /// that share requests and streams do so with those of the same namespaced client: keep it,
    /// rather than make it for each call. No I/O.
    /// @param prefix Any bytes, usually with a separator at the end. If it is empty, this client is
    ///   returned, as it is.
    /// @throws std::invalid_argument if it is longer than 512 bytes, together with that of this
    ///   client.
    client in_namespace(const std::string& prefix) const;

    /// Replaces the endpoints, for all handles of this client, its sessions and watches: for
    /// members that move. Takes effect at once on the client's executor, and from elsewhere as soon
    /// as that gets to it. No I/O.
    ///
    /// Requests under way go on. Later ones go to the new endpoints; what was learned by
    /// `member_refresh` is forgotten and asked again. Connections to endpoints that are no longer
    /// named are closed when they are idle. A stream of watches stays where it is until it ends,
    /// and resumes at a new endpoint. They must be endpoints of the same cluster: see
    /// `errc::wrong_cluster`.
    /// @throws std::invalid_argument as the constructor; nothing has changed then.
    void set_endpoints(endpoints cluster) const;

    /// Reads one key. One round trip.
    /// @returns Nothing if it does not exist.
    boost::asio::awaitable<std::optional<key_value>> get(std::string key) const;

    /// Reads a range of keys. One round trip.
    boost::asio::awaitable<range_response> range(key_range keys, range_options options = {}) const;

    /// Writes one key. One round trip.
    boost::asio::awaitable<put_response>
    put(std::string key, std::string value, put_options options = {}) const;

    /// Deletes one key or a range. One round trip; not an error if there is none.
    boost::asio::awaitable<erase_response> erase(key_range keys, erase_options options = {}) const;

    /// Carries out a transaction. One round trip. Conditions that do not hold are no error: see
    /// `txn_response::succeeded`.
    boost::asio::awaitable<txn_response> txn(coetcd::txn transaction) const;

    /// Forgets the history before `revision`. One round trip.
    /// @param physical Return only when the space is free for reuse.
    boost::asio::awaitable<compaction_response> compact(std::int64_t revision,
                                                        bool physical = false) const;

    /// Grants a lease, which ends `ttl` after its last renewal. One round trip.
    /// @param ttl At least one second; etcd raises it to its minimum, by default two: see the
    /// answer.
    /// @param id Its id, positive; 0 lets the client choose.
    /// @throws error with `server_errc::failed_precondition` if there is a lease with this id, and
    ///   `errc::outcome_unknown` if there is and an answer was lost: it may be ours.
    boost::asio::awaitable<lease_grant_response> lease_grant(std::chrono::seconds ttl,
                                                             lease_id id = 0) const;

    /// Ends a lease, and deletes its keys. One round trip; two if there is no such lease.
    /// @returns Nothing if there is no such lease.
    boost::asio::awaitable<std::optional<lease_revoke_response>> lease_revoke(lease_id id) const;

    /// Renews a lease. One round trip.
    /// @returns Nothing if there is no such lease.
    boost::asio::awaitable<std::optional<lease_keep_alive_response>>
    lease_keep_alive_once(lease_id id) const;

    /// The time that a lease still has. One round trip.
    /// @returns Nothing if there is no such lease.
    boost::asio::awaitable<std::optional<lease_time_to_live_response>>
    lease_time_to_live(lease_id id, bool keys = false) const;

    /// Lists all leases. One round trip.
    boost::asio::awaitable<lease_leases_response> lease_leases() const;

    /// The status of a member, even if it has no leader. Any member may answer, unless the client
    /// has only one endpoint. One round trip.
    boost::asio::awaitable<member_status> status() const;

    /// Begins to watch keys, and returns when the watch is in force. One round trip, or two without
    /// a start revision. The first watch of a client also opens a connection, and so does each
    /// watch that brings much: see `watcher`.
    /// @throws error with a `server_errc` or `errc::watch_canceled` if etcd refuses it.
    boost::asio::awaitable<watcher> watch(key_range keys, watch_options options = {}) const;

private:
    friend class detail::access;
    client(std::shared_ptr<detail::env> world, endpoints cluster, client_options options);
    client(std::shared_ptr<detail::client_impl> impl, std::chrono::nanoseconds timeout);

    detail::handle<detail::client_impl> impl_;
    std::chrono::nanoseconds timeout_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/client.hpp>
#endif
