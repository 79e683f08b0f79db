// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lease.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {
class env;
class client_impl;
class password_source;
namespace net {
class secure_layer;
}
} // namespace detail

/// Where the members of one etcd cluster listen for clients: `http://host:port`, of which scheme
/// and port may be left out, or `https://host:port`, for which `client_options::tls` must be set.
/// Converts from one string, from several, or from a vector of them.
class endpoints {
public:
    template<std::convertible_to<std::string>... Url>
    requires(sizeof...(Url) > 0) endpoints(Url&&... urls) {
        (urls_.push_back(std::forward<Url>(urls)), ...);
    }
    endpoints(std::vector<std::string> urls)
        : urls_(std::move(urls)) {}

    const std::vector<std::string>& urls() const { return urls_; }

private:
    std::vector<std::string> urls_;
};

/// Who the client is to etcd: a user, by name and password. Both are UTF-8.
///
/// The client logs in when it first needs to, and again whenever etcd wants it to, as after five
/// minutes without a request. Copies of the password are wiped after use.
class credentials {
public:
    /// Keeps the password in memory for as long as a client, or a copy of this, exists.
    credentials(std::string user, std::string password);
    /// Asks for the password each time that it is needed, on the client's executor, and keeps
    /// nothing of it. If `password` throws, calls fail with `errc::login_failed`.
    credentials(std::string user, std::function<std::string()> password);

    const std::string& user() const { return user_; }

private:
    friend class detail::password_source;
    std::string user_;
    std::function<std::string()> password_; // returns a copy, to be wiped
};

/// Options of a client.
class client_options {
public:
    client_options() {} // user-provided, so that this is no aggregate

    // These affect behaviour.

    /// The user to log in, if etcd's authentication is on; where it is off this has no effect.
    std::optional<coetcd::credentials> credentials;
    /// Whether password and token may be sent to another host in the clear: over http. Without
    /// this, `credentials` and such an endpoint are an error. Anybody in between can read them.
    bool insecure_plain_text_credentials = false;
    /// How often to ask the cluster for its members, and use the endpoints that they advertise
    /// instead of those named; empty to use those named for ever. Learners are left out, and so is
    /// what advertises http where only https was named. At least one second. Only for clusters
    /// whose members advertise addresses that serve the gateway, and that can be reached from here.
    std::optional<std::chrono::seconds> member_refresh{};
    /// How long a call may take, all attempts together; a watch, until it is in force. What waits
    /// for somebody else, as `mutex::lock` and `watcher::next`, waits longer. Must be positive.
    std::chrono::milliseconds request_timeout{5000};
    /// The largest answer accepted, or message of a watch, in bytes of JSON: about 4/3 of the bytes
    /// of its keys and values. Raise it for ranges that are larger. Must be positive.
    std::size_t max_answer = 4 * 1024 * 1024;
    /// What the endpoints with https need: `options.tls = coetcd::make_tls(...)`, which takes
    /// <coetcd/tls.hpp>. It does nothing to those with http.
    std::shared_ptr<const detail::net::secure_layer> tls;

    /// Who is told what the client does; nobody if null.
    std::shared_ptr<coetcd::observer> observer;

    // These affect performance.

    /// How long one endpoint may take to answer what can safely be asked again, before the next one
    /// is tried. Must be positive.
    std::chrono::milliseconds attempt_timeout{2000};
    /// How long a connection may take to be made, name lookup included. Must be positive.
    std::chrono::milliseconds connect_timeout{1000};
    /// The most connections to one endpoint for calls; further calls wait for one. Renewals of
    /// sessions and the watches have their own. Must be positive.
    std::size_t connections = 8;
};

/// An etcd cluster, as seen from one executor. A cheap handle: copies share connections.
///
/// It performs no I/O until it is used. It may be destroyed at any moment: operations under way,
/// sessions and watchers keep alive what they need. All of them must be destroyed before the
/// executor's context is.
///
/// Calls try the next endpoint when one fails. What changes the store is tried again only if the
/// failed attempt cannot have been applied; else it throws `errc::outcome_unknown`.
///
/// All calls throw `error` with
/// - `errc::timed_out` or `errc::unavailable` if no endpoint answered in time: nothing was changed;
/// - `errc::outcome_unknown` if a change was sent and its answer was lost;
/// - `errc::protocol_error` or `errc::too_large` if the answer cannot be used;
/// - `errc::tls_failed` if no endpoint could be trusted, or trusts us: nothing was changed;
/// - a `server_errc` if etcd refused, with its words in `what()`.
///
/// and `std::invalid_argument` at once, before anything is sent, if an argument cannot be right.
///
/// @par Cancellation
/// `terminal`, for all calls, at once. The connection is closed; a change may have been applied.
/// @par Thread safety
/// Distinct objects that are not copies: safe. Copies, and their sessions, mutexes and watchers:
/// unsafe; use them on one strand, or on an `io_context` that one thread runs.
class client {
public:
    using executor_type = boost::asio::any_io_executor;

    /// @param executor Where all work is done: the caller's `io_context` or strand.
    /// @throws std::invalid_argument naming the field, if an endpoint or an option cannot be right.
    client(executor_type executor, endpoints cluster, client_options options = {});

    /// For tests: a client that sees the world through `world`.
    client(std::shared_ptr<detail::env> world, endpoints cluster, client_options options = {});

    executor_type get_executor() const;

    /// The same client, with another `request_timeout` for the calls made through this handle.
    client with_timeout(std::chrono::milliseconds timeout) const;

    /// Reads one key. One round trip.
    /// @returns Nothing if it does not exist.
    boost::asio::awaitable<std::optional<key_value>> get(std::string key) const;

    /// Reads a range of keys. One round trip.
    boost::asio::awaitable<range_response> range(key_range keys, range_options options = {}) const;

    /// Writes one key. One round trip.
    boost::asio::awaitable<put_response>
    put(std::string key, std::string value, put_options options = {}) const;

    /// Deletes one key or a range. One round trip; not an error if there is none.
    boost::asio::awaitable<delete_range_response> erase(key_range keys,
                                                        erase_options options = {}) const;

    /// Carries out a transaction. One round trip. That its conditions do not hold is no error: see
    /// `txn_response::succeeded`.
    boost::asio::awaitable<txn_response> txn(coetcd::txn transaction) const;

    /// Forgets the history before `revision`. One round trip.
    /// @param physical Return only when the space is free for reuse.
    boost::asio::awaitable<compaction_response> compact(std::int64_t revision,
                                                        bool physical = false) const;

    /// Grants a lease, which ends `ttl` after its last renewal. One round trip.
    /// @param ttl At least one second; etcd raises it to its minimum, by default two: see the
    /// answer.
    /// @param id What to call it; 0 lets the client choose. Positive, or 0.
    boost::asio::awaitable<lease_grant_response> lease_grant(std::chrono::seconds ttl,
                                                             lease_id id = 0) const;

    /// Ends a lease, and deletes its keys. One round trip.
    /// @throws error with `server_errc::not_found` if there is none.
    boost::asio::awaitable<lease_revoke_response> lease_revoke(lease_id id) const;

    /// Renews a lease. One round trip. `ttl` is zero if there is none.
    boost::asio::awaitable<lease_keep_alive_response> lease_keep_alive_once(lease_id id) const;

    /// Tells how long a lease has. One round trip. `ttl` is -1 if there is none.
    boost::asio::awaitable<lease_time_to_live_response> lease_time_to_live(lease_id id,
                                                                           bool keys = false) const;

    /// Lists all leases. One round trip.
    boost::asio::awaitable<lease_leases_response> lease_leases() const;

    /// Begins to watch keys, and returns when the watch is in force. One round trip, or two without
    /// a start revision; the first watch of a client opens a connection besides.
    /// @throws error with a `server_errc` or `errc::watch_canceled` if etcd refuses it.
    boost::asio::awaitable<watcher> watch(key_range keys, watch_options options = {}) const;

private:
    friend class detail::client_impl;
    client(std::shared_ptr<detail::client_impl> impl, std::chrono::nanoseconds timeout);

    std::shared_ptr<detail::client_impl> impl_;
    std::chrono::nanoseconds timeout_;
};

} // namespace coetcd

#include <coetcd/impl/client.hpp>
