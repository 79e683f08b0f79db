// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/tls/context.hpp>
#include <coetcd/detail/tls/layer.hpp>
#include <coetcd/tls.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd {

COETCD_DECL std::shared_ptr<const tls_context> make_tls(tls_options options) {
    using namespace detail::tls;
    std::optional<std::string> name = checked_name(options);
    return std::make_shared<const layer>(std::move(options), std::move(name));
}

} // namespace coetcd
