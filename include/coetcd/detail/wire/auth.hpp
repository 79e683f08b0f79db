// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/secret.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
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

/// The longest token of a user: each request carries it in the header, whose size servers limit.
inline constexpr std::size_t max_token = 4096;

/// Whether it may be a token: it becomes a header.
inline bool is_token(std::string_view text) {
    return !text.empty() && text.size() <= max_token &&
           std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

struct authenticate_response {
    response_header header;
    std::string token;
};

} // namespace coetcd::detail::wire
