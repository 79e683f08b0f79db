// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "support/certificates.hpp"
#include "support/process.hpp"
#include "support/server_log.hpp"

namespace support {

/// How a server speaks TLS.
struct server_tls {
    certificate own;         ///< Good for a client as well: see `certificate_request::usage`.
    std::string client_ca{}; ///< A file. Clients must have a certificate of this authority.
};

/// What tells one etcd from others, on its command line.
struct etcd_place {
    std::string name{};
    std::filesystem::path data{};
    std::string client_url{};
    std::string peer_url{};
    std::string cluster{}; ///< `name=peer_url`, of all members, with commas.
    bool joins = false;    ///< Else it is one of the first members.
};

/// The command line of an etcd that logs to stderr.
std::vector<std::string> etcd_argv(const etcd_place& place);

/// An etcd of one's own: a child process on free loopback ports with a temporary data directory.
///
/// The variables COETCD_ETCD and COETCD_ETCDCTL name other programs than `etcd` and `etcdctl`. All
/// functions block, and may be called by any thread. If a test fails, the log is printed.
class etcd_server {
public:
    /// Starts the server and waits until it serves requests.
    /// @param extra_arguments Appended to the command line, so that they override ours.
    /// @throws std::runtime_error with the end of the server's log.
    /// @param tls What makes it an https server.
    explicit etcd_server(std::vector<std::string> extra_arguments = {},
                         std::optional<server_tls> tls = {});
    etcd_server(const etcd_server&) = delete;
    etcd_server& operator=(const etcd_server&) = delete;
    /// Kills the server and removes its data.
    ~etcd_server();

    /// `http://127.0.0.1:<port>`, or with https.
    std::string url() const;
    /// The same, with the name of the host.
    std::string url_by_name() const;
    std::uint16_t port() const { return client_port_; }
    const std::string& name() const { return name_; }
    pid_t pid() const { return process_->pid(); }

    void stop();    ///< SIGTERM; returns when it has ended. Continues a paused server first.
    void kill();    ///< SIGKILL; returns when it has ended.
    void pause();   ///< SIGSTOP; returns when it has stopped.
    void resume();  ///< SIGCONT.
    void start();   ///< After `stop` or `kill`: on the same ports and data. Waits until it serves.
    void restart(); ///< `stop` and `start`.

    /// With TLS: shows this certificate from now on, in new connections.
    void show(const certificate& other) const;

    /// Runs etcdctl (v3) against this server, to its end. Its stderr goes to the server's log.
    process_result etcdctl(const std::vector<std::string>& arguments) const;

    /// Starts etcdctl (v3) against this server; its stdout is captured.
    background_process background_etcdctl(const std::vector<std::string>& arguments) const;

    /// What the server, and etcdctl, have logged so far.
    std::string log() const;

private:
    void choose_ports();
    void launch();
    bool wait_until_ready();
    bool is_ready() const;
    std::string log_tail() const;
    std::vector<std::string> etcdctl_argv(const std::vector<std::string>& arguments) const;

    std::vector<std::string> extra_arguments_;
    std::optional<server_tls> tls_;
    std::string name_;
    std::filesystem::path directory_;
    std::uint16_t client_port_ = 0;
    std::uint16_t peer_port_ = 0;
    std::optional<background_process> process_;
    std::optional<server_log> log_; // once it was ready
};

/// The one server that all tests of this binary may share, started by the first call. Tests leave
/// no key behind and use names of their own; a test that stops or pauses a server starts
/// another one.
etcd_server& shared_etcd();

} // namespace support
