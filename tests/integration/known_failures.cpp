// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/sequencer.hpp>
#include <coetcd/session.hpp>
#include <coetcd/timed_claim.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::held_lock;
using coetcd::op;
using coetcd::session;
using coetcd::timed_claim;
using coetcd::txn;

// The failures that people know from other lock services.

namespace {

client connect(const asio::any_io_executor& executor) {
    return client(executor, shared_etcd().url());
}

} // namespace

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
        CHECK(first->valid()); // it cannot know
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
        CHECK(!lists_lease(shared_etcd(), lease)); // nobody has granted it again
        std::optional<timed_claim> claim = co_await coetcd::try_claim(c, name, 3s);
        REQUIRE(claim);
        const auto last = claim->lease();
        co_await sleep_for(1200ms);
        const auto left = co_await c.lease_time_to_live(last);
        REQUIRE(left);
        CHECK(left->ttl <= 2s);
        co_await until_count(c, name, 0, 10s);
        CHECK(!claim->valid());
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
