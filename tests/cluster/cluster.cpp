// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_cluster.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::session_state;
using coetcd::txn;
using coetcd::watcher;

namespace {

/// etcd is 1 to 2 s without a leader, and longer if it elects none at the first attempt: on a busy
/// machine that has cost a session of 5 s.
constexpr auto ttl = 8s;
/// How long after a renewal was sent the session is certain to live.
constexpr auto certain = 7200ms;

/// What happened to one key at one revision.
struct change {
    std::int64_t revision = 0;
    std::string key{};
    std::optional<std::string> value{}; ///< Empty: it was deleted.
    bool operator==(const change&) const = default;
};

std::ostream& operator<<(std::ostream& out, const change& c) {
    return out << c.revision << ' ' << c.key << '=' << c.value.value_or("(deleted)");
}

/// Where what a watch has told begins to differ from what happened; empty if it does not.
std::string difference(const std::vector<change>& told, const std::vector<change>& happened) {
    const auto [t, h] = std::mismatch(told.begin(), told.end(), happened.begin(), happened.end());
    std::ostringstream words;
    if (t != told.end()) {
        words << "it told of " << *t;
    }
    if (h != happened.end()) {
        words << (t == told.end() ? "it did not tell of " : " instead of ") << *h;
    }
    return words.str();
}

/// The next changes that a watch tells of.
awaitable<std::vector<change>> next_changes(watcher& w) {
    const coetcd::watch_batch batch = co_await w.next();
    std::vector<change> all;
    for (const coetcd::event& e : batch.events) {
        change c;
        c.revision = e.kv.mod_revision;
        c.key = e.kv.key;
        if (e.type == coetcd::event_type::put) {
            c.value = e.kv.value;
        }
        all.push_back(std::move(c));
    }
    co_return all;
}

awaitable<void>
follow(watcher& w, std::vector<change>& told, std::vector<clock::time_point>& when) {
    for (;;) {
        std::vector<change> some = co_await next_changes(w);
        when.push_back(clock::now());
        for (change& c : some) {
            told.push_back(std::move(c));
        }
    }
}

/// What was done, as far as is known.
struct done {
    clock::time_point began{};
    clock::time_point ended{};
    std::int64_t revision = 0;
};

/// Puts and deletes some keys until told to stop; rides out failures.
awaitable<void>
keep_writing(client c, std::string prefix, const bool& stop, std::vector<done>& all) {
    int i = 0;
    while (!stop) {
        ++i;
        const std::string key = prefix + std::to_string(i % 5);
        done d;
        d.began = clock::now();
        try {
            if (i % 7 == 0) {
                const auto r = co_await c.erase(key);
                d.revision = r.header.revision;
            } else {
                const auto r = co_await c.put(key, std::to_string(i));
                d.revision = r.header.revision;
            }
            d.ended = clock::now();
            all.push_back(d);
        } catch (const coetcd::error&) {
            // It may have been applied: the history will tell.
        }
        co_await sleep_for(20ms);
    }
}

awaitable<void> keep_reading(client c, std::string key, const bool& stop, std::vector<done>& all) {
    while (!stop) {
        done d;
        d.began = clock::now();
        try {
            const auto found = co_await c.get(key);
            d.revision = found ? found->mod_revision : 0;
            d.ended = clock::now();
            all.push_back(d);
        } catch (const coetcd::error&) {
            // Too late in any case.
        }
        co_await sleep_for(10ms);
    }
}

double longest_pause(const std::vector<clock::time_point>& moments) {
    double longest = 0;
    for (std::size_t i = 1; i < moments.size(); ++i) {
        longest = std::max(longest, ms_between(moments[i - 1], moments[i]));
    }
    return longest;
}

/// What became of the keys at each revision from `first` to `last`, without any watch.
awaitable<std::vector<change>>
history(client c, std::string prefix, std::int64_t first, std::int64_t last) {
    std::vector<change> all;
    std::map<std::string, coetcd::key_value> before;
    for (std::int64_t revision = first - 1; revision <= last; ++revision) {
        coetcd::range_options as_of;
        as_of.revision = revision;
        auto keys = key_range::prefix(prefix);
        const auto r = co_await c.range(std::move(keys), as_of);
        std::map<std::string, coetcd::key_value> now;
        for (const coetcd::key_value& kv : r.kvs) {
            now[kv.key] = kv;
            if (kv.mod_revision == revision && revision >= first) {
                all.push_back({revision, kv.key, kv.value});
            }
        }
        for (const auto& [key, kv] : before) {
            if (!now.contains(key)) {
                all.push_back({revision, key, std::nullopt});
            }
        }
        before = std::move(now);
    }
    co_return all;
}

/// A client of all members that has chosen this one.
awaitable<client> client_of(etcd_cluster& etcd, std::size_t member) {
    const auto executor = co_await asio::this_coro::executor;
    for (;;) {
        const client c(executor, etcd.urls());
        const auto before = etcd.connections(member);
        (void)co_await c.get("any");
        if (etcd.connections(member) > before) {
            co_return c;
        }
    }
}

/// A holder of a lock, a waiter for it, a reader and a watcher: each with a client of its own, all
/// of which use the same member. What is watched is written elsewhere.
class crowd {
public:
    crowd(asio::any_io_executor executor, etcd_cluster& etcd)
        : executor_(std::move(executor))
        , etcd_(etcd) {}
    crowd(const crowd&) = delete;
    crowd& operator=(const crowd&) = delete;

    static constexpr std::size_t clients = 4; ///< Of that member.

    awaitable<void> gather(std::size_t member) {
        const client for_holder = co_await client_of(etcd_, member);
        const client for_waiter = co_await client_of(etcd_, member);
        const client for_watcher = co_await client_of(etcd_, member);
        const client for_reader = co_await client_of(etcd_, member);
        const client elsewhere = co_await client_of(etcd_, (member + 1) % etcd_.size());
        const client for_writer = elsewhere.with_timeout(1s);

        session s1 = co_await open_session(for_holder, ttl);
        session s2 = co_await open_session(for_waiter, ttl);
        first_.lease.emplace(std::move(s1));
        first_.held.emplace(*first_.lease, "lock");
        second_.lease.emplace(std::move(s2));
        second_.held.emplace(*second_.lease, "lock");
        co_await first_.held->lock();
        waiting_.emplace(executor_, second_.held->lock());
        auto queued = [&]() -> awaitable<bool> {
            const auto all = co_await first_.held->waiters();
            co_return all.size() == 1;
        };
        co_await eventually(queued, 5s, "one waits for the lock");

        const auto begin = co_await for_watcher.put("w/begin", "");
        first_revision_ = begin.header.revision + 1;
        auto keys = key_range::prefix("w/");
        watcher w = co_await for_watcher.watch(std::move(keys));
        watcher_.emplace(std::move(w));
        following_.emplace(executor_, follow(*watcher_, told_, told_at_));
        writing_.emplace(executor_, keep_writing(for_writer, "w/", stop_, writes_));
        reading_.emplace(executor_, keep_reading(for_reader, "w/1", stop_, reads_));
        client_.emplace(for_holder);
        auto under_way = [&]() -> awaitable<bool> {
            co_return told_.size() >= 10 && reads_.size() >= 10;
        };
        co_await eventually(under_way, 5s, "all is under way");
        struck_ = clock::now();
        co_await still_held(); // the connection for renewals is there
    }

    /// Strikes; reads go on, and the lock is held on.
    awaitable<void> withstand(std::function<void()> fault) {
        co_await in_thread(std::move(fault));
        struck_ = clock::now();
        auto read = [&]() -> awaitable<bool> { co_return has_done(reads_); };
        co_await eventually(read, 10s, "reads go on");
        co_await still_held();
    }

    /// Gives the lock back, so that the waiter gets it.
    awaitable<void> hand_over() {
        CHECK(!waiting_->done());
        const auto fence = owner_->held->fencing_token();
        const auto start = clock::now();
        const bool ours = co_await owner_->held->unlock();
        CHECK(ours);
        auto taken = [&]() -> awaitable<bool> { co_return waiting_->done(); };
        // The waiter looks every half ttl, and watches besides.
        co_await eventually(taken, 6s, "the lock is handed over");
        hand_over_ = ms_between(start, waiting_->ended());
        co_await waiting_->result();
        owner_ = &second_;
        CHECK(owner_->held->fencing_token() > fence);
    }

    /// Waits until the watch has told of what was written since the last strike.
    awaitable<void> goes_on() {
        auto written = [&]() -> awaitable<bool> { co_return has_done(writes_); };
        co_await eventually(written, 10s, "writes go on");
        co_await until_told(writes_.back().revision);
        co_await still_held();
    }

    /// Compares what the watch has told with what happened. A write without an answer may be
    /// applied at any time: what it told of the time after the end is left out.
    awaitable<void> end() {
        stop_ = true;
        co_await writing_->result();
        co_await reading_->result();
        const auto last = co_await client_->put("w/end", "");
        const auto revision = last.header.revision;
        co_await until_told(revision);
        const auto all = co_await history(*client_, "w/", first_revision_, revision);
        const auto later = [&](const change& c) { return c.revision > revision; };
        told_.erase(std::find_if(told_.begin(), told_.end(), later), told_.end());
        CHECK(difference(told_, all) == "");
        CHECK(all.size() > 10);
        std::vector<clock::time_point> read_at;
        for (const done& d : reads_) {
            read_at.push_back(d.ended);
        }
        const auto pause = longest_pause(read_at);
        CHECK(pause < 3000 + 1000); // a bound, and what a busy machine and an election may add
        std::cout << "reads paused for " << pause << " ms, the watch for "
                  << longest_pause(told_at_) << " ms, the lock took " << hand_over_
                  << " ms; changes: " << all.size() << std::endl;
        following_->cancel();
        (void)co_await following_->how_it_ended();
        co_await first_.lease->close();
        co_await second_.lease->close();
    }

private:
    struct locker {
        std::optional<session> lease;
        std::optional<coetcd::mutex> held;
    };

    /// Something that began after the last strike.
    bool has_done(const std::vector<done>& all) const {
        return !all.empty() && all.back().began >= struck_;
    }

    /// Waits until the lock's session was renewed after the last strike.
    awaitable<void> still_held() {
        const session& lease = *owner_->lease;
        auto renewed = [&]() -> awaitable<bool> {
            co_return lease.state() == session_state::lost ||
                clock::now() + lease.remaining() > struck_ + certain;
        };
        co_await eventually(renewed, ttl, "the session is renewed");
        CHECK(lease.state() == session_state::active);
        REQUIRE(owner_->held->owns_lock());
        auto guarded = txn().when(owner_->held->is_owner()).then(op::range("lock"));
        const auto proof = co_await client_->txn(std::move(guarded));
        CHECK(proof.succeeded);
    }

    awaitable<void> until_told(std::int64_t revision) {
        auto told = [&]() -> awaitable<bool> {
            co_return following_->done() || (!told_.empty() && told_.back().revision >= revision);
        };
        co_await eventually(told, 20s, "the watch goes on");
        if (following_->done()) {
            co_await following_->result();
        }
    }

    const asio::any_io_executor executor_;
    etcd_cluster& etcd_;
    clock::time_point struck_{};
    std::optional<client> client_; // of the first owner
    locker first_;
    locker second_;
    locker* owner_ = &first_;
    std::optional<watcher> watcher_;
    bool stop_ = false;
    std::vector<done> writes_;
    std::vector<done> reads_;
    std::int64_t first_revision_ = 0; // the revision that the watch begins with
    std::vector<change> told_;
    std::vector<clock::time_point> told_at_;
    double hand_over_ = 0; // how long it took, in ms
    std::optional<task<void>> waiting_;
    std::optional<task<void>> following_;
    std::optional<task<void>> writing_;
    std::optional<task<void>> reading_;
};

constexpr run_options long_enough{90s, 10s};

/// The member that a test strikes: the leader, or another one.
std::size_t choose(const etcd_cluster& etcd, bool leader) {
    return leader ? etcd.leader() : (etcd.leader() + 1) % 3;
}

/// What happens to a member that all clients use, and how it shows.
struct strike {
    const char* name;
    std::function<void(etcd_cluster&, std::size_t)> begin;
    std::function<void(etcd_cluster&, std::size_t)> end;
    bool deposes; ///< If it was the leader, another one leads.
};

void withstand(const strike& what, bool leader) {
    INFO(what.name << (leader ? ", the leader" : ", not the leader"));
    std::cout << what.name << (leader ? ", the leader: " : ", not the leader: ") << std::flush;
    etcd_cluster etcd;
    const auto victim = choose(etcd, leader);
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        crowd all(executor, etcd);
        co_await all.gather(victim);
        CHECK(etcd.connections(victim) >= all.clients);
        const std::function<void()> begin = [&] { what.begin(etcd, victim); };
        co_await all.withstand(begin);
        co_await all.hand_over();
        co_await all.goes_on();
        if (what.deposes && leader) {
            CHECK(etcd.leader_after(victim) != victim);
        }
        const std::function<void()> recover = [&] {
            what.end(etcd, victim);
            etcd.wait_healthy();
        };
        co_await in_thread(recover);
        co_await all.end();
    };
    run_test(body, long_enough);
}

} // namespace

TEST_CASE("Everything goes on when the member in use is killed", "[cluster]") {
    const auto start = [](etcd_cluster& etcd, std::size_t i) {
        CHECK(!etcd.healthy(i));
        CHECK(etcd.connections(i) == 0);
        etcd.start(i);
    };
    withstand({"killed", &etcd_cluster::kill, start, true}, GENERATE(true, false));
}

TEST_CASE("Everything goes on when the member in use stands still", "[cluster]") {
    const auto resume = [](etcd_cluster& etcd, std::size_t i) {
        CHECK(!etcd.healthy(i));
        etcd.resume(i);
    };
    withstand({"stopped", &etcd_cluster::pause, resume, true}, GENERATE(true, false));
}

TEST_CASE("Everything goes on when the member in use loses its peers", "[cluster]") {
    const auto heal = [](etcd_cluster& etcd, std::size_t i) {
        CHECK(!etcd.healthy(i));
        CHECK(etcd.dropped(i) > 0);
        etcd.heal();
    };
    const strike isolated{"isolated", &etcd_cluster::isolate, heal, true};
    const strike mute{"not heard by its peers", &etcd_cluster::isolate_answers, heal, true};
    const bool both_ways = GENERATE(true, false);
    withstand(both_ways ? isolated : mute, GENERATE(true, false));
}

TEST_CASE("Everything goes on when the member in use is out of reach", "[cluster]") {
    const auto heal = [](etcd_cluster& etcd, std::size_t i) {
        CHECK(etcd.healthy(i)); // as far as it knows
        CHECK(etcd.dropped(i) > 0);
        etcd.heal();
    };
    const strike cut{"out of reach", &etcd_cluster::cut_client, heal, false};
    const strike mute{"not heard by its clients", &etcd_cluster::cut_client_answers, heal, false};
    const bool both_ways = GENERATE(true, false);
    withstand(both_ways ? cut : mute, !both_ways);
}

TEST_CASE("Everything goes on when all members are restarted in turn", "[cluster]") {
    std::cout << "restarted in turn: " << std::flush;
    etcd_cluster etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        crowd all(executor, etcd);
        co_await all.gather(0);
        int used = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            used += etcd.connections(i) >= all.clients ? 1 : 0;
            const std::function<void()> restart = [&] {
                etcd.stop(i);
                etcd.start(i);
                etcd.wait_healthy();
            };
            co_await all.withstand(restart);
            co_await all.goes_on();
        }
        CHECK(used >= 2);
        co_await all.hand_over();
        co_await all.end();
    };
    run_test(body, long_enough);
}

TEST_CASE("Everything goes on with a learner among the endpoints", "[cluster]") {
    std::cout << "with a learner: " << std::flush;
    etcd_cluster etcd;
    const auto learner = etcd.add_learner();
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        crowd all(executor, etcd);
        co_await all.gather(learner); // each client has asked it first
        CHECK(etcd.connections(learner) >= all.clients);
        const std::size_t next = 0; // that each of them has turned to
        CHECK(etcd.connections(next) >= all.clients);
        const std::function<void()> kill = [&] { etcd.kill(next); };
        co_await all.withstand(kill);
        co_await all.goes_on();
        const std::function<void()> start = [&] {
            etcd.start(next);
            etcd.wait_healthy();
            etcd.remove(learner);
        };
        co_await all.withstand(start);
        CHECK(etcd.connections(learner) == 0);
        co_await all.hand_over();
        co_await all.goes_on();
        co_await all.end();
    };
    run_test(body, long_enough);
}

TEST_CASE("A client that is told of one member finds the others", "[cluster]") {
    etcd_cluster etcd;
    const auto learner = etcd.add_learner();
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        coetcd::client_options options;
        options.member_refresh = 1s;
        const client c(executor, etcd.url(0), options);
        const auto knows_all = [&]() -> awaitable<bool> {
            (void)co_await c.get("k");
            co_return etcd.connections(1) > 0 && etcd.connections(2) > 0;
        };
        co_await eventually(knows_all, 20s, "all members are known");
        CHECK(etcd.connections(learner) == 0);
        etcd.kill(0);
        const auto began = clock::now();
        (void)co_await c.get("k");
        CHECK(ms_between(began, clock::now()) < 3000);
        etcd.start(0);
    });
}
