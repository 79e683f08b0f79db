// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/shared_mutex.md shows.
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> read_prices() {
    co_return;
}

asio::awaitable<void> write_prices() {
    co_return;
}

} // namespace

asio::awaitable<void> shared_mutex_smallest(coetcd::session& session) {
    coetcd::shared_mutex catalog(session, "catalog");
    co_await coetcd::with_lock_shared(catalog, read_prices); // beside any number of other readers
    co_await coetcd::with_lock(catalog, write_prices);       // alone
}

asio::awaitable<void> shared_mutex_downgrade(coetcd::shared_mutex& catalog) {
    coetcd::held_lock held = co_await catalog.scoped_lock(); // alone
    co_await write_prices();
    co_await held.downgrade(); // the others may read now, and nobody has written in between
    co_await read_prices();
}

asio::awaitable<void> shared_mutex_upgrade(coetcd::shared_mutex& catalog) {
    coetcd::held_lock held = co_await catalog.scoped_lock_shared();
    co_await read_prices();
    const bool writes = co_await held.try_upgrade(); // nobody has written since we began to read
    if (writes) {
        co_await write_prices();
    }
}

asio::awaitable<void> shared_mutex_members(coetcd::shared_mutex& catalog) {
    co_await catalog.lock_shared();
    co_await read_prices();
    co_await catalog.unlock_shared();

    const bool reads = co_await catalog.try_lock_shared_for(500ms);
    if (reads) {
        co_await read_prices();
        co_await catalog.unlock_shared();
    }
}

} // namespace manual
