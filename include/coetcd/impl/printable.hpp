// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/printable.hpp>

namespace coetcd {

COETCD_DECL std::string printable(std::string_view untrusted) {
    return detail::wire::printable(untrusted);
}

} // namespace coetcd
