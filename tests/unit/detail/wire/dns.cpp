// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/dns.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/dns_message.hpp"

using namespace coetcd::detail::wire;
using namespace support;

namespace {

using bytes = std::string;
using records = std::vector<srv_record>;

const std::string asked_name = "_etcd-client._tcp.example.com";
constexpr std::uint16_t asked_id = 0x8001;
const bytes query = srv_query(asked_name, asked_id, false);

dns_answer read(const bytes& message) {
    return srv_answer(message, asked_name, asked_id);
}
dns_answer read_records(const std::vector<bytes>& sent) {
    return read(dns_reply(query, dns_says, sent));
}

srv_record record(unsigned priority, unsigned weight, unsigned port, std::string target) {
    srv_record r;
    r.priority = static_cast<std::uint16_t>(priority);
    r.weight = static_cast<std::uint16_t>(weight);
    r.port = static_cast<std::uint16_t>(port);
    r.target = std::move(target);
    return r;
}

bytes with(bytes message, std::size_t at, unsigned value) {
    message.at(at) = static_cast<char>(value);
    return message;
}

/// An answer with all that may be in one.
bytes full_answer() {
    const bytes alias = dns_name("real.example.com");
    const dns_srv first{1, 2, 2379, "a.example.com"};
    // "b" and what stands at 30, which is "example.com".
    const bytes short_name = bytes("\1b\xc0\x1e");
    const bytes second = dns_number(0) + dns_number(0) + dns_number(7) + short_name;
    return dns_reply(query,
                     dns_says,
                     {dns_record(dns_same_name, 5, alias),
                      dns_record(alias, 33, first.data()),
                      dns_record(alias, 33, second),
                      dns_record(alias, 1, "\x7f\0\0\1")});
}

} // namespace

TEST_CASE("A question for SRV records has its bytes", "[wire][dns]") {
    const bytes plain("\x80\x01\x01\x00\0\1\0\0\0\0\0\0\2_x\4_tcp\1e\0\0\x21\0\1", 27);
    CHECK(srv_query("_x._tcp.e", asked_id, false) == plain);
    bytes extended = with(plain, 11, 1);
    extended += bytes("\0\0\x29\4\xd0\0\0\0\0\0\0", 11);
    CHECK(srv_query("_x._tcp.e", asked_id, true) == extended);
}

TEST_CASE("SRV records are read, whatever their names refer to", "[wire][dns]") {
    const dns_answer one = read_records({dns_srv{1, 2, 65535, "A.Example.COM"}.record()});
    CHECK(one.what == dns_answer::found);
    CHECK(one.records == records{record(1, 2, 65535, "a.example.com")});

    const dns_answer all = read(full_answer());
    CHECK(all.what == dns_answer::found);
    CHECK(all.records ==
          records{record(1, 2, 2379, "a.example.com"), record(0, 0, 7, "b.example.com")});

    // The server may repeat the name in other letters.
    bytes shouted = dns_reply(query, dns_says, {dns_srv{0, 0, 1, ""}.record()});
    shouted[14] = 'E';
    CHECK(read(shouted).records == records{record(0, 0, 1, "")});
}

TEST_CASE("Records of other names, types and classes do not count", "[wire][dns]") {
    const dns_srv good{0, 0, 1, "a"};
    bytes chaos = good.record();
    chaos[5] = 3; // its class
    const std::vector<bytes> others{
        dns_record(dns_name("_etcd-client._tcp.example.org"), 33, good.data()),
        dns_record(dns_name("example.com"), 5, dns_name("x")),
        dns_record(dns_same_name, 16, "\3any"),
        dns_record(dns_same_name, 46, bytes(300, 'x')),
        chaos,
    };
    for (const bytes& other : others) {
        CHECK(read_records({other}).what == dns_answer::absent);
        const dns_answer both = read_records({other, good.record()});
        CHECK(both.what == dns_answer::found);
        CHECK(both.records.size() == 1);
    }
    // Nor those of a name that is an alias no more than it is asked for.
    const bytes loop = dns_record(dns_same_name, 5, dns_same_name);
    CHECK(read_records({loop, loop}).what == dns_answer::absent);
}

TEST_CASE("A message says what it is", "[wire][dns]") {
    const bytes good = dns_reply(query, dns_says, {dns_srv{0, 0, 1, ""}.record()});
    const bytes none = dns_reply(query, dns_says);
    const auto flagged = [](unsigned flags) { return dns_reply(query, flags); };
    struct row {
        const char* name;
        bytes message;
        dns_answer::kind what;
    };
    const std::vector<row> rows{
        {"an answer", good, dns_answer::found},
        {"without records", none, dns_answer::absent},
        {"NXDOMAIN", flagged(dns_says | dns_nxdomain), dns_answer::absent},
        {"from the domain's own server", flagged(0x8400), dns_answer::absent},
        {"a referral", flagged(0x8000), dns_answer::refused},
        {"SERVFAIL", flagged(dns_says | dns_servfail), dns_answer::refused},
        {"REFUSED", flagged(dns_says | dns_refused), dns_answer::refused},
        {"truncated", flagged(dns_says | dns_truncated), dns_answer::truncated},
        {"a refusal without the question",
         bytes("\x80\1\x81\x81\0\0\0\0\0\0\0\0", 12),
         dns_answer::refused},
        {"no refusal without the question",
         bytes("\x80\1\x81\x80\0\0\0\0\0\0\0\0", 12),
         dns_answer::unrelated},
        {"a question", query, dns_answer::unrelated},
        {"another id", with(good, 1, 2), dns_answer::unrelated},
        {"another opcode", with(good, 2, 0x89), dns_answer::unrelated},
        {"another name", with(good, 13, 'x'), dns_answer::unrelated},
        {"another type", with(good, 12 + 31 + 1, 1), dns_answer::unrelated},
        {"another class", with(good, 12 + 31 + 3, 3), dns_answer::unrelated},
        {"two questions", with(good, 5, 2), dns_answer::unrelated},
        {"more records than there are", with(good, 7, 2), dns_answer::malformed},
        {"a million records", with(with(good, 7, 0xff), 6, 0xff), dns_answer::malformed},
        {"fewer records than there are", with(good, 7, 0), dns_answer::absent},
        {"nothing", "", dns_answer::unrelated},
    };
    for (const row& r : rows) {
        INFO(r.name);
        const dns_answer a = read(r.message);
        CHECK(a.what == r.what);
        CHECK(a.records.size() == (r.what == dns_answer::found ? 1U : 0U));
    }
    CHECK(read(flagged(dns_says | dns_servfail)).code == 2);
}

TEST_CASE("A record that does not end where it says cannot be read", "[wire][dns]") {
    const bytes data = dns_srv{0, 0, 1, ""}.data();
    CHECK(read_records({dns_record(dns_same_name, 33, data + "x")}).what == dns_answer::malformed);
    bytes less = dns_record(dns_same_name, 33, data);
    less[11] = static_cast<char>(data.size() - 1);
    CHECK(read_records({less}).what == dns_answer::malformed);
    CHECK(read_records({dns_record(dns_same_name, 33, "")}).what == dns_answer::malformed);
}

TEST_CASE("A name cannot refer to itself, to what follows, or grow without end", "[wire][dns]") {
    const auto target = [](const bytes& name) {
        const bytes data = dns_number(0) + dns_number(0) + dns_number(1) + name;
        return read_records({dns_record(dns_same_name, 33, data)});
    };
    // Where the target begins: header, question, the owner and the rest before it.
    const unsigned here = 12 + 31 + 4 + 12 + 6;
    CHECK(target(bytes("\1a\xc0\x0c")).records.front().target == "a." + asked_name);
    const std::vector<bytes> wrong{
        bytes("\xc0") + static_cast<char>(here),
        bytes("\1a\xc0") + static_cast<char>(here),
        bytes("\xc0") + static_cast<char>(here + 2),
        bytes("\xc0\x00", 2),     // the header
        bytes("\xc0\x0b", 2),     // the end of it
        bytes("\xff\xff", 2),     // behind the message
        bytes("\x40\x61\x00", 3), // lengths that are none
        bytes("\x80\x61\x00", 3),
    };
    for (const bytes& name : wrong) {
        CHECK(target(name).what == dns_answer::malformed);
    }
    // 253 characters, and one more.
    const bytes label = "\x3f" + bytes(63, 'x');
    const bytes longest = label + label + label + "\x3d" + bytes(61, 'x') + bytes(1, '\0');
    CHECK(target(longest).records.front().target.size() == 253);
    const bytes longer = label + label + label + "\x3e" + bytes(62, 'x') + bytes(1, '\0');
    CHECK(target(longer).what == dns_answer::malformed);
    // A long name that records refer to again and again.
    CHECK(target(label + label + label + "\x3d" + bytes(61, 'x') + "\xc0\x0c").what ==
          dns_answer::malformed);
}

TEST_CASE("Bytes that no name of a host has never pass for one", "[wire][dns]") {
    for (int c = 0; c != 256; ++c) {
        const bytes label{'\3', 'a', static_cast<char>(c), 'b'};
        const bytes data = bytes(5, '\0') + "\1" + label + bytes(1, '\0');
        const dns_answer a = read_records({dns_record(dns_same_name, 33, data)});
        REQUIRE(a.what == dns_answer::found);
        const std::string target = a.records.front().target;
        const std::string_view allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_";
        const char small = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        const bool fits = allowed.find(small) != allowed.npos;
        CHECK(target == (fits ? bytes{'a', small, 'b'} : "a?b"));
    }
    // A dot in a label makes no other name of it.
    bytes dotted = full_answer();
    dotted[12 + 13] = '.';
    CHECK(read(dotted).what == dns_answer::unrelated);
}

TEST_CASE("sec.dns: no part of an answer, and none with another byte, does harm",
          "[wire][dns][security]") {
    const bytes whole = full_answer();
    REQUIRE(read(whole).records.size() == 2);
    for (std::size_t n = 0; n != whole.size(); ++n) {
        // On the heap, at its size, for sanitizers.
        const std::vector<char> part(whole.begin(), whole.begin() + static_cast<long>(n));
        const dns_answer a =
            srv_answer(std::string_view(part.data(), part.size()), asked_name, asked_id);
        CHECK(a.what == (n < 12 + 31 + 4 ? dns_answer::unrelated : dns_answer::malformed));
        CHECK(a.records.empty());
    }
    std::size_t most = 0;
    for (std::size_t at = 0; at != whole.size(); ++at) {
        for (unsigned value = 0; value != 256; ++value) {
            const bytes changed = with(whole, at, value);
            const std::vector<char> copy(changed.begin(), changed.end());
            const dns_answer a =
                srv_answer(std::string_view(copy.data(), copy.size()), asked_name, asked_id);
            most = std::max(most, a.records.size());
            for (const srv_record& r : a.records) {
                const bool clean = r.target.find_first_not_of(
                                       "abcdefghijklmnopqrstuvwxyz0123456789-_.?") == r.target.npos;
                if (!clean || r.target.size() > 253) {
                    FAIL("byte " << at << " as " << value);
                }
            }
        }
    }
    CHECK(most == 2);
}
