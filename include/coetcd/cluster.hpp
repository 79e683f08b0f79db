// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <string>
#include <vector>

// The members of a cluster.

namespace coetcd {

struct cluster_member {
    std::uint64_t id = 0;
    std::string name; ///< Empty until it has been started.
    std::vector<std::string> peer_urls;
    std::vector<std::string> client_urls; ///< Empty until it has been started.
    bool is_learner = false;              ///< It neither votes nor serves most requests.

    bool is_started() const { return !name.empty(); }
};

/// Lists and changes the members of the cluster. While authentication is enabled, changes need a
/// user with the role "root". It keeps the client alive, and needs one round trip for each call.
///
/// What changes is the list of members: processes are started and stopped by others. A change is
/// accepted by a majority of the members that were there before, and counts at once. So a second
/// member that is not started leaves a cluster of one without a majority until it is: add a learner
/// first, or start it in time.
///
/// All calls throw `error` as those of `client`. Besides:
/// - `server_errc::not_found` if no member has the id, and `server_errc::already_exists` if another
///   one has a URL. (etcd says `failed_precondition` of the latter.)
/// - `errc::unavailable` if etcd considers the cluster unhealthy until the time limit: the member
///   that is asked has been connected to all others for less than five seconds, or is not.
/// - `server_errc::unknown` with "not enough started members" if a change would leave the cluster
///   without a majority of started members.
/// - `errc::outcome_unknown` if a change was sent and its answer was lost: list the members before
///   you repeat it.
///
/// and `std::invalid_argument`, before anything is sent, if an id is 0, or the URLs of peers are
/// none, or one of them twice, or one is not `http://host:port` or `https://host:port`.
/// @par Cancellation
/// `terminal`, at once. A change may have been made.
/// @par Thread safety
/// As `client`.
class cluster {
public:
    /// @param by Whose endpoints, user and time limit are used: see `client::with_timeout`.
    explicit cluster(client by);

    /// All members, by a linearizable read: none is from the past.
    boost::asio::awaitable<std::vector<cluster_member>> members() const;

    /// Adds a member that votes.
    /// @returns It, with its id. Start it with `--initial-cluster-state existing`, and the names
    ///   and peer URLs of all members in `--initial-cluster`.
    boost::asio::awaitable<cluster_member> add_member(std::vector<std::string> peer_urls) const;
    /// Adds a member that does not vote until it is promoted.
    /// @throws error with `server_errc::failed_precondition` if there are too many learners: more
    ///   than one, by default.
    boost::asio::awaitable<cluster_member> add_learner(std::vector<std::string> peer_urls) const;
    /// Lets a learner vote.
    /// @returns All members.
    /// @throws error with `server_errc::failed_precondition` if it votes already, or has not caught
    ///   up with the leader: then try again later.
    boost::asio::awaitable<std::vector<cluster_member>> promote_member(std::uint64_t id) const;
    /// Changes where a member is reached by the others. etcd 3.4 makes a learner a voting member by
    /// this.
    /// @returns All members.
    boost::asio::awaitable<std::vector<cluster_member>>
    update_member(std::uint64_t id, std::vector<std::string> peer_urls) const;
    /// Removes a member. Its process ends by itself once it learns of that.
    /// @returns The other members.
    boost::asio::awaitable<std::vector<cluster_member>> remove_member(std::uint64_t id) const;

private:
    client by_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/cluster.hpp>
#endif
