// SPDX-License-Identifier: BSL-1.0
// What README.md shows.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/awaitable.hpp>

#include <utility>

namespace asio = boost::asio;

namespace manual {

asio::awaitable<void> ship_order();

asio::awaitable<bool> readme(coetcd::client client, coetcd::mutex& mutex) {
    auto body = [client](const coetcd::held_lock& held) -> boost::asio::awaitable<bool> {
        co_await ship_order(); // yours; cancelled if the lock is lost
        coetcd::txn note =
            coetcd::txn().when(held.is_owner()).then(coetcd::op::put("shipped/42", "by us"));
        const coetcd::txn_response answer = co_await client.txn(std::move(note));
        co_return answer.succeeded; // false: the lock was lost, and nothing was written
    };
    const bool shipped = co_await coetcd::with_lock(mutex, std::move(body));
    co_return shipped;
}

} // namespace manual
