// SPDX-License-Identifier: BSL-1.0
// Coroutines that keep the lane of a client busy: with transactions that do not fit beside one
// another, and with one that is denied. Some of them wait for large locks in between.
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/lane.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;

namespace {

constexpr int most_names = 32;
constexpr std::int64_t most_permits = 65'535; // a key for each bit

std::vector<coetcd::lock_part> names_of(const std::string& prefix) {
    std::vector<coetcd::lock_part> all;
    for (int i = 0; i != most_names; ++i) {
        all.push_back(coetcd::exclusive(prefix + "-" + std::to_string(i)));
    }
    return all;
}

} // namespace

/// The sessions of the coroutines that crowd, and until when they do.
struct actor::crowd {
    coetcd::session own;
    coetcd::session other;
    coetcd::session denied;
    std::string prefix;
    nanoseconds until;
};

void actor::start_crowding(std::uint64_t seed, nanoseconds until) {
    s_.busy = true;
    start_besides("who keeps the lane busy", begin_crowd(seed, until));
}

asio::awaitable<void> actor::begin_crowd(std::uint64_t seed, nanoseconds until) {
    chance taste(seed);
    // They do not pause: two requests are on their way, always, and two more of those that go
    // alone. Each key that one of many names waits for is watched, by a message of its own.
    s_.judge.rates.expect(*p_, 20 + static_cast<int>(400ms / s_.latency));
    const coetcd::session_options how(30s);
    std::shared_ptr<crowd> all;
    try {
        coetcd::session own = co_await coetcd::session::open(*client_, how);
        coetcd::session other = co_await coetcd::session::open(*client_, how);
        coetcd::session denied = co_await coetcd::session::open(*client_, how);
        all.reset(new crowd{std::move(own),
                            std::move(other),
                            std::move(denied),
                            "crowd/" + std::to_string(p_->number()) + "-",
                            until});
    } catch (const boost::system::system_error&) {
        judge(std::current_exception());
        co_return;
    }
    const auto wide = [this, all](const std::string& names, bool other) {
        return lock_again(all, coetcd::multi_lock(other ? all->other : all->own, names_of(names)));
    };
    for (int i = taste.between(2, 6); i != 0; --i) {
        start_besides("who takes many names", wide(all->prefix + std::to_string(i), false));
    }
    for (const bool other : {false, true}) { // one of the two waits, always
        start_besides("who waits for many names", wide(all->prefix + "both", other));
    }
    if (taste.one_in(2)) {
        start_besides("who takes many permits", acquire_again(all));
    }
    if (taste.one_in(2)) {
        start_besides("who may not", lock_in_vain(all));
    }
}

asio::awaitable<void> actor::lock_again(std::shared_ptr<crowd> with, coetcd::multi_lock m) {
    try {
        while (client_ && s_.w.now() < with->until) {
            co_await m.lock();
            (void)co_await m.unlock();
        }
    } catch (const boost::system::system_error&) {
        judge(std::current_exception());
    }
}

asio::awaitable<void> actor::acquire_again(std::shared_ptr<crowd> with) {
    coetcd::semaphore wide(with->own, with->prefix + "permits", most_permits);
    try {
        while (client_ && s_.w.now() < with->until) {
            coetcd::permit taken = co_await wide.acquire(most_permits);
            (void)co_await taken.release();
        }
    } catch (const boost::system::system_error&) {
        judge(std::current_exception());
    }
}

asio::awaitable<void> actor::lock_in_vain(std::shared_ptr<crowd> with) {
    s_.w.store.forbidden_prefix = "crowd/denied";
    coetcd::mutex m(with->denied, "crowd/denied");
    while (client_ && s_.w.now() < with->until) {
        try {
            co_await m.lock();
            s_.w.fail("a lock was granted that its user may not touch");
        } catch (const boost::system::system_error& e) {
            if (e.code() == coetcd::errc::session_lost) {
                co_return;
            }
            // Where all refuse, what is told is the word of the last one.
            const bool refused = e.code().category() == coetcd::server_category();
            if (e.code() != coetcd::server_errc::permission_denied &&
                !(refused && s_.w.had_refusals())) {
                judge(std::current_exception());
            }
        }
        (void)co_await p_->sleep(5ms);
    }
}

void actor::look_at_lane() {
    if (!client_) {
        return;
    }
    const auto impl = coetcd::detail::access::impl(*client_);
    const coetcd::detail::transaction_lane& lane = *impl->transactions;
    const std::optional<coetcd::detail::time_point> since = lane.waits_since();
    if (!since) {
        most_waiting_ = 0;
        return;
    }
    most_waiting_ = std::max(most_waiting_, lane.waiting());
    // Each that came before may have to go alone, of two at a time; and all are asked once more,
    // or in smaller groups, should one of those that share a request be refused.
    const auto requests = static_cast<std::int64_t>(most_waiting_ + 8);
    if (p_->now() - *since > requests * 2 * s_.latency) {
        s_.w.fail("a transaction waits for ever, beside others that are sent");
    }
}

} // namespace sim
