// SPDX-License-Identifier: BSL-1.0
// What those do who close and open a barrier, and who wait at it.
#include <coetcd/barrier.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sim/barriers.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

namespace {

constexpr int all_barriers = 2;

/// Most use the same one.
int draw_barrier(chance& taste) {
    return taste.one_in(4) ? all_barriers - 1 : 0;
}

} // namespace

void actor::start_holding(std::uint64_t seed) {
    chance taste(seed);
    start_besides("who closes and opens a barrier", hold_barriers(taste.next()));
    for (int i = taste.one_in(3) ? 2 : 1; i != 0; --i) {
        start_besides("who waits at a barrier", wait_at_barriers(taste.next()));
    }
    s_.judge.rates.expect(*p_, 3);
}

asio::awaitable<void> actor::hold_barriers(std::uint64_t seed) {
    chance taste(seed);
    const own_session own = add_own();
    for (int calls = taste.between(8, 40); client_ && calls != 0; --calls) {
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 2000ms : 200ms));
        const bool ready = co_await have_own(own);
        if (!ready) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const int which = draw_barrier(taste);
        auto one = std::make_shared<coetcd::barrier>(**own, barrier_rules::name_of_barrier(which));
        const lease_id by = (*own)->lease();
        const auto o = std::make_shared<operation>(*p_);
        const std::uint64_t how = taste.below(5);
        asio::awaitable<void> work = how < 2 ? release_barrier(std::move(one), which)
                                             : hold_barrier(std::move(one), which, by, how == 2);
        co_await perform(o, std::move(work));
        if (*own && !s_.w.healed() && taste.one_in(20)) { // what it has closed stays so for a ttl
            s_.judge.orphaned((*own)->orphan());
            own->reset();
        }
        co_await end_own(own, taste);
    }
}

asio::awaitable<void>
actor::hold_barrier(std::shared_ptr<coetcd::barrier> b, int which, lease_id by, bool for_good) {
    using closing = barrier_rules::closing;
    const closing how = for_good ? closing::for_good : closing::while_alive;
    const barrier_rules::holding closes(s_.judge.barriers, which, by, how);
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        asio::awaitable<bool> holding = for_good ? b->hold() : b->hold_while_alive();
        b.reset();
        const bool done = co_await std::move(holding);
        if (done) {
            closes.closed();
        } else {
            closes.found_closed();
        }
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated)) {
            closes.changed_nothing();
        }
        throw;
    }
}

asio::awaitable<void> actor::release_barrier(std::shared_ptr<coetcd::barrier> b, int which) {
    const barrier_rules::call opens(s_.judge.barriers, which, barrier_rules::purpose::releases);
    asio::awaitable<bool> releasing = b->release();
    b.reset();
    const bool opened = co_await std::move(releasing);
    opens.released(opened);
}

asio::awaitable<void> actor::wait_at_barriers(std::uint64_t seed) {
    chance taste(seed);
    const own_session own = add_own();
    while (client_) {
        const bool ready = co_await have_own(own);
        if (!ready) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const int which = draw_barrier(taste);
        auto one = std::make_shared<coetcd::barrier>(**own, barrier_rules::name_of_barrier(which));
        const auto o = std::make_shared<operation>(*p_);
        lasting_.push_back(o);
        asio::awaitable<void> waiting = wait_at_barrier(std::move(one), which, taste.next());
        co_await perform(o, std::move(waiting));
        std::erase(lasting_, o);
        (void)co_await p_->sleep(taste.skewed(20ms, taste.one_in(4) ? 1000ms : 100ms));
        co_await end_own(own, taste);
    }
}

asio::awaitable<void>
actor::wait_at_barrier(std::shared_ptr<coetcd::barrier> b, int which, std::uint64_t seed) {
    using purpose = barrier_rules::purpose;
    chance taste(seed);
    const bool is_patient = taste.one_in(2);
    const barrier_rules::call asks(
        s_.judge.barriers, which, is_patient ? purpose::waits : purpose::asks);
    try {
        if (is_patient) {
            asio::awaitable<void> waiting = b->wait();
            b.reset();
            co_await std::move(waiting);
            asks.told(true);
        } else {
            asio::awaitable<bool> waiting = b->wait_for(taste.skewed(0ms, 3000ms));
            b.reset();
            const bool open = co_await std::move(waiting);
            asks.told(open);
        }
    } catch (const boost::system::system_error& e) {
        if (!was_misled(e.code())) {
            throw;
        }
    }
}

} // namespace sim
