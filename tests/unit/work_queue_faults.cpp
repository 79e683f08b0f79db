// SPDX-License-Identifier: BSL-1.0
#include <coetcd/testing.hpp>
#include <coetcd/watch.hpp>
#include <coetcd/work_queue.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::job;
using coetcd::session;
using coetcd::work_queue;
using coetcd::testing::cluster;
using coetcd::testing::cluster_options;
using coetcd::testing::fault_options;

namespace {

/// Looks at all that has happened to the keys of a queue. It knows nothing of the library.
class referee {
public:
    void see(const coetcd::event& e) {
        if (e.kv.mod_revision != revision_) {
            judge();
            revision_ = e.kv.mod_revision;
        }
        const bool put = e.type == coetcd::event_type::put;
        for (const char* place : {"w/ready/", "w/again/", "w/run/busy/", "w.dead/"}) {
            if (e.kv.key.starts_with(place)) {
                const std::string id = e.kv.key.substr(std::string(place).size());
                const std::string order = id.substr(0, id.rfind('.'));
                if (put) {
                    CHECK(there_[order].insert(e.kv.key).second);
                } else {
                    there_[order].erase(e.kv.key);
                }
                touched_.insert(order);
                appended += put && place == std::string("w/ready/") ? 1 : 0;
            }
        }
        if (e.kv.key.starts_with("w/run/claim/") && put) {
            CHECK(claims_.insert(e.kv.key).second); // taken at most once a life
            ++claims;
        }
        if (e.kv.key.starts_with("w.effect/")) {
            CHECK(e.kv.version == 1);
            ++effects_now_;
            ++effects;
        }
    }
    /// Each item is at one place, but for those whose effect happens in this very revision.
    void judge() {
        int vanished = 0;
        for (const std::string& order : touched_) {
            CAPTURE(revision_, order);
            CHECK(there_[order].size() <= 1);
            vanished += there_[order].empty() ? 1 : 0;
        }
        CHECK(vanished == effects_now_);
        touched_.clear();
        effects_now_ = 0;
    }

    int appended = 0;
    int claims = 0;
    int effects = 0;

private:
    std::map<std::string, std::set<std::string>> there_;
    std::set<std::string> touched_;
    std::set<std::string> claims_;
    std::int64_t revision_ = 0;
    int effects_now_ = 0;
};

asio::awaitable<void> judge_all(coetcd::client c, std::int64_t last, referee& by) {
    coetcd::watch_options from_the_beginning;
    from_the_beginning.start_revision = 1;
    coetcd::watcher history = co_await c.watch(coetcd::key_range("w.", "w0"), from_the_beginning);
    for (std::int64_t seen = 0; seen < last;) {
        const coetcd::watch_batch batch = co_await history.next();
        for (const coetcd::event& e : batch.events) {
            by.see(e);
            seen = e.kv.mod_revision;
        }
    }
    by.judge();
}

/// What producers and consumers do while anything may fail.
struct queue_story {
    explicit queue_story(std::uint64_t seed)
        : etcd([seed] {
            cluster_options options;
            options.seed = seed;
            return options;
        }())
        , random(static_cast<unsigned>(seed)) {}

    asio::awaitable<void> produce(coetcd::client c) {
        for (int i = 0; i != 12;) {
            try {
                session s = co_await session::open(c, 10s);
                work_queue q(s, "w");
                while (i != 12) {
                    ++i; // if the outcome is not known, it is not tried again
                    const std::size_t n = random() % 3 + 1;
                    tried += n;
                    std::vector<std::string> values;
                    for (std::size_t k = 0; k != n; ++k) {
                        values.push_back(std::to_string(++last));
                    }
                    co_await q.enqueue(std::move(values));
                    told += n;
                    co_await etcd.sleep(c, std::chrono::milliseconds(random() % 400));
                }
            } catch (const coetcd::error&) {
            }
            co_await etcd.sleep(c, 100ms);
        }
        ++finished;
    }

    asio::awaitable<void> consume(coetcd::client c) {
        coetcd::work_options options;
        options.max_attempts = 1'000'000;
        while (!is_over) {
            try {
                session s = co_await session::open(c, 10s);
                work_queue q(s, "w", options);
                for (bool lives = true; lives && !is_over;) {
                    std::optional<job> next = co_await q.take_for(std::chrono::milliseconds(500));
                    if (!next) {
                        continue;
                    }
                    co_await etcd.sleep(c, std::chrono::milliseconds(random() % 100));
                    const auto chance = random() % 8;
                    if (chance == 0) {
                        (void)co_await next->retry();
                    } else if (chance == 1) {
                        next.reset();
                    } else if (chance == 2) {
                        lives = false;
                    } else {
                        auto effect = coetcd::txn().then(
                            coetcd::op::put("w.effect/" + next->id(), next->value()));
                        (void)co_await next->ack(std::move(effect));
                    }
                }
            } catch (const coetcd::error&) {
            }
            co_await etcd.sleep(c, 100ms);
        }
    }

    cluster etcd;
    std::mt19937 random;
    std::size_t tried = 0; // to append
    std::size_t told = 0;  // that it was done
    int last = 0;
    int finished = 0;
    bool is_over = false;
};

} // namespace

TEST_CASE("whatever fails, each item of a work queue is at one place, and its effect happens once",
          "[work_queue]") {
    int claims = 0;
    int effects = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        queue_story s(seed);
        std::vector<coetcd::testing::task<void>> all;
        for (int i = 0; i != 2; ++i) {
            const coetcd::client c = s.etcd.make_client();
            all.push_back(s.etcd.start(c, s.produce(c)));
        }
        for (int i = 0; i != 3; ++i) {
            const coetcd::client c = s.etcd.make_client();
            all.push_back(s.etcd.start(c, s.consume(c)));
        }
        fault_options faults;
        faults.compacted = 0; // so that there is a history to judge
        faults.request_repeated = 0.02;
        s.etcd.begin_faults(faults);
        s.etcd.pass(30s);
        s.etcd.end_faults();
        for (int i = 0; i != 600 && (s.finished != 2 || !s.etcd.keys("w/").empty()); ++i) {
            s.etcd.pass(500ms);
        }
        CHECK(s.finished == 2);
        CHECK(s.etcd.keys("w/").empty());
        CHECK(s.etcd.keys("w.dead/").empty());
        s.is_over = true;
        for (int i = 0; i != 600; ++i) {
            s.etcd.pass(100ms);
        }
        const coetcd::client c = s.etcd.make_client();
        const coetcd::put_response stop = s.etcd.run(c, c.put("w.stop", ""));
        referee by;
        s.etcd.run(c, judge_all(c, stop.header.revision, by));
        CHECK(by.appended >= static_cast<int>(s.told));
        CHECK(by.appended <= static_cast<int>(s.tried));
        CHECK(by.effects == by.appended);
        claims += by.claims;
        effects += by.effects;
    }
    CHECK(effects > 500);
    CHECK(claims > effects * 11 / 10);
}
