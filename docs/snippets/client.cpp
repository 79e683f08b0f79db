// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/client.md shows.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

asio::awaitable<void> client_smallest() {
    const coetcd::client client(co_await asio::this_coro::executor, "http://127.0.0.1:2379");
    co_await client.put("greeting", "hello");
    const std::optional<coetcd::key_value> found = co_await client.get("greeting");
    std::cout << (found ? found->value : "nothing") << '\n';
}

asio::awaitable<void> client_ranges(coetcd::client client) {
    const auto orders = coetcd::key_range::prefix("orders/");
    const coetcd::range_response ten = co_await client.range(orders, {.limit = 10});
    for (const coetcd::key_value& order : ten.kvs) {
        std::cout << order.key << ' ' << order.value << '\n';
    }
    const coetcd::erase_response erased = co_await client.erase(orders);
    std::cout << erased.deleted << " of " << ten.count << " erased\n";
}

asio::awaitable<void> client_txn(coetcd::client client) {
    coetcd::txn sale = coetcd::txn()
                           .when(coetcd::compare::value("stock") == "7")
                           .then(coetcd::op::put("stock", "6"))
                           .otherwise(coetcd::op::range("stock"));
    const coetcd::txn_response answer = co_await client.txn(std::move(sale));
    if (!answer.succeeded) {
        const coetcd::range_response& stock = answer.responses.front().range();
        std::cout << (stock.kvs.empty() ? "no" : stock.kvs.front().value) << " left\n";
    }
}

asio::awaitable<void> client_lease(coetcd::client client) {
    const coetcd::lease_grant_response lease = co_await client.lease_grant(60s);
    co_await client.put("here/web-1", "10.0.0.7", {.lease = lease.id});
    const auto renewed = co_await client.lease_keep_alive_once(lease.id);
    if (!renewed) {
        std::cout << "the lease has ended, and the key with it\n";
    }
}

asio::awaitable<void> client_status(asio::any_io_executor executor, std::vector<std::string> urls) {
    for (const std::string& url : urls) {
        const coetcd::client member(executor, url); // one endpoint: it is this member that answers
        const coetcd::member_status now = co_await member.status();
        std::cout << url << ' ' << now.version << (now.is_leader() ? " leads\n" : "\n");
    }
}

asio::awaitable<void> client_watch(coetcd::client client) {
    const auto orders = coetcd::key_range::prefix("shipped/");
    const coetcd::range_response now = co_await client.range(orders);
    coetcd::watch_options from;
    from.start_revision = now.header.revision + 1; // what has happened since
    coetcd::watcher changes = co_await client.watch(orders, from);
    for (bool gone = false; !gone;) {
        const coetcd::watch_batch batch = co_await changes.next();
        for (const coetcd::event& e : batch.events) {
            gone = e.type == coetcd::event_type::erase;
            std::cout << e.kv.key << (gone ? " is gone\n" : " has changed\n");
        }
    }
}

asio::awaitable<void> client_namespace(coetcd::client client) {
    const coetcd::client app = client.in_namespace("app/");
    co_await app.put("limit", "7"); // the key app/limit
    const coetcd::range_response all = co_await app.range(coetcd::key_range::all());
    for (const coetcd::key_value& each : all.kvs) {
        std::cout << each.key << '\n'; // limit
    }
    coetcd::session session = co_await coetcd::session::open(app);
    coetcd::mutex mutex(session, "m"); // the lock app/m of other clients
    co_await mutex.lock();
}

} // namespace manual
