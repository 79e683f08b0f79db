// SPDX-License-Identifier: BSL-1.0
#include "support/buffering_proxy.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <array>
#include <exception>
#include <list>
#include <utility>

namespace support {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto rethrow = [](std::exception_ptr failure) {
    if (failure) {
        std::rethrow_exception(failure);
    }
};

auto into(error_code& ec) {
    return asio::redirect_error(asio::use_awaitable, ec);
}

struct connection {
    explicit connection(tcp::socket accepted)
        : client(std::move(accepted)) {
        error_code ignored;
        client.set_option(tcp::no_delay(true), ignored);
    }
    void close() {
        error_code ignored;
        client.close(ignored);
        if (server) {
            server->close(ignored);
        }
    }
    tcp::socket client;
    beast::flat_buffer received;
    std::shared_ptr<tcp::socket> server; // for one request
};
using connection_ptr = std::shared_ptr<connection>;

/// Sends the answer on, piece by piece.
asio::awaitable<void> relay(connection_ptr c, error_code& ec) {
    const std::shared_ptr<tcp::socket> server = c->server;
    beast::flat_buffer received;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    co_await http::async_read_header(*server, received, parser, into(ec));
    http::response_serializer<http::buffer_body> out(parser.get());
    if (!ec) {
        co_await http::async_write_header(c->client, out, into(ec));
    }
    std::array<char, 16384> piece;
    auto& body = parser.get().body();
    while (!ec && !out.is_done()) {
        body.data = piece.data();
        body.size = piece.size();
        if (!parser.is_done()) {
            co_await http::async_read_some(*server, received, parser, into(ec));
            ec = ec == http::error::need_buffer ? error_code() : ec;
        }
        body.data = piece.data();
        body.size = piece.size() - body.size;
        body.more = !parser.is_done();
        if (!ec && (body.size != 0 || !body.more)) {
            co_await http::async_write(c->client, out, into(ec));
            ec = ec == http::error::need_buffer ? error_code() : ec;
        }
    }
}

/// Tells the server when the client has gone while it waits for an answer.
asio::awaitable<void> follow_client(connection_ptr c) {
    const std::shared_ptr<tcp::socket> server = c->server;
    error_code ec;
    c->client.non_blocking(true, ec);
    do { // what was read already may be reported once more
        co_await c->client.async_wait(tcp::socket::wait_read, into(ec));
        if (!ec) {
            char next = 0;
            (void)c->client.receive(asio::buffer(&next, 1), tcp::socket::message_peek, ec);
        }
    } while (ec == asio::error::would_block);
    server->close(ec);
}

} // namespace

struct buffering_proxy::state {
    state(const asio::any_io_executor& executor, std::uint16_t server_port)
        : acceptor(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0))
        , own_port(acceptor.local_endpoint().port())
        , target(asio::ip::address_v4::loopback(), server_port) {}

    static asio::awaitable<void> accept(std::shared_ptr<state> self) {
        error_code ec;
        while (!ec) {
            tcp::socket socket(self->acceptor.get_executor());
            co_await self->acceptor.async_accept(socket, into(ec));
            if (!ec) {
                ++self->accepted;
                auto c = std::make_shared<connection>(std::move(socket));
                self->connections.push_back(c);
                asio::co_spawn(self->acceptor.get_executor(), serve(self, c), rethrow);
            }
        }
    }

    static asio::awaitable<void> serve(std::shared_ptr<state> self, connection_ptr c) {
        error_code ec;
        while (!ec) {
            http::request_parser<http::string_body> parser;
            co_await http::async_read(c->client, c->received, parser, into(ec));
            if (ec) {
                break;
            }
            c->server = std::make_shared<tcp::socket>(c->client.get_executor());
            // The connections on both sides of a proxy are none of each other's business.
            auto request = parser.release();
            request.erase(http::field::connection);
            request.prepare_payload();
            co_await c->server->async_connect(self->target, into(ec));
            if (!ec) {
                c->server->set_option(tcp::no_delay(true), ec);
                ++self->passed_on;
                co_await http::async_write(*c->server, request, into(ec));
            }
            if (!ec) {
                asio::co_spawn(c->client.get_executor(), follow_client(c), rethrow);
                co_await relay(c, ec);
            }
            error_code ignored;
            c->client.cancel(ignored); // follow_client
        }
        c->close();
        self->connections.remove(c);
    }

    tcp::acceptor acceptor;
    const std::uint16_t own_port;
    const tcp::endpoint target;
    std::list<connection_ptr> connections;
    std::size_t accepted = 0;
    std::size_t passed_on = 0;
};

buffering_proxy::buffering_proxy(const asio::any_io_executor& executor, std::uint16_t server_port)
    : state_(std::make_shared<state>(executor, server_port)) {
    asio::co_spawn(executor, state::accept(state_), rethrow);
}

buffering_proxy::~buffering_proxy() {
    state_->acceptor.close();
    cut();
}

std::string buffering_proxy::url() const {
    return "http://127.0.0.1:" + std::to_string(state_->own_port);
}

void buffering_proxy::cut() {
    for (const auto& c : state_->connections) {
        c->close();
    }
}

std::size_t buffering_proxy::accepted() const {
    return state_->accepted;
}

std::size_t buffering_proxy::passed_on() const {
    return state_->passed_on;
}

} // namespace support
