// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/tls/connection.hpp>
#include <coetcd/detail/tls/pem.hpp>
#include <coetcd/tls_options.hpp>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/verify_mode.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace coetcd::detail::tls {

inline void trust(SSL_CTX& context, const origin& from, const std::vector<x509>& authorities) {
    for (const x509& a : authorities) {
        if (X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), a.get()) != 1) {
            from.refuse_for_openssl("has a certificate that cannot be used");
        }
    }
}

inline void trust_text(SSL_CTX& context, const origin& from, std::string_view text) {
    const std::vector<x509> found = read_certificates(from, text);
    if (found.empty()) {
        from.refuse("holds no certificate in PEM");
    }
    trust(context, from, found);
}

inline void trust_directory(SSL_CTX& context, const std::string& path) {
    const char* const field = "ca_directory";
    const origin all(field, path);
    bool any = false;
    std::error_code ec;
    for (std::filesystem::directory_iterator entry(path, ec), end; !ec && entry != end;
         entry.increment(ec)) {
        std::error_code dangling;
        const std::string file = entry->path().string();
        if (!entry->is_regular_file(dangling) || entry->file_size(dangling) == 0) {
            continue;
        }
        const origin one(field, file);
        const std::vector<x509> found = read_certificates(one, read_file(one, file).view());
        trust(context, one, found);
        any = any || !found.empty();
    }
    if (ec) {
        all.refuse("cannot be read: " + ec.message());
    }
    if (!any) {
        all.refuse("has no file with a certificate in PEM");
    }
}

/// Sets the authorities that `o` trusts.
inline void set_trust(SSL_CTX& context, const tls_options& o) {
    if (o.ca_file) {
        const origin from("ca_file", *o.ca_file);
        trust_text(context, from, read_file(from, *o.ca_file).view());
    }
    if (o.ca_directory) {
        trust_directory(context, *o.ca_directory);
    }
    if (o.ca) {
        trust_text(context, origin("ca:"), *o.ca);
    }
    if (!o.ca_file && !o.ca_directory && !o.ca) {
        if (SSL_CTX_set_default_verify_paths(&context) != 1) {
            origin("ca_file:").refuse_for_openssl("not set, and the system has no authorities");
        }
    }
    // A certificate that is given is trusted, even if another one vouches for it; as in Go.
    X509_STORE_set_flags(SSL_CTX_get_cert_store(&context), X509_V_FLAG_PARTIAL_CHAIN);
}

/// Sets our certificate and key, as `o` says.
inline void set_identity(SSL_CTX& context, const tls_options& o) {
    const auto twice = [](bool both, const char* one, const char* other) {
        if (both) {
            origin(one).refuse(std::string("and ") + other + ": only one of them can be set");
        }
    };
    twice(o.certificate && o.certificate_file, "certificate", "certificate_file");
    twice(o.key && o.key_file, "key", "key_file");
    const bool has_certificate = o.certificate || o.certificate_file;
    const bool has_key = o.key || o.key_file;
    if (has_certificate != has_key) {
        origin(has_key ? "certificate_file:" : "key_file:")
            .refuse(has_key ? "missing; a key was given" : "missing; a certificate was given");
    }
    if (!has_certificate) {
        return;
    }

    const origin cert_from =
        o.certificate ? origin("certificate:") : origin("certificate_file", *o.certificate_file);
    const std::vector<x509> chain =
        o.certificate
            ? read_certificates(cert_from, *o.certificate)
            : read_certificates(cert_from, read_file(cert_from, *o.certificate_file).view());
    if (chain.empty()) {
        cert_from.refuse("holds no certificate in PEM");
    }
    const origin key_from = o.key ? origin("key:") : origin("key_file", *o.key_file);
    const secret file = o.key ? secret() : read_file(key_from, *o.key_file);
    const std::string_view text = o.key ? std::string_view(*o.key) : file.view();
    std::function<std::string()> fetch = o.ask_passphrase;
    if (o.passphrase) {
        fetch = [&o] { return *o.passphrase; };
    }
    const private_key key = read_key(key_from, text, fetch);

    if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
        key_from.refuse("is not the key of " + cert_from.name);
    }
    if (SSL_CTX_use_certificate(&context, chain.front().get()) != 1) {
        cert_from.refuse_for_openssl("cannot be used");
    }
    if (SSL_CTX_use_PrivateKey(&context, key.get()) != 1) {
        key_from.refuse_for_openssl("cannot be used");
    }
    for (auto between = chain.begin() + 1; between != chain.end(); ++between) {
        if (SSL_CTX_add1_chain_cert(&context, between->get()) != 1) {
            cert_from.refuse_for_openssl("has a certificate that cannot be used");
        }
    }
}

/// The context that all connections with these options have in common.
/// @throws std::invalid_argument naming the field and the file.
inline ssl::context make_context(const tls_options& o) {
    ssl::context context(ssl::context::tls_client);
    SSL_CTX& native = *context.native_handle();
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(&native, TLS1_2_VERSION);
    SSL_CTX_set_options(&native, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(&native, SSL_SESS_CACHE_OFF);
    set_trust(native, o);
    set_identity(native, o);
    context.set_verify_mode(o.insecure_skip_verify ? ssl::verify_none : ssl::verify_peer);
    return context;
}

/// @throws std::invalid_argument if it cannot be the name of a server.
inline const std::optional<std::string>& checked_name(const tls_options& o) {
    if (o.server_name &&
        !logic::is_host(*o.server_name, o.server_name->find(':') != std::string::npos)) {
        origin("server_name", *o.server_name).refuse("is neither a name nor an address");
    }
    return o.server_name;
}

} // namespace coetcd::detail::tls
