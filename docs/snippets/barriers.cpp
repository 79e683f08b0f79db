// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/barriers.md shows.
#include <coetcd/barrier.hpp>
#include <coetcd/cyclic_barrier.hpp>
#include <coetcd/double_barrier.hpp>
#include <coetcd/latch.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <iostream>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

namespace {

asio::awaitable<void> migrate() {
    co_return;
}

} // namespace

asio::awaitable<void> barriers_hold(coetcd::session& session) {
    coetcd::barrier maintenance(session, "maintenance");
    co_await maintenance.hold();
    co_await migrate();
    co_await maintenance.release(); // all who wait go on
}

asio::awaitable<void> barriers_wait(coetcd::session& session) {
    coetcd::barrier maintenance(session, "maintenance");
    const bool open = co_await maintenance.wait_for(10min);
    if (!open) {
        std::cout << "the maintenance takes long\n";
    }
}

asio::awaitable<void> barriers_latch(coetcd::session& session) {
    coetcd::latch loaded(session, "run-42/loaded", 3); // three programs load something
    co_await migrate();
    co_await loaded.count_down();
    co_await loaded.wait(); // until all three have
}

asio::awaitable<void> barriers_cyclic(coetcd::session& session) {
    coetcd::cyclic_barrier step(session, "run-42/step", 3);
    for (int round = 0; round != 10; ++round) {
        co_await migrate();
        co_await step.arrive_and_wait(); // nobody begins the next round before all three are here
    }
}

asio::awaitable<void> barriers_double(coetcd::session& session) {
    coetcd::double_barrier test(session, "run-42/load", 3);
    co_await test.enter(); // all three begin together
    co_await migrate();
    co_await test.leave(); // nobody goes on before all three have ended
}

} // namespace manual
