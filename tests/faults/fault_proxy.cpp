// SPDX-License-Identifier: BSL-1.0
#include "support/fault_proxy.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// Two sockets with a proxy in between.
class pair {
public:
    explicit pair(const asio::any_io_executor& executor)
        : acceptor(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0))
        , proxy(executor, "127.0.0.1", acceptor.local_endpoint().port())
        , client(executor)
        , server(executor) {}

    awaitable<void> connect() {
        const auto url = proxy.url();
        const auto port = static_cast<unsigned short>(std::stoi(url.substr(url.rfind(':') + 1)));
        client = tcp::socket(client.get_executor());
        server.close();
        const tcp::endpoint there(asio::ip::address_v4::loopback(), port);
        co_await client.async_connect(there, asio::use_awaitable);
        co_await acceptor.async_accept(server, asio::use_awaitable);
    }

    /// What the client gets of this, until the connection ends.
    awaitable<std::string> answer(std::string text) {
        co_await asio::async_write(server, asio::buffer(text), asio::use_awaitable);
        server.shutdown(tcp::socket::shutdown_send);
        std::string got;
        co_await asio::async_read(
            client, asio::dynamic_buffer(got), asio::redirect_error(asio::use_awaitable, ended));
        co_return got;
    }

    tcp::acceptor acceptor;
    fault_proxy proxy;
    tcp::socket client;
    tcp::socket server;
    error_code ended; ///< How the last answer did.
};

} // namespace

TEST_CASE("A proxy does to answers what it is told to do", "[support]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        pair p(executor);
        const std::string text = "0123456789";
        toxics t;

        co_await p.connect();
        const std::string whole = co_await p.answer(text);
        CHECK(whole == text);

        t.limit_data = 4;
        p.proxy.answers(t);
        co_await p.connect();
        const std::string cut = co_await p.answer(text);
        CHECK(cut == "0123");
        CHECK(p.ended == asio::error::eof);
        CHECK(p.proxy.count().closed == 1);

        t = toxics();
        t.reset_after = 4;
        p.proxy.answers(t);
        co_await p.connect();
        (void)co_await p.answer(text);
        CHECK(p.ended == asio::error::connection_reset);
        CHECK(p.proxy.count().reset == 1);

        t = toxics();
        t.corrupt_every = 4;
        p.proxy.answers(t);
        co_await p.connect();
        const std::string garbled = co_await p.answer(text);
        CHECK(garbled == std::string("012\0"
                                     "456\0"
                                     "89",
                                     10));
        CHECK(p.proxy.count().corrupted == 2);

        t = toxics();
        t.latency = 100ms;
        t.slow_close = 100ms;
        p.proxy.answers(t);
        co_await p.connect();
        const auto began = clock::now();
        const std::string late = co_await p.answer(text);
        CHECK(late == text);
        CHECK(ms_between(began, clock::now()) >= 200);

        t = toxics();
        t.slice = 3;
        t.bytes_per_second = 100;
        p.proxy.answers(t);
        co_await p.connect();
        const auto slow = clock::now();
        const std::string slowly = co_await p.answer(text);
        CHECK(slowly == text);
        CHECK(ms_between(slow, clock::now()) >= 100);
        CHECK(p.proxy.count().sliced == 3);

        t = toxics();
        t.flood = 1000;
        p.proxy.answers(t);
        co_await p.connect();
        const std::string flood = co_await p.answer(text);
        CHECK(flood.starts_with("HTTP/1.1 200 OK\r\n"));
        CHECK(flood.size() > 1000);

        t = toxics();
        t.drop_chunks = "bad";
        p.proxy.answers(t);
        co_await p.connect();
        const std::string header = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        const std::string sized = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad";
        const std::string filtered =
            co_await p.answer(sized + header + "4\r\ngood\r\n3\r\nbad\r\n0\r\n\r\n");
        CHECK(filtered == sized + header + "4\r\ngood\r\n0\r\n\r\n");
        CHECK(p.proxy.count().dropped_chunks == 1);
    });
}

TEST_CASE("A proxy swallows bytes, until it is healed", "[support]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        pair p(executor);
        co_await p.connect();
        toxics gone;
        gone.blackhole = true;
        p.proxy.present_requests(gone);
        const std::string text = "lost";
        co_await asio::async_write(p.client, asio::buffer(text), asio::use_awaitable);
        const auto swallowed = [&]() -> awaitable<bool> {
            co_return p.proxy.count().swallowed == text.size();
        };
        co_await eventually(swallowed, 5s, "bytes are swallowed");
        p.proxy.heal();
        std::string got;
        co_await asio::async_read(p.server,
                                  asio::dynamic_buffer(got),
                                  asio::redirect_error(asio::use_awaitable, p.ended));
        CHECK(got.empty());
        CHECK(p.ended == asio::error::eof);

        co_await p.connect(); // another one passes
        const std::string whole = co_await p.answer(text);
        CHECK(whole == text);
    });
}
