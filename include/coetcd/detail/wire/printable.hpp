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

/// Whether a character of UTF-8 deceives who reads a text: it is not seen, so that two names look
/// alike, or it changes in what direction, or in which line, the text around it is read.
inline bool is_deceptive(std::string_view character) {
    const auto in = [&](std::string_view low, std::string_view high) {
        return character.size() == low.size() && character >= low && character <= high;
    };
    return character == "\xc2\xad" ||                  // U+00ad, the soft hyphen
           character == "\xd8\x9c" ||                  // U+061c, the Arabic letter mark
           character == "\xe1\xa0\x8e" ||              // U+180e, a separator of no width
           in("\xe2\x80\x8b", "\xe2\x80\x8f") ||       // U+200b to U+200f: no width; directions
           in("\xe2\x80\xa8", "\xe2\x80\xae") ||       // U+2028 and U+2029 end lines; directions
           in("\xe2\x81\xa0", "\xe2\x81\xaf") ||       // U+2060 to U+206f: likewise
           character == "\xef\xbb\xbf" ||              // U+feff, the byte order mark
           in("\xf3\xa0\x80\x80", "\xf3\xa0\xbf\xbf"); // U+e0000 to U+e0fff: tags
}

/// Makes text from outside fit for a log: valid UTF-8, at most 256 bytes. White space other than
/// the space becomes a space; other control characters, those of Unicode that deceive, and
/// malformed bytes become '?'.
inline std::string printable(std::string_view untrusted) {
    constexpr std::size_t limit = 256;
    std::string out;
    while (!untrusted.empty()) {
        const std::size_t size = printable_character(untrusted);
        const bool replaced = size == 0 || is_deceptive(untrusted.substr(0, size));
        if (out.size() + (replaced ? 1 : size) > limit) {
            break;
        }
        if (size != 0) {
            out += replaced ? "?" : untrusted.substr(0, size);
            untrusted.remove_prefix(size);
            continue;
        }
        out += untrusted.front() >= '\t' && untrusted.front() <= '\r' ? ' ' : '?';
        untrusted.remove_prefix(1);
    }
    return out;
}

} // namespace coetcd::detail::wire
