// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// What `lock`, `elect` and `sem` have in common.
struct hold_options {
    std::string name;
    std::vector<std::string> command; ///< Empty: it is held until SIGINT or SIGTERM.
    double ttl = 10;
    std::string label; ///< Empty: the user, the machine and the process.
    double grace = 10;
    std::optional<double> timeout; ///< 0: do not wait.
    bool verbose = false;
};

struct lock_flags : hold_options {
    bool shared = false;
    std::optional<double> max_hold;
};

struct elect_flags : hold_options {
    std::string value;
};

struct semaphore_flags : hold_options {
    std::int64_t limit = 1;
    std::int64_t permits = 1;
};

/// Each takes something, runs the command, and gives it back.
/// @returns The exit status.
boost::asio::awaitable<int> lock(coetcd::client c, lock_flags how);
boost::asio::awaitable<int> elect(coetcd::client c, elect_flags how);
boost::asio::awaitable<int> take_permits(coetcd::client c, semaphore_flags how);

/// Prints each leader, and "nobody".
boost::asio::awaitable<int> listen(coetcd::client c, std::string name, bool as_json);

} // namespace tool
