// SPDX-License-Identifier: BSL-1.0
#include "output.hpp"

#include <coetcd/printable.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string>

namespace tool {

void say(std::string_view line) {
    const bool written = std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
                         std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
    if (!written) {
        throw output_error(std::string("standard output: ") + std::strerror(errno));
    }
}

void note(std::string_view line) {
    std::fprintf(stderr, "coetcd: %.*s\n", static_cast<int>(line.size()), line.data());
}

std::string printed(std::string_view untrusted) {
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
    std::string all;
    while (!untrusted.empty()) { // in pieces that are not cut, which end with a character
        std::size_t size = std::min<std::size_t>(untrusted.size(), 250);
        while (size != untrusted.size() && size > 240 && continues(untrusted[size])) {
            --size;
        }
        all += coetcd::printable(untrusted.substr(0, size));
        untrusted.remove_prefix(size);
    }
    return all;
}

std::string in_flags(std::string text) {
    constexpr std::array<std::array<std::string_view, 2>, 8> anywhere{{
        {", or set tls_options::server_name", ""},
        {"tls_options::ca_file", "--cacert"},
        {"tls_options::certificate_file and key_file", "--cert and --key"},
        {"set insecure_plain_text_credentials", "set --plain-text-password"},
        {"set client_options::credentials", "use --user"},
        {"the key of certificate_file:", "the key of --cert:"},
        {"is encrypted: set passphrase", "is encrypted: decrypt it, as with openssl pkey"},
        {"; raise it in client_options, or read in pages", ""},
    }};
    for (const auto& [option, flag] : anywhere) {
        std::size_t at = text.find(option);
        while (at != text.npos) {
            text.replace(at, option.size(), flag);
            at = text.find(option, at + flag.size());
        }
    }
    constexpr std::array<std::array<std::string_view, 2>, 8> in_front{{
        {"endpoints:", "--endpoints:"},
        {"ca_file:", "--cacert:"},
        {"certificate_file:", "--cert:"},
        {"key_file:", "--key:"},
        {"ttl:", "--ttl:"},
        {"name:", "NAME:"},
        {"initial_limit:", "the number of permits:"},
        {"n:", "--permits:"},
    }};
    for (const auto& [option, flag] : in_front) {
        if (text.starts_with(option)) {
            text.replace(0, option.size(), flag);
        }
    }
    return text;
}

std::string hex(std::int64_t lease) {
    std::ostringstream text;
    text << std::hex << std::setfill('0') << std::setw(16) << lease;
    return text.str();
}

std::string text_of(const nlohmann::json& j) {
    return j.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

} // namespace tool
