// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace coetcd {

/// How a lock is held.
enum class lock_mode {
    exclusive, ///< By one owner alone, to write.
    shared,    ///< By any number of owners at a time, to read.
};

/// The name of the enumerator.
inline const char* to_string(lock_mode m) noexcept {
    switch (m) {
    case lock_mode::exclusive:
        return "exclusive";
    case lock_mode::shared:
        return "shared";
    }
    return "unknown";
}

} // namespace coetcd
