// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>

namespace fuzz {

/// A property that must hold for every input.
inline void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

} // namespace fuzz
