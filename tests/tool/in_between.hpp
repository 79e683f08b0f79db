// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "support/etcd_server.hpp"

namespace tool_tests {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Something in front of etcd that decides about each connection by what it begins with.
class in_between {
public:
    virtual ~in_between() = default;
    in_between(const in_between&) = delete;
    in_between& operator=(const in_between&) = delete;
    std::string url() const {
        return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
    }

protected:
    using socket = std::shared_ptr<tcp::socket>;

    in_between() = default;
    /// To be called by the constructor, and by the destructor, of what derives from it.
    void start() {
        asio::co_spawn(context_, accept(), asio::detached);
        thread_ = std::thread([this] { context_.run(); });
    }
    void stop() {
        context_.stop();
        thread_.join();
    }

    virtual asio::awaitable<void> serve(socket client, std::string begins) = 0;

    asio::awaitable<socket> connect() {
        const auto server = std::make_shared<tcp::socket>(context_);
        const std::string url = support::shared_etcd().url();
        const int port = std::stoi(url.substr(url.rfind(':') + 1));
        const tcp::endpoint there(asio::ip::address_v4::loopback(),
                                  static_cast<unsigned short>(port));
        co_await server->async_connect(there, asio::use_awaitable);
        co_return server;
    }
    /// Lets everything through.
    asio::awaitable<void> pass_all(socket client, std::string begins) {
        const socket server = co_await connect();
        const auto first = asio::buffer(begins);
        co_await asio::async_write(*server, first, asio::use_awaitable);
        asio::co_spawn(context_, pass(client, server), asio::detached);
        asio::co_spawn(context_, pass(server, client), asio::detached);
    }

private:
    asio::awaitable<void> accept() {
        for (;;) {
            const auto client = std::make_shared<tcp::socket>(context_);
            co_await acceptor_.async_accept(*client, asio::use_awaitable);
            asio::co_spawn(context_, begin(client), asio::detached);
        }
    }
    asio::awaitable<void> begin(socket client) {
        std::string begins(4096, '\0');
        auto read = asio::buffer(begins);
        begins.resize(co_await client->async_read_some(read, asio::use_awaitable));
        auto serving = serve(client, std::move(begins));
        co_await std::move(serving);
    }
    static asio::awaitable<void> pass(socket from, socket to) {
        std::string some(4096, '\0');
        for (;;) {
            auto read = asio::buffer(some);
            const std::size_t size = co_await from->async_read_some(read, asio::use_awaitable);
            const auto written = asio::buffer(some, size);
            co_await asio::async_write(*to, written, asio::use_awaitable);
        }
    }

    asio::io_context context_;
    tcp::acceptor acceptor_{context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
    std::thread thread_;
};

} // namespace tool_tests
