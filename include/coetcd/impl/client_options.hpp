// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client_options.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/secret.hpp>

#include <memory>
#include <stdexcept>
#include <utility>

namespace coetcd {

COETCD_DECL credentials::credentials(std::string user, std::string password)
    : user_(std::move(user)) {
    if (user_.empty()) {
        throw std::invalid_argument("user: is empty");
    }
    const auto kept = std::make_shared<const detail::secret>(std::move(password));
    password_ = [kept] { return kept->copy(); };
}

COETCD_DECL credentials::credentials(std::string user, std::function<std::string()> password)
    : user_(std::move(user))
    , password_(std::move(password)) {
    if (user_.empty()) {
        throw std::invalid_argument("user: is empty");
    }
    if (!password_) {
        throw std::invalid_argument("password: is an empty function");
    }
}

} // namespace coetcd
