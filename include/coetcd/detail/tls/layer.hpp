// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/net/clock.hpp>
#include <coetcd/detail/net/connection.hpp>
#include <coetcd/detail/tls/connection.hpp>
#include <coetcd/detail/tls/explain.hpp>
#include <coetcd/detail/tls/renewed_context.hpp>
#include <coetcd/tls_options.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail::tls {

/// Secure connections with one set of options.
class layer final : public tls_context {
public:
    /// @param server_name The host to expect instead of the endpoint's.
    layer(tls_options o, std::optional<std::string> server_name)
        : context_(std::move(o), net::boot_clock::now())
        , server_name_(std::move(server_name)) {}

    asio::awaitable<net::connect_result> secure(asio::ip::tcp::socket socket,
                                                logic::endpoint to,
                                                net::limits most,
                                                time_point deadline) const override {
        net::connect_result result;
        const asio::any_io_executor executor = socket.get_executor();
        const renewed_context::found using_files = context_.find(net::boot_clock::now());
        result.text = using_files.trouble;
        tls_stream unsure(std::move(socket), *using_files.context); // which counts references
        std::string host = plain_name(server_name_.value_or(to.host));
        auto fresh = std::make_unique<secure_connection>(std::move(unsure), most, std::move(host));
        net::watchdog limit(executor, deadline, [&c = *fresh] { c.close(); });
        explanation e = co_await fresh->handshake();
        if (limit.fired()) {
            result.ec = errc::timed_out;
        } else if (e.ec) {
            result.ec = e.ec;
            result.text = result.text.empty() ? e.text : e.text + "; " + result.text;
        } else {
            result.connected = std::move(fresh);
        }
        co_return result;
    }

private:
    mutable renewed_context context_;
    const std::optional<std::string> server_name_;
};

} // namespace coetcd::detail::tls
