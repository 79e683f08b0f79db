// SPDX-License-Identifier: BSL-1.0
// What docs/pages/first_lock.md shows.
#include <coetcd/client.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lock_name.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> ship_order() {
    co_return;
}

} // namespace

asio::awaitable<void> first_lock_with_lock(coetcd::client client) {
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::mutex mutex(session, "orders/42");

    co_await coetcd::with_lock(mutex, ship_order);
    co_await session.close();
}

asio::awaitable<bool> first_lock_guarded(coetcd::client client, coetcd::mutex& mutex) {
    auto body = [client](const coetcd::held_lock& held) -> asio::awaitable<bool> {
        coetcd::txn note = coetcd::txn()
                               .when(held.is_owner(), coetcd::compare::version("shipped/42") == 0)
                               .then(coetcd::op::put("shipped/42", "by us"));
        const coetcd::txn_response answer = co_await client.txn(std::move(note));
        co_return answer.succeeded; // false: shipped before, or too late; nothing was written
    };
    const bool shipped = co_await coetcd::with_lock(mutex, std::move(body));
    co_return shipped;
}

asio::awaitable<void> first_lock_request(const coetcd::session_keeper& sessions, std::string id) {
    const std::string lock = coetcd::lock_name("orders", id);
    try {
        const bool ran = co_await coetcd::with_lock_for(sessions, lock, 2s, ship_order);
        std::cout << (ran ? "shipped\n" : "somebody else has the lock\n");
    } catch (const coetcd::error& e) {
        std::cout << e.what() << '\n'; // etcd is away, or the lock was lost
    }
}

void first_lock_labels(const coetcd::client& client) {
    const coetcd::session_keeper_options options(10s, "shop@web-1"); // ttl and label
    const coetcd::session_keeper sessions(client, options);
}

} // namespace manual
