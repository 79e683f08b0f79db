// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/sha256.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#include "support/catch.hpp"

using coetcd::detail::logic::sha256;

namespace {

std::string hex_of_sum(std::string_view bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) {
        text += digits[static_cast<unsigned char>(c) / 16];
        text += digits[static_cast<unsigned char>(c) % 16];
    }
    return text;
}

std::string sum_in_pieces(const std::string& text, std::size_t together) {
    sha256 sum;
    for (std::size_t i = 0; i < text.size(); i += together) {
        sum.add(std::string_view(text).substr(i, together));
    }
    return hex_of_sum(sum.finish());
}

} // namespace

TEST_CASE("SHA-256 is that of FIPS 180-4", "[sha256]") {
    struct {
        std::string text;
        const char* sum;
    } const rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(1'000'000, 'a'),
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.text.size());
        for (const std::size_t together : {1U, 3U, 63U, 64U, 65U, 1000U}) {
            CHECK(sum_in_pieces(row.text, together) == row.sum);
        }
    }
}

TEST_CASE("SHA-256 of texts around the size of a block", "[sha256]") {
    // By sha256sum.
    CHECK(sum_in_pieces(std::string(55, 'x'), 7) ==
          "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
    CHECK(sum_in_pieces(std::string(56, 'x'), 7) ==
          "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
    CHECK(sum_in_pieces(std::string(64, 'x'), 7) ==
          "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
}
