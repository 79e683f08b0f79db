// Several keys change together or not at all; numbers are drawn once each. A lost answer pays
// nothing twice.
//
// Run: 10_transactions [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::session session = co_await coetcd::session::open(client);
    co_await client.put("examples/a", "100");
    co_await client.put("examples/b", "0");

    auto transfer = [](coetcd::transaction& t) -> asio::awaitable<int> {
        const auto from = co_await t.get("examples/a");
        const auto to = co_await t.get("examples/b");
        t.put("examples/a", std::to_string(std::stoi(*from) - 30));
        t.put("examples/b", std::to_string(std::stoi(*to) + 30));
        co_return std::stoi(*to) + 30;
    };
    const int there = co_await coetcd::stm(session, transfer); // run again if others were faster
    const auto left = co_await client.get("examples/a");
    std::cout << left->value << " and " << there << '\n';

    coetcd::sequence invoices(session, "examples/invoices");
    const std::int64_t one = co_await invoices.next();
    const std::int64_t two = co_await invoices.next();
    std::cout << "invoices are numbered " << (two == one + 1 ? "without gaps\n" : "with gaps\n");
    co_await session.close();
}

} // namespace

int main(int argc, char** argv) {
    asio::io_context context;
    auto story = run(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = asio::co_spawn(context, std::move(story), asio::use_future);
    context.run();
    ended.get();
}

// Prints:
//   70 and 30
//   invoices are numbered without gaps
