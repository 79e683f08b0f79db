// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace support {

/// An etcd cluster on a network of its own: each member in a network namespace, all of them and
/// this process on one bridge. What the functions below break is broken on the wire.
///
/// Needs a process that has called `enter_private_network`, and the programs `ip` and `nft`. As
/// with `etcd_server`, all functions block, COETCD_ETCD names the program, and the logs are printed
/// if a test fails. A member is named by its index.
///
/// Its own questions, as that of `leader`, come from another address than those of the tests' own
/// connections: faults do not concern them.
class etcd_cluster {
public:
    /// Starts the members and waits until they serve requests.
    /// @param program Of the members; empty: what COETCD_ETCD names.
    /// @param extra_arguments Appended to the command line of each.
    explicit etcd_cluster(std::size_t members = 3,
                          const std::string& program = {},
                          std::vector<std::string> extra_arguments = {});
    etcd_cluster(const etcd_cluster&) = delete;
    etcd_cluster& operator=(const etcd_cluster&) = delete;
    ~etcd_cluster();

    std::size_t size() const; ///< Also counts members that were removed.
    std::string url(std::size_t i) const;
    std::vector<std::string> urls() const;
    std::string address(std::size_t i) const;
    /// The address of this end that faults do not concern.
    std::string address_of_questions() const;
    /// The body of a member's answer to a POST; from there.
    std::string post(std::size_t i, const std::string& path, const std::string& json) const;

    // Processes

    void kill(std::size_t i);  ///< SIGKILL; returns when it has ended.
    void stop(std::size_t i);  ///< SIGTERM; returns when it has ended.
    void start(std::size_t i); ///< After `kill` or `stop`; waits until it serves.
    /// From its next start on, a member is this program.
    void replace_program(std::size_t i, const std::string& program);
    void pause(std::size_t i);  ///< SIGSTOP; returns when it has stopped.
    void resume(std::size_t i); ///< SIGCONT.
    pid_t pid(std::size_t i) const;
    /// Kills all members and starts them with what `etcdctl snapshot save` wrote to this file.
    void restore(const std::filesystem::path& snapshot);

    // The network. Each of these lasts until `heal`.

    void isolate(std::size_t i);            ///< From its peers. Clients reach it.
    void isolate_answers(std::size_t i);    ///< It hears its peers, and they do not hear it.
    void cut_client(std::size_t i);         ///< From the tests. Its peers reach it.
    void cut_client_answers(std::size_t i); ///< It hears the tests, and they do not hear it.
    void heal();                            ///< All of them.

    // The cluster

    /// Which one leads, as those of the highest term know. Waits until there is one.
    std::size_t leader() const;
    /// Waits until another one leads.
    std::size_t leader_after(std::size_t old) const;
    /// Adds a member that does not vote, and waits until it has joined. @returns Its index.
    std::size_t add_learner();
    /// Removes a member, and waits until its process has ended.
    void remove(std::size_t i);
    /// Waits until all members serve requests, under one leader.
    void wait_healthy() const;
    std::string version(std::size_t i) const; ///< Of a member, as 3.5.35.
    /// Waits until the cluster is of a minor version, as 3.5, which it is some time after the last
    /// one of its members.
    void wait_version(const std::string& minor) const;
    /// Has the cluster become one of the minor version before its own, and waits until it is.
    void downgrade(const std::string& minor) const;
    /// Waits until each member has stored a snapshot of all that was done before this call.
    void wait_snapshots() const;

    // Whether a fault bites

    /// How many packets were lost so far by what was done to the network.
    std::uint64_t dropped(std::size_t i) const;
    /// Whether it takes part in a cluster that has a quorum. Up to two seconds.
    bool healthy(std::size_t i) const;
    /// How many connections of the tests it has, as far as this end knows.
    std::size_t connections(std::size_t i) const;

private:
    struct member;

    const member& at(std::size_t i) const { return *members_.at(i); }
    member& at(std::size_t i) { return *members_.at(i); }
    member& create_member();
    void launch(member& m);
    void await_serving(member& m) const;
    void lose(std::size_t i, const std::string& chain, const std::string& which);
    std::string ask(const member& m, const std::string& path, const std::string& body = {}) const;
    bool serves(const member& m) const;
    std::size_t present_leader() const;
    bool agree(std::string& seen) const;

    std::filesystem::path directory_;
    std::string number_; // of this cluster, among those of this process
    std::vector<std::string> extra_arguments_;
    std::vector<std::unique_ptr<member>> members_;
};

/// An etcd of a minor version, as 3.5: the newest one that tests/run has built into this user's
/// cache, or the installed one. Empty if there is none.
std::string etcd_of(const std::string& minor);

} // namespace support
