// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "connection.hpp"

namespace tool {

struct top_flags {
    std::string prefix;
    std::string order = "name"; ///< Or `waiters`, `token`.
    bool once = false;
    bool as_json = false;
};

/// A table of all locks, which follows what happens until q is typed.
boost::asio::awaitable<int> top(coetcd::client c, top_flags how);

/// Prints the holders and the waiters of one name.
boost::asio::awaitable<int> who(coetcd::client c, std::string name, bool as_json);

/// Asks each member how it is.
/// @returns `unavailable` if one does not answer.
boost::asio::awaitable<int> status(std::vector<connection::member> members, bool as_json);

/// Ends one ownership by force.
boost::asio::awaitable<int>
unlock(coetcd::client c, std::string name, std::int64_t token, bool without_asking);

} // namespace tool
