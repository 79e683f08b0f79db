// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
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

/// The number of a character that `printable_character` accepts.
inline char32_t code_point(std::string_view character) {
    const auto bits = [&](std::size_t i, unsigned mask) {
        return static_cast<char32_t>(static_cast<unsigned char>(character[i]) & mask);
    };
    switch (character.size()) {
    case 1:
        return bits(0, 0x7f);
    case 2:
        return bits(0, 0x1f) << 6 | bits(1, 0x3f);
    case 3:
        return bits(0, 0x0f) << 12 | bits(1, 0x3f) << 6 | bits(2, 0x3f);
    default:
        return bits(0, 0x07) << 18 | bits(1, 0x3f) << 12 | bits(2, 0x3f) << 6 | bits(3, 0x3f);
    }
}

/// Whether a character deceives the reader of a text: it is not visible, so that two names look
/// alike, or it changes the direction, or the line, in which the text around it is read. These are
/// the characters that Unicode shows as nothing (`Default_Ignorable_Code_Point`) or calls formats
/// (`Cf`), those that end a line, blanks that are not spaces, and noncharacters.
inline bool is_deceptive(char32_t c) {
    struct range {
        char32_t first;
        char32_t last;
    };
    static constexpr range ranges[] = {
        {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},     {0x61c, 0x61c},
        {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
        {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},
        {0x2028, 0x202e},   {0x2060, 0x206f},   {0x2800, 0x2800},   {0x3164, 0x3164},
        {0xfdd0, 0xfdef},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
        {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
        {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
    };
    const bool is_none = (c & 0xfffe) == 0xfffe;
    return is_none || std::any_of(std::begin(ranges), std::end(ranges), [c](const range& r) {
               return c >= r.first && c <= r.last;
           });
}

/// Makes text from outside fit for a log: valid UTF-8, at most 256 bytes. White space other than
/// the space becomes a space; other control characters, deceptive characters of Unicode, and
/// malformed bytes become '?'.
inline std::string printable(std::string_view untrusted) {
    constexpr std::size_t limit = 256;
    std::string out;
    while (!untrusted.empty()) {
        const std::size_t size = printable_character(untrusted);
        const bool replaced = size == 0 || is_deceptive(code_point(untrusted.substr(0, size)));
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
