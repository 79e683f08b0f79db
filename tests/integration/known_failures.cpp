// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/verify.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
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
#include "support/test_names.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::held_lock;
using coetcd::op;
using coetcd::session;
using coetcd::timed_claim;
using coetcd::txn;
using integration::connect;

// The failures that people know from other lock services, and which test of ours is about each.

namespace {

struct known_failure {
    const char* where;
    const char* what;
    const char* here;
    std::vector<const char*> shown_by; ///< Tests, of any program.
};

const known_failure failures[] = {
    {"Redis, DEL",
     "a holder whose lock has expired deletes the next one's",
     "unlock compares the create_revision of its own key",
     {"Redis, DEL: an earlier holder whose lock has expired does not delete the next one's"}},
    {"Redisson",
     "the watchdog dies, and the lock with it, or it renews what was given back",
     "a session is renewed by the program's own loop, until close; a claim never is",
     {"Redisson: nothing renews a lock after it was given back, or claimed for a time",
      "A crowd of other calls does not hold up renewals"}},
    {"Redis with replicas",
     "a fail-over loses a lock that was granted",
     "a key is granted by a quorum, and stays",
     {"leader killed", "Everything goes on when the member in use is killed"}},
    {"Redlock",
     "two parts of the network both grant the lock",
     "a part without a quorum grants nothing; who is cut off loses it in time",
     {"leader isolated", "clients cut off for long"}},
    {"Redlock",
     "a process that stood still writes although its lock has passed on",
     "it is told in its first instruction, and what is guarded or fenced is refused",
     {"client stopped",
      "A holder whose process stood still learns that it is not the owner any more",
      "fenced_file: no writer writes after a later owner"}},
    {"MySQL, a table of locks",
     "nobody ever deletes the row of a process that died",
     "a key has a lease, and goes with it",
     {"A holder whose process is killed is succeeded within its ttl"}},
    {"ZooKeeper, one node for all",
     "each release wakes all who wait",
     "each waits for the one ahead of it",
     {"ZooKeeper: of five hundred waiters a release wakes one",
      "Five hundred waiters, one release: only those who count are told"}},
    {"ZooKeeper",
     "a session expires in a pause, and its owner goes on until it hears of it",
     "owns_lock looks at the clock, too",
     {"a stalled process knows in its first instruction that the lock is lost",
      "a stall longer than the ttl is noticed in the first instruction"}},
    {"shops",
     "more is sold than there is, by a holder whose lock has passed on",
     "the sale is guarded by the lock's sequencer, or admitted by a gate",
     {"Oversold stock: what a holder sells after its lock has passed on is refused"}},
};

} // namespace

TEST_CASE("Each failure that is known from other lock services has a test of ours",
          "[known_failures]") {
    for (const known_failure& f : failures) {
        for (const char* test : f.shown_by) {
            INFO(f.where << ", " << f.what << ": " << test);
            CHECK(has_test(test));
        }
    }
}

TEST_CASE("Redis, DEL: an earlier holder whose lock has expired does not delete the next one's",
          "[known_failures]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("del");
        session s1 = co_await open_session(c, 60s);
        session s2 = co_await open_session(c, 60s);
        coetcd::mutex earlier(s1, name);
        coetcd::mutex later(s2, name);
        co_await earlier.lock();
        revoke_by_hand(shared_etcd(), s1.lease()); // it has expired; the holder does not know
        co_await later.lock();
        const bool ours = co_await earlier.unlock();
        CHECK(!ours);
        auto guarded = txn().when(later.is_owner());
        const auto owned = co_await c.txn(std::move(guarded));
        CHECK(owned.succeeded);
        (void)co_await later.unlock();

        std::optional<timed_claim> first = co_await coetcd::try_claim(c, name, 60s);
        REQUIRE(first);
        revoke_by_hand(shared_etcd(), first->lease());
        std::optional<timed_claim> second = co_await coetcd::try_claim(c, name, 60s);
        REQUIRE(second);
        CHECK(first->owns_lock()); // it cannot know
        const bool released = co_await first->release();
        CHECK(!released);
        auto proof = txn().when(second->is_owner());
        const auto proved = co_await c.txn(std::move(proof));
        CHECK(proved.succeeded);
        (void)co_await second->release();
        co_await s1.close();
        co_await s2.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("Redisson: nothing renews a lock after it was given back, or claimed for a time",
          "[known_failures]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("watchdog");
        coetcd::lease_id lease = 0;
        {
            session s = co_await open_session(c, 3s);
            lease = s.lease();
            coetcd::mutex m(s, name);
            co_await m.lock();
            co_await sleep_for(4s); // held for longer than its ttl: it is renewed
            CHECK(m.owns_lock());
            const bool ours = co_await m.unlock();
            CHECK(ours);
            co_await until_count(c, name, 0);
            co_await s.close();
        }
        CHECK(!lists_lease(shared_etcd(), lease));
        co_await sleep_for(2s);
        CHECK(!lists_lease(shared_etcd(), lease)); // it was not granted again
        std::optional<timed_claim> claim = co_await coetcd::try_claim(c, name, 3s);
        REQUIRE(claim);
        const auto last = claim->lease();
        co_await sleep_for(1200ms);
        const auto left = co_await c.lease_time_to_live(last);
        REQUIRE(left);
        CHECK(left->ttl <= 2s);
        co_await until_count(c, name, 0, 10s);
        CHECK(!claim->owns_lock());
    });
}

TEST_CASE("Oversold stock: what a holder sells after its lock has passed on is refused",
          "[known_failures]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        for (const std::string how : {"unguarded", "sequencer", "gate"}) {
            INFO(how);
            const std::string name = unique_name("stock");
            const std::string stock = name + "-left";
            const coetcd::fencing_gate gate(c, name + "-gate");
            session s1 = co_await open_session(c, 60s);
            session s2 = co_await open_session(c, 60s);
            coetcd::mutex slow(s1, name);
            coetcd::mutex quick(s2, name);
            (void)co_await c.put(stock, "10");
            /// Sells one of those that it has seen. Whether that was refused.
            auto sell = [&](const held_lock& held, int seen) -> awaitable<bool> {
                auto sale = txn().then(op::put(stock, std::to_string(seen - 1)));
                bool sold = true;
                if (how == "gate") {
                    const auto done = co_await gate.admit(held.fencing_token(), std::move(sale));
                    sold = done.has_value();
                } else {
                    if (how == "sequencer") {
                        sale.compares.push_back(coetcd::guard(name, held.sequencer()));
                    }
                    const auto done = co_await c.txn(std::move(sale));
                    sold = done.succeeded;
                }
                co_return sold;
            };
            held_lock first = co_await slow.scoped_lock();
            const auto seen = co_await c.get(stock);
            REQUIRE(seen);
            revoke_by_hand(shared_etcd(), s1.lease()); // it stands still for longer than its ttl
            held_lock second = co_await quick.scoped_lock();
            for (int left = 10; left != 5; --left) {
                const bool sold = co_await sell(second, left);
                CHECK(sold);
            }
            const bool late = co_await sell(first, std::stoi(seen->value));
            const auto left = co_await c.get(stock);
            REQUIRE(left);
            if (how == "unguarded") {
                CHECK(late);
                CHECK(left->value == "9"); // five more will be sold than there are
            } else {
                CHECK(!late);
                CHECK(left->value == "5");
            }
            (void)co_await second.unlock();
            co_await s1.close();
            co_await s2.close();
            co_await erase_all(c, name);
        }
    });
}

TEST_CASE("ZooKeeper: of five hundred waiters a release wakes one", "[known_failures]") {
    etcd_server etcd;
    const auto body = [&etcd]() -> awaitable<void> {
        herd<coetcd::mutex, held_lock> all;
        all.make = [](const session& s) { return coetcd::mutex(s, "herd"); };
        all.take = [](coetcd::mutex& m) { return m.scoped_lock(); };
        all.give_back = [](held_lock& held) { return held.unlock(); };
        all.keys = "herd/";
        all.ours = 1;
        all.watches = 3;       // the two keys ahead, and their own
        all.more_watches = -1; // one only is ahead of the first one
        all.events = 2;
        co_await one_of_a_herd_wakes(etcd, std::move(all));
    };
    run_options patient;
    patient.timeout = 120s;
    patient.drain = 30s;
    run_test(body, patient);
}
