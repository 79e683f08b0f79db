// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The part of DNS (RFC 1035) that asks for SRV records (RFC 2782). Pure; answers are untrusted.
namespace coetcd::detail::wire {

/// Where one server of a service is.
struct srv_record {
    std::uint16_t priority = 0; ///< Less comes first.
    std::uint16_t weight = 0;
    std::uint16_t port = 0;
    std::string target; ///< As `dns_reader::name`.

    friend bool operator==(const srv_record&, const srv_record&) = default;
};

/// What a message is, as an answer to a question.
struct dns_answer {
    enum kind {
        unrelated, ///< It answers another question, or none: go on waiting.
        malformed, ///< It cannot be read.
        truncated, ///< It is not all there: ask by TCP.
        refused,   ///< The server cannot, or will not, tell: ask another one.
        absent,    ///< There are no such records.
        found,
    } what = unrelated;
    unsigned code = 0; ///< RCODE.
    std::vector<srv_record> records{};
};

namespace dns {

inline constexpr std::uint16_t type_cname = 5;
inline constexpr std::uint16_t type_srv = 33;
inline constexpr std::uint16_t type_opt = 41;
inline constexpr std::uint16_t class_in = 1;
inline constexpr std::uint16_t is_answer = 0x8000;
inline constexpr std::uint16_t opcode = 0x7800;
inline constexpr std::uint16_t is_authoritative = 0x0400;
inline constexpr std::uint16_t is_truncated = 0x0200;
inline constexpr std::uint16_t recursion_desired = 0x0100;
inline constexpr std::uint16_t recursion_available = 0x0080;
inline constexpr unsigned no_such_name = 3; // NXDOMAIN
inline constexpr std::size_t header_size = 12;
inline constexpr std::size_t longest_label = 63;
inline constexpr std::size_t longest_name = 253; // as text, without the dot at its end
/// What fits into one packet nearly everywhere, as "DNS flag day 2020" has it.
inline constexpr std::uint16_t datagram = 1232;

inline void put16(std::string& out, std::uint16_t n) {
    out += static_cast<char>(n >> 8);
    out += static_cast<char>(n & 0xff);
}

/// For people: what a server means by refusing.
inline std::string_view words_of(unsigned code) {
    switch (code) {
    case 0:
        return "knows nothing of that domain"; // and refers to others
    case 1:
        return "does not understand the question (FORMERR)";
    case 2:
        return "has failed (SERVFAIL)";
    case 4:
        return "does not serve such questions (NOTIMP)";
    case 5:
        return "refuses (REFUSED)";
    default:
        return "reports an error";
    }
}

} // namespace dns

/// Reads a message from front to back. After something that is not there, or cannot be, it has
/// failed, and what it returns means nothing.
class dns_reader {
public:
    explicit dns_reader(std::string_view message)
        : all_(message) {}

    bool failed() const { return failed_; }
    std::size_t position() const { return at_; }

    void skip(std::size_t n) {
        failed_ = failed_ || n > all_.size() - at_;
        at_ = failed_ ? at_ : at_ + n;
    }
    unsigned read8() {
        const std::size_t from = at_;
        skip(1);
        return failed_ ? 0 : byte(from);
    }
    std::uint16_t read16() {
        const unsigned high = read8();
        return static_cast<std::uint16_t>(high << 8 | read8());
    }

    /// A name, in small letters and without the dot at its end. What no name of a host has in a
    /// label is a '?' here, so that it equals no other name; so is a dot.
    std::string name() {
        std::string out;
        std::size_t at = at_;
        std::size_t start = at_; // of this piece: the next one has to be before it
        bool moved = false;      // behind the name, where there was a reference to another place
        while (!failed_) {
            if (at >= all_.size()) {
                failed_ = true;
                break;
            }
            const std::size_t size = byte(at);
            if (size >= 0xc0) {
                const std::size_t to = at + 1 < all_.size() ? (size & 0x3f) << 8 | byte(at + 1) : 0;
                failed_ = to < dns::header_size || to >= start; // it cannot go round in circles
                at_ = moved ? at_ : at + 2;
                moved = true;
                at = start = to;
                continue;
            }
            if (size == 0) {
                at_ = moved ? at_ : at + 1;
                break;
            }
            const std::size_t dot = out.empty() ? 0 : 1;
            if (size > dns::longest_label || size >= all_.size() - at ||
                out.size() + dot + size > dns::longest_name) {
                failed_ = true;
                break;
            }
            out.append(dot, '.');
            for (std::size_t i = 1; i <= size; ++i) {
                out += of_host(all_[at + i]);
            }
            at += 1 + size;
        }
        return out;
    }

private:
    unsigned byte(std::size_t at) const { return static_cast<unsigned char>(all_[at]); }

    static char of_host(char c) {
        if (c >= 'A' && c <= 'Z') {
            return static_cast<char>(c - 'A' + 'a');
        }
        const bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
        return fits ? c : '?';
    }

    const std::string_view all_;
    std::size_t at_ = 0;
    bool failed_ = false;
};

/// The question for the SRV records of a name.
/// @param name Small letters, digits, `-` and `_`, in labels of 1 to 63 characters; 253 in all.
/// @param id Of this question alone; it cannot be guessed.
/// @param extended Allows larger datagrams (EDNS0), which few old servers do not understand.
inline std::string srv_query(std::string_view name, std::uint16_t id, bool extended) {
    std::string out;
    dns::put16(out, id);
    dns::put16(out, dns::recursion_desired);
    for (const int count : {1, 0, 0, extended ? 1 : 0}) {
        dns::put16(out, static_cast<std::uint16_t>(count));
    }
    while (!name.empty()) {
        const std::string_view label = name.substr(0, name.find('.'));
        out += static_cast<char>(label.size());
        out += label;
        name.remove_prefix(label.size() + (label.size() < name.size() ? 1 : 0));
    }
    out += '\0';
    dns::put16(out, dns::type_srv);
    dns::put16(out, dns::class_in);
    if (extended) {
        out += '\0';
        dns::put16(out, dns::type_opt);
        dns::put16(out, dns::datagram);
        out.append(6, '\0'); // no flags, no options
    }
    return out;
}

namespace dns {

/// Reads `count` records: those of `name`, which may be another name for a further one.
inline void read_records(dns_reader& in, unsigned count, std::string name, dns_answer& out) {
    for (; count != 0; --count) {
        std::string owner = in.name();
        const std::uint16_t type = in.read16();
        const std::uint16_t of = in.read16();
        in.skip(4); // the time that it may be kept
        const std::size_t size = in.read16();
        const std::size_t begin = in.position();
        const bool counts = of == class_in && owner == name;
        if (counts && type == type_srv) {
            srv_record r;
            r.priority = in.read16();
            r.weight = in.read16();
            r.port = in.read16();
            r.target = in.name();
            out.records.push_back(std::move(r));
        } else if (counts && type == type_cname) {
            name = in.name();
        } else {
            in.skip(size);
        }
        if (in.failed() || in.position() - begin != size) {
            out.what = dns_answer::malformed;
            return;
        }
    }
    out.what = out.records.empty() ? dns_answer::absent : dns_answer::found;
}

} // namespace dns

/// Reads a message that came in answer to `srv_query(name, id, ...)`, or from anybody else.
inline dns_answer srv_answer(std::string_view message, std::string_view name, std::uint16_t id) {
    dns_answer out;
    dns_reader in(message);
    const std::uint16_t its_id = in.read16();
    const std::uint16_t flags = in.read16();
    const std::uint16_t questions = in.read16();
    const std::uint16_t records = in.read16();
    in.skip(4);
    out.code = flags & 0x0f;
    if (in.failed() || its_id != id || (flags & dns::is_answer) == 0 ||
        (flags & dns::opcode) != 0) {
        return out;
    }
    if (questions == 0 && out.code != 0 && out.code != dns::no_such_name) {
        out.what = dns_answer::refused; // it may not have understood what was asked
        return out;
    }
    const std::string asked = in.name();
    const std::uint16_t type = in.read16();
    const std::uint16_t of = in.read16();
    if (in.failed() || questions != 1 || asked != name || type != dns::type_srv ||
        of != dns::class_in) {
        return out;
    }
    if ((flags & dns::is_truncated) != 0) {
        out.what = dns_answer::truncated;
    } else if (out.code == dns::no_such_name) {
        out.what = dns_answer::absent;
    } else if (out.code != 0) {
        out.what = dns_answer::refused;
    } else if (records == 0 && (flags & (dns::is_authoritative | dns::recursion_available)) == 0) {
        out.what = dns_answer::refused; // it can only tell whom else to ask
    } else {
        dns::read_records(in, records, asked, out);
    }
    if (out.what != dns_answer::found) {
        out.records.clear();
    }
    return out;
}

} // namespace coetcd::detail::wire
