// Many read together, one writes alone. A writer that becomes a reader lets nobody write in
// between. For what is read often and changed seldom.
//
// Run: 05_readers_and_writers [http://127.0.0.1:2379]
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
    coetcd::session one = co_await coetcd::session::open(client);
    coetcd::session two = co_await coetcd::session::open(client);
    coetcd::shared_mutex catalog(one, "examples/catalog");
    coetcd::shared_mutex same(two, "examples/catalog");

    {
        const coetcd::held_lock reads = co_await catalog.scoped_lock_shared();
        const bool too = co_await same.try_lock_shared();
        std::cout << "another reader is " << (too ? "let in\n" : "kept out\n");
        co_await same.unlock_shared();
        const bool writer = co_await same.try_lock();
        std::cout << "a writer beside a reader is " << (writer ? "let in\n" : "kept out\n");
    }

    coetcd::held_lock writes = co_await catalog.scoped_lock();
    const bool reader = co_await same.try_lock_shared();
    std::cout << "a reader beside a writer is " << (reader ? "let in\n" : "kept out\n");
    co_await writes.downgrade();
    const bool then = co_await same.try_lock_shared();
    std::cout << "when the writer reads, it is " << (then ? "let in\n" : "kept out\n");
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
//   another reader is let in
//   a writer beside a reader is kept out
//   a reader beside a writer is kept out
//   when the writer reads, it is let in
