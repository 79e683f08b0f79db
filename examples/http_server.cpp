// An HTTP server whose handler waits for a lock.
//
//     POST /orders/42/ship
//
// ships an order once, however many requests arrive at the same time, at however many such servers:
// the first gets 201, the others wait for it and get 200. A request that cannot get the lock in
// time gets 503. One thread serves all of them; a request that waits costs a coroutine.
//
// Run: http_server [http://127.0.0.1:2379 [PORT]]
//
// It prints the port, which is a free one if none is given, and ends in order on SIGTERM or SIGINT.
#include <coetcd.hpp>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
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
        , idle_(client_.get_executor(), asio::steady_timer::time_point::max())
        , name_("server " + std::to_string(acceptor_.local_endpoint().port())) {}

    unsigned short port() const { return acceptor_.local_endpoint().port(); }

    /// Serves until a signal comes, and answers the requests that are under way then.
    asio::awaitable<void> run() {
        spawn(accept());
        spawn(keep_session());
        co_await signals_.async_wait(asio::use_awaitable);
        stopped_ = true;
        acceptor_.close();
        while (busy_ > 0) {
            boost::system::error_code cancelled;
            co_await idle_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
        }
        session_.reset(); // revokes the lease in the background
    }

private:
    void spawn(asio::awaitable<void> work) {
        asio::co_spawn(client_.get_executor(), std::move(work), [](std::exception_ptr failure) {
            if (failure) {
                std::rethrow_exception(failure); // out of context.run()
            }
        });
    }

    void say(const std::string& what) const { std::clog << name_ << ": " << what << std::endl; }

    asio::awaitable<void> pause(std::chrono::milliseconds length) {
        asio::steady_timer timer(client_.get_executor(), length);
        co_await timer.async_wait(asio::use_awaitable);
    }

    /// One session for all requests; a new one when it is lost.
    asio::awaitable<void> keep_session() {
        while (!stopped_) {
            try {
                const coetcd::session_options options(5s, name_);
                session_ = co_await coetcd::session::open(client_, options);
                if (stopped_ && busy_ == 0) {
                    break;
                }
                const coetcd::session_end why = co_await session_->wait_lost();
                if (!stopped_) {
                    say(std::string("the session is lost: ") + coetcd::describe(why));
                }
            } catch (const coetcd::error& e) {
                say(e.what());
            }
            session_.reset();
            if (!stopped_) {
                co_await pause(500ms);
            }
        }
        session_.reset();
    }

    asio::awaitable<void> accept() {
        while (!stopped_) {
            boost::system::error_code failure;
            tcp::socket socket =
                co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, failure));
            if (!failure) {
                spawn(serve(beast::tcp_stream(std::move(socket))));
            } else if (!stopped_) {
                say(failure.message());
                co_await pause(100ms); // there may be no descriptor left
            }
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
            say(e.what()); // the peer has gone, or is too slow
        }
        if (--busy_ == 0) {
            idle_.cancel();
        }
    }

    asio::awaitable<response> handle(request r) {
        const std::optional<std::string> order = order_to_ship(r);
        if (!order) {
            co_return reply(http::status::not_found, "POST /orders/<number>/ship");
        }
        try {
            response answer = co_await ship(*order);
            co_return answer;
        } catch (const coetcd::error& e) {
            say(e.what()); // whether the order is shipped or not, the next request will tell
        }
        co_return reply(http::status::service_unavailable, "please try again");
    }

    asio::awaitable<response> ship(std::string order) {
        if (!session_) {
            co_return reply(http::status::service_unavailable, "please try again");
        }
        // No order is in the way of another one, whatever its name.
        coetcd::mutex mutex(*session_, coetcd::lock_name("orders", order));
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

    /// What takes its time, and does no harm should it be done twice: it comes before the write
    /// that only the owner of the lock can do.
    asio::awaitable<void> pack(std::string order) {
        say("packs order " + order);
        co_await pause(200ms);
    }

    coetcd::client client_;
    tcp::acceptor acceptor_;
    asio::signal_set signals_;
    asio::steady_timer idle_; // notified when the last request is answered
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
