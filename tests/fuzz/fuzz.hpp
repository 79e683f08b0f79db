// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <cstdlib>

namespace fuzz {

/// A property that must hold for every input.
inline void require(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    if (!holds) {
        std::fprintf(stderr, "%s:%d: a property does not hold\n", file, line);
        std::abort();
    }
}

} // namespace fuzz
