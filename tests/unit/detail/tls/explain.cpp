// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/tls/explain.hpp>

#include <openssl/x509.h>

#include <string>
#include <string_view>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail::tls;
namespace asio = boost::asio;

namespace {

/// What asio makes of an error of OpenSSL, which has words when it was used for the first time.
error_code from_openssl(int reason, int library = ERR_LIB_SSL) {
    OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS, nullptr);
    return {static_cast<int>(ERR_PACK(library, 0, reason)), asio::error::get_ssl_category()};
}
error_code alert(int number) {
    return from_openssl(SSL_AD_REASON_OFFSET + number);
}

constexpr bool has_certificate = true;

/// A certificate for these hosts.
class certificate {
public:
    ~certificate() {
        GENERAL_NAMES_free(names_);
        X509_free(made_);
    }
    certificate& add(int type, std::string_view bytes) {
        ASN1_STRING* const text =
            ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
        ASN1_STRING_set(text, bytes.data(), static_cast<int>(bytes.size()));
        GENERAL_NAME* const name = GENERAL_NAME_new();
        GENERAL_NAME_set0_value(name, type, text);
        sk_GENERAL_NAME_push(names_, name);
        return *this;
    }
    std::string hosts() {
        X509_add1_ext_i2d(made_, NID_subject_alt_name, names_, 0, 0);
        return hosts_of(*made_);
    }

private:
    X509* made_ = X509_new();
    GENERAL_NAMES* names_ = sk_GENERAL_NAME_new_null();
};

} // namespace

TEST_CASE("sec.server_text: the hosts of a certificate are told, fit for a log", "[tls][explain]") {
    using namespace std::string_view_literals;
    CHECK(certificate().add(GEN_DNS, "localhost").hosts() == "localhost");
    CHECK(certificate()
              .add(GEN_DNS, "*.example.com")
              .add(GEN_EMAIL, "a@example.com")
              .add(GEN_IPADD, "\x7f\0\0\x01"sv)
              .add(GEN_URI, "https://example.com")
              .add(GEN_IPADD, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"sv)
              .hosts() == "*.example.com, 127.0.0.1, fd00::1");
    CHECK(certificate().add(GEN_IPADD, "\x7f\0"sv).hosts() == "?");
    CHECK(certificate().add(GEN_DNS, "a\nb\x1b[2J\0c"sv).hosts() == "a b?[2J?c");
    CHECK(certificate().add(GEN_DNS, std::string(10'000, 'x')).hosts().size() == 256);
    for (const int type : {GEN_EMAIL, GEN_URI}) {
        CHECK_THAT(certificate().add(type, "x").hosts(),
                   support::contains("no subject alternative name"));
    }
    X509* const empty = X509_new();
    CHECK_THAT(hosts_of(*empty), support::contains("no subject alternative name"));
    X509_free(empty);
}

TEST_CASE("what is not of TLS stays as it is", "[tls][explain]") {
    const error_code others[] = {
        {},
        asio::error::eof,
        asio::error::connection_reset,
        asio::error::operation_aborted,
        ssl::error::stream_truncated,
        errc::protocol_error,
    };
    for (const error_code& ec : others) {
        const explanation e = explain(ec, !has_certificate);
        CHECK(e.ec == ec);
        CHECK(e.text.empty());
        CHECK_FALSE(e.before_any);
    }
}

TEST_CASE("a failure of TLS is explained", "[tls][explain]") {
    struct {
        error_code ec;
        const char* without_certificate;
        const char* with_certificate;
        bool before_any;
    } const rows[] = {
        // RFC 8446, section 6.2
        {alert(40), "handshake failure", "handshake failure", false},
        {alert(40), "may want a client certificate", "", false},
        {alert(42), "wants a client certificate: set", "refuses the client certificate: bad", true},
        {alert(43), "wants a client certificate", "unsupported certificate", true},
        {alert(44), "wants a client certificate", "certificate revoked", true},
        {alert(45), "wants a client certificate", "certificate expired", true},
        {alert(46), "wants a client certificate", "certificate unknown", true},
        {alert(48), "wants a client certificate", "unknown CA", true},
        {alert(116), "wants a client certificate", "refuses the client certificate: ", true},
        {alert(47), "illegal parameter", "illegal parameter", false},
        {alert(51), "decrypt error", "decrypt error", false},
        {alert(70), "no TLS 1.2 or later", "no TLS 1.2 or later", false},
        {alert(80), "internal error", "internal error", false},
        {from_openssl(SSL_R_UNSUPPORTED_PROTOCOL), "no TLS 1.2", "no TLS 1.2", false},
        {from_openssl(SSL_R_WRONG_VERSION_NUMBER), "not speak TLS", "not speak TLS", false},
        {from_openssl(SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC), "bad record mac", "", false},
        // The same number of another library is no alert.
        {from_openssl(1042, ERR_LIB_X509), "", "", false},
        {ssl::error::unexpected_result, "unexpected result", "unexpected result", false},
        {ssl::error::unspecified_system_error, "unspecified", "unspecified", false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.ec.message());
        const explanation without = explain(row.ec, !has_certificate);
        const explanation with = explain(row.ec, has_certificate);
        CHECK(without.ec == errc::tls_failed);
        CHECK(with.ec == errc::tls_failed);
        CHECK_THAT(without.text, support::contains(row.without_certificate));
        CHECK_THAT(with.text, support::contains(row.with_certificate));
        CHECK(without.before_any == row.before_any);
        CHECK(with.before_any == row.before_any);
    }
    CHECK_THAT(explain(alert(40), has_certificate).text, !support::contains("client certificate"));
}

TEST_CASE("the end of a connection in a handshake may pass, and is explained", "[tls][explain]") {
    const error_code ends[] = {
        ssl::error::stream_truncated, asio::error::connection_reset, asio::error::broken_pipe};
    for (const error_code& ec : ends) {
        const explanation e = explain_handshake(ec, !has_certificate);
        CHECK(e.ec == ec);
        CHECK_THAT(e.text, support::contains("TLS"));
    }
    CHECK(explain_handshake(alert(80), !has_certificate).ec == errc::tls_failed);
    CHECK_FALSE(explain_handshake({}, !has_certificate).ec);
    CHECK(explain_handshake({}, !has_certificate).text.empty());
}

TEST_CASE("only a refusal of ours is a distrust", "[tls][explain]") {
    CHECK(is_distrust(from_openssl(SSL_R_CERTIFICATE_VERIFY_FAILED)));
    CHECK_FALSE(is_distrust(from_openssl(SSL_R_CERTIFICATE_VERIFY_FAILED, ERR_LIB_X509)));
    CHECK_FALSE(is_distrust(alert(42)));
    CHECK_FALSE(is_distrust({}));
    CHECK_FALSE(is_distrust({SSL_R_CERTIFICATE_VERIFY_FAILED, coetcd_category()}));
}
