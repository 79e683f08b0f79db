// Two locks at once, taken by two coroutines in opposite orders: nobody deadlocks. For work on more
// than one thing, such as a transfer.
//
// Run: 06_several_locks [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> move_money(coetcd::session& session, std::string from, std::string to) {
    coetcd::multi_lock both(session, {coetcd::exclusive(from), coetcd::exclusive(to)});
    for (int i = 0; i != 20; ++i) {
        const coetcd::held_locks held = co_await both.scoped_lock();
    }
    std::cout << "20 times from " << from << " to " << to << '\n';
}

asio::awaitable<void> run(std::string url) {
    using namespace asio::experimental::awaitable_operators;
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::session one = co_await coetcd::session::open(client);
    coetcd::session two = co_await coetcd::session::open(client);
    co_await (move_money(one, "examples/a", "examples/b") &&
              move_money(two, "examples/b", "examples/a"));
    co_await one.close();
    co_await two.close();
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
//   20 times from examples/* to examples/*
//   20 times from examples/* to examples/*
