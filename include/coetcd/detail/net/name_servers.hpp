// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/printable.hpp>

#include <boost/asio/ip/address.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace coetcd::detail::net {

namespace asio = boost::asio;

struct name_server {
    asio::ip::address address;
    std::uint16_t port = 53;

    /// For people.
    std::string text() const {
        const std::string host = address.to_string();
        return (address.is_v6() ? "[" + host + "]:" : host + ":") + std::to_string(port);
    }
    friend bool operator==(const name_server&, const name_server&) = default;
};

/// Reads "address", "address:port" or "[address]:port".
/// @returns Nothing if it is something else.
inline std::optional<name_server> read_name_server(std::string_view text) {
    name_server out;
    std::string_view host = text;
    std::string_view port;
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == text.npos) {
            return std::nullopt;
        }
        host = text.substr(1, end - 1);
        port = text.substr(end + 1);
    } else if (const std::size_t colon = text.find(':');
               colon != text.npos && text.find(':', colon + 1) == text.npos) {
        host = text.substr(0, colon);
        port = text.substr(colon);
    }
    if (!port.empty()) {
        const char* const end = port.data() + port.size();
        const auto [stop, failure] = std::from_chars(port.data() + 1, end, out.port);
        if (port[0] != ':' || failure != std::errc() || stop != end || out.port == 0) {
            return std::nullopt;
        }
    }
    boost::system::error_code no_address;
    out.address = asio::ip::make_address(std::string(host), no_address);
    return no_address ? std::nullopt : std::optional(out);
}

/// Reads those that a user has named.
/// @throws std::invalid_argument that says which one is wrong.
inline std::vector<name_server> read_name_servers(const std::vector<std::string>& named) {
    std::vector<name_server> out;
    for (const std::string& each : named) {
        const std::optional<name_server> server = read_name_server(each);
        if (!server) {
            throw std::invalid_argument("name_servers: \"" + wire::printable(each) +
                                        "\" is no address; expected one such as 10.0.0.2, "
                                        "10.0.0.2:53 or [fd00::2]:53");
        }
        out.push_back(*server);
    }
    return out;
}

/// The name servers of a resolv.conf: the first three, as libc has it; if there is none, the one of
/// this machine.
inline std::vector<name_server> name_servers_in(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    constexpr std::size_t most = 3;
    std::vector<name_server> out;
    while (!text.empty() && out.size() != most) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(line.size() + (line.size() < text.size() ? 1 : 0));
        constexpr std::string_view keyword = "nameserver";
        if (!line.starts_with(keyword)) {
            continue;
        }
        line.remove_prefix(keyword.size());
        const std::size_t begin = line.find_first_not_of(blanks);
        if (begin == line.npos || begin == 0) {
            continue;
        }
        line.remove_prefix(begin);
        boost::system::error_code no_address;
        name_server server;
        server.address = asio::ip::make_address(
            std::string(line.substr(0, line.find_first_of(blanks))), no_address);
        if (!no_address) {
            out.push_back(server);
        }
    }
    if (out.empty()) {
        out.emplace_back();
        out.back().address = asio::ip::address_v4::loopback();
    }
    return out;
}

/// The name servers of the system, as it names them now.
inline std::vector<name_server> system_name_servers(const char* file = "/etc/resolv.conf") {
    std::string text(std::size_t{16} * 1024, '\0'); // the rest would be no resolv.conf
    std::ifstream in(file, std::ios::binary);
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(in.gcount()));
    return name_servers_in(text);
}

} // namespace coetcd::detail::net
