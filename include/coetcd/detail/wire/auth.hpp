// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <string>

namespace coetcd::detail::wire {

struct authenticate_response {
    response_header header;
    std::string token;
};

} // namespace coetcd::detail::wire
