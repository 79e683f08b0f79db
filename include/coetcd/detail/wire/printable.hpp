// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coetcd::detail::wire {

/// The size of the UTF-8 character at the front of `text`, which is not empty; 0 if it is malformed
/// or a control character.
inline std::size_t printable_character(std::string_view text) {
    const auto in = [&](std::size_t i, unsigned low, unsigned high) {
        const unsigned byte = i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
        return byte >= low && byte <= high;
    };
    if (in(0, 0x20, 0x7e)) {
        return 1;
    }
    if (in(0, 0xc2, 0xdf)) { // the first 32 are control characters
        return in(1, in(0, 0xc2, 0xc2) ? 0xa0 : 0x80, 0xbf) ? 2 : 0;
    }
    if (in(0, 0xe0, 0xef)) { // neither overlong nor a surrogate
        const unsigned low = in(0, 0xe0, 0xe0) ? 0xa0 : 0x80;
        const unsigned high = in(0, 0xed, 0xed) ? 0x9f : 0xbf;
        return in(1, low, high) && in(2, 0x80, 0xbf) ? 3 : 0;
    }
    if (in(0, 0xf0, 0xf4)) { // neither overlong nor above U+10ffff
        const unsigned low = in(0, 0xf0, 0xf0) ? 0x90 : 0x80;
        const unsigned high = in(0, 0xf4, 0xf4) ? 0x8f : 0xbf;
        return in(1, low, high) && in(2, 0x80, 0xbf) && in(3, 0x80, 0xbf) ? 4 : 0;
    }
    return 0;
}

/// Makes text from outside fit for a log: valid UTF-8, at most 256 bytes. White space other than
/// the space becomes a space; other control characters and malformed bytes become '?'.
inline std::string printable(std::string_view untrusted) {
    constexpr std::size_t limit = 256;
    std::string out;
    while (!untrusted.empty()) {
        const std::size_t size = printable_character(untrusted);
        if (out.size() + (size == 0 ? 1 : size) > limit) {
            break;
        }
        if (size != 0) {
            out += untrusted.substr(0, size);
            untrusted.remove_prefix(size);
            continue;
        }
        out += untrusted.front() >= '\t' && untrusted.front() <= '\r' ? ' ' : '?';
        untrusted.remove_prefix(1);
    }
    return out;
}

} // namespace coetcd::detail::wire
