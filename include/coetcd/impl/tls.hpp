// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/tls/context.hpp>
#include <coetcd/tls.hpp>

#include <memory>

namespace coetcd {

COETCD_DECL std::shared_ptr<const tls_context> make_tls(tls_options options) {
    using namespace detail::tls;
    return std::make_shared<const layer>(make_context(options), checked_name(options));
}

} // namespace coetcd
