// SPDX-License-Identifier: BSL-1.0
// What docs/pages/safe.md shows.
#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace manual {

namespace asio = boost::asio;

namespace {

std::int64_t greatest = 0; // the greatest token that the storage has seen

} // namespace

asio::awaitable<bool> safe_write_to_storage(std::int64_t token) {
    const bool accepted = token >= greatest;
    greatest = accepted ? token : greatest;
    co_return accepted;
}

asio::awaitable<void> safe_guarded(coetcd::client client, const coetcd::held_lock& held) {
    coetcd::txn note =
        coetcd::txn().when(held.is_owner()).then(coetcd::op::put("shipped/42", "by us"));
    const coetcd::txn_response answer = co_await client.txn(std::move(note));
    if (!answer.succeeded) {
        std::cout << "the lock is not ours any more, and nothing was written\n";
    }
}

asio::awaitable<void> safe_fenced(const coetcd::held_lock& held) {
    const std::int64_t token = held.fencing_token();
    const bool accepted = co_await safe_write_to_storage(token);
    if (!accepted) {
        std::cout << "a later holder was there before us\n";
    }
}

asio::awaitable<void> safe_ship_order(const coetcd::held_lock& held) {
    co_await safe_fenced(held);
}

asio::awaitable<void> safe_stops_early(coetcd::mutex& mutex) {
    co_await coetcd::with_lock(mutex, safe_ship_order);
}

int safe_resize(const std::string& picture) {
    return picture.empty() ? 0 : 1;
}

int safe_resize_all(const coetcd::held_lock& held, const std::vector<std::string>& pictures) {
    int done = 0;
    for (const std::string& picture : pictures) {
        if (!held.owns_lock()) { // looks at the clock; asks nobody
            break;
        }
        done += safe_resize(picture); // takes long, and has no co_await
    }
    return done;
}

} // namespace manual
