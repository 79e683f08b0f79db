// The HTTP of the examples that are servers: one request and one answer a connection, each
// connection on a strand of its own. Nothing here knows etcd.
#pragma once

#include <coetcd/task_group.hpp>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

namespace web {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using http::status;
using request = http::request<http::string_body>;
using response = http::response<http::string_body>;

inline response reply(status code, const std::string& text) {
    response r(code, 11);
    r.set(http::field::content_type, "text/plain");
    r.keep_alive(false);
    r.body() = text + "\n";
    r.prepare_payload();
    return r;
}

inline tcp::endpoint loopback(int port) {
    return {asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)};
}

inline asio::awaitable<void> pause(std::chrono::milliseconds length) {
    asio::steady_timer timer(co_await asio::this_coro::executor, length);
    co_await timer.async_wait(asio::use_awaitable);
}

/// @param handle `handle(request)` is an `awaitable<response>`.
template<class Handle>
asio::awaitable<void> serve(beast::tcp_stream peer, Handle handle) {
    using namespace std::chrono_literals;
    try {
        beast::flat_buffer buffer;
        request r;
        peer.expires_after(10s);
        co_await http::async_read(peer, buffer, r, asio::use_awaitable);
        peer.expires_never();
        response answer = co_await handle(std::move(r));
        peer.expires_after(10s);
        co_await http::async_write(peer, answer, asio::use_awaitable);
        peer.socket().shutdown(tcp::socket::shutdown_send);
    } catch (const boost::system::system_error& e) {
        // The peer has gone, or is too slow; or its time is over, at the end.
        std::clog << std::string("a connection ends: ") + e.what() + "\n";
    }
}

/// Serves all who come, until the acceptor is closed, which is to be done where this runs.
/// @param pool Where the connections are served.
/// @param peers Those who are being served. Must outlive this, as the acceptor.
template<class Handle>
asio::awaitable<void> serve_all(tcp::acceptor& door,
                                asio::any_io_executor pool,
                                coetcd::task_group& peers,
                                Handle handle) {
    using namespace std::chrono_literals;
    while (door.is_open()) {
        boost::system::error_code failure;
        const asio::any_io_executor own = asio::make_strand(pool);
        tcp::socket peer =
            co_await door.async_accept(own, asio::redirect_error(asio::use_awaitable, failure));
        if (!failure) {
            peers.spawn(own, serve(beast::tcp_stream(std::move(peer)), handle));
        } else if (door.is_open()) {
            co_await pause(100ms); // there may be no descriptor left
        }
    }
}

} // namespace web
