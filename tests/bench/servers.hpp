// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "support/process.hpp"

namespace bench {

using nlohmann::json;

/// The programs that take part.
struct programs {
    std::string self;
    std::string go;                 ///< Of the Go client; empty if there is none.
    std::string redis;              ///< Empty if there is none.
    std::vector<std::string> etcds; ///< Paths or names.
};

/// What a program says with `--version`, its first line; empty if it cannot be started.
std::string version_line(const std::string& program);

/// Such as 3.4.23.
/// @throws std::runtime_error if it is no etcd.
std::string version_of(const std::string& etcd);

/// A worker process, which prints lines of JSON.
class worker_process {
public:
    worker_process(const programs& all, const json& task);
    /// Reads the next line.
    /// @throws std::runtime_error with the worker's words if it has failed, or prints nothing for
    ///   as long as `patience`.
    json next(std::chrono::seconds patience);

private:
    std::string title_;
    support::background_process process_;
};

/// A Redis of one's own, that stores nothing.
class redis_server {
public:
    explicit redis_server(const std::string& program);
    std::uint16_t port() const { return port_; }
    pid_t pid() const { return process_->pid(); }

private:
    std::uint16_t port_ = 0;
    std::optional<support::background_process> process_;
};

/// Whether strace is there, and can delay what a process writes to disk.
bool delays_fsync();

/// The etcd and the Redis of one case, started when they are first needed.
class servers {
public:
    /// @param fsync_ms How long each write of etcd's log takes, at the least: see `delays_fsync`.
    /// @param members More than one: a cluster.
    servers(const programs& all, std::string etcd, int fsync_ms = 0, int members = 1);
    ~servers();
    std::string etcd_url(); ///< Of the first member.
    pid_t etcd_pid();       ///< Likewise.
    redis_server& redis();
    /// The urls of all members, with commas.
    /// @param round_trip That proxies add, if it is not 0.
    std::string urls(std::chrono::milliseconds round_trip);
    /// Starts `count` other writes a second.
    void start_writes(std::size_t count);
    void stop_writes();

private:
    void start_members();
    std::string write_slow_etcd();

    const programs& all_;
    std::string program_;
    int fsync_ms_;
    int members_;
    std::filesystem::path directory_; ///< With the data, and the program that starts a slow etcd.
    struct member {
        std::string url;
        support::background_process process;
    };
    std::deque<member> etcds_;
    std::optional<redis_server> redis_;
    std::deque<worker_process> delays_;
    std::optional<worker_process> writer_;
};

/// A FIFO at which worker processes wait, to start together: see `pass_gate`.
class start_gate {
public:
    start_gate();
    start_gate(const start_gate&) = delete;
    start_gate& operator=(const start_gate&) = delete;
    ~start_gate();
    const std::filesystem::path& path() const { return path_; }
    void open();

private:
    std::filesystem::path path_;
    int descriptor_ = -1;
};

} // namespace bench
