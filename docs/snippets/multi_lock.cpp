// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/multi_lock.md shows.
#include <coetcd/client.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <iostream>
#include <utility>

namespace asio = boost::asio;

namespace manual {

namespace {

asio::awaitable<void> move_money() {
    co_return;
}

} // namespace

asio::awaitable<void> multi_lock_smallest(coetcd::session& session) {
    coetcd::multi_lock both(session,
                            {coetcd::exclusive("accounts/1"), coetcd::exclusive("accounts/2")});
    co_await coetcd::with_lock(both, move_money);
}

asio::awaitable<void> multi_lock_modes(coetcd::session& session) {
    coetcd::multi_lock locks(session, {coetcd::exclusive("stock"), coetcd::shared("catalog")});
    coetcd::held_locks held = co_await locks.scoped_lock();
    std::cout << "one token for both: " << held.fencing_token() << '\n';
    co_await held.unlock();
}

asio::awaitable<bool> multi_lock_guard(coetcd::client client, const coetcd::multi_lock& both) {
    coetcd::txn transfer =
        coetcd::txn()
            .when(both.is_owner()) // one condition for each lock
            .then(coetcd::op::put("balance/1", "70"), coetcd::op::put("balance/2", "130"));
    const coetcd::txn_response answer = co_await client.txn(std::move(transfer));
    co_return answer.succeeded;
}

} // namespace manual
