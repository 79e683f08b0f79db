// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <stdexcept>
#include <string>

namespace coetcd::detail::logic {

/// @throws std::invalid_argument if nothing can be called so.
inline void require_name(const std::string& name) {
    if (name.empty()) {
        throw std::invalid_argument("name: is empty");
    }
    if (name.size() > 512) {
        throw std::invalid_argument("name: is longer than 512 bytes");
    }
}

/// What a user needs who was denied the lock of a name: no more than the keys of its queue, and the
/// epochs.
inline std::string needed_permission(const std::string& name) {
    return "its user needs to read and write the keys from \"" + name +
           ".\" up to, but not including, \"" + name + "0\"";
}

} // namespace coetcd::detail::logic
