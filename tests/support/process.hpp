// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace support {

struct process_options {
    std::vector<std::string> environment{}; ///< `NAME=value`, added to what the parent has.
    std::string output_file{};              ///< Where output is appended; empty: the parent's.
    bool capture = false;                   ///< Stdout is a pipe, for `read_line` and `read_all`.
    int network = -1; ///< See `network_namespace::descriptor`; -1: the parent's.
};

/// A child process, killed by the destructor and when this process dies.
///
/// It inherits no descriptor but the standard ones, and stdin is /dev/null. ETCD_* and ETCDCTL_*
/// variables of this process are hidden from it.
class background_process {
public:
    /// @throws std::runtime_error if the program cannot be started.
    explicit background_process(const std::vector<std::string>& argv, process_options options = {});
    background_process(background_process&& other) noexcept;
    background_process& operator=(background_process&& other) noexcept;
    ~background_process();

    pid_t pid() const { return pid_; }
    bool running();

    /// Sends a signal; does nothing if the process has ended.
    void signal(int number);

    /// The exit code, or 128 + the signal that ended it; empty if it still runs after `timeout`.
    std::optional<int> wait_for(std::chrono::milliseconds timeout);
    int wait();
    boost::asio::awaitable<int> async_wait();

    /// The next line of stdout without its end; empty at the end of the output.
    /// @throws std::runtime_error if there is none after `timeout`.
    std::optional<std::string> read_line(std::chrono::milliseconds timeout);
    boost::asio::awaitable<std::optional<std::string>> async_read_line();

    /// All that is left of stdout, until it is closed.
    std::string read_all();

private:
    bool reap(bool block);
    bool fill();
    std::optional<std::string> take_line();

    pid_t pid_ = -1;
    int pidfd_ = -1;
    int output_ = -1;
    std::string buffer_;
    std::optional<int> status_;
};

struct process_result {
    int exit_code = -1;
    std::string output; ///< stdout only; stderr is the parent's unless `output_file` is set.
};

/// Runs a program to its end.
/// @throws std::runtime_error if it has not ended after `timeout`.
process_result run_process(const std::vector<std::string>& argv,
                           process_options options = {},
                           std::chrono::milliseconds timeout = std::chrono::seconds(30));

} // namespace support
