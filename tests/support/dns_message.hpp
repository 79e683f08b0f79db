// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What a name server sends, byte by byte: written anew, without the library's code.
namespace support {

inline std::string dns_number(unsigned n) {
    return {static_cast<char>(n >> 8 & 0xff), static_cast<char>(n & 0xff)};
}

/// A name as it is sent, whose labels are parted by dots.
inline std::string dns_name(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::string_view label = text.substr(0, text.find('.'));
        out += static_cast<char>(label.size());
        out += label;
        text.remove_prefix(label.size() == text.size() ? text.size() : label.size() + 1);
    }
    return out += '\0';
}

/// A record, whose owner and data are as they are sent.
inline std::string dns_record(const std::string& owner, unsigned type, const std::string& data) {
    return owner + dns_number(type) + dns_number(1) + std::string(4, '\0') +
           dns_number(static_cast<unsigned>(data.size())) + data;
}

/// The name at the front of the question that was asked.
inline const std::string dns_same_name{'\xc0', '\x0c'};

struct dns_srv {
    unsigned priority;
    unsigned weight;
    unsigned port;
    std::string target;

    std::string data() const {
        return dns_number(priority) + dns_number(weight) + dns_number(port) + dns_name(target);
    }
    std::string record() const { return dns_record(dns_same_name, 33, data()); }
};

/// Flags of an answer by a server that looks elsewhere for what it does not know.
inline constexpr unsigned dns_says = 0x8180;
inline constexpr unsigned dns_truncated = 0x0200;
inline constexpr unsigned dns_servfail = 2;
inline constexpr unsigned dns_nxdomain = 3;
inline constexpr unsigned dns_refused = 5;

/// The question of a message: its name as text, and where it ends.
struct dns_question {
    std::string name;
    std::size_t end = 12;

    explicit dns_question(std::string_view message) {
        while (end < message.size() && message[end] != '\0') {
            const auto size = static_cast<unsigned char>(message[end]);
            name += (name.empty() ? "" : ".") + std::string(message.substr(end + 1, size));
            end += 1U + size;
        }
        end += 5;
    }
};

/// An answer to a query, with records as they are sent.
inline std::string
dns_reply(std::string_view query, unsigned flags, const std::vector<std::string>& records = {}) {
    std::string out(query.substr(0, 2));
    out += dns_number(flags) + dns_number(1) + dns_number(static_cast<unsigned>(records.size())) +
           dns_number(0) + dns_number(0);
    out += query.substr(12, dns_question(query).end - 12);
    for (const std::string& r : records) {
        out += r;
    }
    return out;
}

} // namespace support
