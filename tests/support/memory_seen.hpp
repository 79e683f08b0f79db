// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <malloc.h>
#include <new>

// Shows a program all the memory that it takes and gives back. To be included by one of its files,
// which defines the first two.
namespace support {

void memory_taken(void* at, std::size_t size) noexcept;
/// Before it is given back; what it holds is still there.
void memory_given_back(void* at, std::size_t size) noexcept;

inline void* take_memory(std::size_t size) noexcept {
    void* const at = std::malloc(size);
    if (at) {
        memory_taken(at, ::malloc_usable_size(at));
    }
    return at;
}
inline void* take_memory_or_throw(std::size_t size) {
    if (void* const at = take_memory(size)) {
        return at;
    }
    throw std::bad_alloc();
}
inline void give_memory_back(void* at) noexcept {
    if (at) {
        memory_given_back(at, ::malloc_usable_size(at));
    }
    std::free(at);
}

} // namespace support

void* operator new(std::size_t size) {
    return support::take_memory_or_throw(size);
}
void* operator new[](std::size_t size) {
    return support::take_memory_or_throw(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return support::take_memory(size);
}
void operator delete(void* at) noexcept {
    support::give_memory_back(at);
}
void operator delete[](void* at) noexcept {
    support::give_memory_back(at);
}
void operator delete(void* at, std::size_t) noexcept {
    support::give_memory_back(at);
}
void operator delete[](void* at, std::size_t) noexcept {
    support::give_memory_back(at);
}
void operator delete(void* at, const std::nothrow_t&) noexcept {
    support::give_memory_back(at);
}
