// SPDX-License-Identifier: BSL-1.0
#include "memory/scarce.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <execinfo.h>
#include <new>
#include <utility>

namespace scarce {

namespace {

bool armed = false;
bool failed = false;
long left = 0;
long next = 0; // how many are made then before another one fails
void* trace[60];
int traced = 0;

bool fails() {
    if (!armed || !counts || !counts()) {
        return false;
    }
    if (left != 0) {
        --left;
        return false;
    }
    left = std::exchange(next, 0);
    armed = left != 0;
    if (std::exchange(failed, true)) {
        return true;
    }
    traced = backtrace(trace, static_cast<int>(std::size(trace)));
    return true;
}

void* take(std::size_t size, std::size_t alignment = sizeof(void*)) noexcept {
    if (fails()) {
        return nullptr;
    }
    void* p = nullptr;
    const std::size_t whole = std::max<std::size_t>(size, 1);
    return ::posix_memalign(&p, std::max(alignment, sizeof(void*)), whole) == 0 ? p : nullptr;
}

void* take_or_throw(std::size_t size, std::size_t alignment = sizeof(void*)) {
    void* const p = take(size, std::max(alignment, alignof(std::max_align_t)));
    if (!p) {
        throw std::bad_alloc();
    }
    return p;
}

} // namespace

bool (*counts)() = nullptr;

void fail_after(long n, long then) {
    void* once[1];
    (void)backtrace(once, 1); // what it needs, it loads now
    left = n;
    next = then;
    failed = false;
    armed = true;
}

void enough() {
    armed = false;
}

bool has_failed() {
    return failed;
}

void show() {
    backtrace_symbols_fd(trace, traced, 2);
}

} // namespace scarce

void* operator new(std::size_t size) {
    return scarce::take_or_throw(size);
}
void* operator new[](std::size_t size) {
    return scarce::take_or_throw(size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return scarce::take_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return scarce::take_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return scarce::take(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return scarce::take(size, alignof(std::max_align_t));
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
    std::free(p);
}

/// Asio's handlers and frames.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    return scarce::take(size, alignment);
}
