// An HTTP server whose handler waits for a lock.
//
//     POST /orders/42/ship
//
// ships an order once, whatever number of requests arrive at the same time, at whatever number of
// such servers: the first gets 201, the others wait for it and get 200. Whoever cannot get the lock
// in time gets 503. One thread serves all of them; a request that waits costs a coroutine.
//
// Run: http_server [http://127.0.0.1:2379 [PORT]]
//
// It prints the port, which is a free one if none is given, and ends in order on SIGTERM or SIGINT.
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <coetcd.hpp>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using namespace std::chrono_literals;
using asio::ip::tcp;
using request = http::request<http::string_body>;
using response = http::response<http::string_body>;

namespace {

response reply(http::status status, std::string text) {
    response r(status, 11);
    r.set(http::field::content_type, "text/plain");
    r.keep_alive(false);
    r.body() = text + "\n";
    r.prepare_payload();
    return r;
}

/// The order that a request is about, or nothing.
std::optional<std::string> order_to_ship(const request& r) {
    const std::string target(r.target());
    const std::string before = "/orders/";
    const std::string after = "/ship";
    if (r.method() != http::verb::post || target.size() <= before.size() + after.size() ||
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
    server(coetcd::client client, unsigned short port)
        : client_(std::move(client))
        , acceptor_(client_.get_executor(), tcp::endpoint(asio::ip::address_v4::loopback(), port))
        , signals_(client_.get_executor(), SIGTERM, SIGINT)
        , name_("server " + std::to_string(acceptor_.local_endpoint().port())) {}

    unsigned short port() const { return acceptor_.local_endpoint().port(); }

    /// Serves until a signal comes. The requests under way are answered.
    asio::awaitable<void> run() {
        asio::co_spawn(client_.get_executor(), accept(), asio::detached);
        asio::co_spawn(client_.get_executor(), stop_on_signal(), asio::detached);
        while (!stopped_) {
            const coetcd::session_options options(5s, name_);
            std::string trouble;
            try {
                session_ = co_await coetcd::session::open(client_, options);
                const coetcd::session_end why = co_await session_->lost();
                trouble = std::string("the session is lost: ") + coetcd::to_string(why);
            } catch (const coetcd::error& e) {
                trouble = e.what();
            }
            session_.reset();
            if (!stopped_) {
                std::cerr << name_ << ": " << trouble << std::endl;
                asio::steady_timer pause(client_.get_executor(), 500ms);
                co_await pause.async_wait(asio::use_awaitable);
            }
        }
    }

private:
    asio::awaitable<void> stop_on_signal() {
        co_await signals_.async_wait(asio::use_awaitable);
        stopped_ = true;
        acceptor_.close();
        if (busy_ == 0 && session_) {
            co_await session_->close();
        }
    }

    asio::awaitable<void> accept() {
        while (!stopped_) {
            tcp::socket socket = co_await acceptor_.async_accept(asio::use_awaitable);
            asio::co_spawn(client_.get_executor(),
                           serve(beast::tcp_stream(std::move(socket))),
                           asio::detached);
        }
    }

    asio::awaitable<void> serve(beast::tcp_stream peer) {
        ++busy_;
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
            std::cerr << name_ << ": " << e.what() << std::endl; // the peer has gone
        }
        --busy_;
        if (stopped_ && busy_ == 0 && session_) {
            co_await session_->close();
        }
    }

    asio::awaitable<response> handle(request r) {
        const std::optional<std::string> order = order_to_ship(r);
        if (!order) {
            co_return reply(http::status::not_found, "POST /orders/<number>/ship");
        }
        try {
            auto shipping = ship(*order);
            co_return co_await std::move(shipping);
        } catch (const coetcd::error& e) {
            // Nothing is shipped twice; whether it is shipped now, the next request will tell.
            std::cerr << name_ << ": " << e.what() << std::endl;
        }
        co_return reply(http::status::service_unavailable, "please try again");
    }

    asio::awaitable<response> ship(std::string order) {
        if (!session_) {
            co_return reply(http::status::service_unavailable, "please try again");
        }
        // The lock's own keys are below "orders/42/", so that nothing else may be.
        coetcd::mutex mutex(*session_, "orders/" + order);
        const bool locked = co_await mutex.try_lock_for(5s);
        if (!locked) {
            co_return reply(http::status::service_unavailable, "busy, please try again");
        }
        coetcd::held_lock held(mutex, std::adopt_lock); // given back whatever happens

        const std::string shipped = "shipped/" + order;
        const std::optional<coetcd::key_value> before = co_await client_.get(shipped);
        if (before) {
            co_return reply(http::status::ok,
                            "order " + order + " was shipped by " + before->value);
        }
        co_await pack(order);
        coetcd::txn note =
            coetcd::txn().when(held.is_owner()).then(coetcd::op::put(shipped, name_));
        const coetcd::txn_response noted = co_await client_.txn(std::move(note));
        if (!noted.succeeded) {
            co_return reply(http::status::service_unavailable, "lock lost, please try again");
        }
        co_return reply(http::status::created, "order " + order + " is shipped by " + name_);
    }

    /// What takes its time.
    asio::awaitable<void> pack(std::string order) {
        std::clog << name_ << ": packs order " << order << std::endl;
        asio::steady_timer work(client_.get_executor(), 200ms);
        co_await work.async_wait(asio::use_awaitable);
    }

    coetcd::client client_;
    tcp::acceptor acceptor_;
    asio::signal_set signals_;
    const std::string name_;
    std::optional<coetcd::session> session_; // while there is one
    int busy_ = 0;
    bool stopped_ = false;
};

} // namespace

int main(int argc, char** argv) {
    const char* const url = argc > 1 ? argv[1] : "http://127.0.0.1:2379";
    const int port = argc > 2 ? std::atoi(argv[2]) : 0;
    asio::io_context context;
    server s(coetcd::client(context.get_executor(), url), static_cast<unsigned short>(port));
    std::cout << "listening on 127.0.0.1:" << s.port() << std::endl;
    auto ended = asio::co_spawn(context, s.run(), asio::use_future);
    context.run();
    ended.get();
}
