// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/herd.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::permit;
using coetcd::semaphore;
using coetcd::session;
using integration::patient;

namespace {

client connect_patiently(const asio::any_io_executor& executor) {
    coetcd::client_options options;
    options.request_timeout = 60s;
    return client(executor, shared_etcd().url(), options);
}

/// What was granted: of each token, the last revision in which that may have been.
using grants = std::map<std::int64_t, std::int64_t>;

/// All changes of a semaphore, one revision after the other.
class history {
public:
    explicit history(std::string name)
        : name_(std::move(name)) {}

    /// Takes down what happens until the key `<name>.stop` is put.
    awaitable<void> follow(coetcd::watcher changes) {
        for (bool stop = false; !stop;) {
            const coetcd::watch_batch batch = co_await changes.next();
            for (const coetcd::event& e : batch.events) {
                stop = stop || e.kv.key == name_ + ".stop";
                events_.push_back(e);
            }
        }
    }

    /// Looks whether all that was granted ever fitted when it was granted: in the revision of its
    /// token, or in a later one if it had to wait for what its session was giving back.
    /// @returns The most that was used at once by what was granted.
    std::int64_t check(const grants& granted) const {
        std::map<std::string, std::int64_t> there; // keys of permits, and what each counts
        std::int64_t limit = 0;
        std::int64_t most = 0;
        std::set<std::int64_t> seen;
        grants not_fitting;
        for (std::size_t i = 0; i != events_.size(); ++i) {
            const coetcd::key_value& kv = events_[i].kv;
            const bool put = events_[i].type == coetcd::event_type::put;
            if (kv.key == name_ + ".limit" && put) {
                limit = std::stoll(kv.value);
            }
            const std::string prefix = name_ + "/hold/";
            if (kv.key.starts_with(prefix)) {
                there.erase(kv.key);
                if (put && granted.contains(kv.create_revision)) {
                    const int bit = std::stoi(kv.key.substr(prefix.size(), 2), nullptr, 16);
                    there[kv.key] = std::int64_t{1} << bit;
                    seen.insert(kv.create_revision);
                }
            }
            const std::int64_t now = kv.mod_revision;
            if (i + 1 == events_.size() || events_[i + 1].kv.mod_revision != now) {
                std::int64_t used = 0;
                for (const auto& [key, weight] : there) {
                    used += weight;
                }
                most = std::max(most, used);
                std::erase_if(not_fitting, [now](const auto& permit) {
                    INFO("token " << permit.first << ", revision " << now);
                    CHECK(now <= permit.second);
                    return now > permit.second;
                });
                if (const auto g = granted.find(now); g != granted.end()) {
                    not_fitting.insert(*g);
                }
                if (used <= limit) {
                    not_fitting.clear();
                }
            }
        }
        CHECK(not_fitting.empty());
        CHECK(seen.size() == granted.size());
        return most;
    }

private:
    const std::string name_;
    std::vector<coetcd::event> events_;
};

} // namespace

TEST_CASE("Permits never exceed the limit, while it goes up and down under load", "[semaphore]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_patiently(executor);
        const std::string name = unique_name("resized");
        coetcd::watcher changes = co_await c.watch(coetcd::key_range(name + ".", name + "0"));
        history all(name);
        task<void> following(executor, all.follow(std::move(changes)));
        grants granted;
        int refused = 0;
        std::int64_t out = 0; // permits, now
        std::int64_t most_out = 0;
        bool goes_on = true;

        const auto one = [&](unsigned seed) -> awaitable<void> {
            std::mt19937 random(seed);
            session s = co_await open_session(c, 30s);
            semaphore permits(s, name, 5);
            while (goes_on) {
                const std::int64_t n = 1 + static_cast<std::int64_t>(random() % 4);
                const auto way = random() % 3;
                std::optional<permit> p;
                try {
                    if (way == 0) {
                        p = co_await permits.try_acquire(n);
                    } else if (way == 1) {
                        const auto patience = std::chrono::milliseconds(1 + random() % 300);
                        p = co_await permits.acquire_for(n, patience);
                    } else { // which succeeds, however slow this machine is
                        permit taken = co_await permits.acquire(n);
                        p.emplace(std::move(taken));
                    }
                } catch (const coetcd::error& e) {
                    // Or etcd has told us nothing within the patience.
                    CHECK((e.code() == errc::exceeds_limit || e.code() == errc::timed_out));
                    refused += e.code() == errc::exceeds_limit ? 1 : 0;
                }
                if (p) {
                    granted[p->token()] = p->token();
                    if (way == 0) { // it may have been granted after it was put
                        const coetcd::range_response now = co_await c.range(p->key());
                        granted[p->token()] = now.header.revision;
                    }
                    out += n;
                    most_out = std::max(most_out, out);
                    do { // the first ones stay until some are out at once, however long that takes
                        co_await sleep_for(std::chrono::milliseconds(random() % 4));
                    } while (goes_on && most_out <= 4);
                    out -= n;
                    const bool ours = co_await p->release();
                    CHECK(ours);
                } else {
                    co_await sleep_for(1ms);
                }
            }
            co_await s.close();
        };
        std::vector<task<void>> users;
        for (unsigned i = 0; i != 30; ++i) {
            users.emplace_back(executor, one(i));
        }
        std::mt19937 random(7);
        // Until there is enough to look at, should this machine be slow.
        const auto most_rounds = 1000;
        const auto enough = [&] { return granted.size() >= 100 && refused != 0 && most_out > 4; };
        for (int i = 0; i != most_rounds && (i < 60 || !enough()); ++i) {
            co_await sleep_for(50ms);
            const std::string limit = std::to_string(2 + random() % 9);
            (void)co_await c.put(name + ".limit", limit);
        }
        goes_on = false;
        for (auto& u : users) {
            co_await u.result();
        }
        (void)co_await c.put(name + ".stop", "");
        co_await following.result();
        const std::int64_t most = all.check(granted);
        std::cout << granted.size() << " permits granted, " << refused
                  << " times more was asked for than the limit; at most " << most
                  << " were out at once\n";
        CHECK(granted.size() > 50);
        CHECK(refused > 0);
        CHECK(most > 4);
        CHECK(most >= most_out);
        co_await until_count(c, name + "/", 0);
        co_await erase_all(c, name);
    };
    run_test(body, patient(120s));
}

TEST_CASE("Five hundred waiters, one release: only those who count are told", "[semaphore]") {
    etcd_server etcd;
    const auto body = [&etcd]() -> awaitable<void> {
        herd<semaphore, permit> all;
        all.make = [](const session& s) { return semaphore(s, "herd", 1); };
        all.take = [](semaphore& permits) { return permits.acquire(); };
        all.give_back = [](permit& held) { return held.release(); };
        all.keys = "herd/wait/";
        all.ours = 0;
        all.watches = 2;
        all.more_watches = 1; // of the one that counts
        // It is told of the release, and of what it puts and erases itself, of its own key twice.
        // The one behind it waits for that key.
        all.events = 5;
        co_await one_of_a_herd_wakes(etcd, std::move(all));
    };
    run_test(body, patient(180s));
}

TEST_CASE("Many coroutines of several sessions keep to the limit, and to the order",
          "[semaphore]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_patiently(executor);
        const std::string name = unique_name("crowd");
        constexpr std::int64_t limit = 7;
        std::int64_t live = 0;
        std::int64_t most = 0;
        int done = 0;
        const auto one = [&](semaphore& permits) -> awaitable<void> {
            permit p = co_await permits.acquire();
            most = std::max(most, ++live);
            do {
                co_await sleep_for(1ms);
            } while (most < limit); // the first ones stay until all permits are out
            --live;
            const bool ours = co_await p.release();
            CHECK(ours);
            ++done;
        };
        std::vector<session> sessions;
        std::vector<semaphore> semaphores;
        for (int i = 0; i != 5; ++i) {
            session s = co_await open_session(c, 30s);
            semaphores.emplace_back(s, name, limit);
            sessions.push_back(std::move(s));
        }
        const auto start = clock::now();
        std::vector<awaitable<void>> all;
        for (std::size_t i = 0; i != 1000; ++i) {
            all.push_back(one(semaphores[i % semaphores.size()]));
        }
        co_await run_all(std::move(all));
        std::cout << "1,000 coroutines of five sessions, 7 permits: "
                  << ms_between(start, clock::now()) << " ms\n";
        CHECK(done == 1000);
        CHECK(most == limit);
        const auto left = co_await count(c, name + "/");
        CHECK(left == 0);
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await erase_all(c, name);
    };
    run_test(body, patient(120s));
}

TEST_CASE("A permit of a dead lease goes to the next waiter", "[semaphore]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_patiently(executor);
        const std::string name = unique_name("dead");
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(c, 30s);
        semaphore a(one, name, 3);
        semaphore b(two, name, 3);
        permit held = co_await a.acquire(3);
        task<permit> waiting(executor, b.acquire(2));
        co_await until_count(c, name + "/wait/", 1);
        revoke_by_hand(shared_etcd(), one.lease());
        permit p = co_await waiting.result();
        CHECK(p.owns_lock());
        const coetcd::semaphore_state now = co_await b.state();
        CHECK(now.limit == 3);
        CHECK(now.used == 2);
        CHECK(now.waiting == 0);
        const bool ours = co_await p.release();
        CHECK(ours);
        co_await two.close();
        co_await erase_all(c, name);
    };
    run_test(body);
}

TEST_CASE("A semaphore that brings no limit works once somebody has ensured one", "[semaphore]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect_patiently(executor);
        const client d = connect_patiently(executor);
        const std::string name = unique_name("ensured");
        session one = co_await open_session(c, 30s);
        session two = co_await open_session(d, 30s);
        semaphore a(one, name);
        semaphore b(two, name);
        coetcd::error_code refused;
        try {
            (void)co_await a.acquire();
        } catch (const coetcd::error& e) {
            refused = e.code();
        }
        CHECK(refused == errc::exceeds_limit);
        refused.clear();
        try {
            (void)co_await a.adjust_limit(1);
        } catch (const coetcd::error& e) {
            refused = e.code();
        }
        CHECK(refused == errc::exceeds_limit);
        co_await until_count(c, name, 0);

        task<std::int64_t> first(executor, a.ensure_limit(2));
        task<std::int64_t> second(executor, b.ensure_limit(3));
        const std::int64_t limit = co_await first.result();
        const std::int64_t same = co_await second.result();
        CHECK((limit == 2 || limit == 3));
        CHECK(same == limit);
        const coetcd::semaphore_state now = co_await a.state();
        CHECK(now.limit == limit);
        permit held = co_await a.acquire(limit);
        task<permit> waiting(executor, b.acquire());
        co_await until_count(c, name + "/wait/", 1);
        const bool ours = co_await held.release();
        CHECK(ours);
        permit p = co_await waiting.result();
        CHECK(p.owns_lock());
        task<permit> refused_later(executor, a.acquire(limit));
        co_await until_count(c, name + "/wait/", 1);
        co_await c.erase(name + ".limit");
        refused.clear();
        try {
            (void)co_await refused_later.result();
        } catch (const coetcd::error& e) {
            refused = e.code();
        }
        CHECK(refused == errc::exceeds_limit);
        CHECK(p.owns_lock());
        co_await one.close();
        co_await two.close();
        co_await until_count(c, name, 0);
    };
    run_test(body);
}
