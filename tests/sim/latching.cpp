// SPDX-License-Identifier: BSL-1.0
// What those do who count a latch down, and who wait for it.
#include <coetcd/latch.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/latches.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

void actor::start_latching(std::uint64_t seed) {
    chance taste(seed);
    start_besides("who counts a latch down", count_latches(taste.next()));
    start_besides("who waits for a latch", wait_for_latches(taste.next()));
    s_.judge.rates.expect(*p_, 2);
}

asio::awaitable<void> actor::count_latches(std::uint64_t seed) {
    chance taste(seed);
    const own_session own = add_own();
    for (int calls = taste.between(5, 25); client_ && calls != 0;) {
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 2000ms : 200ms));
        const bool ready = co_await have_own(own);
        if (!ready) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        --calls;
        const int which = s_.judge.latches.current();
        auto one = std::make_shared<coetcd::latch>(
            **own, latch_rules::name_of_latch(which), taste.between(1, 6));
        for (int times = taste.between(1, 2); times != 0 && client_ && *own; --times) {
            const auto o = std::make_shared<operation>(*p_);
            asio::awaitable<void> counting = count_latch(one, which, (*own)->lease());
            co_await perform(o, std::move(counting));
        }
        one.reset();
        co_await end_own(own, taste);
    }
}

asio::awaitable<void> actor::count_latch(std::shared_ptr<coetcd::latch> l, int which, lease_id by) {
    latch_rules& rules = s_.judge.latches;
    const latch_rules::call asks(rules, which, false);
    rules.counts(which, by);
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        asio::awaitable<std::int64_t> counting = l->count_down();
        const std::int64_t left = co_await std::move(counting);
        rules.counted(which, by);
        asks.told_remaining(left, false);
    } catch (const boost::system::system_error& e) {
        // What the network has repeated may be refused the second time.
        if (e.code() != errc::outcome_unknown && e.code() != asio::error::operation_aborted &&
            p_->repeated_calls == repeated) {
            rules.not_counted(which, by);
        }
        throw;
    }
}

asio::awaitable<void> actor::wait_for_latches(std::uint64_t seed) {
    chance taste(seed);
    const own_session own = add_own();
    while (client_) {
        const bool ready = co_await have_own(own);
        if (!ready) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const int which = taste.one_in(8) ? 0 : s_.judge.latches.current();
        auto one = std::make_shared<coetcd::latch>(
            **own, latch_rules::name_of_latch(which), taste.between(1, 6));
        const auto o = std::make_shared<operation>(*p_);
        lasting_.push_back(o);
        asio::awaitable<void> waiting = wait_for_latch(std::move(one), which, taste.next());
        co_await perform(o, std::move(waiting));
        std::erase(lasting_, o);
        (void)co_await p_->sleep(taste.skewed(20ms, 1000ms));
        co_await end_own(own, taste);
    }
}

asio::awaitable<void>
actor::wait_for_latch(std::shared_ptr<coetcd::latch> l, int which, std::uint64_t seed) {
    chance taste(seed);
    const std::uint64_t how = taste.below(4);
    const latch_rules::call asks(s_.judge.latches, which, how > 1);
    try {
        if (how == 0) {
            asio::awaitable<std::int64_t> reading = l->remaining();
            const std::int64_t left = co_await std::move(reading);
            asks.told_remaining(left, true);
        } else if (how == 1) {
            asio::awaitable<bool> waiting = l->wait_for(taste.skewed(0ms, 3000ms));
            const bool open = co_await std::move(waiting);
            asks.told_open(open);
        } else {
            asio::awaitable<void> waiting = l->wait();
            l.reset();
            co_await std::move(waiting);
            asks.told_open(true);
        }
    } catch (const boost::system::system_error& e) {
        if (!was_misled(e.code())) {
            throw;
        }
    }
}

} // namespace sim
