// SPDX-License-Identifier: BSL-1.0
// What every program pays that awaits something: the measure for the others.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

boost::asio::awaitable<void> ship_order();

boost::asio::awaitable<void> ship() {
    co_await ship_order();
}

int main() {
    boost::asio::io_context context;
    boost::asio::co_spawn(context, ship(), boost::asio::detached);
    context.run();
}
