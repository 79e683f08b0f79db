// What a client does, as metrics for Prometheus: GET /metrics on the port that it prints.
//
// Meanwhile it takes and gives back a lock, ten times a second. Ends on SIGTERM or SIGINT.
//
// Run: 13_prometheus [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using namespace std::chrono_literals;
using asio::ip::tcp;

namespace {

asio::awaitable<void> answer(tcp::socket peer,
                             std::shared_ptr<const coetcd::prometheus_observer> shown) {
    beast::flat_buffer buffer;
    http::request<http::empty_body> request;
    co_await http::async_read(peer, buffer, request, asio::use_awaitable);
    const bool known = request.target() == "/metrics";
    http::response<http::string_body> response(known ? http::status::ok : http::status::not_found,
                                               request.version());
    response.set(http::field::content_type, "text/plain; version=0.0.4");
    response.body() = known ? shown->text() : "GET /metrics\n";
    response.keep_alive(false);
    response.prepare_payload();
    co_await http::async_write(peer, response, asio::use_awaitable);
}

asio::awaitable<void> serve(tcp::acceptor& acceptor,
                            std::shared_ptr<const coetcd::prometheus_observer> shown) {
    for (;;) {
        tcp::socket peer = co_await acceptor.async_accept(asio::use_awaitable);
        asio::co_spawn(acceptor.get_executor(), answer(std::move(peer), shown), asio::detached);
    }
}

asio::awaitable<void> work(std::string url, std::shared_ptr<coetcd::observer> observer) {
    coetcd::client_options options;
    options.observer = std::move(observer);
    coetcd::client client(co_await asio::this_coro::executor, url, options);
    coetcd::session session = co_await coetcd::session::open(client, 5s);
    coetcd::mutex mutex(session, "locks/prometheus");
    asio::steady_timer pause(client.get_executor());
    for (;;) {
        co_await mutex.lock();
        pause.expires_after(100ms);
        co_await pause.async_wait(asio::use_awaitable);
        co_await mutex.unlock();
    }
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    const auto shown = std::make_shared<coetcd::prometheus_observer>();
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    std::cout << "listening on 127.0.0.1:" << acceptor.local_endpoint().port() << std::endl;

    asio::cancellation_signal stop;
    asio::signal_set signals(context, SIGTERM, SIGINT);
    signals.async_wait([&](auto, int) {
        acceptor.close();
        stop.emit(asio::cancellation_type::terminal);
    });
    asio::co_spawn(context, serve(acceptor, shown), asio::detached);
    asio::co_spawn(context,
                   work(argc > 1 ? argv[1] : "http://127.0.0.1:2379", shown),
                   asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr failure) {
                       try {
                           std::rethrow_exception(failure);
                       } catch (const std::exception& e) {
                           std::clog << "the work has ended: " << e.what() << '\n';
                       }
                   }));
    context.run();
}

// Prints:
//   listening on 127.0.0.1:*
// and serves such lines:
//   coetcd_lock_hold_seconds_bucket{le="0.25"} 42
//   coetcd_lock_hold_seconds_count 42
