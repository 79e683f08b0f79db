// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/secret.hpp>
#include <coetcd/kv.hpp>

#include <string>
#include <utility>

namespace coetcd::detail::wire {

/// Asks for a token. Its text holds the password, and must be wiped.
struct authenticate_request {
    authenticate_request(std::string user, secret its_password)
        : name(std::move(user))
        , password(std::move(its_password)) {}
    std::string name;
    secret password;
};

struct authenticate_response {
    response_header header;
    std::string token;
};

} // namespace coetcd::detail::wire
