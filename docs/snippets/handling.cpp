// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/handling.md shows.
#include <coetcd/admin.hpp>
#include <coetcd/client.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/verify.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> ship_order() {
    co_return;
}

asio::awaitable<void> pack(const coetcd::held_lock& held) {
    return coetcd::with_lock(held, ship_order);
}

} // namespace

asio::awaitable<void> handling_held_lock(coetcd::mutex& mutex) {
    const coetcd::held_lock held = co_await mutex.scoped_lock();
    co_await pack(held);                          // takes a const held_lock&
    co_await coetcd::with_lock(held, ship_order); // cancelled if the lock is lost; held afterwards
    const coetcd::held_lock another = held.share(); // the last handle gives the lock back
}

asio::awaitable<bool> handling_sequencer(coetcd::client client, const coetcd::held_lock& held) {
    const std::string text = held.sequencer().text(); // send it along with a request

    // In the service that gets the request:
    const coetcd::sequencer sequencer(text);
    const bool lasts = co_await coetcd::verify(client, "orders/42", sequencer);
    coetcd::txn note = coetcd::txn()
                           .when(coetcd::guard("orders/42", sequencer))
                           .then(coetcd::op::put("shipped/42", "for the holder"));
    const coetcd::txn_response answer = co_await client.txn(std::move(note));
    const bool all = lasts && answer.succeeded;
    co_return all;
}

asio::awaitable<bool> handling_gate(coetcd::client client, std::int64_t token) {
    const coetcd::fencing_gate gate(client, "shipped-gate");
    const bool admitted = co_await gate.admit(token);
    co_return admitted;
}

asio::awaitable<void> handling_gate_with_work(const coetcd::fencing_gate& gate,
                                              std::int64_t token) {
    coetcd::txn note = coetcd::txn().then(coetcd::op::put("shipped/42", "by us"));
    const auto answer = co_await gate.admit(token, std::move(note));
    if (!answer) {
        std::cout << "a later holder was admitted before: nothing was written\n";
    }
}

asio::awaitable<void>
handling_ask_and_force(coetcd::client client, coetcd::session& session, coetcd::mutex& mutex) {
    const auto token = co_await coetcd::request_release(session, "orders/42");
    const bool got = co_await mutex.try_lock_for(10s); // time for the holder to give it back
    if (token && !got) {
        co_await coetcd::force_unlock(client, "orders/42", *token);
    }
}

asio::awaitable<void> handling_bounded(coetcd::session& session) {
    coetcd::mutex mutex(session, "orders/42", {.max_hold = 30s, .watch_while_held = true});
    co_await coetcd::with_lock(mutex, ship_order, coetcd::yield_on_request(5s));
}

asio::awaitable<void> handling_asked(const coetcd::held_lock& held) {
    co_await held.release_requested(); // returns when somebody asks
    std::cout << "somebody wants the lock\n";
}

asio::awaitable<void> handling_delay(coetcd::session& session) {
    coetcd::mutex mutex(session, "printer", {.delay = 10s});
    co_await coetcd::with_lock(mutex, ship_order);
}

asio::awaitable<void> handling_claim(coetcd::client client) {
    std::optional<coetcd::timed_claim> claim = co_await coetcd::try_claim(client, "report", 3600s);
    if (claim) {
        claim->keep(); // until the hour is over, whatever becomes of us
        co_await ship_order();
    }
}

asio::awaitable<void> handling_cron_job(coetcd::client client) {
    coetcd::claim_times minutely;
    minutely.hold = 600s;    // no run takes longer
    minutely.min_hold = 50s; // no second run within the same minute
    std::optional<coetcd::timed_claim> claim =
        co_await coetcd::claim_for(client, "nightly", minutely);
    if (claim) {
        co_await ship_order();
        co_await claim->release(); // others are kept away until the 50 s are over
    }
}

} // namespace manual
