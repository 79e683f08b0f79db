// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/mutex.md shows.
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/lock_name.hpp>
#include <coetcd/lock_value.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> ship_order() {
    co_return;
}

asio::awaitable<std::string> import_from(std::string where) {
    co_return where;
}

asio::awaitable<void> timer() {
    asio::steady_timer wait(co_await asio::this_coro::executor, 5s);
    co_await wait.async_wait(asio::use_awaitable);
}

} // namespace

asio::awaitable<void> mutex_retained(coetcd::session& session) {
    coetcd::mutex mutex(session, "orders/42", {.retain = 10s});
    co_await coetcd::with_lock(mutex, ship_order); // one round trip
    co_await coetcd::with_lock(mutex, ship_order); // none
}

asio::awaitable<void> mutex_value(coetcd::session& session) {
    coetcd::mutex mutex(session, "import", {.value = true});
    const coetcd::held_lock held = co_await mutex.scoped_lock();
    const std::optional<std::string> last = co_await coetcd::get_value(held);
    const std::string next = co_await import_from(last.value_or("the beginning"));
    co_await coetcd::set_value(held, next);
}

asio::awaitable<void> mutex_smallest(coetcd::session& session) {
    coetcd::mutex mutex(session, "orders/42");
    co_await coetcd::with_lock(mutex, ship_order);
}

asio::awaitable<bool> mutex_three_shapes(coetcd::mutex& mutex) {
    // 1. Like std::mutex.
    co_await mutex.lock();
    co_await ship_order();
    co_await mutex.unlock();

    // 2. Like std::unique_lock: given back in the background at the end of the block.
    {
        const coetcd::held_lock held = co_await mutex.scoped_lock();
        co_await ship_order();
    }

    // 3. The safest: ship_order is cancelled if the lock is lost.
    co_await coetcd::with_lock(mutex, ship_order);

    // And if somebody else has the lock for longer than 2 s, ship_order does not run.
    const bool ran = co_await coetcd::with_lock_for(mutex, 2s, ship_order);
    co_return ran;
}

asio::awaitable<void> mutex_patience(coetcd::mutex& mutex) {
    const bool locked = co_await mutex.try_lock_for(500ms);
    if (!locked) {
        const auto holder = co_await mutex.holder();
        std::cout << (holder ? coetcd::printable(holder->label) : "nobody") << " has it\n";
    }
}

asio::awaitable<bool> mutex_composed(coetcd::mutex& mutex) {
    using namespace asio::experimental::awaitable_operators;
    auto how = co_await (coetcd::as_result(coetcd::with_lock(mutex, ship_order)) || timer());

    const coetcd::held_lock held = co_await mutex.scoped_lock();
    auto end = co_await (ship_order() || held.wait_lost());
    co_return how.index() == 0 && end.index() == 0;
}

void mutex_callback(coetcd::client client, coetcd::mutex& mutex) {
    asio::co_spawn(client.get_executor(), mutex.lock(), [](std::exception_ptr failure) {
        std::cout << (failure ? "failed\n" : "locked\n");
    });
}

asio::awaitable<void> mutex_queue(coetcd::mutex& mutex) {
    const std::vector<coetcd::lock_entry> next = co_await mutex.waiters(10); // 0: all
    for (const coetcd::lock_entry& waiter : next) {
        std::cout << coetcd::printable(waiter.label) << " waits\n";
    }
    const std::optional<std::size_t> ahead = co_await mutex.position();
    if (ahead) {
        std::cout << *ahead << " sessions are before ours\n"; // 0: ours has the lock
    }
}

void mutex_name(const coetcd::session& session, const std::string& id) {
    coetcd::mutex mutex(session, coetcd::lock_name("orders", id)); // "4/2": orders/4%2F2
    std::cout << mutex.name() << '\n';
}

} // namespace manual
