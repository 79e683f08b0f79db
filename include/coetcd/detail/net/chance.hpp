// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <random>

#if __has_include(<sys/random.h>)
#include <sys/random.h>
#include <unistd.h>
#endif

namespace coetcd::detail::net {

/// From the system: what a processor gives by itself has been a constant after a suspend. Asked for
/// each time, so that a forked process does not draw its parent's numbers.
inline std::uint64_t system_random() {
    std::uint64_t number = 0;
#if __has_include(<sys/random.h>)
    if (::getentropy(&number, sizeof number) == 0) { // getrandom(2), on Linux
        return number;
    }
#endif
    std::random_device device("/dev/urandom");
    number = device();
    return (number << 32) | device();
}

} // namespace coetcd::detail::net
