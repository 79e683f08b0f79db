// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/tls/pem.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/certificates.hpp"

using namespace coetcd::detail::tls;
using support::certificate;
using support::certificate_maker;
using support::text_of;

namespace {

const origin here("field", "dir/file");

std::string nobody() {
    throw std::logic_error("nobody asked for a passphrase");
}

} // namespace

TEST_CASE("sec.server_text: a refusal names the field and the file, fit for a log", "[tls][pem]") {
    REQUIRE_THROWS_WITH(here.refuse("is bad"), "field: \"dir/file\" is bad");
    REQUIRE_THROWS_WITH(origin("ca:").refuse("is bad"), "ca: is bad");
    REQUIRE_THROWS_WITH(origin("f", "a\nb\x1b[2J").refuse("is bad"), "f: \"a b?[2J\" is bad");
    REQUIRE_THROWS_AS(here.refuse("is bad"), std::invalid_argument);
}

TEST_CASE("a file that cannot be read is refused", "[tls][pem]") {
    const certificate_maker maker;
    CHECK(read_file(here, maker.file("a", "text\0more")).view() == "text");
    for (const std::size_t size : {1U, 16'383U, 16'384U, 16'385U, 100'000U}) {
        std::string text;
        while (text.size() < size) {
            text += static_cast<char>('a' + text.size() % 26);
        }
        CHECK(read_file(here, maker.file("a", text)).view() == text);
    }
    const std::string directory = maker.directory().string();
    REQUIRE_THROWS_WITH(read_file(here, directory + "/none"),
                        "field: \"dir/file\" cannot be read: No such file or directory");
    REQUIRE_THROWS_WITH(read_file(here, directory),
                        support::contains("cannot be read: Is a directory"));
    REQUIRE_THROWS_WITH(read_file(here, maker.file("b", "")), support::contains("is empty"));
    REQUIRE_THROWS_WITH(read_file(here, "/dev/zero"), "field: \"dir/file\" is larger than 16 MiB");
    const std::string much(16 * 1024 * 1024, 'x');
    CHECK(read_file(here, maker.file("c", much)).view().size() == much.size());
    REQUIRE_THROWS_WITH(read_file(here, maker.file("c", much + "x")),
                        support::contains("is larger than 16 MiB"));
}

TEST_CASE("all certificates of a text are found", "[tls][pem]") {
    certificate_maker maker;
    const certificate one = maker.authority("one");
    const certificate two = maker.authority("two");
    const std::string both = "# one\n" + text_of(one.file) + "and two\n" + text_of(two.file) + '#';
    CHECK(read_certificates(here, both).size() == 2);
    CHECK(read_certificates(here, text_of(one.key_file) + text_of(one.file)).size() == 1);
    CHECK(read_certificates(here, "").empty());
    CHECK(read_certificates(here, "text\n").empty());
    CHECK(read_certificates(here, text_of(one.key_file)).empty());

    const std::string text = text_of(one.file);
    const auto refused = [](const std::string& bad) {
        REQUIRE_THROWS_WITH(read_certificates(here, bad),
                            support::contains("field: \"dir/file\" has a certificate that "
                                              "cannot be read ("));
    };
    refused(text.substr(0, text.size() / 2));                    // cut off
    refused(both.substr(0, both.size() - text.size() / 2));      // the second one
    refused(std::string(text).replace(text.size() / 2, 1, "!")); // not base64
    std::string garbled = text;
    garbled.replace(text.find('\n') + 1, 4, "AAAA"); // not a certificate
    refused(garbled);
}

TEST_CASE("a key is read", "[tls][pem]") {
    certificate_maker maker;
    const certificate plain = maker.self_signed({});
    const std::string text = text_of(plain.key_file);
    CHECK(read_key(here, text, nobody));
    CHECK(read_key(here, "# comment\n" + text_of(plain.file) + text, {}));

    for (const std::string& bad :
         {std::string(), std::string("text"), text_of(plain.file), text.substr(0, 60)}) {
        REQUIRE_THROWS_WITH(read_key(here, bad, nobody), support::contains("field: \"dir/file\" "));
        REQUIRE_THROWS_WITH(read_key(here, bad, nobody), support::contains("no private key"));
    }
}

TEST_CASE("an encrypted key takes the right passphrase", "[tls][pem]") {
    certificate_maker maker;
    const std::string text = text_of(maker.self_signed({.passphrase = "open sesame"}).key_file);
    int asked = 0;
    CHECK(read_key(here, text, [&] {
        ++asked;
        return "open sesame";
    }));
    CHECK(asked == 1);

    REQUIRE_THROWS_WITH(read_key(here, text, {}),
                        "field: \"dir/file\" is encrypted: set passphrase");
    const std::vector<std::string> others{
        "", "open", "open sesame ", "Open Sesame", std::string(5000, 'x')};
    for (const std::string& wrong : others) {
        // Which is not repeated.
        REQUIRE_THROWS_WITH(read_key(here, text, [&] { return wrong; }),
                            "field: \"dir/file\" cannot be opened: passphrase is wrong");
    }
    REQUIRE_THROWS_AS(read_key(here, text, nobody), std::logic_error);
}
