// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/wire/printable.hpp>

#include <random>
#include <string>

#include "support/catch.hpp"

using namespace coetcd::detail::wire;
using namespace std::string_literals;

TEST_CASE("printable text stays as it is", "[wire][security]") {
    CHECK(printable("") == "");
    CHECK(printable("etcdserver: no leader ~") == "etcdserver: no leader ~");
    CHECK(printable("\xc2\xa0 \xc3\xa9 \xe2\x82\xac \xed\x9f\xbf \xf0\x9f\x94\x92") ==
          "\xc2\xa0 \xc3\xa9 \xe2\x82\xac \xed\x9f\xbf \xf0\x9f\x94\x92");
}

TEST_CASE("sec.server_text: printable text has no control characters", "[wire][security]") {
    CHECK(printable("a\r\nb\tc") == "a  b c");
    CHECK(printable("\0\x1b[31m\x7f"s) == "??[31m?");
    CHECK(printable("\xc2\x9b"
                    "31m") == "??31m"); // U+009b starts a command of a terminal, as ESC [ does
}

TEST_CASE("sec.server_text: printable text shows all of it, in one direction and one line",
          "[wire][security]") {
    for (const char* bad :
         {"\xc2\xad", // U+00ad, 061c, 180e, 200b to 200f, 2028 to 202e
          "\xd8\x9c",         "\xe1\xa0\x8e",    "\xe2\x80\x8b", "\xe2\x80\x8c", "\xe2\x80\x8d",
          "\xe2\x80\x8e",     "\xe2\x80\x8f",    "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaa",
          "\xe2\x80\xab",     "\xe2\x80\xac",    "\xe2\x80\xad", "\xe2\x80\xae",
          "\xe2\x81\xa0", // 2060 to 206f, feff, e0000 to e0fff
          "\xe2\x81\xa6",     "\xe2\x81\xa9",    "\xe2\x81\xaf", "\xef\xbb\xbf", "\xf3\xa0\x80\x80",
          "\xf3\xa0\x81\xbf", "\xf3\xa0\xbf\xbf"}) {
        CHECK(printable(std::string("a") + bad + "b") == "a?b");
        CHECK(printable(std::string(255, 'x') + bad) == std::string(255, 'x') + '?');
    }
    for (const char* good : {"\xd8\x9b",            // an Arabic semicolon
                             "\xc2\xac",            // before the soft hyphen
                             "\xe2\x80\x8a",        // a hair space
                             "\xe2\x80\x90",        // a hyphen
                             "\xe2\x80\xa7",        // a hyphenation point
                             "\xe2\x80\xaf",        // a narrow space
                             "\xe2\x81\x9f",        // a mathematical space
                             "\xe2\x81\xb0",        // a superscript zero
                             "\xef\xbb\xbe",        // next to the byte order mark
                             "\xe2\xa0\x81",        // a Braille pattern with a dot
                             "\xef\xbf\xbd",        // the replacement character
                             "\xf3\x9f\xbf\xbd",    // next to the tags
                             "\xf3\xa1\x80\x80",    // next to the tags, too
                             "\xd7\x90\xd7\x91"}) { // Hebrew letters
        CHECK(printable(good) == good);
    }
}

TEST_CASE("sec.server_text: printable text has no blank that is not a space", "[wire][security]") {
    for (const char* bad : {"\xcd\x8f",            // U+034f, the grapheme joiner
                            "\xd8\x80",            // U+0600
                            "\xe1\x85\x9f",        // U+115f, the Hangul fillers
                            "\xe1\x85\xa0",        // U+1160
                            "\xe3\x85\xa4",        // U+3164
                            "\xef\xbe\xa0",        // U+ffa0
                            "\xe1\x9e\xb4",        // U+17b4
                            "\xe1\xa0\x8b",        // U+180b
                            "\xe2\xa0\x80",        // U+2800, the blank of Braille
                            "\xef\xb8\x80",        // U+fe00 and U+fe0f, selectors
                            "\xef\xb8\x8f",        //
                            "\xef\xbf\xb9",        // U+fff9
                            "\xf0\x9b\xb2\xa0",    // U+1bca0
                            "\xf0\x9d\x85\xb3",    // U+1d173
                            "\xef\xb7\x90",        // U+fdd0: no character
                            "\xef\xbf\xbf",        // U+ffff: likewise
                            "\xf0\x9f\xbf\xbe"}) { // U+1fffe: likewise
        CHECK(printable(std::string("a") + bad + "b") == "a?b");
    }
}

TEST_CASE("printable text is valid UTF-8", "[wire][security]") {
    CHECK(printable("\xff") == "?");
    CHECK(printable("\x80") == "?");
    CHECK(printable("\xc0\xaf") == "??");              // overlong
    CHECK(printable("\xe0\x80\xaf") == "???");         // overlong
    CHECK(printable("\xf0\x80\x80\xaf") == "????");    // overlong
    CHECK(printable("\xed\xa0\x80") == "???");         // a surrogate
    CHECK(printable("\xf4\x90\x80\x80") == "????");    // above U+10ffff
    CHECK(printable("\xe2\x82") == "??");              // cut short
    CHECK(printable("\xe2\x82z") == "??z");            // cut short
    CHECK(printable("\xf0\x9f\x94\x41") == "???\x41"); // cut short
    CHECK(printable("\xc3\xc3\xa9") == "?\xc3\xa9");   // goes on with the next character
    CHECK(printable("\xf5\x80\x80\x80") == "????");    // no such lead
    CHECK(printable("\xf4\x8f\xbf\xbd") == "\xf4\x8f\xbf\xbd");
}

TEST_CASE("sec.server_text: printable text has at most 256 bytes and ends with a whole character",
          "[wire][security]") {
    CHECK(printable(std::string(256, 'x')) == std::string(256, 'x'));
    CHECK(printable(std::string(257, 'x')) == std::string(256, 'x'));
    CHECK(printable(std::string(300, '\x01')) == std::string(256, '?'));
    CHECK(printable(std::string(254, 'x') + "\xc3\xa9") == std::string(254, 'x') + "\xc3\xa9");
    CHECK(printable(std::string(255, 'x') + "\xc3\xa9") == std::string(255, 'x'));
    CHECK(printable(std::string(253, 'x') + "\xf0\x9f\x94\x92") == std::string(253, 'x'));
}

TEST_CASE("printable text does not change if it is printed again", "[wire][security]") {
    std::mt19937 random(2);
    for (int round = 0; round != 2000; ++round) {
        std::string bytes(random() % 64, '\0');
        for (char& c : bytes) {
            c = static_cast<char>(random());
        }
        const auto once = printable(bytes);
        REQUIRE(printable(once) == once);
        for (const char c : once) {
            REQUIRE((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
        }
    }
}
