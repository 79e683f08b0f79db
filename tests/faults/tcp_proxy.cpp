// SPDX-License-Identifier: BSL-1.0
#include "support/tcp_proxy.hpp"

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
    tcp_proxy proxy;
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

TEST_CASE("A proxy passes on what it has held, although its sender has gone", "[support]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        pair p(executor);
        co_await p.connect();
        p.proxy.present_requests(traffic::hold);
        const std::string text = "held";
        co_await asio::async_write(p.client, asio::buffer(text), asio::use_awaitable);
        const auto held = [&]() -> awaitable<bool> {
            co_return p.proxy.held_requests() == text.size();
        };
        co_await eventually(held, 5s, "bytes are held");
        CHECK(p.proxy.count().passed_requests == 0);
        p.client.close();
        p.proxy.present_requests(traffic::pass);
        std::string got(text.size(), ' ');
        co_await asio::async_read(p.server, asio::buffer(got), asio::use_awaitable);
        CHECK(got == text);
        CHECK(p.proxy.held_requests() == 0);
        CHECK(p.proxy.count().passed_requests == text.size());
        co_await asio::async_write(p.server, asio::buffer(text), asio::use_awaitable);
        const auto answered = [&]() -> awaitable<bool> {
            co_return p.proxy.count().received_answers == text.size();
        };
        co_await eventually(answered, 5s, "the server may answer");
    });
}

TEST_CASE("A proxy completes requests before it passes them on", "[support]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        pair p(executor);
        p.proxy.requests(traffic::whole);
        co_await p.connect();
        const std::string sized = "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
        const std::string chunked =
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n";
        const std::string bare = "GET / HTTP/1.1\r\n\r\n";
        for (const std::string& next : {sized, chunked, bare}) {
            // Each comes with the beginning of the next one, all but the last byte of it.
            const std::size_t requests = p.proxy.count().whole_requests;
            const std::size_t passed = p.proxy.count().passed_requests;
            const std::string first = bare + next.substr(0, next.size() - 1);
            const std::string last = next.substr(next.size() - 1);
            std::string got(bare.size(), ' ');
            co_await asio::async_write(p.client, asio::buffer(first), asio::use_awaitable);
            co_await asio::async_read(p.server, asio::buffer(got), asio::use_awaitable);
            CHECK(got == bare);
            CHECK(p.proxy.count().passed_requests == passed + bare.size());
            CHECK(p.proxy.count().whole_requests == requests + 1);
            got.resize(next.size());
            co_await asio::async_write(p.client, asio::buffer(last), asio::use_awaitable);
            co_await asio::async_read(p.server, asio::buffer(got), asio::use_awaitable);
            CHECK(got == next);
            CHECK(p.proxy.count().whole_requests == requests + 2);
        }
    });
}

TEST_CASE("A proxy refuses connections, and takes them again", "[support]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        pair p(executor);
        p.proxy.refuse(true);
        error_code ec;
        const auto url = p.proxy.url();
        const auto port = static_cast<unsigned short>(std::stoi(url.substr(url.rfind(':') + 1)));
        const tcp::endpoint there(asio::ip::address_v4::loopback(), port);
        co_await p.client.async_connect(there, asio::redirect_error(asio::use_awaitable, ec));
        CHECK(ec == asio::error::connection_refused);
        p.proxy.refuse(false);
        co_await p.connect();
        CHECK(p.proxy.count().accepted == 1);
    });
}
