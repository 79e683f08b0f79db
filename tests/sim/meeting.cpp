// SPDX-License-Identifier: BSL-1.0
// What those do who meet others at a barrier.
#include <coetcd/cyclic_barrier.hpp>
#include <coetcd/double_barrier.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/meetings.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;

namespace {

constexpr int rounds_when_calm = 4;

int draw_parties(chance& taste) {
    return taste.one_in(4) ? 3 : 2; // that which is stored counts
}

} // namespace

void actor::start_passing(std::uint64_t seed) {
    chance taste(seed);
    for (int i = taste.one_in(3) ? 2 : 1; i != 0; --i) {
        start_besides("who passes a barrier", pass_turnstile(taste.next()));
    }
    s_.judge.rates.expect(*p_, 2);
}

void actor::start_staying(std::uint64_t seed) {
    chance taste(seed);
    for (int i = taste.one_in(3) ? 2 : 1; i != 0; --i) {
        start_besides("who stays in a barrier", stay_in_hall(taste.next()));
    }
    s_.judge.rates.expect(*p_, 2);
}

/// Opens a session there if none is that lives.
/// @returns Whether there is one.
asio::awaitable<bool> actor::have_own(own_session seat) {
    if (*seat && (*seat)->state() == coetcd::session_state::lost) {
        seat->reset();
    }
    if (client_ && !*seat) {
        const coetcd::client by = *client_;
        const coetcd::session_options how(s_.ttl);
        try {
            coetcd::session made = co_await coetcd::session::open(by, how);
            if (client_) {
                seat->emplace(std::move(made));
                s_.judge.opened(coetcd::detail::access::impl(**seat), *p_, sound_clock_);
            }
        } catch (const boost::system::system_error&) {
            judge(std::current_exception());
        }
    }
    const bool is_there = client_.has_value() && seat->has_value();
    co_return is_there;
}

/// Now and then, it is closed, or lost.
asio::awaitable<void> actor::end_own(own_session seat, chance& taste) {
    if (!*seat || s_.w.healed() || !taste.one_in(16)) {
        co_return;
    }
    coetcd::session last = std::move(**seat);
    seat->reset();
    if (taste.one_in(2)) {
        const auto o = std::make_shared<operation>(*p_);
        asio::awaitable<void> closing = close_work(std::move(last));
        co_await perform(o, std::move(closing));
    }
}

actor::own_session actor::add_own() {
    own_sessions_.push_back(std::make_shared<std::optional<coetcd::session>>());
    return own_sessions_.back();
}

asio::awaitable<void> actor::pass_turnstile(std::uint64_t seed) {
    chance taste(seed);
    const own_session own = add_own();
    for (int left = rounds_when_calm; client_ && left != 0; left -= s_.w.healed() ? 1 : 0) {
        const bool ready = co_await have_own(own);
        if (!ready) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        auto gate = std::make_shared<coetcd::cyclic_barrier>(
            **own, std::string(turnstile_name), draw_parties(taste));
        for (int times = taste.between(1, 4); times != 0 && client_ && *own; --times) {
            const auto o = std::make_shared<operation>(*p_);
            asio::awaitable<void> passing = pass_once(gate, (*own)->lease(), taste.next());
            co_await perform(o, std::move(passing));
            (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 3000ms : 200ms));
        }
        gate.reset();
        co_await end_own(own, taste);
    }
}

asio::awaitable<void>
actor::pass_once(std::shared_ptr<coetcd::cyclic_barrier> gate, lease_id by, std::uint64_t seed) {
    chance taste(seed);
    meeting_rules::seat arrives(s_.judge.turnstile, by);
    bool through = true;
    if (taste.one_in(4)) {
        asio::awaitable<bool> passing = gate->arrive_and_wait_for(taste.skewed(0ms, 4000ms));
        through = co_await std::move(passing);
    } else {
        asio::awaitable<void> passing = gate->arrive_and_wait();
        co_await std::move(passing);
    }
    if (through) {
        (void)arrives.came_through();
    } else {
        arrives.withdrew();
    }
}

asio::awaitable<void> actor::stay_in_hall(std::uint64_t seed) {
    chance taste(seed);
    const own_session own = add_own();
    for (int left = rounds_when_calm; client_ && left != 0; left -= s_.w.healed() ? 1 : 0) {
        const bool ready = co_await have_own(own);
        if (!ready) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const auto hall = std::make_shared<coetcd::double_barrier>(
            **own, std::string(hall_name), draw_parties(taste));
        for (int times = taste.between(1, 4); times != 0 && client_ && *own; --times) {
            std::optional<meeting_rules::member> inside;
            std::int64_t group = 0;
            const auto entering = std::make_shared<operation>(*p_);
            asio::awaitable<void> enters = enter_hall(*hall, inside, (*own)->lease(), taste.next());
            co_await perform(entering, std::move(enters));
            const bool is_inside = inside.has_value();
            if (is_inside) {
                group = inside->group();
                (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 3000ms : 200ms));
                inside->goes();
            }
            bool has_left = !is_inside || (!s_.w.healed() && taste.one_in(8));
            const bool goes_at_once = is_inside && has_left;
            for (int tries = 3; !has_left && tries != 0 && client_; --tries) {
                const auto leaving = std::make_shared<operation>(*p_);
                lasting_.push_back(leaving);
                asio::awaitable<void> leaves = leave_hall(*hall, group, has_left, taste.next());
                co_await perform(leaving, std::move(leaves));
                std::erase(lasting_, leaving);
            }
            if (goes_at_once || !has_left) {
                break; // destroyed, it leaves in the background
            }
            (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 3000ms : 200ms));
        }
        co_await end_own(own, taste);
    }
}

asio::awaitable<void> actor::enter_hall(coetcd::double_barrier& hall,
                                        std::optional<meeting_rules::member>& inside,
                                        lease_id by,
                                        std::uint64_t seed) {
    chance taste(seed);
    meeting_rules& rules = s_.judge.hall;
    meeting_rules::seat arrives(rules, by);
    bool through = true;
    if (taste.one_in(4)) {
        asio::awaitable<bool> entering = hall.enter_for(taste.skewed(0ms, 4000ms));
        through = co_await std::move(entering);
    } else {
        asio::awaitable<void> entering = hall.enter();
        co_await std::move(entering);
    }
    if (through) {
        inside.emplace(rules, arrives.came_through());
    } else {
        arrives.withdrew();
    }
}

asio::awaitable<void> actor::leave_hall(coetcd::double_barrier& hall,
                                        std::int64_t group,
                                        bool& has_left,
                                        std::uint64_t seed) {
    chance taste(seed);
    const meeting_rules::departure leaves(s_.judge.hall, group);
    try {
        if (!s_.w.healed() && taste.one_in(3)) {
            asio::awaitable<bool> leaving = hall.leave_for(taste.skewed(0ms, 2000ms));
            has_left = co_await std::move(leaving);
        } else {
            asio::awaitable<void> leaving = hall.leave();
            co_await std::move(leaving);
            has_left = true;
        }
        leaves.returned(has_left);
    } catch (const boost::system::system_error& e) {
        if (!was_misled(e.code())) {
            throw;
        }
    }
}

} // namespace sim
