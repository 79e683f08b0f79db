// The smallest lock: one process at a time ships the order. Run: 01_smallest_lock [URL]
#include <coetcd.hpp>

#include <boost/asio.hpp>

#include <iostream>

boost::asio::awaitable<void> first_lock(std::string url) {
    coetcd::client client(co_await boost::asio::this_coro::executor, url);
    coetcd::session session = co_await coetcd::session::open(client); // a lease, kept alive
    coetcd::mutex mutex(session, "orders/42");

    co_await mutex.lock(); // waits its turn, in the whole cluster
    std::cout << "order 42 is ours, fencing token " << mutex.fencing_token() << '\n';
    co_await mutex.unlock();
    co_await session.close();
}

int main(int argc, char** argv) {
    boost::asio::io_context context;
    auto locking = first_lock(argc > 1 ? argv[1] : "http://127.0.0.1:2379");
    auto ended = boost::asio::co_spawn(context, std::move(locking), boost::asio::use_future);
    context.run();
    ended.get(); // throws what went wrong
}

// Prints:
//   order 42 is ours, fencing token *
