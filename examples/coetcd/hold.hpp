// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
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
    bool keep_password = false; ///< In the command's environment.
    double max_hold = 0;        ///< 0: without a limit.
};

struct lock_flags : hold_options {
    bool shared = false;
};

struct elect_flags : hold_options {
    std::string value;
};

struct semaphore_flags : hold_options {
    std::int64_t limit = 1;
    std::int64_t permits = 1;
};

/// Says of each endpoint why it cannot be connected to: each reason once, until it can.
/// @returns What is to observe the client; null if nothing is to be told.
std::shared_ptr<coetcd::observer> troubles_if(bool told);

/// Each takes something, runs the command, and gives it back.
/// @returns The exit status.
boost::asio::awaitable<int> lock(coetcd::client c, lock_flags how);
boost::asio::awaitable<int> elect(coetcd::client c, elect_flags how);
boost::asio::awaitable<int> take_permits(coetcd::client c, semaphore_flags how);

/// Changes the limit of a semaphore, for all.
boost::asio::awaitable<int> set_limit(coetcd::client c, std::string name, std::int64_t limit);

/// Asks the holder of a lock to give it back, and prints its token.
/// @param ttl How long the request stands, in seconds.
boost::asio::awaitable<int> ask(coetcd::client c, std::string name, double ttl);

/// Prints each leader, and "nobody".
boost::asio::awaitable<int> listen(coetcd::client c, std::string name, bool as_json);

} // namespace tool
