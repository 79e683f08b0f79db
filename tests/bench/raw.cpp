// SPDX-License-Identifier: BSL-1.0
// The floor: the requests of a lock and nothing else, over connections that are kept.
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/detail/wire/encode.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/raw_bodies.hpp"
#include "bench/worker.hpp"

namespace bench {
namespace {

namespace http = boost::beast::http;
namespace wire = coetcd::detail::wire;
using asio::ip::tcp;

constexpr std::size_t most_connections = 8; // as many as the library makes by default

/// The text between `before` and the next quotation mark.
std::string_view quoted(const std::string& answer, std::string_view before) {
    const auto at = answer.find(before);
    if (at == std::string::npos) {
        throw std::runtime_error("no " + std::string(before) + " in " + answer);
    }
    const auto from = at + before.size();
    return std::string_view(answer).substr(from, answer.find('"', from) - from);
}

class connection {
public:
    connection(const asio::any_io_executor& executor, std::string url)
        : authority_(url.substr(url.rfind('/') + 1))
        , socket_(executor) {}

    awaitable<void> open() {
        const auto port = std::stoul(authority_.substr(authority_.rfind(':') + 1));
        const tcp::endpoint server(asio::ip::address_v4::loopback(),
                                   static_cast<std::uint16_t>(port));
        co_await socket_.async_connect(server, asio::use_awaitable);
        socket_.set_option(tcp::no_delay(true));
    }

    awaitable<void> post(const char* path, const std::string& body) {
        std::string& out = request_;
        out.assign("POST ").append(path).append(" HTTP/1.1\r\nHost: ").append(authority_);
        out.append("\r\nContent-Type: application/json\r\nContent-Length: ");
        out.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
        co_await asio::async_write(socket_, asio::buffer(out), asio::use_awaitable);
        response_ = {};
        co_await http::async_read(socket_, buffer_, response_, asio::use_awaitable);
        if (response_.result() != http::status::ok) {
            throw std::runtime_error(response_.body());
        }
    }

    /// Carries out a transaction whose conditions must hold, and sets `revision`.
    awaitable<void> txn(std::string body) {
        co_await post("/v3/kv/txn", body);
        if (answer().find("\"succeeded\":true") == std::string::npos) {
            throw std::runtime_error("refused: " + body + ": " + answer());
        }
        revision.assign(quoted(answer(), "\"revision\":\""));
    }

    const std::string& answer() const { return response_.body(); }

    std::string revision;

private:
    std::string authority_;
    tcp::socket socket_;
    std::string request_;
    boost::beast::flat_buffer buffer_;
    http::response<http::string_body> response_;
};

awaitable<void> lock_and_unlock_once(connection& c, const pair_bodies& bodies) {
    co_await c.txn(bodies.lock.with({}));
    co_await c.txn(bodies.unlock.with(c.revision));
}

struct turns {
    explicit turns(const task& t, std::int64_t lease)
        : bodies(t.name, lease) {}
    pass_bodies bodies;
    std::size_t count = 0;
};

awaitable<void> pass_once(connection& c, turns& all) {
    if (all.count == 0) {
        co_await c.txn(all.bodies.lock.with({}));
    } else {
        co_await c.txn(all.bodies.pass[(all.count - 1) % 2].with(c.revision));
    }
    ++all.count;
}

} // namespace

awaitable<json> run_raw(task t) {
    const auto executor = co_await asio::this_coro::executor;
    const std::size_t width =
        t.kind == "one-name" ? 1 : std::min<std::size_t>(t.count, most_connections);
    std::vector<std::unique_ptr<connection>> connections;
    for (std::size_t i = 0; i < width; ++i) {
        connections.push_back(std::make_unique<connection>(executor, t.url));
        co_await connections.back()->open();
    }
    connection& first = *connections.front();
    const wire::lease_grant_request grant{std::chrono::minutes(10), 0};
    co_await first.post("/v3/lease/grant", wire::encode(grant));
    const auto lease = std::stoll(std::string(quoted(first.answer(), "\"ID\":\"")));

    std::vector<pair_bodies> bodies;
    for (std::size_t i = 0; i < width; ++i) {
        bodies.emplace_back(t.name + "-" + std::to_string(i), lease);
    }
    turns all(t, lease);
    lock_and_unlock own_names = [&](std::size_t i) {
        return lock_and_unlock_once(*connections[i], bodies[i]);
    };
    lock_and_unlock one_name = [&](std::size_t) { return pass_once(first, all); };
    json result;
    if (t.kind == "one-name") {
        result = co_await measure_pairs(std::move(one_name), width, t.seconds, t.server);
    } else {
        result = co_await measure_pairs(std::move(own_names), width, t.seconds, t.server);
    }
    const wire::lease_revoke_request revoke{lease};
    co_await first.post("/v3/lease/revoke", wire::encode(revoke));
    co_return result;
}

namespace {

/// Writes once every `pause`, and catches up by one write at most.
awaitable<void> write_often(connection& c, std::string key, nanoseconds pause) {
    std::string body = "{\"key\":\"";
    wire::append_base64(body, key);
    body += "\",\"value\":\"eA==\"}";
    asio::steady_timer pace(co_await asio::this_coro::executor, clock::now());
    for (;;) {
        co_await c.post("/v3/kv/put", body);
        pace.expires_at(std::max(pace.expiry() + pause, clock::now() - pause));
        co_await pace.async_wait(asio::use_awaitable);
    }
}

} // namespace

awaitable<json> run_writer(task t) {
    const auto executor = co_await asio::this_coro::executor;
    constexpr std::size_t writers = 16;
    std::vector<std::unique_ptr<connection>> connections;
    crew all(executor);
    for (std::size_t i = 0; i < writers; ++i) {
        connections.push_back(std::make_unique<connection>(executor, t.url));
        co_await connections.back()->open();
        all.start(write_often(*connections.back(),
                              t.name + "-" + std::to_string(i),
                              nanoseconds(std::chrono::seconds(writers)) / t.count));
    }
    json ready;
    ready["ready"] = true;
    tell(ready);
    (void)co_await all.joined();
    co_return ready;
}

} // namespace bench
