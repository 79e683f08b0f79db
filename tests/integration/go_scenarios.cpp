// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"
#include "support/test_names.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::election;
using coetcd::errc;
using coetcd::leadership;
using coetcd::session;

// What the tests of etcd's Go client (3.7) are about, and which test of ours is about the same.

namespace {

struct scenario {
    const char* what;
    const char* ours; ///< A test, of any program.
    const char* go_does;
    const char* we_do;
};

const scenario scenarios[] = {
    // Sessions

    {"a session under a lease that exists",
     "A session can be orphaned and adopted",
     "WithLease; of a lease that is gone, too: that session is done at once",
     "adopt; nothing if the lease is gone"},
    {"a session ends, and its lease lives on",
     "A session can be orphaned and adopted",
     "Orphan closes Done",
     "orphan ends wait_lost, and tells that this was why"},
    {"the ttl that was asked for is that of the lease",
     "The ttl of a session is that of its lease",
     "60 s by default; what etcd granted is not told",
     "10 s by default; ttl() is what etcd granted"},
    {"work under a session ends with it",
     "with_lock cancels its body when the lock is lost",
     "a context made from Ctx is cancelled; nobody waits for the work to end",
     "with_lock cancels the body, awaits its end, and reports the loss"},
    {"a session is not opened for longer than one likes",
     "Opening a session that takes too long fails, and leaves no lease",
     "WithContext; a lease that was granted too late stays until its ttl",
     "request_timeout; such a lease is revoked in the background"},
    {"opening that is given up",
     "Opening a session that is cancelled leaves no lease",
     "as above",
     "as above"},
    {"closing takes no longer than the ttl",
     "close() gives up after the ttl, or five seconds",
     "the ttl",
     "the ttl, or five seconds"},
    {"a session is of use at once",
     "A lock is taken, proved and given back",
     "the same",
     "the same"},
    {"a lease that was revoked",
     "A session whose lease is revoked is lost with the next renewal",
     "Done with the next renewal",
     "the same, and waiting locks fail at once"},
    {"etcd does not answer for longer than the ttl",
     "A session is lost before its lease can have ended",
     "Done up to a second after the ttl, counted from the last answer: the lease may be another's "
     "by "
     "then",
     "lost before the lease can have ended, counted from when the last renewal was sent"},

    // Mutexes

    {"several clients of one member lock in turn",
     "A lock is granted in the order of arrival",
     "the same",
     "the same"},
    {"several clients of several members lock in turn",
     "guarded_set: no element that was acknowledged is lost",
     "the same",
     "the same, with members and clients struck at random"},
    {"of several that try, one gets the lock",
     "Of many attempts at once exactly one gets the lock",
     "each puts its key, and deletes it if it is not the first: others may see it meanwhile",
     "no key is put if the lock is not free"},
    {"one session locks twice",
     "Two mutexes of one session exclude each other, those of Go do not",
     "both have the lock, by one key; the first unlock gives it away",
     "the second one waits for the first, as with std::mutex"},
    {"one who waits dies before the holder",
     "A waiter whose predecessor dies waits for those before it",
     "the same",
     "the same"},
    {"the session ends of one who waits",
     "A waiter whose lease has ended hears of it at once, that of Go when its turn comes",
     "session is expired, but only when all before it have gone",
     "session_lost, at once"},
    {"the own session is closed by one who waits",
     "a waiter for a lock is told that its own program has closed the session",
     "as above",
     "session_closed, at once"},
    {"waiting is given up",
     "Three thousand cancels at random moments of lock() leave no key",
     "the key is deleted, if etcd answers at that moment",
     "the key is deleted in the background, until etcd answers, or the lease is given up"},
    {"what is not locked is unlocked",
     "A lock is taken, proved and given back",
     "lock has already been released",
     "false"},
    {"what was lost is unlocked",
     "unlock() tells if the lock was not ours any more",
     "no error",
     "false"},
    {"an unlock arrives late",
     "An unlock whose answer is lost, and that is repeated, spares the next owner",
     "deletes the key of the next owner, if that is of the same session",
     "compares the create_revision: nothing happens"},
    {"a write under the lock",
     "What is guarded by is_owner is not written after a loss",
     "IsOwner, the same",
     "is_owner, the same"},
    {"a lock as the language has them",
     "A guard gives the lock back, also one that adopted it",
     "NewLocker, which panics on any error",
     "held_lock, and with_lock"},

    // Transactions

    {"conflicts are tried again, and the sum is kept",
     "many transactions at the same time keep the sum, and leave few markers",
     "at once, for ever",
     "after a pause, up to a limit"},
    {"a key that is written is there after the commit",
     "a transaction costs a round trip for each read, and one for the commit",
     "the same",
     "the same"},
    {"what is given up is not written",
     "a cancelled transaction ends at once, and is applied as a whole or not at all",
     "the same",
     "the same"},
    {"all reads are of one revision",
     "the two upper levels show the store at one moment",
     "the same",
     "the same; ranges, too"},
    {"a key that was read is deleted meanwhile",
     "a range has no phantoms: what is added, changed or erased is minded",
     "the same; it has no ranges",
     "the same; ranges, too"},
    {"a key that is only written is changed meanwhile",
     "serializable_snapshot minds a write to what it only writes",
     "the same",
     "the same"},
    {"the answer to a commit is lost",
     "whatever request is lost, or its answer, or late: it is applied once",
     "an error, and nobody knows; whoever tries again may pay twice",
     "it is applied once"},

    // Elections

    {"those who follow see each of several leaders",
     "Feeds of an election and those of Go tell of each other's leaders",
     "the same, but not that nobody leads",
     "the same, and that nobody leads"},
    {"the session of the leader is closed",
     "The next candidate leads when the session of the leader is closed",
     "the same",
     "the same"},
    {"one session campaigns twice",
     "Two candidates of one session lead in turn, those of Go at the same time",
     "both lead, by one key",
     "the second one waits for the first"},
    {"a key exists whose name begins alike",
     "A key whose name begins as that of an election is no candidate",
     "the same",
     "the same"},
    {"users campaign who have roles, and whose tokens end",
     "Tokens end, and nobody notices",
     "the same",
     "the same"},
    {"a leader restarts, with its lease",
     "resume() goes on with the term that the lease has",
     "campaigns again, which proclaims",
     "resume, which adopts the key"},
    {"a leadership is resumed by its key",
     "A leadership of the Go client is resumed, and one of ours by that",
     "ResumeElection, which does not ask etcd",
     "resume; nothing if that term is over, or not the lease's"},
    {"who leads is asked when history was compacted",
     "history that is compacted all the time is no concern of a feed",
     "the same; the feed ends if that happens meanwhile",
     "the feed goes on"},
    {"an error while somebody observes",
     "whatever happens, observe() ends with the last state and never goes back",
     "the feed ends, and does not say why",
     "the feed goes on"},
    {"a resignation that fails is repeated",
     "resign() whose answer is lost is told from one that was too late",
     "the same",
     "it is also repeated in the background"},
    {"campaigning is given up",
     "cancelled at any moment, campaign() ends once and leaves no key",
     "the key is deleted, if etcd answers at that moment; it stays after other errors",
     "the key is deleted in the background"},
    {"the lease ends of one who campaigns",
     "A candidate whose lease has ended hears of it at once, that of Go leads without a key",
     "it is told that it leads when all before it have gone",
     "session_lost, at once"},
    {"a proclamation arrives late",
     "a late copy of proclaim() does not undo a later one",
     "undoes a later one of the same term",
     "compares the mod_revision: nothing happens"},
};

} // namespace

TEST_CASE("Each scenario of the Go client's tests has a test of ours", "[go]") {
    for (const scenario& s : scenarios) {
        INFO(s.what << ": " << s.ours);
        CHECK(has_test(s.ours));
    }
}

TEST_CASE("The ttl of a session is that of its lease", "[go][session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        session s = co_await open_session(c, 90s);
        CHECK(s.ttl() == 90s);
        const auto lease = co_await c.lease_time_to_live(s.lease());
        REQUIRE(lease);
        CHECK(lease->granted_ttl == 90s);
        CHECK(lease->ttl <= 90s);
        CHECK(lease->ttl > 70s);
        co_await s.close();
    });
}

TEST_CASE("Opening a session that takes too long fails, and leaves no lease", "[go][session]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client direct(executor, shared_etcd().url());
        const auto before = co_await direct.lease_leases();
        // Those of earlier tests may end meanwhile.
        auto more = [&]() -> awaitable<std::ptrdiff_t> {
            const auto now = co_await direct.lease_leases();
            co_return std::count_if(now.leases.begin(), now.leases.end(), [&](const auto& one) {
                return std::find(before.leases.begin(), before.leases.end(), one) ==
                       before.leases.end();
            });
        };
        auto one_more = [&]() -> awaitable<bool> { co_return (co_await more()) == 1; };
        auto as_before = [&]() -> awaitable<bool> { co_return (co_await more()) == 0; };

        tcp_proxy proxy(executor, shared_etcd().port());
        coetcd::client_options options;
        options.request_timeout = 2s;
        const client c(executor, proxy.url(), options);
        proxy.answers(traffic::hold);
        const auto start = clock::now();
        task<session> opening(executor, open_session(c, 60s));
        co_await eventually(one_more, 2s, "etcd has granted it");
        const auto e = co_await opening.how_it_ended();
        CHECK(e.code == errc::outcome_unknown);
        CHECK(ms_between(start, e.when) >= 1900);
        CHECK(ms_between(start, e.when) < 2000 + 1000);
        proxy.answers(traffic::pass);
        co_await eventually(as_before, 10s, "the lease is revoked");
    });
}

TEST_CASE("A waiter whose predecessor dies waits for those before it", "[go][mutex]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        session s1 = co_await open_session(c, 30s);
        session s2 = co_await open_session(c, 30s);
        session s3 = co_await open_session(c, 30s);
        const std::string name = unique_name("predecessor");
        coetcd::mutex holder(s1, name);
        coetcd::mutex victim(s2, name);
        coetcd::mutex heir(s3, name);
        co_await holder.lock();
        task<void> second(executor, victim.lock());
        co_await until_count(c, name + "/", 2);
        task<void> third(executor, heir.lock());
        co_await until_count(c, name + "/", 3);

        revoke_by_hand(shared_etcd(), s2.lease());
        const auto e = co_await second.how_it_ended();
        CHECK(e.code == errc::session_lost);
        // Its successor has heard of it, too, and has looked which key is before it now.
        co_await sleep_for(200ms);
        CHECK(!third.done());
        CHECK(holder.owns_lock());
        const auto before = clock::now();
        (void)co_await holder.unlock();
        co_await third.result();
        CHECK(ms_between(before, third.ended()) < 1000);
        CHECK(heir.owns_lock());
        co_await s1.close();
        co_await s3.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("The next candidate leads when the session of the leader is closed", "[go][election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        session s1 = co_await open_session(c, 30s);
        session s2 = co_await open_session(c, 30s);
        const std::string name = unique_name("fail-over");
        election first(s1, name);
        election second(s2, name);
        coetcd::leader_feed feed = coetcd::observe(c, name);
        leadership leads = co_await first.campaign("foo");
        const auto foo = co_await feed.next();
        REQUIRE(foo);
        CHECK(foo->value == "foo");
        task<leadership> next(executor, second.campaign("bar"));
        co_await until_count(c, name + "/", 2);
        co_await s1.close();
        CHECK(!leads.leads());
        leadership heir = co_await next.result();
        CHECK(heir.term() > foo->term);
        auto told = co_await feed.next();
        while (!told || told->value != "bar") {
            told = co_await feed.next();
        }
        CHECK(told->term == heir.term());
        co_await s2.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A key whose name begins as that of an election is no candidate", "[go][election]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("prefix");
        (void)co_await c.put(name + "a", "value");
        election e(s, name);
        const auto led = co_await e.try_campaign("abc");
        CHECK(led);
        const auto now = co_await e.leader();
        REQUIRE(now);
        CHECK(now->value == "abc");
        co_await s.close();
        co_await erase_all(c, name);
    });
}
