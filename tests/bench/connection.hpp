// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/worker.hpp"

namespace bench {

/// The text between `before` and the next quotation mark.
/// @throws std::runtime_error if `before` does not occur.
std::string_view quoted(const std::string& answer, std::string_view before);

/// A connection to etcd's gateway, for bare requests, one at a time.
class connection {
public:
    connection(const asio::any_io_executor& executor, std::string url);

    awaitable<void> open();
    awaitable<void> post(const char* path, const std::string& body);
    /// Carries out a transaction whose conditions must hold, and sets `revision`.
    awaitable<void> txn(std::string body);
    const std::string& answer() const { return response_.body(); }

    /// Sends a request whose answer has no end, and reads its head.
    awaitable<void> begin_stream(const char* path, const std::string& body);
    /// The next bytes of that answer, valid until the next call.
    awaitable<std::string_view> next_part();

    std::string revision;

private:
    awaitable<void> send(const char* path, const std::string& body);

    std::string authority_;
    asio::ip::tcp::socket socket_;
    std::string request_;
    boost::beast::flat_buffer buffer_;
    boost::beast::http::response<boost::beast::http::string_body> response_;
    std::optional<boost::beast::http::response_parser<boost::beast::http::buffer_body>> stream_;
    std::array<char, 65536> part_;
};

/// Opens several.
awaitable<std::vector<std::unique_ptr<connection>>> open_connections(std::string url,
                                                                     std::size_t count);

} // namespace bench
