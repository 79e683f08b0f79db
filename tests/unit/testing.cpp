// SPDX-License-Identifier: BSL-1.0
#include <coetcd/as_result.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/testing.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_end;
using coetcd::session_state;
using coetcd::testing::cluster;
using coetcd::testing::cluster_options;
using coetcd::testing::fault_options;

namespace {

cluster_options with_seed(std::uint64_t seed) {
    cluster_options options;
    options.seed = seed;
    return options;
}

/// A cluster with two clients that have a session each, and a lock of it.
struct two_clients {
    explicit two_clients(cluster_options options = {})
        : etcd(options)
        , first(etcd.make_client())
        , second(etcd.make_client())
        , first_session(etcd.run(first, coetcd::session::open(first, 5s)))
        , second_session(etcd.run(second, coetcd::session::open(second, 5s)))
        , first_lock(first_session, "n")
        , second_lock(second_session, "n") {}

    cluster etcd;
    coetcd::client first;
    coetcd::client second;
    coetcd::session first_session;
    coetcd::session second_session;
    coetcd::mutex first_lock;
    coetcd::mutex second_lock;
};

/// How long a lock, three times taken and given back, and waited for, takes; what it tells in
/// between.
std::vector<std::int64_t> lock_story(std::uint64_t seed, bool in_vain = false) {
    two_clients r(with_seed(seed));
    std::vector<std::int64_t> told;
    if (in_vain) {
        r.etcd.begin_faults(fault_options::none());
    }
    for (int i = 0; i != 3; ++i) {
        r.etcd.run(r.first, r.first_lock.lock());
        auto waiting = r.etcd.start(r.second, r.second_lock.lock());
        r.etcd.pass(1s);
        r.etcd.run(r.first, r.first_lock.unlock());
        r.etcd.pass(1s);
        waiting.get();
        told.push_back(r.second_lock.fencing_token());
        told.push_back(static_cast<std::int64_t>(r.etcd.requests(r.second)));
        r.etcd.change_leader();
        r.etcd.run(r.second, r.second_lock.unlock());
        told.push_back(r.etcd.now().count());
    }
    if (in_vain) {
        r.etcd.end_faults();
    }
    return told;
}

/// One of two that ship the same order. It needs three seconds to pack it.
struct shipper {
    shipper(cluster& in, bool has_guard)
        : etcd(in)
        , client(in.make_client())
        , sessions(client)
        , guarded(has_guard) {}

    asio::awaitable<void> ship() {
        for (bool done = false; !done;) {
            try {
                auto body = [this](const coetcd::held_lock& held) { return ship_locked(held); };
                done = co_await coetcd::with_lock(sessions, "orders/42", std::move(body));
            } catch (const boost::system::system_error&) {
                // Whether it is shipped or not, the next attempt will tell.
            }
            co_await etcd.sleep(client, 1s);
        }
    }
    asio::awaitable<bool> ship_locked(const coetcd::held_lock& held) {
        const std::optional<coetcd::key_value> before = co_await client.get("shipped/42");
        if (before) {
            co_return true;
        }
        co_await etcd.sleep(client, 3s);
        coetcd::txn note = (guarded ? coetcd::txn().when(held.is_owner()) : coetcd::txn())
                               .then(coetcd::op::put("shipped/42", "yes"));
        const coetcd::txn_response noted = co_await client.txn(std::move(note));
        co_return noted.succeeded;
    }

    cluster& etcd;
    const coetcd::client client;
    coetcd::session_keeper sessions;
    const bool guarded;
};

struct history {
    bool ended = false;       ///< Both know that it is shipped.
    std::int64_t shipped = 0; ///< How often.
    std::uint64_t requests = 0;
    std::vector<std::string> faults;

    bool operator==(const history&) const = default;
};

history order_history(std::uint64_t seed, bool guarded, const fault_options& options = {}) {
    cluster etcd(with_seed(seed));
    shipper one(etcd, guarded);
    shipper other(etcd, guarded);
    auto first = etcd.start(one.client, one.ship());
    auto second = etcd.start(other.client, other.ship());
    const auto both_end_until = [&](std::chrono::nanoseconds end) {
        while (!(first.ended() && second.ended()) && etcd.now() < end) {
            etcd.pass(1s);
        }
    };
    etcd.begin_faults(options);
    both_end_until(20s);
    etcd.end_faults();
    both_end_until(2min);
    etcd.pass(5s); // what is late arrives
    history h;
    h.ended = first.succeeded() && second.succeeded();
    const coetcd::client reader = etcd.make_client();
    const std::optional<coetcd::key_value> order = etcd.run(reader, reader.get("shipped/42"));
    h.shipped = order ? order->version : 0;
    h.requests = etcd.requests(one.client) + etcd.requests(other.client);
    h.faults = etcd.faults();
    return h;
}

struct kind {
    std::string name;
    double fault_options::*chance;

    /// @returns Options with nothing else.
    fault_options alone(double how_likely) const {
        fault_options options = fault_options::none();
        options.*chance = how_likely;
        return options;
    }
};

const std::vector<kind> all_kinds{
    {"connection_refused", &fault_options::connection_refused},
    {"connection_broken", &fault_options::connection_broken},
    {"request_lost", &fault_options::request_lost},
    {"request_late", &fault_options::request_late},
    {"request_repeated", &fault_options::request_repeated},
    {"answer_lost", &fault_options::answer_lost},
    {"delayed", &fault_options::delayed},
    {"stream_dropped", &fault_options::stream_dropped},
    {"stream_silent", &fault_options::stream_silent},
    {"client_stalled", &fault_options::client_stalled},
    {"client_cut", &fault_options::client_cut},
    {"lease_ended", &fault_options::lease_ended},
    {"leader_changed", &fault_options::leader_changed},
    {"member_stopped", &fault_options::member_stopped},
    {"compacted", &fault_options::compacted},
};

fault_options always(double fault_options::*chance) {
    return kind{"", chance}.alone(1);
}

/// How writes ended to which the same happened, each in a world of its own.
struct writes {
    std::set<coetcd::error_code> codes;
    int done = 0;       ///< When they ended.
    int done_later = 0; ///< When all was well again.
    std::chrono::nanoseconds longest{0};
};

constexpr int most_writes = 20;

writes writes_with(const fault_options& options, int members = 3) {
    writes w;
    for (std::uint64_t seed = 1; seed <= most_writes; ++seed) {
        cluster_options o = with_seed(seed);
        o.members = members;
        cluster etcd(o);
        const coetcd::client c = etcd.make_client();
        etcd.begin_faults(options);
        etcd.pass(1s);
        auto writing = etcd.start(c, c.put("k", "v"));
        const std::chrono::nanoseconds began = etcd.now();
        while (!writing.ended() && etcd.now() < began + 1min) {
            etcd.pass(1ms);
        }
        w.longest = std::max(w.longest, etcd.now() - began);
        w.codes.insert(writing.code());
        w.done += etcd.keys("k").empty() ? 0 : 1;
        etcd.end_faults();
        etcd.pass(5s);
        w.done_later += etcd.keys("k").empty() ? 0 : 1;
    }
    return w;
}

} // namespace

TEST_CASE("a test of a lock takes no time, and is the same each time") {
    CHECK(lock_story(1) == lock_story(1));
    CHECK(lock_story(1) != lock_story(2)); // when the leader is there again is up to chance
}

TEST_CASE("time passes in pass and in run only") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    CHECK(etcd.now() == 0s);
    auto sleeping = etcd.start(c, etcd.sleep(c, 10min));
    etcd.pass(10min - 1ns);
    CHECK_FALSE(sleeping.ended());
    etcd.pass(1ns);
    CHECK(sleeping.succeeded());
    CHECK(etcd.now() == 10min);
    etcd.run(c, etcd.sleep(c, 1s));
    CHECK(etcd.now() == 10min + 1s);
}

TEST_CASE("a request takes a round trip") {
    cluster_options options;
    options.round_trip = 10ms;
    cluster etcd(options);
    const coetcd::client c = etcd.make_client();
    auto writing = etcd.start(c, c.put("k", "v"));
    etcd.pass(10ms - 1ns);
    CHECK_FALSE(writing.ended());
    CHECK(etcd.keys() == std::vector<std::string>{"k"});
    etcd.pass(1ns);
    CHECK(writing.succeeded());
    CHECK(etcd.requests(c) == 1);
    CHECK(etcd.run(c, c.get("k")).value().value == "v");
    CHECK(etcd.requests(c) == 2);
    CHECK(etcd.keys("l").empty());
}

TEST_CASE("code that runs is cancelled by its handle") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    r.etcd.pass(1s);
    CHECK_THROWS_AS(waiting.get(), std::logic_error);
    waiting.cancel();
    r.etcd.pass(0s);
    CHECK(waiting.code() == asio::error::operation_aborted);
}

TEST_CASE("a lease that is lost takes the lock along") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    r.etcd.pass(1s);
    CHECK(r.etcd.leases() == 2);
    r.etcd.lose_lease(r.first_session);
    CHECK(r.etcd.leases() == 1);
    r.etcd.pass(1s);
    CHECK(waiting.succeeded());
    r.etcd.pass(5s);
    CHECK(r.first_session.state() == session_state::lost);
    CHECK_FALSE(r.first_lock.owns_lock());
}

TEST_CASE("a client that is cut off loses its session, and begins again when it is joined") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    r.etcd.cut(r.first);
    r.etcd.pass(4s);
    CHECK(r.first_lock.owns_lock());
    r.etcd.pass(2s);
    CHECK(r.first_session.state() == session_state::lost);
    CHECK_FALSE(r.first_lock.owns_lock());
    r.etcd.pass(2s);
    CHECK(waiting.succeeded());
    r.etcd.join(r.first);
    const coetcd::session again = r.etcd.run(r.first, coetcd::session::open(r.first, 5s));
    CHECK(again.state() == session_state::active);
}

TEST_CASE("a process that stands still finds its lock lost") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    coetcd::txn late =
        coetcd::txn().when(r.first_lock.is_owner()).then(coetcd::op::put("shipped", "twice"));
    const auto write_late = [&]() -> asio::awaitable<coetcd::txn_response> {
        co_await r.etcd.sleep(r.first, 2s); // when the lock is its own, by its clock
        co_return co_await r.first.txn(std::move(late));
    };
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    auto writing = r.etcd.start(r.first, write_late());
    r.etcd.pass(1s);
    r.etcd.stall(r.first, 30s);
    r.etcd.pass(29s);
    CHECK(waiting.succeeded());
    CHECK_FALSE(writing.ended());
    r.etcd.pass(2s);
    CHECK_FALSE(writing.get().succeeded);
    CHECK(r.etcd.keys("shipped").empty());
    CHECK_FALSE(r.first_lock.owns_lock());
}

TEST_CASE("a process that is killed does nothing any more, and its lock is free in time") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    auto waiting = r.etcd.start(r.second, r.second_lock.lock());
    auto never = r.etcd.start(r.first, r.etcd.sleep(r.first, 1s));
    r.etcd.pass(0s);
    r.etcd.kill(r.first);
    const std::uint64_t before = r.etcd.requests(r.first);
    r.etcd.pass(4s);
    CHECK_FALSE(waiting.ended());
    r.etcd.pass(3s);
    CHECK(waiting.succeeded());
    CHECK_FALSE(never.ended());
    CHECK(r.etcd.requests(r.first) == before);
}

TEST_CASE("code kills its own process, once it waits") {
    two_clients r;
    int steps = 0;
    const auto fall_on_a_sword = [&]() -> asio::awaitable<void> {
        co_await r.first_lock.lock();
        r.etcd.kill(r.first);
        ++steps;
        co_await r.etcd.sleep(r.first, 0s);
        ++steps;
    };
    auto never = r.etcd.start(r.first, fall_on_a_sword());
    r.etcd.pass(1s);
    CHECK(steps == 1);
    CHECK_FALSE(never.ended());
    r.etcd.pass(6s);
    CHECK(r.etcd.run(r.second, r.second_lock.try_lock()));
}

TEST_CASE("code in a process cannot make time pass") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    const auto impatient = [&]() -> asio::awaitable<void> {
        etcd.pass(1s);
        co_return;
    };
    auto t = etcd.start(c, impatient());
    etcd.pass(0s);
    CHECK_THROWS_AS(t.get(), std::logic_error);
}

TEST_CASE("a write whose answer is lost is done, and told as unknown") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    etcd.lose_answer(c);
    CHECK(etcd.run(c, c.get("k")) == std::nullopt); // it may not change anything
    auto writing = etcd.start(c, c.put("k", "v"));
    etcd.pass(1s);
    CHECK(writing.code() == errc::outcome_unknown);
    CHECK(etcd.keys() == std::vector<std::string>{"k"});
    etcd.run(c, c.put("k", "w")); // once only
}

TEST_CASE("a lock outlives a change of the leader") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    r.etcd.change_leader();
    auto writing = r.etcd.start(r.second, r.second.put("k", "v"));
    r.etcd.pass(900ms);
    CHECK_FALSE(writing.ended()); // there is none yet
    r.etcd.pass(20s);
    CHECK(writing.succeeded());
    CHECK(r.first_lock.owns_lock());
    r.etcd.run(r.first, r.first_lock.unlock());
}

TEST_CASE("a member that stops is one of three") {
    two_clients r;
    r.etcd.run(r.first, r.first_lock.lock());
    for (int member = 0; member != 3; ++member) {
        r.etcd.stop_member(member);
        r.etcd.pass(5s);
        r.etcd.run(r.second, r.second.put("k", "v"));
        r.etcd.start_member(member);
        r.etcd.pass(5s);
    }
    CHECK(r.first_lock.owns_lock());
    r.etcd.stop_member(0);
    r.etcd.stop_member(1);
    auto writing = r.etcd.start(r.second, r.second.put("k", "w"));
    r.etcd.pass(60s);
    CHECK(writing.ended());
    CHECK_FALSE(writing.succeeded());
    CHECK(r.first_session.state() == session_state::lost);
    r.etcd.start_member(1);
    r.etcd.pass(5s);
    r.etcd.run(r.second, r.second.put("k", "x"));
}

TEST_CASE("a watcher that begins in history that is gone is told so") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    etcd.run(c, c.put("k", "v"));
    etcd.run(c, c.put("k", "w"));
    etcd.compact();
    const auto read_from_the_past = [&]() -> asio::awaitable<void> {
        coetcd::watch_options past;
        past.start_revision = 2;
        coetcd::watcher watcher = co_await c.watch("k", past);
        (void)co_await watcher.next();
    };
    auto reading = etcd.start(c, read_from_the_past());
    etcd.pass(1s);
    CHECK(reading.code() == errc::watch_compacted);
}

TEST_CASE("code that waits for a timer of Asio never ends, and is told why") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    const auto wait = [&]() -> asio::awaitable<void> {
        asio::steady_timer timer(c.get_executor(), 1ms);
        co_await timer.async_wait(asio::use_awaitable);
    };
    std::string why;
    try {
        etcd.run(c, wait());
    } catch (const std::runtime_error& e) {
        why = e.what();
    }
    CHECK_THAT(why, support::contains("`sleep`"));
}

TEST_CASE("an exception that is not caught comes out of pass") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    asio::post(c.get_executor(), [] { throw std::runtime_error("out of paper"); });
    std::string what;
    try {
        etcd.pass(0s);
    } catch (const std::runtime_error& e) {
        what = e.what();
    }
    CHECK_THAT(what, support::contains("out of paper"));
}

TEST_CASE("clients of one test call each other's code") {
    two_clients r;
    const auto both = [&]() -> asio::awaitable<void> {
        co_await r.first_lock.lock(); // from the second one's process
        co_await r.first_lock.unlock();
        co_await r.second_lock.lock();
        co_await r.second_lock.unlock();
    };
    r.etcd.run(r.second, both());
    CHECK(r.etcd.keys("n/").empty());
}

TEST_CASE("a cluster refuses what it cannot be asked for") {
    const auto with = [](auto change) {
        cluster_options o;
        change(o);
        return o;
    };
    CHECK_THROWS_AS(cluster(with([](auto& o) { o.members = 0; })), std::invalid_argument);
    CHECK_THROWS_AS(cluster(with([](auto& o) { o.members = 4; })), std::invalid_argument);
    CHECK_THROWS_AS(cluster(with([](auto& o) { o.round_trip = -1ns; })), std::invalid_argument);
    cluster etcd;
    cluster other;
    const coetcd::client c = other.make_client();
    CHECK_THROWS_AS(etcd.cut(c), std::invalid_argument);
    CHECK_THROWS_AS(etcd.stop_member(3), std::invalid_argument);
    CHECK_THROWS_AS(etcd.stop_member(-1), std::invalid_argument);
    coetcd::client_options bad;
    bad.request_timeout = 0ms;
    CHECK_THROWS_AS(etcd.make_client(bad), std::invalid_argument);
}

TEST_CASE("what goes wrong by chance is the same each time") {
    const history one = order_history(7, true);
    CHECK_FALSE(one.faults.empty());
    CHECK(one == order_history(7, true));
    CHECK(one != order_history(8, true));
}

TEST_CASE("without a chance nothing goes wrong, and all is as if faults had never begun") {
    for (std::uint64_t seed = 1; seed != 10; ++seed) {
        CHECK(lock_story(seed, true) == lock_story(seed));
    }
}

TEST_CASE("each fault strikes alone, and an order is shipped once all the same") {
    for (const kind& k : all_kinds) {
        std::size_t struck = 0;
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            INFO(k.name << ", seed " << seed);
            const history h = order_history(seed, true, k.alone(0.3));
            CHECK(h.ended);
            // What is repeated on the way may be done twice, while the lock is held.
            CHECK((h.shipped == 1 || k.name == "request_repeated"));
            struck += h.faults.size();
            for (const std::string& line : h.faults) {
                CHECK_THAT(line, support::contains(" s  " + k.name + "  "));
            }
        }
        INFO(k.name);
        CHECK(struck != 0);
    }
}

TEST_CASE("each fault of a request does to a write what it says") {
    using codes = std::set<coetcd::error_code>;
    const codes none{coetcd::error_code()};
    const codes unknown{errc::outcome_unknown};

    const writes refused = writes_with(always(&fault_options::connection_refused));
    CHECK(refused.codes == codes{errc::unavailable});
    CHECK(refused.done_later == 0);

    const writes broken = writes_with(always(&fault_options::connection_broken));
    CHECK(broken.codes == unknown);
    CHECK(broken.longest <= 2ms); // and nothing waits for the deadline
    CHECK(broken.done_later > 0);
    CHECK(broken.done_later < most_writes);

    const writes lost = writes_with(always(&fault_options::request_lost));
    CHECK(lost.codes == unknown);
    CHECK(lost.done_later == 0);

    const writes late = writes_with(always(&fault_options::request_late));
    CHECK(late.codes == unknown);
    CHECK(late.done < most_writes);
    CHECK(late.done_later == most_writes);

    const writes unanswered = writes_with(always(&fault_options::answer_lost));
    CHECK(unanswered.codes == unknown);
    CHECK(unanswered.done == most_writes);

    const writes delayed = writes_with(always(&fault_options::delayed));
    CHECK(delayed.codes == none);
    CHECK(delayed.longest > 100ms);
    CHECK(delayed.longest <= 4s + 2ms);
}

TEST_CASE("a transaction that is repeated on the way finds what it has done itself") {
    cluster etcd;
    const coetcd::client c = etcd.make_client();
    const auto create = [&](const std::string& key) {
        coetcd::txn once =
            coetcd::txn().when(coetcd::compare::version(key) == 0).then(coetcd::op::put(key, "v"));
        return etcd.run(c, c.txn(std::move(once)));
    };
    CHECK(create("a").succeeded);
    etcd.begin_faults(always(&fault_options::request_repeated));
    CHECK_FALSE(create("b").succeeded);
    CHECK(etcd.run(c, c.get("b"))->version == 1);
}

TEST_CASE("a watch tells each change once, whatever becomes of its streams") {
    for (const auto chance : {&fault_options::stream_dropped, &fault_options::stream_silent}) {
        cluster etcd;
        const coetcd::client c = etcd.make_client();
        const coetcd::client writer = etcd.make_client();
        std::vector<std::string> told;
        const auto read = [&]() -> asio::awaitable<void> {
            coetcd::watcher watcher = co_await c.watch("k");
            for (;;) {
                const coetcd::watch_batch batch = co_await watcher.next();
                for (const coetcd::event& e : batch.events) {
                    told.push_back(e.kv.value);
                }
            }
        };
        auto reading = etcd.start(c, read());
        etcd.pass(1s);
        etcd.begin_faults(always(chance));
        std::vector<std::string> put;
        for (int i = 0; i != 20; ++i) {
            put.push_back(std::to_string(i));
            etcd.run(writer, writer.put("k", put.back()));
            etcd.pass(1s);
            if (i == 0) {
                CHECK(told.empty());
                etcd.begin_faults(kind{"", chance}.alone(0.5));
            }
        }
        CHECK(etcd.faults().size() > 2);
        etcd.end_faults();
        etcd.pass(1min);
        CHECK(told == put);
        CHECK_FALSE(reading.ended());
    }
}

TEST_CASE("code stands still at its steps, for as long as it may, and goes on") {
    fault_options options = always(&fault_options::client_stalled);
    options.longest = 50ms;
    const writes brief = writes_with(options);
    CHECK(brief.done == most_writes);
    CHECK(brief.longest > 10ms);
    CHECK(brief.longest < 1s);
    options.longest = 30s;
    CHECK(writes_with(options).longest > 10s);
}

TEST_CASE("a client that chance cuts off loses its session") {
    two_clients r;
    r.etcd.begin_faults(always(&fault_options::client_cut));
    r.etcd.pass(2min);
    r.etcd.end_faults();
    CHECK(r.first_session.state() == session_state::lost);
    CHECK(r.second_session.state() == session_state::lost);
    r.etcd.run(r.first, r.first.put("k", "v"));
    CHECK(r.etcd.now() < 2min + 1s); // it is joined
}

TEST_CASE("leases end, leaders change, members stop and history goes by chance") {
    two_clients r;
    r.etcd.begin_faults(always(&fault_options::lease_ended));
    r.etcd.pass(2s);
    CHECK(r.etcd.leases() == 0);

    CHECK(writes_with(always(&fault_options::leader_changed)).longest > 500ms);

    const writes alone = writes_with(always(&fault_options::member_stopped), 1);
    CHECK(alone.done > 0);
    CHECK(alone.done < most_writes);
    const writes of_three = writes_with(always(&fault_options::member_stopped), 3);
    CHECK(of_three.done > alone.done);
    CHECK(of_three.longest > 100ms);

    r.etcd.run(r.first, r.first.put("k", "v"));
    r.etcd.run(r.first, r.first.put("k", "w"));
    r.etcd.begin_faults(always(&fault_options::compacted)); // and leases end no more
    r.etcd.pass(1s);
    coetcd::watch_options past;
    past.start_revision = 2;
    const auto read = [&]() -> asio::awaitable<void> {
        coetcd::watcher watcher = co_await r.first.watch("k", past);
        (void)co_await watcher.next();
    };
    auto reading = r.etcd.start(r.first, read());
    r.etcd.pass(1s);
    CHECK(reading.code() == errc::watch_compacted);
    REQUIRE_FALSE(r.etcd.faults().empty());
    CHECK_THAT(r.etcd.faults().back(), support::contains("compacted"));
}

TEST_CASE("all is well once faults have ended") {
    fault_options all;
    for (const kind& k : all_kinds) {
        all.*k.chance = 0.5;
    }
    for (std::uint64_t seed = 1; seed != 20; ++seed) {
        cluster etcd(with_seed(seed));
        const coetcd::client c = etcd.make_client();
        all.client_stalled = 0; // ends in its own time
        etcd.begin_faults(all);
        etcd.pass(10s);
        CHECK(etcd.faults().size() > 3);
        etcd.end_faults();
        const std::size_t struck = etcd.faults().size();
        etcd.pass(2s); // there is a leader
        for (int i = 0; i != 10; ++i) {
            const std::chrono::nanoseconds before = etcd.now();
            etcd.run(c, c.put("k", "v"));
            CHECK(etcd.now() - before == 2ms);
            etcd.pass(10s);
        }
        CHECK(etcd.faults().size() == struck);
    }
}

TEST_CASE("the end of faults ends nothing that the test has asked for") {
    cluster_options options;
    options.members = 1;
    cluster etcd(options);
    const coetcd::client c = etcd.make_client();
    const auto writes = [&] {
        auto writing = etcd.start(c, c.put("k", "v"));
        etcd.pass(10s);
        return writing.succeeded();
    };
    fault_options some = fault_options::none();
    some.client_cut = 1;
    some.member_stopped = 1;
    some.longest = 1h;
    etcd.begin_faults(some);
    etcd.pass(2min);
    CHECK_FALSE(writes());
    etcd.cut(c);
    etcd.end_faults();
    etcd.pass(2s); // there is a leader
    CHECK_FALSE(writes());
    etcd.join(c);
    CHECK(writes());

    etcd.begin_faults(some);
    etcd.pass(2min);
    etcd.stop_member(0);
    etcd.end_faults();
    etcd.pass(2s);
    CHECK_FALSE(writes());
    etcd.start_member(0);
    etcd.pass(2s);
    CHECK(writes());
}

TEST_CASE("faults have chances from 0 to 1, and a time") {
    cluster etcd;
    const auto refusal = [&](const fault_options& bad) {
        try {
            etcd.begin_faults(bad);
        } catch (const std::invalid_argument& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    for (const kind& k : all_kinds) {
        for (const double bad : {-0.001, 1.001, std::nan("")}) {
            CHECK_THAT(refusal(k.alone(bad)), support::contains(k.name + " must be"));
        }
        CHECK(refusal(k.alone(1)).empty());
        CHECK(refusal(k.alone(0)).empty());
    }
    fault_options options = always(&fault_options::connection_refused);
    for (const std::chrono::nanoseconds bad : {-1ns, 0ns, std::chrono::nanoseconds(24h + 1ns)}) {
        options.longest = bad;
        CHECK_THAT(refusal(options), support::contains("longest must be"));
    }
    const coetcd::client c = etcd.make_client();
    etcd.run(c, c.put("k", "v")); // none of them has begun
    CHECK(etcd.faults().empty());
    options.longest = 24h;
    CHECK(refusal(options).empty());
}

TEST_CASE("a thousand histories hold with a guard, and find out that there is none") {
    int twice = 0;
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
        const history h = order_history(seed, true);
        INFO("seed " << seed);
        REQUIRE(h.ended);
        REQUIRE(h.shipped == 1);
        if (twice == 0) {
            twice += order_history(seed, false).shipped > 1 ? 1 : 0;
        }
    }
    CHECK(twice == 1);
}
