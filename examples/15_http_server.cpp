// An HTTP server whose handler waits for a lock.
//
//     POST /orders/42/ship
//
// ships an order once, however many requests arrive at the same time, at however many such servers:
// the first gets 201, the others wait for it and get 200. A request that cannot get the lock in
// time gets 503. One thread serves all of them; a request that waits costs a coroutine.
//
// Run: 15_http_server [http://127.0.0.1:2379 [PORT]]
//
// It prints the port, which is a free one if none is given, and ends in order on SIGTERM or SIGINT.
// stories/service.cpp is more of a service.
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "http.hpp"
#include "orders.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using web::status;

namespace {

/// The order that a request is about, or nothing.
std::optional<std::string> order_to_ship(const web::request& r) {
    const std::string target(r.target());
    const std::string before = "/orders/";
    const std::string after = "/ship";
    if (r.method() != web::http::verb::post || target.size() <= before.size() + after.size() ||
        !target.starts_with(before) || !target.ends_with(after)) {
        return std::nullopt;
    }
    const std::string order =
        target.substr(before.size(), target.size() - before.size() - after.size());
    const bool number = order.find_first_not_of("0123456789") == order.npos && order.size() < 20;
    return number ? std::optional<std::string>(order) : std::nullopt;
}

class server {
public:
    server(coetcd::client client, int port)
        : client_(std::move(client))
        , acceptor_(client_.get_executor(), web::loopback(port))
        , name_("server " + std::to_string(acceptor_.local_endpoint().port()))
        , sessions_(client_, coetcd::session_keeper_options(5s, name_))
        , orders_(client_, sessions_, name_, [this](std::string order) { return pack(order); })
        , requests_(client_) {
        std::cout << "listening on " << acceptor_.local_endpoint() << std::endl;
    }

    /// Serves until a signal comes. Requests that are under way then have ten seconds more.
    asio::awaitable<void> run() {
        const asio::any_io_executor here = client_.get_executor();
        auto handler = [this](web::request r) { return handle(std::move(r)); };
        requests_.spawn(here, web::serve_all(acceptor_, here, requests_, handler));
        asio::signal_set signals(here, SIGTERM, SIGINT);
        co_await signals.async_wait(asio::use_awaitable);
        acceptor_.close();
        co_await requests_.shutdown(10s);
        (void)co_await coetcd::as_result(sessions_.close()); // else its lease ends by itself
    }

private:
    void say(const std::string& what) const { std::clog << name_ << ": " << what << std::endl; }

    asio::awaitable<web::response> handle(web::request r) {
        const std::optional<std::string> order = order_to_ship(r);
        if (!order) {
            co_return web::reply(status::not_found, "POST /orders/<number>/ship");
        }
        try {
            const shop::outcome end = co_await orders_.ship(*order);
            co_return reply_to(*order, end);
        } catch (const coetcd::error& e) {
            say(e.what()); // whether the order is shipped or not, the next request will tell
        }
        co_return reply_to(*order, {});
    }

    static web::response reply_to(const std::string& order, const shop::outcome& end) {
        switch (end.what) {
        case shop::outcome::kind::shipped:
            return web::reply(status::created, "order " + order + " is shipped by " + end.by);
        case shop::outcome::kind::shipped_before:
            return web::reply(status::ok, "order " + order + " was shipped by " + end.by);
        case shop::outcome::kind::try_again:
            break;
        }
        return web::reply(status::service_unavailable, "please try again");
    }

    asio::awaitable<void> pack(std::string order) const {
        say("packs order " + order);
        co_await web::pause(200ms);
    }

    coetcd::client client_;
    web::tcp::acceptor acceptor_;
    const std::string name_;
    coetcd::session_keeper sessions_; // one session for all requests; a new one when it is lost
    const shop::order_handler orders_;
    coetcd::task_group requests_;
};

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    const coetcd::client client(context.get_executor(),
                                argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    server s(client, argc > 2 ? std::atoi(argv[2]) : 0);
    auto ended = asio::co_spawn(context, s.run(), asio::use_future);
    context.run();
    ended.get();
}

// Prints:
//   listening on 127.0.0.1:*
