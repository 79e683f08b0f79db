// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace coetcd::detail::wire {

inline constexpr std::string_view base64_alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The six bits of each character of the standard and the URL alphabet; 0xff for any other.
inline constexpr auto base64_values = [] {
    std::array<std::uint8_t, 256> values{};
    values.fill(0xff);
    for (std::size_t i = 0; i != base64_alphabet.size(); ++i) {
        values[static_cast<unsigned char>(base64_alphabet[i])] = static_cast<std::uint8_t>(i);
    }
    values['-'] = 62;
    values['_'] = 63;
    return values;
}();

/// Appends `bytes` in the standard alphabet, padded: the only form that every gateway reads.
inline void append_base64(std::string& out, std::string_view bytes) {
    const std::size_t start = out.size();
    out.resize(start + (bytes.size() + 2) / 3 * 4);
    char* to = out.data() + start;
    const auto byte = [&](std::size_t i) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
    };
    const auto put = [&](std::uint32_t group, unsigned characters) {
        for (unsigned i = 0; i != 4; ++i) {
            *to++ = i < characters ? base64_alphabet[group >> (18 - 6 * i) & 63] : '=';
        }
    };
    std::size_t i = 0;
    for (; bytes.size() - i >= 3; i += 3) {
        put(byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2), 4);
    }
    if (bytes.size() - i == 2) {
        put(byte(i) << 16 | byte(i + 1) << 8, 3);
    } else if (bytes.size() - i == 1) {
        put(byte(i) << 16, 2);
    }
}

/// Replaces `out` by the bytes that `text` stands for, in either alphabet, padded or not.
/// @returns False, with `out` unspecified, for anything that no encoder writes.
inline bool decode_base64(std::string_view text, std::string& out) {
    if (text.size() % 4 == 0 && text.ends_with('=')) {
        text.remove_suffix(text.ends_with("==") ? 2 : 1);
    }
    const std::size_t rest = text.size() % 4;
    if (rest == 1) {
        return false;
    }
    out.resize(text.size() / 4 * 3 + (rest == 0 ? 0 : rest - 1));
    char* to = out.data();
    const auto value = [&](std::size_t i) -> std::uint32_t {
        return base64_values[static_cast<unsigned char>(text[i])];
    };
    std::size_t i = 0;
    for (; text.size() - i >= 4; i += 4) {
        const std::uint32_t a = value(i), b = value(i + 1), c = value(i + 2), d = value(i + 3);
        if ((a | b | c | d) > 63) {
            return false;
        }
        *to++ = static_cast<char>(a << 2 | b >> 4);
        *to++ = static_cast<char>(b << 4 | c >> 2);
        *to++ = static_cast<char>(c << 6 | d);
    }
    if (rest == 0) {
        return true;
    }
    const std::uint32_t a = value(i), b = value(i + 1), c = rest == 3 ? value(i + 2) : 0;
    const std::uint32_t unused = rest == 3 ? c & 3 : b & 15; // zero if an encoder wrote them
    if ((a | b | c) > 63 || unused != 0) {
        return false;
    }
    *to++ = static_cast<char>(a << 2 | b >> 4);
    if (rest == 3) {
        *to = static_cast<char>(b << 4 | c >> 2);
    }
    return true;
}

} // namespace coetcd::detail::wire
