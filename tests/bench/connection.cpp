// SPDX-License-Identifier: BSL-1.0
#include "bench/connection.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>

#include <cstdint>
#include <stdexcept>
#include <utility>

namespace bench {

namespace http = boost::beast::http;
using asio::ip::tcp;

std::string_view quoted(const std::string& answer, std::string_view before) {
    const auto at = answer.find(before);
    if (at == std::string::npos) {
        throw std::runtime_error("no " + std::string(before) + " in " + answer);
    }
    const auto from = at + before.size();
    return std::string_view(answer).substr(from, answer.find('"', from) - from);
}

connection::connection(const asio::any_io_executor& executor, std::string url)
    : authority_(url.substr(url.rfind('/') + 1))
    , socket_(executor) {}

awaitable<void> connection::open() {
    const auto port = std::stoul(authority_.substr(authority_.rfind(':') + 1));
    const tcp::endpoint server(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    co_await socket_.async_connect(server, asio::use_awaitable);
    socket_.set_option(tcp::no_delay(true));
}

awaitable<void> connection::send(const char* path, const std::string& body) {
    std::string& out = request_;
    out.assign("POST ").append(path).append(" HTTP/1.1\r\nHost: ").append(authority_);
    out.append("\r\nContent-Type: application/json\r\nContent-Length: ");
    out.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
    co_await asio::async_write(socket_, asio::buffer(out), asio::use_awaitable);
}

awaitable<void> connection::post(const char* path, const std::string& body) {
    co_await send(path, body);
    response_ = {};
    co_await http::async_read(socket_, buffer_, response_, asio::use_awaitable);
    if (response_.result() != http::status::ok) {
        throw std::runtime_error(response_.body());
    }
}

awaitable<void> connection::txn(std::string body) {
    co_await post("/v3/kv/txn", body);
    if (answer().find("\"succeeded\":true") == std::string::npos) {
        throw std::runtime_error("refused: " + body + ": " + answer());
    }
    revision.assign(quoted(answer(), "\"revision\":\""));
}

awaitable<void> connection::begin_stream(const char* path, const std::string& body) {
    co_await send(path, body);
    stream_.emplace();
    stream_->body_limit(boost::none);
    co_await http::async_read_header(socket_, buffer_, *stream_, asio::use_awaitable);
    if (stream_->get().result() != http::status::ok) {
        throw std::runtime_error("refused: " + body);
    }
}

awaitable<std::string_view> connection::next_part() {
    auto& to = stream_->get().body();
    to.data = part_.data();
    to.size = part_.size();
    to.more = true;
    boost::system::error_code ec;
    co_await http::async_read_some(
        socket_, buffer_, *stream_, asio::redirect_error(asio::use_awaitable, ec));
    if (ec && ec != http::error::need_buffer) {
        throw boost::system::system_error(ec, "the stream");
    }
    if (stream_->is_done()) {
        throw std::runtime_error("the stream has ended");
    }
    co_return std::string_view(part_.data(), part_.size() - to.size);
}

awaitable<std::vector<std::unique_ptr<connection>>> open_connections(std::string url,
                                                                     std::size_t count) {
    const auto executor = co_await asio::this_coro::executor;
    std::vector<std::unique_ptr<connection>> all;
    for (std::size_t i = 0; i < count; ++i) {
        all.push_back(std::make_unique<connection>(executor, url));
        co_await all.back()->open();
    }
    co_return all;
}

} // namespace bench
