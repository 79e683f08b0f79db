// At most so many at a time, in the whole cluster: for what bears only so much load. The limit
// changes while they are at work.
//
// Run: 07_semaphore [http://127.0.0.1:2379]
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
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::semaphore imports(session, "examples/imports", 2); // unless a limit is stored already
    co_await imports.set_limit(2);

    const coetcd::permit one = co_await imports.acquire();
    const coetcd::permit two = co_await imports.acquire();
    const auto third = co_await imports.acquire_for(1, 100ms);
    const coetcd::semaphore_state now = co_await imports.state();
    std::cout << "a third one is " << (third ? "let in" : "kept out") << ": " << now.used << " of "
              << now.limit << " are out\n";

    co_await imports.adjust_limit(+1);
    const auto again = co_await imports.acquire_for(1, 100ms);
    std::cout << "with a higher limit it is " << (again ? "let in\n" : "kept out\n");
    co_await session.close(); // what it has is free; the limit stays
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
//   a third one is kept out: 2 of 2 are out
//   with a higher limit it is let in
