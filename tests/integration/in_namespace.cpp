// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/group.hpp>
#include <coetcd/mirror.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/work_queue.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::compare;
using coetcd::key_range;
using coetcd::op;
using coetcd::session;
using coetcd::txn;
using integration::connect;

namespace {

std::vector<std::string> names_of(const std::vector<coetcd::key_value>& kvs) {
    std::vector<std::string> keys;
    for (const auto& kv : kvs) {
        keys.push_back(kv.key);
    }
    return keys;
}

using names = std::vector<std::string>;

} // namespace

TEST_CASE("A namespace is a part of etcd, and ends where it should", "[client][namespace]") {
    const std::string end = GENERATE("/", "\xff");
    const auto body = [end]() -> awaitable<void> {
        const client c = connect(co_await asio::this_coro::executor);
        const std::string outside = unique_name("part");
        const std::string prefix = outside + end;
        const client app = c.in_namespace(prefix);
        const std::string next = key_range::prefix(prefix).range_end; // the first key after it
        (void)co_await c.put(prefix, "outside");
        (void)co_await c.put(next, "outside");
        (void)co_await app.put("a", "1");
        (void)co_await app.put("\xff", "2");
        const auto whole = co_await c.get(prefix + "a");
        REQUIRE(whole);
        CHECK(whole->value == "1");
        const auto all = co_await app.range(key_range::all());
        CHECK(names_of(all.kvs) == names{"a", "\xff"});

        coetcd::watch_options how;
        how.prev_kv = true;
        how.start_revision = whole->mod_revision + 1;
        coetcd::watcher changes = co_await app.watch(key_range::all(), how);
        (void)co_await c.put(next, "outside");
        (void)co_await c.put(prefix + "a", "3");
        std::vector<coetcd::event> events;
        while (events.size() < 2) {
            const auto batch = co_await changes.next();
            events.insert(events.end(), batch.events.begin(), batch.events.end());
        }
        CHECK(events.at(0).kv.key == "\xff");
        CHECK(events.at(1).kv.key == "a");
        CHECK(events.at(1).prev_kv->key == "a");
        CHECK(events.at(1).prev_kv->value == "1");

        const auto lease = co_await c.lease_grant(30s);
        const coetcd::put_options leased{.lease = lease.id};
        (void)co_await c.put(next, "outside", leased);
        auto work = txn()
                        .when(compare::version(key_range::all()) > 0, compare::value("a") == "3")
                        .then(op::put("l", "", leased),
                              op::nested(txn()
                                             .when(compare::version("x") == 0)
                                             .then(op::range(key_range::from("a")))));
        const auto said = co_await app.txn(std::move(work));
        REQUIRE(said.succeeded);
        const auto& inner = said.responses.at(1).nested();
        CHECK(names_of(inner.responses.at(0).range().kvs) == names{"a", "l", "\xff"});
        const auto lasts = co_await app.lease_time_to_live(lease.id, true);
        REQUIRE(lasts);
        CHECK(lasts->keys == names{"l"});

        const coetcd::erase_options told{.prev_kv = true};
        const auto erased = co_await app.erase(key_range::all(), told);
        CHECK(names_of(erased.prev_kvs) == names{"a", "l", "\xff"});
        const auto before = co_await c.get(prefix);
        CHECK(before);
        const auto after = co_await c.get(next);
        CHECK(after);
        (void)co_await c.lease_revoke(lease.id);
        co_await erase_all(c, outside);
    };
    run_test(body);
}

TEST_CASE("Recipes of a namespace leave their keys there", "[client][namespace]") {
    const auto body = []() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string prefix = unique_name("recipes") + "/";
        const client app = c.in_namespace(prefix);
        session s = co_await open_session(app, 30s);

        coetcd::mutex mutex(s, "m");
        co_await mutex.lock();
        const auto key = co_await c.get(prefix + mutex.key());
        REQUIRE(key);
        CHECK(key->create_revision == mutex.fencing_token());
        auto guarded = txn().when(mutex.is_owner()).then(op::put("done", "1"));
        const auto done = co_await app.txn(std::move(guarded));
        CHECK(done.succeeded);
        (void)co_await mutex.unlock();

        coetcd::semaphore permits(s, "p", 1);
        coetcd::permit permit = co_await permits.acquire();
        task<coetcd::permit> waiting(executor, permits.acquire());
        auto waits = [&]() -> awaitable<bool> {
            const auto queue = co_await permits.waiters();
            co_return queue.size() == 1;
        };
        co_await eventually(waits, 5s, "one waits");
        (void)co_await permit.release();
        coetcd::permit second = co_await waiting.result();
        (void)co_await second.release();

        coetcd::election election(s, "e");
        coetcd::leader_feed leaders = coetcd::observe(app, "e");
        coetcd::leadership term = co_await election.campaign("me");
        std::optional<coetcd::leader> leader;
        while (!leader) {
            leader = co_await leaders.next();
        }
        CHECK(leader->value == "me");
        CHECK(leader->key == term.key());
        (void)co_await term.resign();

        coetcd::sequence numbers(s, "n");
        const auto first = co_await numbers.next();
        const auto number = co_await numbers.next();
        CHECK(number == first + 1);

        coetcd::group workers(s, "g");
        coetcd::membership member = co_await workers.join("here");
        const auto members = co_await coetcd::members_of(app, "g");
        CHECK(members.size() == 1);
        co_await member.leave();

        coetcd::work_queue mails(s, "mails");
        co_await mails.enqueue(std::string("a"));
        coetcd::job job = co_await mails.take();
        CHECK(job.value() == "a");
        (void)co_await job.ack();

        const coetcd::mirror mirror = co_await coetcd::open_mirror(app, "config/");
        const auto put = co_await app.put("config/limit", "7");
        co_await mirror.wait(put.header.revision);
        const auto limit = mirror.get("config/limit");
        REQUIRE(limit);
        CHECK(limit->value == "7");

        co_await s.close();
        const auto marked = co_await c.get(prefix + "done");
        CHECK(marked);
        const auto outside = co_await c.get("done");
        CHECK(!outside);
        co_await until_count(c, prefix + "m/", 0);
        co_await erase_all(c, prefix);
    };
    run_test(body);
}
