// SPDX-License-Identifier: BSL-1.0
// Any bytes as an endpoint: one that can neither break a header nor hide a password, or an error
// that names no password.
#include <coetcd/detail/logic/endpoint.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz/fuzz.hpp"

using coetcd::detail::logic::endpoint;
using coetcd::detail::logic::parse_endpoint;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view url(reinterpret_cast<const char*>(data), size);
    const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
    try {
        const endpoint e = parse_endpoint(url);
        const std::string host = e.authority();
        fuzz::require(std::all_of(host.begin(), host.end(), visible));
        fuzz::require(host.find_first_of("@/?#\"\\<>") == host.npos);
        fuzz::require(!e.host.empty() && e.port != 0);
        fuzz::require(parse_endpoint(e.text()) == e);
    } catch (const std::invalid_argument& e) {
        const std::string text = e.what();
        fuzz::require(std::none_of(text.begin(), text.end(), [](char c) {
            return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
        }));
        // What stands before the last @ may be a password.
        if (url.find('@') != url.npos) {
            fuzz::require(text.starts_with("endpoints: \"...@"));
        }
    }
    return 0;
}
