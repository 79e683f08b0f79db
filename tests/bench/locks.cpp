// SPDX-License-Identifier: BSL-1.0
// The library's locks and calls: how many a second.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/this_coro.hpp>

#include <deque>
#include <stdexcept>
#include <utility>

#include "bench/worker.hpp"

namespace bench {
namespace {

std::string nth(const std::string& name, std::size_t number) {
    return name + "-" + std::to_string(number);
}

awaitable<void> lock_and_unlock_once(coetcd::mutex& m) {
    co_await m.lock();
    const bool released = co_await m.unlock();
    if (!released) {
        throw std::runtime_error("a lock was lost: " + m.name());
    }
}

/// Coroutines of one session, each with a name of its own or all with one.
awaitable<json> pairs(task t, coetcd::session& session) {
    std::deque<coetcd::mutex> mutexes;
    for (std::size_t i = 0; i < t.count; ++i) {
        mutexes.emplace_back(session, t.kind == "one-name" ? t.name : nth(t.name, i));
    }
    lock_and_unlock pair = [&](std::size_t i) { return lock_and_unlock_once(mutexes[i]); };
    co_return co_await measure_pairs(std::move(pair), t.count, t.seconds, t.server);
}

/// Coroutines that each write a key of its own.
awaitable<json> puts(task t, const coetcd::client& client) {
    lock_and_unlock put = [&](std::size_t i) -> awaitable<void> {
        (void)co_await client.put(nth(t.name, i), "v");
    };
    co_return co_await measure_pairs(std::move(put), t.count, t.seconds, t.server);
}

/// One of the processes that hand a lock to each other.
awaitable<json> hand_over(task t, coetcd::session& session) {
    coetcd::mutex m(session, t.name);
    co_await pass_gate(t.gate);
    ownerships all;
    const double cpu = own_cpu();
    const auto began = clock::now();
    while (seconds_since(began) < t.seconds) {
        co_await m.lock();
        all.taken();
        if (t.hold != 0) {
            co_await let_pass(t.hold);
        }
        all.leaving();
        const bool released = co_await m.unlock();
        if (!released) {
            throw std::runtime_error("a lock was lost: " + m.name());
        }
    }
    json result;
    result["cpu"] = own_cpu() - cpu;
    result["ownerships"] = all.to_json();
    co_return result;
}

struct history {
    std::vector<clock::time_point> ends;
    durations each;
    std::size_t acquisitions;
    clock::time_point until;
};

awaitable<void> make_history(coetcd::mutex& m, history& all) {
    while (all.ends.size() < all.acquisitions && clock::now() < all.until) {
        const auto began = clock::now();
        co_await lock_and_unlock_once(m);
        all.ends.push_back(clock::now());
        all.each.add(all.ends.back() - began);
    }
}

/// Very many acquisitions of one name: are the last as fast as the first? Stops after `seconds`.
awaitable<json> million(task t, coetcd::session& session) {
    constexpr std::size_t coroutines = 8;
    std::deque<coetcd::mutex> mutexes;
    history all;
    all.acquisitions = t.count;
    const stretch measured(t.server);
    const auto began = clock::now();
    all.until = began + std::chrono::milliseconds(static_cast<long>(t.seconds * 1000));
    crew members(co_await boost::asio::this_coro::executor);
    for (std::size_t i = 0; i < coroutines; ++i) {
        members.start(make_history(mutexes.emplace_back(session, t.name), all));
    }
    (void)co_await members.joined();

    const std::size_t n = all.ends.size();
    const std::size_t slice = std::min(t.slice, n / 2);
    const auto rate = [&](std::size_t first, std::size_t last) {
        const auto from = first == 0 ? began : all.ends[first - 1];
        const std::chrono::duration<double> length = all.ends[last - 1] - from;
        return static_cast<double>(last - first) / length.count();
    };
    json result;
    result["operations"] = n;
    result["rate"] = rate(0, n);
    result["first_rate"] = rate(0, slice);
    result["last_rate"] = rate(n - slice, n);
    result["last_to_first"] = rate(n - slice, n) / rate(0, slice);
    result["p50_ms"] = all.each.milliseconds_at(0.5);
    result["p99_ms"] = all.each.milliseconds_at(0.99);
    result["client_us"] = measured.client_cpu() * 1e6 / static_cast<double>(n);
    result["server_us"] = measured.server_cpu() * 1e6 / static_cast<double>(n);
    co_return result;
}

} // namespace

awaitable<json> run_coetcd(task t) {
    const coetcd::client client(co_await boost::asio::this_coro::executor, t.url);
    if (t.kind == "puts") {
        co_return co_await puts(std::move(t), client);
    }
    const coetcd::session_options options{std::chrono::seconds(t.ttl)};
    coetcd::session session = co_await coetcd::session::open(client, options);
    json result;
    if (t.kind == "hand-over") {
        result = co_await hand_over(t, session);
    } else if (t.kind == "million") {
        result = co_await million(t, session);
    } else {
        result = co_await pairs(t, session);
    }
    co_await session.close();
    co_return result;
}

} // namespace bench
