// Two candidates, and an observer of the leader: for what one instance does for all.
//
// Run: 08_election [http://127.0.0.1:2379]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> tell(coetcd::leader_feed& leaders) {
    const std::optional<coetcd::leader> now = co_await leaders.next(); // at once, then each change
    std::cout << (now ? coetcd::printable(now->value) : "nobody") << " leads\n";
}

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::leader_feed leaders = coetcd::observe(client, "examples/scheduler");
    co_await tell(leaders);

    coetcd::session one = co_await coetcd::session::open(client);
    coetcd::session two = co_await coetcd::session::open(client);
    coetcd::election first(one, "examples/scheduler");
    coetcd::election second(two, "examples/scheduler");
    coetcd::leadership term = co_await first.campaign("10.0.0.7");
    co_await tell(leaders);
    co_await term.proclaim("10.0.0.7, ready");
    co_await tell(leaders);

    co_await term.resign();
    co_await tell(leaders);
    coetcd::leadership next = co_await second.campaign("10.0.0.8");
    co_await tell(leaders);
    co_await next.resign();
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
//   nobody leads
//   10.0.0.7 leads
//   10.0.0.7, ready leads
//   nobody leads
//   10.0.0.8 leads
