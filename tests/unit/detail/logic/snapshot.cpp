// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/snapshot.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;

namespace {

std::string whole_snapshot(std::size_t size) {
    std::string database(size, 'd');
    sha256 sum;
    sum.add(database);
    return database + sum.finish();
}

/// What becomes of a snapshot that comes in pieces of this size.
/// @param promised How many bytes etcd says there are.
std::string fate_of_snapshot(const std::string& bytes,
                             std::size_t together,
                             std::optional<std::size_t> promised = {}) {
    snapshot_check check;
    const std::size_t total = promised.value_or(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); i += together) {
        const std::string_view piece = std::string_view(bytes).substr(i, together);
        const std::size_t after = i + piece.size() + sha256::digest_size;
        check.add(piece, total - std::min(total, after)); // 0 with the hash
    }
    const auto how = check.finish();
    return how == snapshot_check::ending::whole ? "whole" : check.text(how);
}

} // namespace

TEST_CASE("a snapshot is a database and its SHA-256, in whatever pieces it comes", "[snapshot]") {
    for (const std::size_t size : {512U, 4096U, 65536U}) {
        for (const std::size_t together : {1U, 31U, 32U, 33U, 500U, 32768U, 100000U}) {
            CAPTURE(size, together);
            CHECK(fate_of_snapshot(whole_snapshot(size), together) == "whole");
        }
    }
    CHECK(whole_snapshot(512).size() % 512 == 32);
}

TEST_CASE("a snapshot that was changed, cut, or added to is refused", "[snapshot]") {
    const std::string good = whole_snapshot(4096);
    for (const std::size_t together : {32U, 33U, 1000U, 4096U}) {
        CAPTURE(together);
        for (const std::size_t i : {0U, 2000U, 4095U, 4096U, 4127U}) {
            std::string bad = good;
            bad[i] ^= 1;
            CHECK(fate_of_snapshot(bad, together).find("SHA-256") != std::string::npos);
        }
        for (const std::size_t size : {0U, 1U, 31U, 32U, 512U, 4096U, 4127U}) {
            CHECK(fate_of_snapshot(good.substr(0, size), together, good.size())
                      .starts_with("it broke off"));
        }
        CHECK(fate_of_snapshot(good + "x", together, good.size()).find("no database") !=
              std::string::npos);
        CHECK(
            fate_of_snapshot(good + std::string(512, 'x'), together, good.size()).find("SHA-256") !=
            std::string::npos);
        CHECK(fate_of_snapshot(good.substr(32), together) != "whole");
    }
}

TEST_CASE("a snapshot says how far it is, and what its hash is", "[snapshot]") {
    snapshot_check check;
    CHECK(check.received() == 0);
    CHECK(check.total() == 0);
    const std::string all = whole_snapshot(1024);
    check.add(all.substr(0, 512), 512);
    CHECK(check.received() == 512);
    CHECK(check.total() == 1056);
    CHECK(check.text(snapshot_check::ending::broke_off) == "it broke off after 512 of 1056 bytes");
    check.add(all.substr(512, 512), 0);
    check.add(all.substr(1024), 0);
    CHECK((check.finish() == snapshot_check::ending::whole));
    CHECK(check.digest().size() == 64);
    CHECK(check.digest().find_first_not_of("0123456789abcdef") == std::string::npos);
}
