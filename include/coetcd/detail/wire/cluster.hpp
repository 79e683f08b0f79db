// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace coetcd::detail::wire {

struct member {
    std::vector<std::string> client_urls; ///< None: it has not been started yet.
    bool is_learner = false;
    std::uint64_t id = 0;
    std::string name; ///< Empty: it has not been started yet.
    std::vector<std::string> peer_urls;
};

/// Asks for the members of the cluster, by a linearizable read.
struct member_list_request {};

struct member_list_response {
    response_header header;
    std::vector<member> members;
};

/// Asks the member that answers for its own state.
struct status_request {};

} // namespace coetcd::detail::wire
