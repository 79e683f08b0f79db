// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

/// What went wrong, in words for people. Text that a server sent is untrusted.
namespace coetcd::detail::tls {

namespace ssl = boost::asio::ssl;

/// What a function of OpenSSL prints.
template<class Function>
std::string printed(Function print) {
    BIO* const out = BIO_new(BIO_s_mem());
    std::string text;
    if (out) {
        print(out);
        char* data = nullptr;
        const long size = BIO_get_mem_data(out, &data);
        text = wire::printable({data, static_cast<std::size_t>(std::max(size, 0L))});
        BIO_free(out);
    }
    return text;
}

inline std::string text_of(const X509_NAME* name) {
    return printed([&](BIO* out) { X509_NAME_print_ex(out, name, 0, XN_FLAG_ONELINE); });
}

inline std::string text_of_time(const ASN1_TIME* time) {
    return printed([&](BIO* out) { ASN1_TIME_print(out, time); });
}

inline std::string text_of_address(const unsigned char* data, std::size_t size) {
    boost::asio::ip::address_v4::bytes_type v4;
    boost::asio::ip::address_v6::bytes_type v6;
    if (size == v4.size()) {
        std::copy_n(data, size, v4.begin());
        return boost::asio::ip::make_address_v4(v4).to_string();
    }
    if (size == v6.size()) {
        std::copy_n(data, size, v6.begin());
        return boost::asio::ip::make_address_v6(v6).to_string();
    }
    return "?";
}

/// The hosts that a certificate is for: `localhost, *.example.com, 127.0.0.1`.
inline std::string hosts_of(const X509& certificate) {
    auto* const names = static_cast<GENERAL_NAMES*>(
        X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
    std::string text;
    for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
        const GENERAL_NAME* const each = sk_GENERAL_NAME_value(names, i);
        if (each->type != GEN_DNS && each->type != GEN_IPADD) {
            continue;
        }
        const ASN1_STRING* const name = each->d.ia5; // whichever of the two it is
        const unsigned char* const data = ASN1_STRING_get0_data(name);
        const auto size = static_cast<std::size_t>(ASN1_STRING_length(name));
        text += text.empty() ? "" : ", ";
        text += each->type == GEN_IPADD ? text_of_address(data, size)
                                        : std::string(reinterpret_cast<const char*>(data), size);
    }
    GENERAL_NAMES_free(names);
    return text.empty() ? "no host: it has no subject alternative name" : wire::printable(text);
}

/// Why a certificate is not trusted.
/// @param expected The host whose certificate it should be.
inline std::string distrust(X509_STORE_CTX& verification, const std::string& expected) {
    const int reason = X509_STORE_CTX_get_error(&verification);
    const X509* const at = X509_STORE_CTX_get_current_cert(&verification);
    std::string text = "certificate verify failed: ";
    text += X509_verify_cert_error_string(reason);
    if (!at) {
        return text;
    }
    const std::string subject = text_of(X509_get_subject_name(at));
    switch (reason) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return text + ": it is not for " + expected + " but for " + hosts_of(*at) +
               "; use such a name in the endpoint, or set tls_options::server_name";
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return text + ": (" + subject + "), on " + text_of_time(X509_get0_notAfter(at));
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return text + ": (" + subject + "), before " + text_of_time(X509_get0_notBefore(at)) +
               "; check the clock";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return text + ": it comes from (" + text_of(X509_get_issuer_name(at)) +
               "); if that is to be trusted, set tls_options::ca_file";
    default:
        return text + ": (" + subject + ")";
    }
}

/// Whether a handshake failed because we do not trust the server.
inline bool is_distrust(const error_code& ec) {
    const auto packed = static_cast<unsigned long>(ec.value());
    return ec.category() == boost::asio::error::get_ssl_category() &&
           ERR_GET_LIB(packed) == ERR_LIB_SSL &&
           ERR_GET_REASON(packed) == SSL_R_CERTIFICATE_VERIFY_FAILED;
}

/// What a failure of a secure connection means.
struct explanation {
    error_code ec;
    std::string text;        ///< Details of `ec`, besides its message.
    bool before_any = false; ///< The server ended the connection before it looked at any request.
};

/// @param has_certificate Whether we have one to show.
inline explanation explain(const error_code& ec, bool has_certificate) {
    // Alerts as the peer sends them; OpenSSL adds an offset to make codes of its own.
    constexpr int handshake_failure = 40, no_certificate = 41, certificate_unknown = 46,
                  unknown_ca = 48, protocol_version = 70, certificate_required = 116;
    if (ec.category() != boost::asio::error::get_ssl_category() &&
        (ec.category() != ssl::error::get_stream_category() ||
         ec == ssl::error::stream_truncated)) {
        return {ec, {}};
    }
    explanation result{errc::tls_failed, wire::printable(ec.message())};
    const auto packed = static_cast<unsigned long>(ec.value());
    if (ERR_GET_LIB(packed) != ERR_LIB_SSL) {
        return result;
    }
    const int reason = ERR_GET_REASON(packed);
    const int alert = reason - SSL_AD_REASON_OFFSET;
    if ((alert >= no_certificate && alert <= certificate_unknown) || alert == unknown_ca ||
        alert == certificate_required) {
        result.before_any = true;
        result.text = has_certificate ? std::string("the server refuses the client certificate: ") +
                                            SSL_alert_desc_string_long(alert)
                                      : "the server wants a client certificate: set "
                                        "tls_options::certificate_file and key_file";
    } else if (alert == handshake_failure && !has_certificate) {
        result.text += "; the server may want a client certificate";
    } else if (alert == protocol_version || reason == SSL_R_UNSUPPORTED_PROTOCOL) {
        result.text = "the server speaks no TLS 1.2 or later";
    } else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG ||
               reason == SSL_R_HTTP_REQUEST) {
        result.text = "the endpoint does not speak TLS; if that is as it should be, write http://";
    }
    return result;
}

/// What the failure of a handshake means. A server that does not speak TLS may just end the
/// connection.
inline explanation explain_handshake(const error_code& ec, bool has_certificate) {
    explanation result = explain(ec, has_certificate);
    if (ec == ssl::error::stream_truncated || ec == boost::asio::error::connection_reset ||
        ec == boost::asio::error::broken_pipe) {
        result.text = "closed during the TLS handshake; perhaps the endpoint does not speak TLS";
    }
    return result;
}

} // namespace coetcd::detail::tls
