// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/wire/headers.hpp>
#include <coetcd/observer.hpp>

#include <cstddef>
#include <string_view>

namespace coetcd {

COETCD_DECL bool request_headers::add(std::string_view name, std::string_view value) {
    constexpr std::size_t most = 4096;
    const std::size_t size = name.size() + value.size() + 4; // with ": " and the end of the line
    const bool fits = size <= most - lines_.size();
    if (!fits || !detail::wire::may_be_added(name) || !detail::wire::is_header_value(value)) {
        return false;
    }
    lines_.reserve(lines_.size() + size);
    lines_.append(name).append(": ").append(value).append("\r\n");
    return true;
}

} // namespace coetcd
