// Every change of some keys, once each and in order: for what has to follow a configuration.
//
// Run: 11_watch [http://127.0.0.1:2379]
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
    const auto orders = coetcd::key_range::prefix("examples/orders/");
    co_await client.erase(orders);
    coetcd::watcher changes = co_await client.watch(orders);

    co_await client.put("examples/orders/1", "paid");
    co_await client.put("examples/orders/2", "paid");
    co_await client.put("examples/orders/1", "shipped");
    co_await client.erase("examples/orders/2");
    for (int seen = 0; seen != 4;) {
        const coetcd::watch_batch batch = co_await changes.next(); // never splits a revision
        for (const coetcd::event& e : batch.events) {
            const bool gone = e.type == coetcd::event_type::erase;
            std::cout << e.kv.key << (gone ? " is gone" : " is " + e.kv.value) << '\n';
            ++seen;
        }
    }
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
//   examples/orders/1 is paid
//   examples/orders/2 is paid
//   examples/orders/1 is shipped
//   examples/orders/2 is gone
