// SPDX-License-Identifier: BSL-1.0
// What producers and consumers of a queue do.
#include <coetcd/priority_queue.hpp>
#include <coetcd/queue.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sim/queues.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;

void actor::start_queueing(std::uint64_t seed) {
    chance taste(seed);
    start_queueing(mail_, taste);
}

void actor::start_ranking(std::uint64_t seed) {
    chance taste(seed);
    start_queueing(parcels_, taste);
}

/// Its consumers and producers share a session.
template<class Queue>
void actor::start_queueing(mailbox<Queue>& box, chance& taste) {
    const int consumers = taste.one_in(3) ? 2 : taste.one_in(4) ? 0 : 1;
    for (int i = 0; i != consumers; ++i) {
        start_besides("who takes from a queue", receive_mail(box, taste.next()));
    }
    if (consumers == 0 || taste.one_in(2)) {
        start_besides("who appends to a queue", send_mail(box, taste.next()));
    }
    s_.judge.rates.expect(*p_, 3);
}

/// @returns Null if all ends, or there is no session yet.
template<class Queue>
asio::awaitable<std::shared_ptr<Queue>> actor::have_mail(mailbox<Queue>& box) {
    if (box.session && box.session->state() == coetcd::session_state::lost) {
        box.queue.reset();
        box.session.reset();
    }
    if (client_ && !box.session && !box.opening) {
        box.opening = true;
        const coetcd::client by = *client_;
        const coetcd::session_options how(s_.ttl);
        try {
            coetcd::session made = co_await coetcd::session::open(by, how);
            if (client_) {
                box.session.emplace(std::move(made));
                const auto impl = coetcd::detail::access::impl(*box.session);
                s_.judge.opened(impl, *p_, sound_clock_, true);
                box.rules.opened(box.session->lease(), impl);
                box.queue = std::make_shared<Queue>(*box.session, std::string(box.name));
            }
        } catch (const boost::system::system_error&) {
            judge(std::current_exception());
        }
        box.opening = false;
    }
    co_return box.queue;
}

template<class Queue>
asio::awaitable<void> actor::send_mail(mailbox<Queue>& box, std::uint64_t seed) {
    chance taste(seed);
    for (int calls = taste.between(2, 12); client_ && calls != 0;) {
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 3000ms : 300ms));
        std::shared_ptr<Queue> q = co_await have_mail(box);
        if (!q) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        --calls;
        const auto o = std::make_shared<operation>(*p_);
        asio::awaitable<void> all = append_mail(std::move(q), taste.between(1, 3));
        co_await perform(o, std::move(all));
    }
}

asio::awaitable<void> actor::append_mail(std::shared_ptr<coetcd::queue> q, int n) {
    queue_rules& rules = s_.judge.queues;
    queue_rules::values all;
    for (int i = 0; i != n; ++i) {
        all.push_back(std::to_string(++s_.writes));
    }
    rules.appends(all, 0);
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        asio::awaitable<void> appending = q->enqueue(all);
        co_await std::move(appending);
        rules.appended(all);
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated)) {
            rules.not_appended(all);
        }
        throw;
    }
}

/// A value of each of so many priorities, from the least urgent one on.
asio::awaitable<void> actor::append_mail(std::shared_ptr<coetcd::priority_queue> q, int urgency) {
    constexpr std::array<std::uint16_t, 3> priorities{0, 7, 0xffff};
    queue_rules& rules = s_.judge.parcels;
    for (int i = urgency; i != 0; --i) {
        const std::uint16_t priority = priorities[static_cast<std::size_t>(i - 1)];
        const std::string value = std::to_string(++s_.writes);
        const queue_rules::values one{value};
        rules.appends(one, priority);
        const std::uint64_t repeated = p_->repeated_calls;
        try {
            asio::awaitable<void> appending = q->enqueue(value, priority);
            co_await std::move(appending);
            rules.appended(one);
        } catch (const boost::system::system_error& e) {
            if (was_not_made(e.code(), repeated)) {
                rules.not_appended(one);
            }
            throw;
        }
    }
}

template<class Queue>
asio::awaitable<void> actor::receive_mail(mailbox<Queue>& box, std::uint64_t seed) {
    chance taste(seed);
    while (client_) {
        std::shared_ptr<Queue> q = co_await have_mail(box);
        if (!q) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const lease_id by = box.session->lease();
        const auto o = std::make_shared<operation>(*p_);
        const bool sizes = taste.one_in(12);
        asio::awaitable<void> one = sizes ? count_mail(std::move(q), box.rules)
                                          : take_mail(std::move(q), box.rules, by, taste.next());
        co_await perform(o, std::move(one));
        if (client_) {
            const auto least = box.rules.only_looks ? 20ms : 0ms; // else it does nothing but ask
            (void)co_await p_->sleep(taste.skewed(least, taste.one_in(8) ? 2000ms : 100ms));
        }
        if (box.session && taste.one_in(20) && !s_.w.healed()) {
            box.queue.reset();
            coetcd::session last = std::move(*box.session);
            box.session.reset();
            if (taste.one_in(2)) {
                const auto closing = std::make_shared<operation>(*p_);
                asio::awaitable<void> work = close_work(std::move(last));
                co_await perform(closing, std::move(work));
            }
        }
    }
}

template<class Queue>
asio::awaitable<void> actor::count_mail(std::shared_ptr<Queue> q, queue_rules& rules) {
    const queue_rules::sizing asks(rules);
    asio::awaitable<std::int64_t> counting = q->size();
    const std::int64_t size = co_await std::move(counting);
    asks.told(size);
}

template<class Queue>
asio::awaitable<void>
actor::take_mail(std::shared_ptr<Queue> q, queue_rules& rules, lease_id by, std::uint64_t seed) {
    chance taste(seed);
    std::optional<std::string> value;
    const std::uint64_t how = rules.only_looks ? 0 : s_.w.healed() ? 3 : taste.below(4);
    const queue_rules::seat asks(rules, how > 1);
    try {
        if (how == 0) {
            asio::awaitable<std::optional<std::string>> taking = q->try_dequeue();
            value = co_await std::move(taking);
            if (!value) {
                asks.found_nothing();
            }
        } else if (how == 1) {
            asio::awaitable<std::optional<std::string>> taking =
                q->dequeue_for(taste.skewed(0ms, 3000ms));
            value = co_await std::move(taking);
        } else {
            asio::awaitable<std::string> taking = q->dequeue();
            value = co_await std::move(taking);
        }
    } catch (const boost::system::system_error& e) {
        if (e.code() == errc::outcome_unknown) {
            rules.lost_track(by);
        }
        throw;
    }
    if (value) {
        asks.found(*value);
        rules.handed(by, *value);
    }
}

} // namespace sim
