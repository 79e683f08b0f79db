// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/base64.hpp>

#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::wire;
using namespace std::string_literals;

namespace {

std::string encoded(std::string_view bytes) {
    std::string out;
    append_base64(out, bytes);
    return out;
}

std::optional<std::string> decoded(std::string_view text) {
    const std::vector<char> exact(text.begin(), text.end()); // so that ASan sees a read too far
    std::string out = "old";
    return decode_base64({exact.data(), exact.size()}, out) ? std::optional(out) : std::nullopt;
}

} // namespace

TEST_CASE("base64 encodes the examples of RFC 4648", "[wire][base64]") {
    CHECK(encoded("") == "");
    CHECK(encoded("f") == "Zg==");
    CHECK(encoded("fo") == "Zm8=");
    CHECK(encoded("foo") == "Zm9v");
    CHECK(encoded("foob") == "Zm9vYg==");
    CHECK(encoded("fooba") == "Zm9vYmE=");
    CHECK(encoded("foobar") == "Zm9vYmFy");
    CHECK(encoded("\0"s) == "AA==");
    CHECK(encoded("\xff\xfe\xfb") == "//77");
}

TEST_CASE("base64 is appended to what is there", "[wire][base64]") {
    std::string out = "\"";
    append_base64(out, "fo");
    CHECK(out == "\"Zm8=");
}

TEST_CASE("base64 decodes what it encodes, of any length", "[wire][base64]") {
    std::mt19937 random(1);
    for (std::size_t size = 0; size != 300; ++size) {
        std::string bytes(size, '\0');
        for (char& c : bytes) {
            c = static_cast<char>(random());
        }
        const auto text = encoded(bytes);
        REQUIRE(text.size() == (size + 2) / 3 * 4);
        REQUIRE(decoded(text) == bytes);
    }
}

TEST_CASE("base64 is read in either alphabet, padded or not", "[wire][base64]") {
    CHECK(decoded("//77") == "\xff\xfe\xfb");
    CHECK(decoded("__77") == "\xff\xfe\xfb");
    CHECK(decoded("++++") == decoded("----"));
    CHECK(decoded("Zg") == "f");
    CHECK(decoded("Zm8") == "fo");
    CHECK(decoded("Zm9vYg") == "foob");
    CHECK(decoded("") == "");
}

TEST_CASE("base64 that no encoder writes is refused", "[wire][base64]") {
    for (const auto text : {"Z",      "=",      "==",     "====",     "Z===",    "Zg=",  "Zg===",
                            "Zm8==",  "Zm9v=",  "Zm9v==", "Zm9v====", "Zm=v",    "Z=9v", "Zg==Zg==",
                            "Zm9v\n", "Zm\n9v", " Zm9",   "Zm9 ",     "Zm9\xc3",
                            "Zh==", // bits after the last byte
                            "Zm9=",   "Zh",     "Zm9vYmF"}) {
        CAPTURE(text);
        CHECK_FALSE(decoded(text));
    }
}

TEST_CASE("base64 takes 66 characters, wherever they stand", "[wire][base64]") {
    for (std::size_t position = 0; position != 8; ++position) {
        int accepted = 0;
        for (int c = 0; c != 256; ++c) {
            std::string text = "AAAAAAAA";
            text[position] = static_cast<char>(c);
            accepted += decoded(text).has_value();
        }
        CHECK(accepted == (position == 7 ? 67 : 66)); // and the padding
    }
}
