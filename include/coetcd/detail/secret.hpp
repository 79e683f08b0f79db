// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Overwrites memory that nobody will read again. A compiler would leave out a plain `memset`.
inline void wipe(char* data, std::size_t size) noexcept {
    void* (*volatile const set)(void*, int, std::size_t) = &std::memset; // compilers cannot know it
    if (size != 0) {
        set(data, 0, size);
    }
}

/// Empties a string, and leaves nothing of it in its memory.
inline void wipe(std::string& text) noexcept {
    text.resize(text.capacity()); // does not allocate
    wipe(text.data(), text.size());
    text.clear();
}

/// Wipes a string at the end of a block.
class wipe_at_end {
public:
    explicit wipe_at_end(std::string& text)
        : text_(text) {}
    ~wipe_at_end() { wipe(text_); }
    wipe_at_end(const wipe_at_end&) = delete;
    wipe_at_end& operator=(const wipe_at_end&) = delete;

private:
    std::string& text_;
};

/// Text that is wiped when it is destroyed, and is copied only explicitly. Not a `std::string`,
/// whose moves leave short texts behind.
class secret {
public:
    secret() = default;
    /// Wipes `text`.
    explicit secret(std::string&& text)
        : bytes_(text.begin(), text.end()) {
        wipe(text);
    }
    secret(secret&& other) noexcept
        : bytes_(std::exchange(other.bytes_, {})) {}
    secret& operator=(secret&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~secret() { wipe(bytes_.data(), bytes_.size()); }

    /// A copy, which the caller must wipe.
    std::string copy() const { return std::string(bytes_.begin(), bytes_.end()); }
    /// Valid until this is changed or destroyed.
    std::string_view view() const { return std::string_view(bytes_.data(), bytes_.size()); }

private:
    std::vector<char> bytes_;
};

} // namespace coetcd::detail
