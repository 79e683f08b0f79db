// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/counter.hpp>
#include <coetcd/election.hpp>
#include <coetcd/ephemeral.hpp>
#include <coetcd/exactly_once.hpp>
#include <coetcd/fencing_gate.hpp>
#include <coetcd/group.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/registry.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/sequence.hpp>
#include <coetcd/session.hpp>
#include <coetcd/shared_mutex.hpp>
#include <coetcd/stm.hpp>
#include <coetcd/timed_claim.hpp>
#include <coetcd/value.hpp>
#include <coetcd/verify.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

// What docs/pages/costs.md says of the cost of each call, in round trips.

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::exclusive;
using coetcd::session;
using coetcd::shared;

namespace {

struct meter {
    meter()
        : client(w.client())
        , one(w.await(session::open(client)))
        , two(w.await(session::open(client))) {}

    template<class T>
    T costs(std::size_t n, const char* what, asio::awaitable<T> work) {
        const std::size_t before = w.env->calls.size();
        const auto compare = [&] {
            INFO(what);
            CHECK(w.env->calls.size() - before == n);
            w.env->pass(1s); // what it does in the background
        };
        if constexpr (std::is_void_v<T>) {
            w.await(std::move(work));
            compare();
        } else {
            T result = w.await(std::move(work));
            compare();
            return result;
        }
    }

    support::world w;
    coetcd::client client;
    session one;
    session two;
};

} // namespace

TEST_CASE("round trips of sessions and mutexes", "[round_trips]") {
    meter m;
    session third = m.costs(1, "open", session::open(m.client));
    m.costs(1, "close", third.close());
    m.costs(0, "close what is gone", third.close());
    coetcd::mutex lock(m.one, "m");
    coetcd::mutex other(m.two, "m");
    coetcd::held_lock held = m.costs(1, "lock", lock.scoped_lock());
    m.costs(0, "try_lock, taken by itself", lock.try_lock());
    m.costs(1, "try_lock, taken", other.try_lock());
    m.costs(1, "holder", other.holder());
    m.costs(1, "waiters", other.waiters());
    m.costs(1, "position", lock.position());
    const coetcd::sequencer text = held.sequencer();
    m.costs(1, "verify", coetcd::verify_of_any_lock(m.client, text));
    m.costs(1, "unlock", held.unlock());
    m.costs(1, "try_lock, free", other.try_lock());
    m.costs(1, "request_release of nobody", coetcd::request_release(m.one, "nobody"));
    m.costs(2, "request_release", coetcd::request_release(m.one, "m"));
    m.costs(1, "force_unlock of nobody", coetcd::force_unlock(m.client, "m", 999'999));
    m.costs(2, "force_unlock", coetcd::force_unlock(m.client, "m", other.fencing_token()));
    coetcd::fencing_gate gate(m.client, "gate");
    m.costs(1, "admit", gate.admit(5));
    auto claim = m.costs(2, "try_claim", coetcd::try_claim(m.client, "c", 60s));
    REQUIRE(claim);
    m.costs(1, "release of a claim", claim->release());
}

TEST_CASE("round trips of shared and several locks", "[round_trips]") {
    meter m;
    coetcd::shared_mutex lock(m.one, "s");
    m.costs(1, "lock_shared", lock.lock_shared());
    m.costs(1, "unlock_shared", lock.unlock_shared());
    coetcd::held_lock held = m.costs(1, "lock", lock.scoped_lock());
    m.costs(1, "downgrade", held.downgrade());
    REQUIRE(m.costs(1, "try_upgrade", held.try_upgrade()));
    m.costs(1, "unlock", held.unlock());
    coetcd::multi_lock all(m.one, {exclusive("a"), exclusive("b"), shared("c")});
    m.costs(1, "lock of three", all.lock());
    m.costs(1, "unlock of three", all.unlock());
    REQUIRE(m.costs(1, "try_lock of three", all.try_lock()));
}

TEST_CASE("round trips of elections", "[round_trips]") {
    meter m;
    coetcd::election first(m.one, "e");
    coetcd::election second(m.two, "e");
    coetcd::leadership term = m.costs(1, "campaign", first.campaign("a"));
    m.costs(1, "try_campaign, somebody leads", second.try_campaign("b"));
    m.costs(1, "leader", second.leader());
    m.costs(1, "leader_of", coetcd::leader_of(m.client, "e"));
    m.costs(1, "proclaim", term.proclaim("a2"));
    coetcd::leader_feed news = second.observe();
    m.costs(1, "next, at first", news.next());
    m.w.await(term.proclaim("a3"));
    m.costs(0, "next, of what is proclaimed", news.next());
    m.costs(1, "resign", term.resign());
    m.costs(1, "next, of another leader", news.next());
}

TEST_CASE("round trips of groups, keys and services", "[round_trips]") {
    meter m;
    coetcd::group workers(m.one, "g");
    coetcd::membership member = m.costs(1, "join", workers.join("a"));
    m.costs(1, "update", member.update("b"));
    m.costs(0, "update, of what is there", member.update("b"));
    m.costs(1, "members", workers.members());
    m.costs(1, "members_of", coetcd::members_of(m.client, "g"));
    coetcd::members_feed news = workers.changes();
    m.costs(1, "next, at first", news.next());
    m.w.await(member.update("c"));
    m.costs(0, "next, of a change", news.next());
    m.costs(1, "leave", member.leave());
    m.costs(0, "leave, once more", member.leave());
    m.costs(0, "next, of a leave", news.next());
    coetcd::ephemeral key = m.costs(1, "create", coetcd::ephemeral::create(m.one, "k", "a"));
    m.costs(1, "remove", key.remove());
    coetcd::registration here = m.costs(1, "register", register_service(m.one, "s", "a:1"));
    coetcd::registration there = m.costs(2, "take over", register_service(m.two, "s", "a:1"));
    m.costs(1, "endpoints_of", coetcd::endpoints_of(m.client, "s"));
    coetcd::endpoints_feed endpoints = coetcd::resolve(m.client, "s");
    m.costs(1, "resolve, at first", endpoints.next());
    m.costs(0, "remove, of what is lost", here.remove());
    m.costs(1, "remove", there.remove());
    m.costs(0, "resolve, of a change", endpoints.next());
}

TEST_CASE("round trips of semaphores", "[round_trips]") {
    meter m;
    coetcd::semaphore permits(m.one, "p", 2);
    coetcd::semaphore others(m.two, "p", 2);
    coetcd::permit mine = m.costs(1, "acquire", permits.acquire());
    auto tried = m.costs(1, "try_acquire", others.try_acquire());
    REQUIRE(tried);
    m.costs(2, "try_acquire, no room", others.try_acquire());
    m.costs(1, "state", permits.state());
    m.costs(1, "holders", permits.holders());
    m.costs(1, "waiters", permits.waiters());
    m.costs(1, "ensure_limit, stored", others.ensure_limit(5));
    coetcd::semaphore fresh(m.one, "fresh");
    m.costs(1, "ensure_limit", fresh.ensure_limit(5));
    m.costs(2, "set_limit", permits.set_limit(3));
    m.costs(2, "adjust_limit", permits.adjust_limit(1));
    m.costs(1, "release", mine.release());
}

TEST_CASE("round trips of what is written once", "[round_trips]") {
    meter m;
    coetcd::sequence numbers(m.one, "n");
    m.costs(2, "the first sequence::next of all", numbers.next());
    m.costs(1, "sequence::next", numbers.next());
    coetcd::value v(m.one, "v");
    const std::int64_t at = m.costs(1, "value::set", v.set("1"));
    m.costs(1, "value::get", v.get());
    m.costs(1, "value::compare_exchange", v.compare_exchange(at, "2"));
    coetcd::value_feed news = v.changes();
    m.costs(1, "changes().next, at first", news.next());
    m.w.await(v.set("3"));
    m.costs(0, "changes().next", news.next());
    coetcd::exactly_once writer(m.one, "o");
    coetcd::txn put = coetcd::txn().then(coetcd::op::put("k", "1"));
    m.costs(1, "exactly_once", writer.txn(std::move(put)));
    coetcd::counter visits(m.one, "visits");
    m.w.await(visits.add());
    m.costs(1, "counter::add", visits.add());
    auto body = [](coetcd::transaction& t) -> asio::awaitable<void> {
        const auto a = co_await t.get("k");
        const auto b = co_await t.get("l");
        t.put("l", a ? *a : std::string());
        (void)b;
    };
    m.costs(3, "stm, two reads", coetcd::stm(m.one, body));
    coetcd::stm_options ahead;
    ahead.prefetch = {"k", "l"};
    m.costs(2, "stm, prefetched", coetcd::stm(m.one, body, ahead));
}
