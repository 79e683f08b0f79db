// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/tls_options.hpp>

#include <optional>
#include <string>

namespace coetcd {

COETCD_DECL tls_options::~tls_options() {
    for (std::optional<std::string>* secret : {&key, &passphrase}) {
        if (*secret) {
            detail::wipe(**secret);
        }
    }
}

} // namespace coetcd
