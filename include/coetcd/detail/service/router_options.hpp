// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/members.hpp>
#include <coetcd/detail/wire/auth.hpp>
#include <coetcd/error.hpp>
#include <coetcd/observer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace coetcd::detail {

/// What a request is sent with.
struct authorization {
    error_code ec; ///< If set, why there is no token.
    std::string text;
    std::string token;        ///< Empty if none is needed.
    std::uint64_t number = 0; ///< The number of the token.
};

/// The options of a router, from `client_options`.
struct router_options {
    /// Makes the request for a token; empty without a user.
    std::function<wire::authenticate_request()> login;
    /// Gives the token itself; empty if etcd is asked for one, or none is needed.
    std::function<std::string()> token;
    std::chrono::nanoseconds login_timeout = std::chrono::seconds(5);
    /// For the router's own requests.
    std::chrono::nanoseconds attempt_timeout = std::chrono::seconds(2);
    /// How often the cluster is asked for its members; empty for never.
    std::optional<std::chrono::nanoseconds> member_refresh;
    logic::member_rules rules; ///< Which of them may be used.
    /// Whether members that were learned, not named, are asked for members, too.
    bool lists_from_learned = true;
    std::shared_ptr<coetcd::observer> observer;
};

} // namespace coetcd::detail
