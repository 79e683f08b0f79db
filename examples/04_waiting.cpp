// A lock that somebody else has: not waiting, waiting for a limited time, and who it is. For
// requests that somebody waits for.
//
// Run: 04_waiting [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    const coetcd::session_options with_label(10s, "anna@laptop");
    coetcd::session theirs = co_await coetcd::session::open(client, with_label);
    coetcd::session ours = co_await coetcd::session::open(client);
    coetcd::mutex held(theirs, "examples/report");
    coetcd::mutex wanted(ours, "examples/report");

    co_await held.lock();
    const bool at_once = co_await wanted.try_lock();
    std::cout << (at_once ? "had at once\n" : "not to be had at once\n");
    const bool soon = co_await wanted.try_lock_for(100ms);
    std::cout << (soon ? "had in 100 ms\n" : "nor in 100 ms\n");
    const auto holder = co_await wanted.holder();
    std::cout << (holder ? coetcd::printable(holder->label) : "nobody") << " has it\n";

    co_await held.unlock();
    const bool now = co_await wanted.try_lock();
    std::cout << (now ? "now it is ours\n" : "still not\n");
    co_await ours.close(); // what it holds is free
    co_await theirs.close();
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
//   not to be had at once
//   nor in 100 ms
//   anna@laptop has it
//   now it is ours
