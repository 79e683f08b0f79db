// SPDX-License-Identifier: BSL-1.0
#include "support/async.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>

#include <atomic>
#include <random>
#include <sstream>

namespace support {

namespace {

awaitable<void> call(std::function<void()> function) {
    function();
    co_return;
}

} // namespace

std::string unique_name(const std::string& what) {
    static const unsigned program = std::random_device()();
    static std::atomic<int> count{0};
    return what + '-' + std::to_string(program) + '-' + std::to_string(++count);
}

awaitable<void> sleep_for(std::chrono::nanoseconds wait) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_after(wait);
    co_await timer.async_wait(asio::use_awaitable);
}

awaitable<void> yield(int rounds) {
    const auto executor = co_await asio::this_coro::executor;
    for (int i = 0; i < rounds; ++i) {
        co_await asio::post(executor, asio::use_awaitable);
    }
}

awaitable<void> in_thread(std::function<void()> blocking) {
    static asio::thread_pool threads(2);
    auto work =
        asio::co_spawn(threads.get_executor(), call(std::move(blocking)), asio::use_awaitable);
    co_await std::move(work);
}

awaitable<std::string> http_get(std::uint16_t port, std::string path) {
    const auto executor = co_await asio::this_coro::executor;
    asio::ip::tcp::socket socket(executor);
    const asio::ip::tcp::endpoint server(asio::ip::address_v4::loopback(), port);
    co_await socket.async_connect(server, asio::use_awaitable);
    const std::string request =
        "GET " + path + " HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    co_await asio::async_write(socket, asio::buffer(request), asio::use_awaitable);
    std::string answer;
    boost::system::error_code ec;
    co_await asio::async_read(
        socket, asio::dynamic_buffer(answer), asio::redirect_error(asio::use_awaitable, ec));
    const auto header = answer.find("\r\n\r\n");
    if (ec != asio::error::eof || header == answer.npos) {
        throw std::runtime_error("GET " + path + ": no answer");
    }
    co_return answer.substr(header + 4);
}

awaitable<double> metric(std::uint16_t port, std::string name) {
    const std::string text = co_await http_get(port, "/metrics");
    std::istringstream lines(text);
    std::string line;
    double sum = 0;
    bool found = false;
    while (std::getline(lines, line)) {
        if (line.starts_with(name) && (line[name.size()] == ' ' || line[name.size()] == '{')) {
            sum += std::stod(line.substr(line.rfind(' ')));
            found = true;
        }
    }
    if (!found) {
        throw std::runtime_error("there is no metric " + name);
    }
    co_return sum;
}

awaitable<void> run_all(std::vector<awaitable<void>> works) {
    const auto executor = co_await asio::this_coro::executor;
    std::vector<task<void>> tasks;
    for (auto& work : works) {
        tasks.emplace_back(executor, std::move(work));
    }
    std::exception_ptr failure;
    for (auto& t : tasks) {
        try {
            co_await t.result();
        } catch (...) {
            failure = failure ? failure : std::current_exception();
        }
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

} // namespace support
