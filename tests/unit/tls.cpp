// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/tls/context.hpp>
#include <coetcd/tls.hpp>

#include <boost/asio/io_context.hpp>
#include <openssl/ssl.h>

#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/certificates.hpp"

using coetcd::make_tls;
using coetcd::tls_options;
using support::certificate;
using support::certificate_maker;
using support::text_of;

TEST_CASE("options of TLS that cannot be right are refused by name", "[tls]") {
    certificate_maker maker;
    const certificate ca = maker.authority("ca");
    const certificate own = maker.issued_by(ca, {});
    const certificate other = maker.issued_by(ca, {});
    const certificate locked = maker.issued_by(ca, {.passphrase = "canary"});
    const std::string nothing = maker.file("nothing", "");
    const std::string text = maker.file("text", "text\n");
    const std::string none = maker.directory().string() + "/none";
    const std::string cut = maker.file("cut", text_of(ca.file).substr(0, 100));
    const certificate_maker empty;
    const certificate_maker with_cut;
    const std::string cut_there = with_cut.file("ca.pem", text_of(cut));

    struct row {
        std::function<void(tls_options&)> change;
        std::vector<std::string> says;
    };
    const auto identity = [](const std::string& cert, const std::string& key) {
        return [cert, key](tls_options& o) {
            o.certificate_file = cert;
            o.key_file = key;
        };
    };
    using options = tls_options;
    const row rows[] = {
        {[&](options& o) { o.ca_file = none; }, {"ca_file: \"" + none, "No such file"}},
        {[&](options& o) { o.ca_file = ""; }, {"ca_file: \"\"", "No such file"}},
        {[&](options& o) { o.ca_file = nothing; }, {"ca_file: \"" + nothing, "is empty"}},
        {[&](options& o) { o.ca_file = text; }, {"ca_file: \"" + text, "no certificate"}},
        {[&](options& o) { o.ca_file = cut; }, {"ca_file: \"" + cut, "cannot be read"}},
        {[&](options& o) { o.ca_file = own.key_file; }, {"ca_file: ", "no certificate"}},
        {[&](options& o) { o.ca_directory = none; }, {"ca_directory: \"" + none, "No such file"}},
        {[&](options& o) { o.ca_directory = text; }, {"ca_directory: \"" + text}},
        {[&](options& o) { o.ca_directory = empty.directory().string(); },
         {"ca_directory: \"" + empty.directory().string(), "no file with a certificate"}},
        {[&](options& o) { o.ca_directory = with_cut.directory().string(); },
         {"ca_directory: \"" + cut_there, "cannot be read"}},
        {[&](options& o) { o.ca = "text"; }, {"ca: ", "no certificate"}},
        {[&](options& o) { o.ca = ""; }, {"ca: ", "no certificate"}},
        {identity(none, own.key_file), {"certificate_file: \"" + none, "No such file"}},
        {identity(own.file, none), {"key_file: \"" + none, "No such file"}},
        {identity(text, own.key_file), {"certificate_file: \"" + text, "no certificate"}},
        {identity(own.file, text), {"key_file: \"" + text, "no private key"}},
        {identity(own.key_file, own.file), {"certificate_file: \"" + own.key_file}},
        {identity(own.file, other.key_file),
         {"key_file: \"" + other.key_file, "not the key of certificate_file: \"" + own.file}},
        {identity(locked.file, locked.key_file),
         {"key_file: \"" + locked.key_file, "encrypted", "passphrase"}},
        {[&](options& o) {
             identity(locked.file, locked.key_file)(o);
             o.passphrase = "canary bird";
         },
         {"key_file: \"" + locked.key_file, "passphrase is wrong"}},
        {[&](options& o) {
             o.certificate = text_of(locked.file);
             o.key = text_of(locked.key_file);
             o.ask_passphrase = [] { return "canary bird"; };
         },
         {"key: ", "passphrase is wrong"}},
        {[&](options& o) { o.certificate_file = own.file; }, {"key_file: missing"}},
        {[&](options& o) { o.certificate = text_of(own.file); }, {"key_file: missing"}},
        {[&](options& o) { o.key_file = own.key_file; }, {"certificate_file: missing"}},
        {[&](options& o) {
             identity(own.file, own.key_file)(o);
             o.certificate = text_of(own.file);
         },
         {"certificate and certificate_file", "only one"}},
        {[&](options& o) {
             identity(own.file, own.key_file)(o);
             o.key = text_of(own.key_file);
         },
         {"key and key_file", "only one"}},
        {[&](options& o) { o.server_name = ""; }, {"server_name: \"\""}},
        {[&](options& o) { o.server_name = "a b"; }, {"server_name: \"a b\""}},
        {[&](options& o) { o.server_name = "https://a"; }, {"server_name"}},
        {[&](options& o) { o.server_name = std::string("a\0b", 3); }, {"server_name: \"a?b\""}},
    };
    for (const row& each : rows) {
        tls_options o;
        each.change(o);
        try {
            (void)make_tls(o);
            FAIL("accepted: " << each.says.front());
        } catch (const std::invalid_argument& e) {
            for (const std::string& part : each.says) {
                CHECK_THAT(e.what(), support::contains(part));
            }
            CHECK_THAT(e.what(), !support::contains("canary"));
            CHECK_THAT(e.what(), !support::contains("PRIVATE KEY"));
        }
    }

    tls_options all;
    all.ca_file = ca.file;
    std::filesystem::remove(cut);
    all.ca_directory = maker.directory().string(); // with other files, too
    all.ca = text_of(ca.file);
    all.certificate_file = locked.file;
    all.key_file = locked.key_file;
    all.passphrase = "canary";
    all.server_name = "etcd.example";
    CHECK(make_tls(all));
    all.passphrase.reset();
    all.ask_passphrase = [] { return "canary"; };
    CHECK(make_tls(all));
    all.ask_passphrase = []() -> std::string { throw std::runtime_error("no terminal"); };
    REQUIRE_THROWS_WITH(make_tls(all), "no terminal");
    CHECK(make_tls());
}

TEST_CASE("sec.tls.version: what TLS allows does not depend on the system's configuration",
          "[tls]") {
    namespace tls = coetcd::detail::tls;
    auto context = tls::make_context(tls_options());
    SSL_CTX* const native = context.native_handle();
    CHECK(SSL_CTX_get_min_proto_version(native) == TLS1_2_VERSION);
    CHECK(SSL_CTX_get_verify_mode(native) == SSL_VERIFY_PEER);
    CHECK((SSL_CTX_get_options(native) & SSL_OP_NO_RENEGOTIATION) != 0);
    CHECK((SSL_CTX_get_options(native) & SSL_OP_IGNORE_UNEXPECTED_EOF) == 0);
    CHECK(SSL_CTX_get_session_cache_mode(native) == SSL_SESS_CACHE_OFF);
    tls_options careless;
    careless.insecure_skip_verify = true;
    auto any = tls::make_context(careless);
    CHECK(SSL_CTX_get_verify_mode(any.native_handle()) == SSL_VERIFY_NONE);
    CHECK(SSL_CTX_get_min_proto_version(any.native_handle()) == TLS1_2_VERSION);
}

TEST_CASE("sec.wiped: the key and the passphrase do not outlive their options", "[tls]") {
    const std::string secret(100, 's');
    alignas(tls_options) unsigned char place[sizeof(tls_options)];
    auto* const options = new (place) tls_options;
    options->passphrase = "short one"; // inside of the object
    options->key = "another one";
    options->~tls_options();
    const std::string left(reinterpret_cast<const char*>(place), sizeof place);
    CHECK_THAT(left, !support::contains("hort one"));
    CHECK_THAT(left, !support::contains("nother one"));
}

TEST_CASE("sec.tls.no_fall_back: an https endpoint without TLS is refused, and says what to do",
          "[tls]") {
    boost::asio::io_context context;
    const auto make = [&](coetcd::endpoints cluster, coetcd::client_options o = {}) {
        return coetcd::client(context.get_executor(), std::move(cluster), o);
    };
    const std::vector<std::string> parts{
        "\"https://a:1\"", "<coetcd/tls.hpp>", "coetcd::tls", "client_options::tls"};
    for (const std::string& part : parts) {
        REQUIRE_THROWS_WITH(make({"http://b", "https://a:1"}), support::contains(part));
    }
    REQUIRE_THROWS_AS(make("https://a:1"), std::invalid_argument);
    coetcd::client_options options;
    options.tls = make_tls();
    (void)make({"http://b", "https://a:1"}, options);
    (void)make("b", options);
}
