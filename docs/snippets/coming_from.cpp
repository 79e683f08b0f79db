// SPDX-License-Identifier: BSL-1.0
// What docs/pages/coming_from.md shows.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/timed_claim.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

namespace manual {

namespace asio = boost::asio;
using namespace std::chrono_literals;

asio::awaitable<void> coming_from_ship_order() {
    co_return;
}

asio::awaitable<void> coming_from_redis(coetcd::client client) {
    std::optional<coetcd::timed_claim> claim = co_await coetcd::try_claim(client, "orders/42", 30s);
    if (claim) {
        co_await coming_from_ship_order();
        co_await claim->release(); // compares, as the script does
    }
}

asio::awaitable<void> coming_from_redisson(const coetcd::session_keeper& sessions) {
    const bool ran =
        co_await coetcd::with_lock_for(sessions, "orders/42", 2s, coming_from_ship_order);
    if (!ran) {
        std::cout << "somebody else has the lock\n";
    }
}

asio::awaitable<void> coming_from_curator(const coetcd::session_keeper& sessions) {
    std::shared_ptr<const coetcd::session> now;
    for (;;) {
        now = co_await sessions.wait_changed(now);
        std::cout << (now ? "there is a session\n" : "there is none: no lock is held\n");
    }
}

asio::awaitable<void> coming_from_sql(coetcd::session& session) {
    coetcd::mutex mutex(session, "nightly-report");
    const bool locked = co_await mutex.try_lock_for(10s);
    if (locked) {
        co_await coming_from_ship_order();
        co_await mutex.unlock();
    }
}

asio::awaitable<void> coming_from_go(coetcd::client client) {
    const coetcd::session_options options(60s); // Go's default; here it is 10 s
    coetcd::session session = co_await coetcd::session::open(client, options);
    coetcd::mutex mutex(session, "/my-lock");
    co_await coetcd::with_lock(mutex, coming_from_ship_order);
    co_await session.close();
}

} // namespace manual
