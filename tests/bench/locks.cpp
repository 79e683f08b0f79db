// SPDX-License-Identifier: BSL-1.0
// The library's locks and calls: how many a second.
#include <coetcd/client.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>

#include <boost/asio/this_coro.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

/// Coroutines that each run a body under a lock with a name of its own, again and again.
awaitable<json> bodies(task t, coetcd::session& session) {
    std::deque<coetcd::mutex> mutexes;
    for (std::size_t i = 0; i < t.count; ++i) {
        mutexes.emplace_back(session, nth(t.name, i));
    }
    auto nothing = []() -> awaitable<void> { co_return; };
    lock_and_unlock pair = [&](std::size_t i) { return coetcd::with_lock(mutexes[i], nothing); };
    co_return co_await measure_pairs(std::move(pair), t.count, t.seconds, t.server);
}

/// One coroutine that takes names in turn. The subject `plain` does not retain them.
/// @param by_others Of that many takings one is that of another client; 0: none is.
awaitable<json> in_turn(task t, coetcd::session& session, std::size_t by_others) {
    coetcd::lock_options how;
    if (t.subject != "plain") {
        how.retain = std::chrono::seconds(60);
    }
    const auto executor = co_await boost::asio::this_coro::executor;
    const coetcd::client other(executor, coetcd::endpoints(urls_of(t)));
    const coetcd::session_options lifetime{std::chrono::seconds(t.ttl)};
    const coetcd::session theirs = co_await coetcd::session::open(other, lifetime);
    std::deque<coetcd::mutex> own, others;
    for (std::size_t i = 0; i < t.count; ++i) {
        own.emplace_back(session, nth(t.name, i), how);
        others.emplace_back(theirs, nth(t.name, i), how);
    }
    std::size_t taken = 0;
    lock_and_unlock next = [&](std::size_t) {
        const std::size_t number = taken++;
        const bool is_own = by_others == 0 || number % by_others != 0;
        return lock_and_unlock_once((is_own ? own : others)[number % t.count]);
    };
    co_return co_await measure_pairs(std::move(next), 1, t.seconds, t.server);
}

/// Coroutines that each write a key of its own.
awaitable<json> puts(task t, const coetcd::client& client) {
    lock_and_unlock put = [&](std::size_t i) -> awaitable<void> {
        (void)co_await client.put(nth(t.name, i), "v");
    };
    co_return co_await measure_pairs(std::move(put), t.count, t.seconds, t.server);
}

/// Coroutines that each lock a name of its own, write a key if they hold it, and unlock.
awaitable<json>
guarded_writes(task t, const coetcd::client& client, const coetcd::session& session) {
    std::deque<coetcd::mutex> mutexes;
    for (std::size_t i = 0; i < t.count; ++i) {
        mutexes.emplace_back(session, nth(t.name, i));
    }
    lock_and_unlock write = [&](std::size_t i) -> awaitable<void> {
        coetcd::mutex& m = mutexes[i];
        co_await m.lock();
        coetcd::txn what =
            coetcd::txn().when(m.is_owner()).then(coetcd::op::put(nth(t.name, i) + "-data", "v"));
        const coetcd::txn_response written = co_await client.txn(std::move(what));
        const bool released = co_await m.unlock();
        if (!written.succeeded || !released) {
            throw std::runtime_error("a lock was lost: " + m.name());
        }
    };
    co_return co_await measure_pairs(std::move(write), t.count, t.seconds, t.server);
}

/// What is handed over.
struct held_alone {
    std::function<awaitable<void>()> take;
    std::function<awaitable<bool>()> give_back;
};

held_alone with_mutex(const coetcd::session& session, const std::string& name) {
    const auto m = std::make_shared<coetcd::mutex>(session, name);
    return {[m] { return m->lock(); }, [m] { return m->unlock(); }};
}
held_alone with_shared_mutex(const coetcd::session& session, const std::string& name) {
    const auto m = std::make_shared<coetcd::shared_mutex>(session, name);
    return {[m] { return m->lock(); }, [m] { return m->unlock(); }};
}
held_alone with_permit(const coetcd::session& session, const std::string& name) {
    const auto permits = std::make_shared<coetcd::semaphore>(session, name, 1);
    const auto held = std::make_shared<std::optional<coetcd::permit>>();
    return {[permits, held]() -> awaitable<void> {
                coetcd::permit taken = co_await permits->acquire();
                held->emplace(std::move(taken));
            },
            [held] { return (*held)->release(); }};
}

held_alone what_to_hold(const task& t, const coetcd::session& session) {
    if (t.kind == "hand-over-shared") {
        return with_shared_mutex(session, t.name);
    }
    return t.kind == "hand-over-permit" ? with_permit(session, t.name)
                                        : with_mutex(session, t.name);
}

/// One of the processes that hand something to each other.
awaitable<json> hand_over(task t, coetcd::session& session) {
    const held_alone m = what_to_hold(t, session);
    co_await pass_gate(t.gate);
    ownerships all;
    const double cpu = own_cpu();
    const auto began = clock::now();
    while (seconds_since(began) < t.seconds) {
        co_await m.take();
        all.taken();
        if (t.hold != 0) {
            co_await let_pass(t.hold);
        }
        all.leaving();
        const bool released = co_await m.give_back();
        if (!released) {
            throw std::runtime_error("a lock was lost: " + t.name);
        }
    }
    json result;
    result["cpu"] = own_cpu() - cpu;
    result["ownerships"] = all.to_json();
    co_return result;
}

/// A client that has a name of several.
struct owner {
    owner(coetcd::client c, coetcd::session s, const std::string& name)
        : client(std::move(c))
        , session(std::move(s))
        , m(session, name) {}
    coetcd::client client;
    coetcd::session session;
    coetcd::mutex m;
};

awaitable<void> release(coetcd::mutex& m) {
    (void)co_await m.unlock();
}
awaitable<void> take_all(coetcd::multi_lock& all, clock::time_point& taken) {
    co_await all.lock();
    taken = clock::now();
}

/// Several names, each of which another client has, are given back at once: how long it takes until
/// one has them all.
awaitable<json> several(task t, coetcd::session& session) {
    const auto executor = co_await boost::asio::this_coro::executor;
    const coetcd::session_options lifetime{std::chrono::seconds(t.ttl)};
    std::deque<owner> owners;
    std::vector<coetcd::lock_part> names;
    for (std::size_t i = 0; i < t.count; ++i) {
        coetcd::client other(executor, coetcd::endpoints(urls_of(t)));
        coetcd::session theirs = co_await coetcd::session::open(other, lifetime);
        names.push_back(coetcd::exclusive(nth(t.name, i)));
        owners.emplace_back(std::move(other), std::move(theirs), names.back().name);
    }
    coetcd::multi_lock all(session, names);
    durations each;
    const auto began = clock::now();
    while (seconds_since(began) < t.seconds) {
        for (owner& o : owners) {
            co_await o.m.lock();
        }
        clock::time_point taken, left;
        crew waiting(executor), leaving(executor);
        waiting.start(take_all(all, taken));
        co_await let_pass(0.4); // it knows by then whom it waits for
        for (owner& o : owners) {
            left = clock::now();
            leaving.start(release(o.m));
        }
        (void)co_await waiting.joined();
        (void)co_await leaving.joined();
        each.add(taken - left);
        (void)co_await all.unlock();
    }
    json result;
    result["operations"] = each.count();
    result["p50_ms"] = each.milliseconds_at(0.5);
    result["p99_ms"] = each.milliseconds_at(0.99);
    co_return result;
}

/// Coroutines that want a permit of few, each for a while: of one session, or each of a client of
/// its own.
awaitable<json> permits(task t, const coetcd::session& session) {
    const auto executor = co_await boost::asio::this_coro::executor;
    const coetcd::session_options lifetime{std::chrono::seconds(t.ttl)};
    const auto limit = static_cast<std::int64_t>(t.slice);
    std::deque<coetcd::client> clients;
    std::deque<coetcd::session> sessions;
    std::deque<coetcd::semaphore> all;
    if (t.kind == "permits-session") {
        all.emplace_back(session, t.name, limit);
    } else {
        for (std::size_t i = 0; i < t.count; ++i) {
            clients.emplace_back(executor, coetcd::endpoints(urls_of(t)));
            coetcd::session own = co_await coetcd::session::open(clients.back(), lifetime);
            sessions.push_back(std::move(own));
            all.emplace_back(sessions.back(), t.name, limit);
        }
    }
    lock_and_unlock use = [&](std::size_t i) -> awaitable<void> {
        coetcd::semaphore& of = all[i % all.size()];
        coetcd::permit one = co_await of.acquire();
        co_await let_pass(t.hold);
        const bool released = co_await one.release();
        if (!released) {
            throw std::runtime_error("a permit was lost: " + t.name);
        }
    };
    json result = co_await measure_pairs(std::move(use), t.count, t.seconds, t.server);
    // One that is held without a pause between two holders would be used as often as that.
    const double each = static_cast<double>(t.slice) / result["rate"].get<double>();
    result["idle_ms"] = (each - t.hold) * 1e3;
    co_return result;
}

awaitable<void> lock_often(coetcd::mutex& m, long_run& all) {
    while (all.goes_on()) {
        const auto began = clock::now();
        co_await lock_and_unlock_once(m);
        all.add(began);
    }
}

awaitable<json> million(task t, coetcd::session& session) {
    constexpr std::size_t coroutines = 8;
    std::deque<coetcd::mutex> mutexes;
    long_run all(t);
    crew members(co_await boost::asio::this_coro::executor);
    for (std::size_t i = 0; i < coroutines; ++i) {
        members.start(lock_often(mutexes.emplace_back(session, t.name), all));
    }
    (void)co_await members.joined();
    co_return all.to_json();
}

} // namespace

awaitable<json> run_coetcd(task t) {
    coetcd::client_options how;
    how.combine_calls = t.kind.ends_with("-combined");
    const coetcd::client client(
        co_await boost::asio::this_coro::executor, coetcd::endpoints(urls_of(t)), how);
    if (t.kind.starts_with("puts")) {
        co_return co_await puts(std::move(t), client);
    }
    const coetcd::session_options options{std::chrono::seconds(t.ttl)};
    coetcd::session session = co_await coetcd::session::open(client, options);
    json result;
    if (t.kind.starts_with("hand-over")) {
        result = co_await hand_over(t, session);
    } else if (t.kind == "several") {
        result = co_await several(t, session);
    } else if (t.kind.starts_with("guarded")) {
        result = co_await guarded_writes(t, client, session);
    } else if (t.kind.starts_with("permits")) {
        result = co_await permits(t, session);
    } else if (t.kind == "with-lock") {
        result = co_await bodies(t, session);
    } else if (t.kind == "in-turn") {
        result = co_await in_turn(t, session, t.slice);
    } else if (t.kind == "million") {
        result = co_await million(t, session);
    } else {
        result = co_await pairs(t, session);
    }
    co_await session.close();
    co_return result;
}

} // namespace bench
