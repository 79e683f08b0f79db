// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/session.md shows.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/task_group.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> ship_order() {
    co_return;
}

} // namespace

asio::awaitable<void> session_smallest(coetcd::client client) {
    coetcd::session session = co_await coetcd::session::open(client);
    coetcd::mutex mutex(session, "orders/42");
    co_await coetcd::with_lock(mutex, ship_order);
    co_await session.close();
}

asio::awaitable<void> session_options_shown(coetcd::client client) {
    const coetcd::session_options options(5s, "shop@web-1"); // ttl and label
    coetcd::session session = co_await coetcd::session::open(client, options);

    const coetcd::session_end why = co_await session.wait_lost();
    std::cout << coetcd::describe(why) << '\n';
}

asio::awaitable<void> session_in_danger(const coetcd::session& session) {
    for (;;) { // until the session ends: then one of them throws
        const std::chrono::nanoseconds left = co_await session.wait_suspect();
        std::cout << "renewals fail; " << left / 1s << " s left\n";
        co_await session.wait_active();
        std::cout << "renewals succeed again\n";
    }
}

asio::awaitable<bool> session_keeper_smallest(coetcd::client client) {
    coetcd::session_keeper sessions(client);
    const bool ran = co_await coetcd::with_lock_for(sessions, "orders/42", 2s, ship_order);
    co_return ran;
}

asio::awaitable<std::int64_t> session_keeper_other_uses(const coetcd::session_keeper& sessions) {
    const std::shared_ptr<const coetcd::session> session = co_await sessions.wait_live(2s);
    coetcd::sequence invoices(*session, "invoices");
    const std::int64_t number = co_await invoices.next();
    co_return number;
}

asio::awaitable<void> session_keeper_log(const coetcd::session_keeper& sessions) {
    std::shared_ptr<const coetcd::session> now;
    for (;;) { // until the keeper is closed, which throws
        now = co_await sessions.wait_changed(now);
        const std::optional<coetcd::error> trouble = sessions.trouble();
        std::cout << (trouble ? trouble->what() : "there is a session") << '\n';
    }
}

asio::awaitable<void> session_task_group(coetcd::client client, coetcd::session_keeper& sessions) {
    coetcd::task_group requests(client);
    requests.spawn(client.get_executor(), ship_order());
    // And when SIGTERM has come:
    co_await requests.shutdown(10s); // takes no more, lets them finish, then cancels the rest
    co_await sessions.close();
}

coetcd::lease_id session_hand_over(coetcd::session& session) {
    const coetcd::lease_id lease = session.orphan(); // it lasts for its ttl from now on
    return lease;
}

asio::awaitable<bool> session_successor(coetcd::client client, coetcd::lease_id lease) {
    std::optional<coetcd::session> session = co_await coetcd::session::adopt(client, lease);
    if (!session) {
        co_return false; // it has ended
    }
    coetcd::mutex mutex(*session, "orders/42");
    const bool held = co_await mutex.resume(); // with the same fencing token
    co_return held;
}

} // namespace manual
