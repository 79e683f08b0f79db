// SPDX-License-Identifier: BSL-1.0
// The library's watches: one that is flooded, locks beside it, and very many small ones.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/this_coro.hpp>

#include <deque>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/worker.hpp"

namespace bench {
namespace {

using coetcd::client;
using coetcd::key_range;
using coetcd::session;
using coetcd::watcher;

awaitable<watcher> watch_below(const client& c, std::string prefix) {
    auto keys = key_range::prefix(std::move(prefix));
    return c.watch(std::move(keys));
}

/// Reads `count` events.
awaitable<json> flooded(task t, const client& c) {
    watcher changes = co_await watch_below(c, t.name + "/");
    consumption measured;
    co_await pass_gate(t.gate);
    std::size_t events = 0;
    std::int64_t revision = 0;
    while (events < t.count) {
        const coetcd::watch_batch batch = co_await changes.next();
        events += batch.events.size();
        revision = batch.revision;
        co_await measured.pause_once(t, events);
    }
    json result = measured.to_json(events);
    result["revision"] = revision;
    co_return result;
}

awaitable<void> count_events(watcher& changes, std::size_t& events) {
    for (;;) {
        const coetcd::watch_batch batch = co_await changes.next();
        events += batch.events.size();
    }
}

/// What two sessions share that hand a lock to each other.
struct relay {
    std::string name;
    clock::time_point until;
    clock::time_point released{};
    durations hand_overs; ///< From the release to the return of `lock`.
};

awaitable<void> take_turns(const session& s, relay& all) {
    constexpr double hold = 0.005; // s: long enough for the other one to queue up
    coetcd::mutex m(s, all.name);
    while (clock::now() < all.until) {
        co_await m.lock();
        if (all.released != clock::time_point{}) {
            all.hand_overs.add(clock::now() - all.released);
        }
        co_await let_pass(hold);
        all.released = clock::now();
        const bool released = co_await m.unlock();
        if (!released) {
            throw std::runtime_error("a lock was lost: " + m.name());
        }
    }
}

/// Hands a lock to and fro between two sessions, while the same client watches the flood. As
/// `alone` the flood is not watched.
awaitable<json> beside(task t, const client& c) {
    const auto executor = co_await asio::this_coro::executor;
    const coetcd::session_options lifetime{std::chrono::seconds(t.ttl)};
    session one = co_await session::open(c, lifetime);
    session other = co_await session::open(c, lifetime);
    std::optional<watcher> changes;
    crew reader(executor);
    std::size_t events = 0;
    if (t.subject != "alone") {
        changes = co_await watch_below(c, t.name + "/");
        reader.start(count_events(*changes, events));
    }
    co_await pass_gate(t.gate);
    relay all;
    all.name = t.name + ".lock";
    all.until = clock::now() + std::chrono::milliseconds(static_cast<long>(t.seconds * 1000));
    crew members(executor);
    members.start(take_turns(one, all));
    members.start(take_turns(other, all));
    (void)co_await members.joined();
    json result;
    result["operations"] = all.hand_overs.count();
    result["rate"] = static_cast<double>(all.hand_overs.count()) / t.seconds;
    result["p50_ms"] = all.hand_overs.milliseconds_at(0.5);
    result["p99_ms"] = all.hand_overs.milliseconds_at(0.99);
    result["longest_ms"] = all.hand_overs.milliseconds_at(1);
    result["events"] = events;
    co_return result;
}

/// Watches of one key each.
class small_watches {
public:
    explicit small_watches(std::string name)
        : name_(std::move(name)) {}

    awaitable<void> begin(const client& c, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t number = all_.size();
            all_.emplace_back(); // it has this number, whatever begins meanwhile
            watcher one = co_await c.watch(key(number));
            all_[number] = std::move(one);
        }
    }
    /// Changes the key of one, and waits until its watch tells.
    awaitable<void> change(const client& c, std::size_t number) {
        co_await c.put(key(number), "x");
        const coetcd::watch_batch batch = co_await all_[number].next();
        if (batch.events.size() != 1 || batch.events.front().kv.key != key(number)) {
            throw std::runtime_error("not the event of " + key(number));
        }
    }

private:
    std::string key(std::size_t number) const { return name_ + "-" + std::to_string(number); }

    std::string name_;
    std::deque<watcher> all_;
};

awaitable<json> many(task t, const client& c) {
    constexpr std::size_t at_a_time = 16;
    constexpr std::size_t changes = 8;
    const auto executor = co_await asio::this_coro::executor;
    const client writer(executor, t.direct);
    small_watches all(t.name);
    json result;
    const std::size_t empty = resident();
    const auto began = clock::now();
    crew members(executor);
    for (std::size_t i = 0; i < at_a_time; ++i) {
        members.start(all.begin(c, t.count / at_a_time + (i < t.count % at_a_time ? 1 : 0)));
    }
    (void)co_await members.joined();
    result["open_s"] = seconds_since(began);
    result["watch_kib"] = per_item_kib(empty, t.count);
    result["sockets"] = open_sockets();

    // Each of those that change has watches of its own, by turns.
    std::vector<std::size_t> next(changes);
    std::iota(next.begin(), next.end(), std::size_t(0));
    lock_and_unlock change = [&](std::size_t i) {
        const std::size_t number = next[i];
        next[i] = number + changes < t.count ? number + changes : i;
        return all.change(writer, number);
    };
    const json delivered = co_await measure_pairs(std::move(change), changes, t.seconds, t.server);
    result.update(delivered);
    co_return result;
}

} // namespace

awaitable<json> run_watches(task t) {
    const client c(co_await asio::this_coro::executor, t.url);
    if (t.kind == "flood") {
        co_return co_await flooded(t, c);
    }
    if (t.kind == "beside") {
        co_return co_await beside(t, c);
    }
    co_return co_await many(t, c);
}

} // namespace bench
