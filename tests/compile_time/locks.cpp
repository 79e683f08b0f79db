// SPDX-License-Identifier: BSL-1.0
// The same program, with a lock.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

boost::asio::awaitable<void> ship_order();

boost::asio::awaitable<void> ship(coetcd::client client) {
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::mutex mutex(session, "orders/42");
    co_await coetcd::with_lock(mutex, ship_order);
}

int main() {
    boost::asio::io_context context;
    coetcd::client client(context.get_executor(), "http://127.0.0.1:2379");
    boost::asio::co_spawn(context, ship(client), boost::asio::detached);
    context.run();
}
