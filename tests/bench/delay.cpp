// SPDX-License-Identifier: BSL-1.0
// A proxy on loopback that delays all traffic, like a long cable.
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <deque>
#include <memory>
#include <utility>

#include "bench/worker.hpp"

namespace bench {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

/// One direction of one connection. Adds `delay` and does not limit the bandwidth.
class lane {
public:
    lane(tcp::socket& from, tcp::socket& to, nanoseconds delay)
        : from_(from)
        , to_(to)
        , delay_(delay)
        , timer_(from.get_executor(), clock::time_point::max()) {}

    awaitable<void> receive() {
        std::array<char, 65536> block;
        error_code ec;
        while (!ec) {
            const std::size_t n = co_await from_.async_read_some(
                asio::buffer(block), asio::redirect_error(asio::use_awaitable, ec));
            under_way_.emplace_back(clock::now() + delay_, std::string(block.data(), n));
            timer_.cancel();
        }
    }

    /// Delivers until the end of the stream, which is an empty text.
    awaitable<void> deliver() {
        error_code ec;
        while (!ec) {
            timer_.expires_at(under_way_.empty() ? clock::time_point::max()
                                                 : under_way_.front().first);
            if (timer_.expiry() > clock::now()) {
                error_code ignored;
                co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
                continue;
            }
            const std::string text = std::move(under_way_.front().second);
            under_way_.pop_front();
            if (text.empty()) {
                break;
            }
            co_await asio::async_write(
                to_, asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
        }
        error_code ignored;
        from_.close(ignored);
        to_.close(ignored);
    }

private:
    tcp::socket& from_;
    tcp::socket& to_;
    nanoseconds delay_;
    asio::steady_timer timer_;
    std::deque<std::pair<clock::time_point, std::string>> under_way_;
};

awaitable<void> serve(tcp::socket client, tcp::endpoint target, nanoseconds delay) {
    tcp::socket server(client.get_executor());
    co_await server.async_connect(target, asio::use_awaitable);
    client.set_option(tcp::no_delay(true));
    server.set_option(tcp::no_delay(true));
    lane requests(client, server, delay);
    lane answers(server, client, delay);
    crew both(client.get_executor());
    both.start(requests.receive());
    both.start(requests.deliver());
    both.start(answers.receive());
    both.start(answers.deliver());
    (void)co_await both.joined();
}

} // namespace

/// `seconds` is the round trip.
awaitable<json> run_delay(task t) {
    const auto executor = co_await asio::this_coro::executor;
    const auto one_way =
        std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(t.seconds / 2));
    const auto port = std::stoul(t.url.substr(t.url.rfind(':') + 1));
    const tcp::endpoint target(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    tcp::acceptor acceptor(executor, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    json ready;
    ready["url"] = "http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
    tell(ready);
    for (;;) {
        tcp::socket client = co_await acceptor.async_accept(asio::use_awaitable);
        asio::co_spawn(executor, serve(std::move(client), target, one_way), [](auto) {});
    }
}

} // namespace bench
