// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/signal_set.hpp>

#include <chrono>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace tool {

/// A program that runs in a process group of its own, with our terminal if we have one. Signals
/// that we get are passed on to it.
///
/// On Linux the kernel kills it if we are killed. Elsewhere it goes on then.
class child {
public:
    using variables = std::vector<std::pair<std::string, std::string>>;

    /// Starts it.
    /// @param more For its environment.
    /// @throws std::system_error if there can be no process.
    child(boost::asio::any_io_executor executor,
          const std::vector<std::string>& command,
          const variables& more);
    child(const child&) = delete;
    child& operator=(const child&) = delete;
    /// Kills it.
    ~child();

    /// Whether there is one, that gets the signals.
    static bool is_running() { return running_ != 0; }

    /// Runs it to its end. Cancelled: stops it, with SIGTERM, and after `grace` with SIGKILL.
    /// @returns The exit status as a shell tells it: 128 and the signal that ended it, 127 if there
    ///   is no such program, 126 if it cannot be run.
    static boost::asio::awaitable<int> run(child& self, std::chrono::milliseconds grace);

private:
    boost::asio::awaitable<int> wait();
    boost::asio::awaitable<int> stop(std::chrono::milliseconds grace);
    void signal(int number) const;
    bool reap();
    void give_terminal(pid_t group) const;
    /// Stops with it, and goes on with it.
    void stand_still();

    boost::asio::signal_set signals_;
    pid_t pid_ = -1;
    int status_ = -1; ///< -1: it still runs.
    bool has_terminal_ = false;
    static inline int running_ = 0;
};

} // namespace tool
