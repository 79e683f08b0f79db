// SPDX-License-Identifier: BSL-1.0
// One request without the library, by Beast, whose answer nlohmann_json reads: what a header-only
// library on these two costs at the least.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

namespace asio = boost::asio;
namespace http = boost::beast::http;

asio::awaitable<void> ship_order(nlohmann::json answer);

asio::awaitable<void> ship(std::string body) {
    const auto executor = co_await asio::this_coro::executor;
    asio::ip::tcp::resolver resolver(executor);
    const auto where = co_await resolver.async_resolve("localhost", "2379", asio::use_awaitable);
    asio::ip::tcp::socket socket(executor);
    co_await asio::async_connect(socket, where, asio::use_awaitable);
    http::request<http::string_body> request(http::verb::post, "/v3/kv/txn", 11, std::move(body));
    request.prepare_payload();
    co_await http::async_write(socket, request, asio::use_awaitable);
    boost::beast::flat_buffer buffer;
    http::response<http::string_body> answer;
    co_await http::async_read(socket, buffer, answer, asio::use_awaitable);
    asio::steady_timer pause(executor, std::chrono::seconds(1));
    co_await pause.async_wait(asio::use_awaitable);
    nlohmann::json read = nlohmann::json::parse(answer.body());
    co_await ship_order(std::move(read));
}

int main() {
    asio::io_context context;
    asio::co_spawn(context, ship("{}"), asio::detached);
    context.run();
}
