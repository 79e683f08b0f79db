// The smallest program that is safe: whoever runs it, and however often, the order is shipped once.
// Run: 01_smallest_lock [URL]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <iostream>

using boost::asio::awaitable;

awaitable<void> ship_once(std::string url) {
    coetcd::client client(co_await boost::asio::this_coro::executor, url);
    coetcd::session session = co_await coetcd::session::open(client); // a lease, kept alive
    coetcd::mutex mutex(session, "orders/42");

    // Runs while this process has the lock. It is cancelled if the lock is lost.
    auto ship = [client](const coetcd::held_lock& held) -> awaitable<bool> {
        coetcd::txn note = coetcd::txn()
                               .when(held.is_owner(), coetcd::compare::version("shipped/42") == 0)
                               .then(coetcd::op::put("shipped/42", "by us"));
        const coetcd::txn_response answer = co_await client.txn(std::move(note));
        co_return answer.succeeded; // false: shipped before, or too late; nothing was written
    };
    const bool shipped = co_await coetcd::with_lock(mutex, std::move(ship)); // waits its turn
    std::cout << (shipped ? "order 42 is shipped\n" : "shipped before, or we are too late\n");
    co_await session.close();
}

int main(int argc, char** argv) {
    boost::asio::io_context context;
    auto shipping = ship_once(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = boost::asio::co_spawn(context, std::move(shipping), boost::asio::use_future);
    context.run();
    ended.get(); // throws what went wrong
}

// Prints:
//   order 42 is shipped
