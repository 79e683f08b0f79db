// SPDX-License-Identifier: BSL-1.0
// Thousands of waiters, sessions and names in one process.
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/worker.hpp"

namespace bench {
namespace {

using coetcd::client;
using coetcd::mutex;
using coetcd::session;

/// Lets all coroutines go on until each of them waits for something.
awaitable<void> let_others_run() {
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

/// Counts the keys that are created below a prefix, over a client that need not be the waiters'.
class key_count {
public:
    explicit key_count(coetcd::watcher changes)
        : changes_(std::move(changes)) {}

    static awaitable<key_count> begin(const client& c, std::string prefix) {
        auto keys = coetcd::key_range::prefix(std::move(prefix));
        coetcd::watcher w = co_await c.watch(std::move(keys));
        co_return key_count(std::move(w));
    }

    awaitable<void> reach(std::size_t count) {
        while (puts_ < count) {
            const coetcd::watch_batch batch = co_await changes_.next();
            for (const coetcd::event& e : batch.events) {
                puts_ += e.type == coetcd::event_type::put && e.kv.version == 1 ? 1 : 0;
            }
        }
    }

private:
    coetcd::watcher changes_;
    std::size_t puts_ = 0;
};

/// What a group of waiters or holders has measured.
struct account {
    durations hand_overs; ///< From the release to the return of `lock`.
    durations unlocks;
    std::size_t had_it = 0;
    std::size_t failures = 0; ///< Lost locks and failed calls.
    std::string failure;      ///< The first.
    clock::time_point last_release{};

    void failed(const coetcd::error& e) { failed(e.what()); }
    void failed(const char* why) {
        ++failures;
        if (failure.empty()) {
            failure = why;
        }
    }
};

void add_failure(json& result, const std::string& failure) {
    if (!failure.empty()) {
        const std::string before = result.value("failure", "");
        result["failure"] = before.empty() ? failure : before + "; " + failure;
    }
}

clock::time_point after(double seconds) {
    return clock::now() + std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

/// Returns once all are queued, or after `limit`: then the account says so.
awaitable<void> until_queued(key_count& keys, const task& t, account& all) {
    crew one(co_await asio::this_coro::executor);
    one.start(keys.reach(t.count));
    const bool queued = co_await one.joined(after(t.limit));
    if (!queued) {
        all.failed("not all were queued in time");
    }
}

/// What the end of a case took, for each that had it, and how many had not.
void add_ending(json& result, const stretch& draining, std::size_t count, std::size_t had_it) {
    const auto n = static_cast<double>(std::max<std::size_t>(had_it, 1));
    result["drain_s"] = draining.seconds();
    result["client_us"] = draining.client_cpu() * 1e6 / n;
    result["server_us"] = draining.server_cpu() * 1e6 / n;
    result["missed"] = count - had_it;
}

awaitable<void> measure_waiting(const task& t, json& result) {
    const stretch waiting(t.server);
    co_await let_pass(t.seconds);
    result["client_percent"] = 100 * waiting.client_cpu() / waiting.seconds();
    result["server_percent"] = 100 * waiting.server_cpu() / waiting.seconds();
}

awaitable<void> give_back(mutex& m, account& all) {
    const auto began = clock::now();
    try {
        const bool released = co_await m.unlock();
        all.failures += released ? 0 : 1;
    } catch (const coetcd::error& e) {
        all.failed(e);
    }
    all.unlocks.add(clock::now() - began);
}

/// Queues for a name, and passes it on at once.
awaitable<void> wait_in_line(const session& s, std::string name, account& all) {
    mutex m(s, std::move(name));
    try {
        co_await m.lock();
    } catch (const coetcd::error& e) {
        all.failed(e);
        co_return;
    }
    all.hand_overs.add(clock::now() - all.last_release);
    ++all.had_it;
    all.last_release = clock::now();
    co_await give_back(m, all);
}

/// Many coroutines of one session wait for a name that another session holds.
awaitable<json> waiters(task t, const client& c) {
    const client other(co_await asio::this_coro::executor, t.direct);
    const coetcd::session_options lifetime{std::chrono::seconds(t.ttl)};
    session holders = co_await session::open(other, lifetime);
    session mine = co_await session::open(c, lifetime);
    mutex held(holders, t.name);
    co_await held.lock();
    key_count queue = co_await key_count::begin(other, t.name + "/");

    account all;
    json result;
    const std::size_t empty = resident();
    crew members(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < t.count; ++i) {
        members.start(wait_in_line(mine, t.name, all));
    }
    co_await let_others_run();
    co_await queue.reach(1); // the session's; its waiters queue behind it in this process
    const auto n = static_cast<double>(t.count);
    result["waiter_kib"] = per_item_kib(empty, t.count);
    co_await measure_waiting(t, result);

    const stretch draining(t.server);
    all.last_release = clock::now();
    co_await give_back(held, all);
    (void)co_await members.joined();
    result["drain_s"] = draining.seconds();
    result["rate"] = n / draining.seconds();
    result["client_us"] = draining.client_cpu() * 1e6 / n;
    result["server_us"] = draining.server_cpu() * 1e6 / n;
    result["p50_ms"] = all.hand_overs.milliseconds_at(0.5);
    result["p99_ms"] = all.hand_overs.milliseconds_at(0.99);
    result["lost"] = all.failures;
    add_failure(result, all.failure);
    co_return result;
}

awaitable<void> open_some(const client& c,
                          coetcd::session_options lifetime,
                          std::deque<session>& sessions,
                          std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        session s = co_await session::open(c, lifetime);
        sessions.push_back(std::move(s));
    }
}

awaitable<void> open_all(const client& c,
                         std::chrono::seconds ttl,
                         std::deque<session>& all,
                         std::size_t count,
                         std::size_t at_a_time = 16) {
    const coetcd::session_options lifetime{ttl};
    crew members(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < at_a_time; ++i) {
        const std::size_t part = count / at_a_time + (i < count % at_a_time ? 1 : 0);
        members.start(open_some(c, lifetime, all, part));
    }
    (void)co_await members.joined();
}

std::size_t count_lost(const std::deque<session>& sessions) {
    return static_cast<std::size_t>(
        std::count_if(sessions.begin(), sessions.end(), [](const session& s) {
            return s.state() == coetcd::session_state::lost;
        }));
}

/// Many idle sessions.
awaitable<json> sessions(task t, const client& c) {
    json result;
    const std::size_t empty = resident();
    std::deque<session> all;
    const stretch opening(t.server);
    co_await open_all(c, std::chrono::seconds(t.ttl), all, t.count, t.slice == 0 ? 16 : t.slice);
    result["open_s"] = opening.seconds();
    const auto n = static_cast<double>(t.count);
    const bool enough = t.count >= 100; // fewer drown in what there is besides them
    if (enough) {
        result["session_kib"] = per_item_kib(empty, t.count);
    }

    const stretch renewing(t.server);
    co_await let_pass(t.seconds);
    result["client_percent"] = 100 * renewing.client_cpu() / renewing.seconds();
    result["server_percent"] = 100 * renewing.server_cpu() / renewing.seconds();
    // Each is renewed every third of its ttl.
    const double renewals = n * renewing.seconds() * 3 / static_cast<double>(t.ttl);
    if (enough) {
        result["client_us"] = renewing.client_cpu() * 1e6 / renewals;
        result["server_us"] = renewing.server_cpu() * 1e6 / renewals;
    }
    result["lost"] = count_lost(all);
    co_return result;
}

/// A name that one session holds and another one waits for.
struct contested {
    contested(const session& holder, const session& waiter, const std::string& name)
        : theirs(holder, name)
        , ours(waiter, name) {}
    mutex theirs;
    mutex ours;
    clock::time_point released{};
    bool over = false; ///< Handed over, or failed.
};

/// What the coroutines of `names` share.
struct names_state {
    explicit names_state(const asio::any_io_executor& executor)
        : handed_over(executor, clock::time_point::max()) {}
    std::deque<contested> names;
    std::size_t next = 0; ///< The first one not yet locked; later, not yet released.
    account in_turn;
    account at_once;
    account theirs;
    account* now = &in_turn;
    asio::steady_timer handed_over;
};

awaitable<void> hold_rest(names_state& all) {
    while (all.next < all.names.size()) {
        contested& name = all.names[all.next++];
        co_await name.theirs.lock();
    }
}

awaitable<void> wait_for(contested& name, names_state& all) {
    try {
        co_await name.ours.lock();
        account& now = *all.now;
        if (name.released != clock::time_point{}) { // else the holder's session was lost
            now.hand_overs.add(clock::now() - name.released);
            ++now.had_it;
        }
        name.over = true;
        all.handed_over.cancel();
        co_await give_back(name.ours, now);
    } catch (const coetcd::error& e) {
        all.now->failed(e);
    }
    name.over = true;
    all.handed_over.cancel();
}

awaitable<void> release(contested& name, names_state& all) {
    name.released = clock::now();
    co_await give_back(name.theirs, all.theirs);
}

awaitable<void> release_rest(names_state& all) {
    while (all.next < all.names.size()) {
        contested& name = all.names[all.next++];
        co_await release(name, all);
    }
}

/// Releases names one by one, each after the previous one was handed over.
awaitable<void> release_in_turn(names_state& all, std::size_t count, double limit) {
    const auto began = clock::now();
    while (all.next < count && seconds_since(began) < limit) {
        contested& name = all.names[all.next++];
        co_await release(name, all);
        while (!name.over) {
            boost::system::error_code ignored;
            co_await all.handed_over.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
    }
}

/// One session waits for many names at once, all held by another session.
awaitable<json> names(task t, const client& c) {
    constexpr std::size_t at_a_time = 16;
    const auto executor = co_await asio::this_coro::executor;
    const client other(executor, t.direct);
    const coetcd::session_options lifetime{std::chrono::seconds(t.ttl)};
    session holders = co_await session::open(other, lifetime);
    session mine = co_await session::open(c, lifetime);
    names_state all(executor);
    for (std::size_t i = 0; i < t.count; ++i) {
        all.names.emplace_back(holders, mine, t.name + "-" + std::to_string(i));
    }
    crew members(executor);
    for (std::size_t i = 0; i < at_a_time; ++i) {
        members.start(hold_rest(all));
    }
    (void)co_await members.joined();

    json result;
    key_count queues = co_await key_count::begin(other, t.name + "-");
    const std::size_t empty = resident();
    const stretch queueing(t.server);
    for (contested& name : all.names) {
        members.start(wait_for(name, all));
    }
    co_await until_queued(queues, t, all.in_turn);
    result["queue_s"] = queueing.seconds();
    result["waiter_kib"] = per_item_kib(empty, t.count);
    co_await measure_waiting(t, result);

    all.next = 0;
    co_await release_in_turn(all, std::min(t.slice, t.count), t.limit);
    all.now = &all.at_once;
    const auto rest = static_cast<double>(t.count - all.next);
    const stretch draining(t.server);
    for (std::size_t i = 0; i < at_a_time; ++i) {
        members.start(release_rest(all));
    }
    (void)co_await members.joined(after(t.limit));
    result["rate"] = rest / draining.seconds();
    add_ending(result, draining, t.count - all.in_turn.had_it, all.at_once.had_it);
    result["failed"] = all.in_turn.failures + all.at_once.failures + all.theirs.failures;
    result["lost"] = (holders.state() == coetcd::session_state::lost ? 1 : 0) +
                     (mine.state() == coetcd::session_state::lost ? 1 : 0);
    result["p50_ms"] = all.in_turn.hand_overs.milliseconds_at(0.5);
    result["p99_ms"] = all.in_turn.hand_overs.milliseconds_at(0.99);
    result["longest_ms"] = all.in_turn.hand_overs.milliseconds_at(1);
    result["longest_at_once_ms"] = all.at_once.hand_overs.milliseconds_at(1);
    result["unlock_ms"] = std::max({all.in_turn.unlocks.milliseconds_at(1),
                                    all.at_once.unlocks.milliseconds_at(1),
                                    all.theirs.unlocks.milliseconds_at(1)});
    add_failure(result, all.in_turn.failure);
    add_failure(result, all.at_once.failure);
    add_failure(result, all.theirs.failure);
    co_return result;
}

/// Many sessions of one client wait for one name. Ends once all had it, or after `limit`.
awaitable<json> crowd(task t, const client& c) {
    const auto executor = co_await asio::this_coro::executor;
    const client other(executor, t.direct);
    session holders = co_await session::open(other);
    mutex held(holders, t.name);
    co_await held.lock();
    std::deque<session> all_sessions;
    co_await open_all(c, std::chrono::seconds(t.ttl), all_sessions, t.count);

    json result;
    key_count queue = co_await key_count::begin(other, t.name + "/");
    account all;
    const std::size_t empty = resident();
    const stretch queueing(t.server);
    crew members(executor);
    for (const session& s : all_sessions) {
        members.start(wait_in_line(s, t.name, all));
    }
    co_await until_queued(queue, t, all);
    result["queue_s"] = queueing.seconds();
    result["waiter_kib"] = per_item_kib(empty, t.count);
    co_await measure_waiting(t, result);

    const stretch draining(t.server);
    all.last_release = clock::now();
    co_await give_back(held, all);
    (void)co_await members.joined(clock::now() +
                                  std::chrono::milliseconds(static_cast<long>(t.limit * 1000)));
    add_ending(result, draining, t.count, all.had_it);
    result["rate"] = static_cast<double>(all.had_it) / draining.seconds();
    result["failed"] = all.failures;
    result["lost"] = count_lost(all_sessions);
    result["p50_ms"] = all.hand_overs.milliseconds_at(0.5);
    result["p99_ms"] = all.hand_overs.milliseconds_at(0.99);
    result["longest_ms"] = all.hand_overs.milliseconds_at(1);
    result["unlock_ms"] = all.unlocks.milliseconds_at(1);
    add_failure(result, all.failure);
    all_sessions.clear(); // ends those that still wait
    (void)co_await members.joined();
    co_return result;
}

} // namespace

awaitable<json> run_scale(task t) {
    coetcd::client_options options;
    if (t.slice > 1000 && t.kind == "sessions") { // so many take their time, one after the other
        options.request_timeout = std::chrono::seconds(static_cast<long>(t.limit));
    }
    const client c(co_await asio::this_coro::executor, t.url, options);
    if (t.kind == "waiters") {
        co_return co_await waiters(t, c);
    }
    if (t.kind == "sessions") {
        co_return co_await sessions(t, c);
    }
    if (t.kind == "names") {
        co_return co_await names(t, c);
    }
    if (t.kind == "crowd") {
        co_return co_await crowd(t, c);
    }
    throw std::invalid_argument("no case " + t.kind);
}

} // namespace bench
