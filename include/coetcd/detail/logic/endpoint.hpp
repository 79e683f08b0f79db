// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/printable.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace coetcd::detail::logic {

/// Where an etcd listens.
struct endpoint {
    bool tls = false;
    std::string host; ///< A name or an address; only an IPv6 address has colons.
    std::uint16_t port = 0;

    friend bool operator==(const endpoint&, const endpoint&) = default;

    /// For people: `http://host:port`.
    std::string text() const { return (tls ? "https://" : "http://") + join(host); }
    /// The value of a Host header. A zone means nothing to others and is left out.
    std::string authority() const { return join(std::string_view(host).substr(0, host.find('%'))); }

private:
    std::string join(std::string_view name) const {
        const bool v6 = host.find(':') != host.npos;
        std::string out(v6 ? "[" : "");
        out += name;
        out += v6 ? "]:" : ":";
        return out += std::to_string(port);
    }
};

/// Whether this is an address such as 127.0.0.1: four numbers of at most 255.
inline bool is_ipv4(std::string_view host) {
    for (int i = 0; i != 4; ++i) {
        const auto number = host.substr(0, host.find('.'));
        unsigned value = 0;
        const char* const end = number.data() + number.size();
        const auto [stop, failure] = std::from_chars(number.data(), end, value);
        const bool octal = number.size() > 1 && number.front() == '0'; // to some parsers
        if (failure != std::errc() || stop != end || octal || value > 255) {
            return false;
        }
        host.remove_prefix(number.size());
        if (i == 3) {
            return host.empty();
        }
        host.remove_prefix(std::min<std::size_t>(host.size(), 1));
    }
    return false;
}

/// Whether requests to this endpoint stay on this machine, as far as its text tells. Where a name
/// leads is known only once it is looked up.
inline bool is_local(const endpoint& e) {
    return e.host == "localhost" || e.host == "::1" ||
           (e.host.starts_with("127.") && is_ipv4(e.host));
}

/// Whether the last part of a name, without a dot at its end, is a number: no name ends in one, and
/// resolvers take it for an address in one of several forms.
inline bool ends_in_number(std::string_view host) {
    if (host.ends_with('.')) {
        host.remove_suffix(1);
    }
    const auto last = host.substr(host.rfind('.') + 1); // all of it, without a dot
    return !last.empty() && last.find_first_not_of("0123456789") == last.npos;
}

/// True if `host` can neither break a header nor stand for anything but itself.
inline bool is_host(std::string_view host, bool v6) {
    constexpr std::string_view digits = "0123456789";
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const auto only = [](std::string_view text, auto... sets) {
        for (const char c : text) {
            if (!((sets.find(c) != sets.npos) || ...)) {
                return false;
            }
        }
        return !text.empty() && text.size() <= 253;
    };
    constexpr std::string_view marks = "-._";
    if (!v6) {
        // A host that begins with a dot would be taken for any name below it.
        return only(host, digits, letters, marks) && host.front() != '.' &&
               (!ends_in_number(host) || is_ipv4(host));
    }
    const auto percent = host.find('%');
    const auto address = host.substr(0, percent);
    return only(address, digits, std::string_view("abcdefABCDEF:.")) &&
           address.find(':') != address.npos &&
           (percent == host.npos || only(host.substr(percent + 1), digits, letters, marks));
}

/// Makes ASCII letters lower case, so that one name has one spelling.
inline std::string in_small_letters(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
}

/// Reads `http://host:port`, where scheme and port may be missing.
/// @throws std::invalid_argument that says what is wrong with `url`. It never quotes a password.
inline endpoint parse_endpoint(std::string_view url) {
    constexpr std::uint16_t default_port = 2379;
    const auto refuse = [&](const char* reason) {
        const std::size_t end = std::min(url.find_first_of("?#"), url.size());
        const std::string_view plain = url.substr(0, end); // what follows may be a password
        const auto at = url.rfind('@');
        const std::string shown =
            (at == url.npos ? wire::printable(plain) : "..." + wire::printable(url.substr(at))) +
            (at == url.npos && end != url.size() ? "..." : "");
        throw std::invalid_argument("endpoints: \"" + shown + "\" " + reason +
                                    "; expected http://host:port or https://host:port");
    };

    endpoint result;
    auto rest = url;
    if (rest.find(',') != rest.npos) {
        refuse("has a comma: pass each endpoint as a string of its own");
    }
    if (const auto end = rest.find("://"); end != rest.npos) {
        const std::string scheme = in_small_letters(rest.substr(0, end));
        result.tls = scheme == "https";
        if (!result.tls && scheme != "http") {
            refuse("has an unknown scheme");
        }
        rest.remove_prefix(end + 3);
    }
    if (rest.ends_with('/')) {
        rest.remove_suffix(1);
    }
    if (rest.find_first_of("/?#") != rest.npos) {
        refuse("has a path or a query");
    }
    if (rest.find('@') != rest.npos) {
        refuse("has a user name or a password");
    }

    const bool v6 = rest.starts_with('[');
    const auto bracket = rest.find(']');
    if (v6 && bracket == rest.npos) {
        refuse("has no closing bracket");
    }
    const auto host = v6 ? rest.substr(1, bracket - 1) : rest.substr(0, rest.find(':'));
    const auto port = rest.substr(v6 ? bracket + 1 : host.size());
    if (!v6 && port.find(':', 1) != port.npos) {
        refuse("has an IPv6 address without brackets");
    }
    if (host.empty()) {
        refuse("has no host");
    }
    if (!is_host(host, v6)) {
        refuse("has a bad host");
    }
    result.host = in_small_letters(host.substr(0, host.find('%')));
    result.host += host.substr(result.host.size()); // the zone keeps its case
    result.port = default_port;
    if (!port.empty()) {
        const char* const end = port.data() + port.size();
        const auto [stop, failure] = std::from_chars(port.data() + 1, end, result.port);
        if (port[0] != ':' || failure != std::errc() || stop != end || result.port == 0) {
            if (port.find_first_not_of("0123456789", 1) != port.npos) { // it may be a password
                url = url.substr(0, static_cast<std::size_t>(port.data() - url.data()) + 1);
            }
            refuse("has a bad port");
        }
    }
    return result;
}

} // namespace coetcd::detail::logic
