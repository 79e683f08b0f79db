// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <string>
#include <vector>

namespace coetcd::detail::wire {

struct member {
    std::vector<std::string> client_urls; ///< None: it has not been started yet.
    bool is_learner = false;
};

struct member_list_response {
    response_header header;
    std::vector<member> members;
};

} // namespace coetcd::detail::wire
