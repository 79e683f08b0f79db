// SPDX-License-Identifier: BSL-1.0
// What docs/pages/errors.md shows.
#include <coetcd/as_result.hpp>
#include <coetcd/error.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>

namespace manual {

namespace asio = boost::asio;
using namespace std::chrono_literals;

asio::awaitable<void> errors_ship_order() {
    co_return;
}

asio::awaitable<void> errors_by_condition(coetcd::mutex& mutex) {
    try {
        co_await coetcd::with_lock(mutex, errors_ship_order);
    } catch (const coetcd::error& e) {
        if (e.code() == coetcd::condition::ownership_lost) {
            std::cout << "lost: open a new session and begin again\n";
        } else if (e.code() == coetcd::condition::retryable) {
            std::cout << "nothing was changed: try again later\n";
        } else {
            std::cout << e.what() << '\n';
        }
    }
}

asio::awaitable<void> errors_all(coetcd::mutex& mutex) {
    try {
        co_await mutex.lock();
    } catch (const coetcd::error& e) {
        std::cout << e.what() << '\n'; // what went wrong, on which endpoint, and what to do
    } catch (const boost::system::system_error& e) {
        if (e.code() != asio::error::operation_aborted) {
            throw;
        }
        std::cout << "somebody cancelled us\n";
    }
}

asio::awaitable<void> errors_nested(coetcd::mutex& mutex) {
    try {
        co_await coetcd::with_lock(mutex, errors_ship_order);
    } catch (const coetcd::error& loss) {
        std::cout << loss.what() << '\n';
        try {
            std::rethrow_if_nested(loss);
        } catch (const std::exception& of_the_body) {
            std::cout << "and the body ended with: " << of_the_body.what() << '\n';
        }
    }
}

asio::awaitable<void> errors_without_exceptions(coetcd::mutex& mutex) {
    const auto locked = co_await coetcd::as_result(mutex.try_lock_for(500ms));
    if (!locked) {
        std::cout << locked.error().text() << '\n'; // and code() for the program
    } else if (*locked) {
        co_await mutex.unlock();
    }
}

asio::awaitable<bool> errors_again(coetcd::mutex& mutex) {
    asio::steady_timer pause(co_await asio::this_coro::executor);
    for (int left = 5; left != 0; --left) {
        const auto locked = co_await coetcd::as_result(mutex.try_lock_for(2s));
        if (locked) {
            co_return *locked;
        }
        if (locked.error().code() != coetcd::condition::retryable) {
            locked.error().rethrow();
        }
        pause.expires_after(500ms); // a co_await cannot stand in a catch block
        co_await pause.async_wait(asio::use_awaitable);
    }
    co_return false;
}

asio::awaitable<std::int64_t> errors_compacted(coetcd::watcher& changes) {
    std::int64_t first = 0;
    try {
        const coetcd::watch_batch batch = co_await changes.next();
        first = batch.revision + 1;
    } catch (const coetcd::compacted_error& e) {
        first = e.compact_revision(); // read the keys, and watch again
    }
    co_return first;
}

} // namespace manual
