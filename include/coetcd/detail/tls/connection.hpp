// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/net/clock.hpp>
#include <coetcd/detail/net/connection.hpp>
#include <coetcd/detail/net/http_connection.hpp>
#include <coetcd/detail/tls/explain.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/ssl/verify_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail::tls {

using tls_stream = ssl::stream<asio::ip::tcp::socket>;

/// The name by which a server must be known: without the zone of an address and the dot at the end.
inline std::string plain_name(std::string host) {
    if (const auto zone = host.find('%'); zone != host.npos) {
        host.erase(zone);
    }
    if (host.size() > 1 && host.ends_with('.')) { // OpenSSL takes an empty name for any name
        host.pop_back();
    }
    return host;
}

/// Tells OpenSSL whose certificate to accept, and the server which host we mean.
/// @returns False if there is no memory.
inline bool expect(SSL& connection, const std::string& host) {
    X509_VERIFY_PARAM* const how = SSL_get0_param(&connection);
    error_code not_address;
    (void)asio::ip::make_address(host, not_address);
    if (!not_address) {
        return X509_VERIFY_PARAM_set1_ip_asc(how, host.c_str()) == 1;
    }
    X509_VERIFY_PARAM_set_hostflags(
        how, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(how, host.data(), host.size()) == 1 &&
           SSL_set_tlsext_host_name(&connection, host.c_str()) == 1;
}

/// A secure connection that explains its failures.
class secure_connection final : public net::http_connection<tls_stream> {
public:
    secure_connection(tls_stream connected, net::limits most, std::string host)
        : http_connection(std::move(connected), most)
        , host_(std::move(host)) {}

    /// To be awaited before anything else.
    asio::awaitable<explanation> handshake() {
        explanation result;
        if (!expect(*next_layer().native_handle(), host_)) {
            result.ec = asio::error::no_memory;
            co_return result;
        }
        next_layer().set_verify_callback([this](bool trusted, ssl::verify_context& verification) {
            if (!trusted) {
                doubt_ = distrust(*verification.native_handle(), host_);
            }
            return trusted;
        });
        error_code ec;
        co_await next_layer().async_handshake(tls_stream::client,
                                              asio::redirect_error(asio::use_awaitable, ec));
        // What is still being sent when we are destroyed keeps the stream alive, and not us.
        next_layer().set_verify_callback(
            [](bool trusted, ssl::verify_context&) { return trusted; });
        result = explain_handshake(ec, has_certificate());
        if (is_distrust(ec)) {
            result.text = doubt_;
        }
        co_return result;
    }

    /// Anything that has come unasked is a reason to drop the connection. It is not read here: that
    /// might never end, since each record may ask for new keys.
    bool is_quiet() override {
        SSL* const native = next_layer().native_handle();
        char byte = 0;
        error_code ec;
        next_layer().next_layer().receive(
            asio::buffer(&byte, 1), asio::socket_base::message_peek, ec);
        return SSL_has_pending(native) == 0 && BIO_ctrl_pending(SSL_get_rbio(native)) == 0 &&
               (ec == asio::error::would_block || ec == asio::error::try_again);
    }

    asio::awaitable<reply> exchange(std::string request) override {
        reply r = co_await http_connection::exchange(std::move(request));
        explain_in(r);
        co_return r;
    }
    asio::awaitable<error_code> write(std::string bytes) override {
        const error_code ec = co_await http_connection::write(std::move(bytes));
        co_return explain(ec, has_certificate()).ec;
    }
    asio::awaitable<reply> read_line() override {
        reply r = co_await http_connection::read_line();
        explain_in(r);
        co_return r;
    }

private:
    /// Whether we have one to show.
    bool has_certificate() { return SSL_get_certificate(next_layer().native_handle()) != nullptr; }
    void explain_in(reply& r) {
        explanation e = explain(r.ec, has_certificate());
        r.ec = e.ec;
        r.text = std::move(e.text);
        r.sent = r.sent && !e.before_any;
    }

    const std::string host_;
    std::string doubt_; // about the server's certificate
};

} // namespace coetcd::detail::tls
