// SPDX-License-Identifier: BSL-1.0
#include "support/tcp_proxy.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <chrono>
#include <exception>
#include <list>
#include <optional>
#include <utility>

namespace support {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto rethrow = [](std::exception_ptr failure) {
    if (failure) {
        std::rethrow_exception(failure);
    }
};

} // namespace

struct tcp_proxy::state : std::enable_shared_from_this<state> {
    // One direction of a connection.
    struct lane {
        explicit lane(const asio::any_io_executor& executor, traffic t)
            : rule(t)
            , changed(executor, std::chrono::steady_clock::time_point::max()) {}
        void set(traffic t) {
            rule = t;
            changed.cancel();
        }
        traffic rule;
        asio::steady_timer changed;
        std::size_t held = 0; // now
        bool was_held = false;
        std::size_t passed = 0;
        std::size_t received = 0;
        std::array<char, 16384> block;
    };

    struct connection {
        connection(tcp::socket accepted, traffic up, traffic down)
            : client(std::move(accepted))
            , server(client.get_executor())
            , requests(client.get_executor(), up)
            , answers(client.get_executor(), down) {}
        void close() {
            error_code ignored;
            client.close(ignored);
            server.close(ignored);
            closed = true;
            requests.changed.cancel();
            answers.changed.cancel();
        }
        tcp::socket client;
        tcp::socket server;
        lane requests;
        lane answers;
        bool closed = false;
    };

    state(const asio::any_io_executor& e, std::uint16_t server_port)
        : executor(e)
        , target(asio::ip::address_v4::loopback(), server_port) {
        listen(0);
    }

    void listen(std::uint16_t port) {
        const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
        acceptor.emplace(executor, here); // with SO_REUSEADDR
        own_port = acceptor->local_endpoint().port();
    }

    static asio::awaitable<void> accept(std::shared_ptr<state> self) {
        while (self->acceptor) {
            error_code ec;
            tcp::socket socket(self->executor);
            co_await self->acceptor->async_accept(socket,
                                                  asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                break;
            }
            ++self->accepted;
            auto c = std::make_shared<connection>(std::move(socket), self->up, self->down);
            self->connections.push_back(c);
            asio::co_spawn(self->executor, serve(self, c), rethrow);
        }
    }

    static asio::awaitable<void> serve(std::shared_ptr<state> self, std::shared_ptr<connection> c) {
        error_code ec;
        co_await c->server.async_connect(self->target,
                                         asio::redirect_error(asio::use_awaitable, ec));
        if (ec || c->closed) {
            c->close();
            co_return;
        }
        c->client.set_option(tcp::no_delay(true), ec);
        c->server.set_option(tcp::no_delay(true), ec);
        asio::co_spawn(self->executor, pump(c, c->server, c->client, c->answers), rethrow);
        co_await pump(c, c->client, c->server, c->requests);
        // A request that was held is to be carried out although its client has gone.
        if (!c->requests.was_held) {
            c->close();
        }
    }

    static asio::awaitable<void>
    pump(std::shared_ptr<connection> c, tcp::socket& from, tcp::socket& to, lane& way) {
        error_code ec;
        while (!c->closed) {
            const std::size_t n = co_await from.async_read_some(
                asio::buffer(way.block), asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                break;
            }
            way.received += n;
            while (way.rule == traffic::hold && !c->closed) {
                way.was_held = true;
                way.held = n;
                error_code ignored;
                co_await way.changed.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
            }
            way.held = 0;
            if (way.rule == traffic::lose) {
                continue;
            }
            co_await asio::async_write(
                to, asio::buffer(way.block, n), asio::redirect_error(asio::use_awaitable, ec));
            if (ec) {
                break;
            }
            way.passed += n;
        }
        if (&way == &c->answers) {
            c->close();
        }
    }

    template<class Function>
    void for_each(Function f) {
        for (const auto& c : connections) {
            f(*c);
        }
    }

    const asio::any_io_executor executor;
    const tcp::endpoint target;
    std::optional<tcp::acceptor> acceptor;
    std::uint16_t own_port = 0;
    traffic up = traffic::pass;
    traffic down = traffic::pass;
    std::size_t accepted = 0;
    std::list<std::shared_ptr<connection>> connections; // all that ever were
};

tcp_proxy::tcp_proxy(const asio::any_io_executor& executor, std::uint16_t server_port)
    : state_(std::make_shared<state>(executor, server_port)) {
    asio::co_spawn(executor, state::accept(state_), rethrow);
}

tcp_proxy::~tcp_proxy() {
    state_->acceptor.reset();
    cut();
}

std::string tcp_proxy::url() const {
    return "http://127.0.0.1:" + std::to_string(state_->own_port);
}

void tcp_proxy::requests(traffic t) {
    state_->up = t;
    present_requests(t);
}

void tcp_proxy::answers(traffic t) {
    state_->down = t;
    state_->for_each([t](auto& c) { c.answers.set(t); });
}

void tcp_proxy::present_requests(traffic t) {
    state_->for_each([t](auto& c) { c.requests.set(t); });
}

void tcp_proxy::cut() {
    state_->for_each([](auto& c) { c.close(); });
}

void tcp_proxy::refuse(bool yes) {
    if (yes) {
        state_->acceptor.reset();
    } else if (!state_->acceptor) {
        state_->listen(state_->own_port);
        asio::co_spawn(state_->executor, state::accept(state_), rethrow);
    }
}

std::size_t tcp_proxy::accepted() const {
    return state_->accepted;
}

std::size_t tcp_proxy::held_requests() const {
    std::size_t sum = 0;
    state_->for_each([&](const auto& c) { sum += c.requests.held; });
    return sum;
}

std::size_t tcp_proxy::passed_requests() const {
    std::size_t sum = 0;
    state_->for_each([&](const auto& c) { sum += c.requests.passed; });
    return sum;
}

std::size_t tcp_proxy::received_answers() const {
    std::size_t sum = 0;
    state_->for_each([&](const auto& c) { sum += c.answers.received; });
    return sum;
}

} // namespace support
