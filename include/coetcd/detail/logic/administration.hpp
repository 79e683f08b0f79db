// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::logic {

// What is refused before it is sent. Each throws `std::invalid_argument` that names the argument,
// and never quotes a password.

/// The size of the UTF-8 character at the front of `text`, which is not empty; 0 if it is
/// malformed.
inline std::size_t character_size(std::string_view text) {
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    if (byte(0) < 0x80) {
        return 1;
    }
    const bool control = byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0;
    return control ? 2 : wire::printable_character(text);
}

/// etcd 3.4 stores something else in place of text that is no UTF-8; others refuse it.
inline bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t size = character_size(text);
        if (size == 0) {
            return false;
        }
        text.remove_prefix(size);
    }
    return true;
}

inline bool is_printable(std::string_view text) {
    while (!text.empty()) {
        const std::size_t size = wire::printable_character(text);
        if (size == 0) {
            return false;
        }
        text.remove_prefix(size);
    }
    return true;
}

/// @param what "user" or "role".
inline void require_account(const char* what, std::string_view name) {
    if (name.empty()) {
        throw std::invalid_argument(std::string(what) + ": is empty");
    }
    if (!is_printable(name)) {
        throw std::invalid_argument(std::string(what) + ": is not printable UTF-8");
    }
}

inline void require_password(std::string_view password) {
    if (password.empty()) {
        throw std::invalid_argument("password: is empty; no_password makes a user without one");
    }
    if (password.size() > 72) { // bcrypt, by which etcd keeps it, ignores the rest
        throw std::invalid_argument("password: is longer than 72 bytes");
    }
    if (!is_utf8(password)) {
        throw std::invalid_argument("password: is not UTF-8");
    }
}

inline void require_range(const key_range& keys) {
    if (keys.key.empty()) {
        throw std::invalid_argument("keys: the first key is empty; use key_range::all()");
    }
    const bool to_the_last = keys.range_end == std::string_view("\0", 1);
    if (!keys.range_end.empty() && !to_the_last && keys.range_end <= keys.key) {
        throw std::invalid_argument("keys: the range ends before it begins");
    }
}

inline void require_member(std::uint64_t id) {
    if (id == 0) {
        throw std::invalid_argument("member_id: is 0");
    }
}

/// Where the other members are to reach one.
inline void require_peer_urls(const std::vector<std::string>& urls) {
    if (urls.empty()) {
        throw std::invalid_argument("peer_urls: there are none");
    }
    for (std::size_t i = 0; i != urls.size(); ++i) {
        const std::string& url = urls[i];
        const auto refuse = [&](const std::string& reason) {
            throw std::invalid_argument("peer_urls: the " + std::to_string(i + 1) + ". " + reason +
                                        "; expected http://host:port or https://host:port");
        };
        const bool scheme = url.starts_with("http://") || url.starts_with("https://");
        if (!scheme) {
            refuse("begins with neither http:// nor https://");
        }
        if (url.ends_with('/')) {
            refuse("has a path");
        }
        const auto host = url.find("://") + 3;
        const auto colon = url.rfind(':');
        const auto bracket = url.rfind(']');
        const bool in_address = bracket != url.npos && colon < bracket;
        if (colon < host || in_address) {
            refuse("has no port");
        }
        try {
            (void)parse_endpoint(url);
        } catch (const std::invalid_argument&) {
            refuse("is no URL of a peer");
        }
        if (std::find(urls.begin(), urls.begin() + static_cast<std::ptrdiff_t>(i), url) !=
            urls.begin() + static_cast<std::ptrdiff_t>(i)) {
            refuse("is there twice");
        }
    }
}

/// A version as a downgrade names it: two numbers.
inline void require_version(std::string_view version) {
    const auto dot = version.find('.');
    const auto number = [](std::string_view text) {
        return !text.empty() && text.size() <= 4 &&
               text.find_first_not_of("0123456789") == text.npos;
    };
    if (dot == version.npos || !number(version.substr(0, dot)) ||
        !number(version.substr(dot + 1))) {
        throw std::invalid_argument("version: is not of the form 3.5");
    }
}

// What a refusal means.

/// The code that says it: etcd has one for much that is there already, or is not there.
inline error_code meaning_of(const error_code& ec, std::string_view text) {
    if (ec != server_errc::failed_precondition) {
        return ec;
    }
    const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
    if (has("etcdserver: user name already exists") ||
        has("etcdserver: role name already exists") ||
        has("etcdserver: Peer URLs already exists")) {
        return server_errc::already_exists;
    }
    if (has("etcdserver: user name not found") || has("etcdserver: role name not found") ||
        has("etcdserver: role is not granted to the user") ||
        has("etcdserver: permission is not granted to the role")) {
        return server_errc::not_found;
    }
    return ec;
}

/// What to add to the text of an error.
inline std::string advice(rpc what, const error_code& ec) {
    if (ec == server_errc::unimplemented && is_since_3_5(what)) {
        return "; this etcd lacks it: the gateway has it since etcd 3.5";
    }
    return {};
}

} // namespace coetcd::detail::logic
