// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace coetcd::detail::wire {

/// Whether `text` may stand in a header: visible ASCII, space and tab. No CR, no LF, no zero.
inline bool is_header_value(std::string_view text) {
    return std::all_of(
        text.begin(), text.end(), [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; });
}

/// Whether two names of headers are the same: case does not matter.
inline bool is_same_name(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) {
        return lower(x) == lower(y);
    });
}

/// Whether a header of this name may be added to a request: letters, digits and `-`, and none that
/// the request has already, or that says how its body is sent.
inline bool may_be_added(std::string_view name) {
    constexpr std::string_view ours[] = {"Host",
                                         "Accept",
                                         "Authorization",
                                         "Connection",
                                         "Content-Length",
                                         "Content-Type",
                                         "Expect",
                                         "Grpc-Metadata-Authorization",
                                         "Grpc-Metadata-hasleader",
                                         "Grpc-Metadata-token",
                                         "Grpc-Timeout",
                                         "TE",
                                         "Trailer",
                                         "Transfer-Encoding",
                                         "Upgrade",
                                         "User-Agent"};
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-';
    };
    return !name.empty() && std::all_of(name.begin(), name.end(), is_plain) &&
           std::none_of(std::begin(ours), std::end(ours), [&](std::string_view each) {
               return is_same_name(each, name);
           });
}

} // namespace coetcd::detail::wire
