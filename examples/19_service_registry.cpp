// Services that register where they are, and a client that follows the list. Go's resolver for gRPC
// finds the same endpoints.
//
// Run: 19_service_registry [http://127.0.0.1:2379]
#include <coetcd.hpp>
#include <coetcd/registry.hpp>

#include <boost/asio.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

const std::string orders = "examples/services/orders";

/// Waits until there are so many endpoints, and prints them.
asio::awaitable<void> print(coetcd::endpoints_feed& feed, std::size_t wanted) {
    for (;;) {
        const std::vector<coetcd::service_endpoint> now = co_await feed.next();
        if (now.size() == wanted) {
            std::cout << now.size() << " endpoints:";
            for (const coetcd::service_endpoint& e : now) {
                std::cout << ' ' << coetcd::printable(e.address);
            }
            std::cout << '\n';
            co_return;
        }
    }
}

asio::awaitable<void> run(std::string url) {
    coetcd::client client(co_await asio::this_coro::executor, url);
    coetcd::endpoints_feed feed = coetcd::resolve(client, orders);
    co_await print(feed, 0);

    // As a server does it: in a keeper, so that it is registered again after a lost session.
    coetcd::session_keeper first(client, coetcd::session_keeper_options(5s));
    coetcd::registration here = co_await coetcd::register_service(first, orders, "10.0.0.7:8080");
    co_await print(feed, 1);

    coetcd::session_keeper second(client, coetcd::session_keeper_options(5s));
    coetcd::registration there =
        co_await coetcd::register_service(second, orders, "10.0.0.8:8080", R"({"zone":"b"})");
    co_await print(feed, 2);

    co_await here.remove(); // no more requests, please
    co_await print(feed, 1);
    co_await second.close(); // or its process ends
    co_await print(feed, 0);
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
//   0 endpoints:
//   1 endpoints: 10.0.0.7:8080
//   2 endpoints: 10.0.0.7:8080 10.0.0.8:8080
//   1 endpoints: 10.0.0.8:8080
//   0 endpoints:
