// SPDX-License-Identifier: BSL-1.0
#include <atomic>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "harness.hpp"

// This program's own clock_gettime and the like take the place of the C library's, also for the C++
// library: a wall clock that can be moved for this process alone.

namespace {

std::atomic<time_t> shift{0};

timespec shifted() {
    timespec t{};
    ::syscall(SYS_clock_gettime, CLOCK_REALTIME, &t);
    t.tv_sec += shift;
    return t;
}

} // namespace

extern "C" int clock_gettime(clockid_t which, timespec* t) noexcept {
    const auto result = static_cast<int>(::syscall(SYS_clock_gettime, which, t));
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        t->tv_sec += shift;
    }
    return result;
}

extern "C" int gettimeofday(timeval* t, void*) noexcept {
    const timespec now = shifted();
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

extern "C" time_t time(time_t* t) noexcept {
    const timespec now = shifted();
    if (t != nullptr) {
        *t = now.tv_sec;
    }
    return now.tv_sec;
}

void faults::shift_wall_clock(std::chrono::seconds by) {
    shift = by.count();
}
