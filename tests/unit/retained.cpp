// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/election.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::held_lock;
using coetcd::lock_options;
using coetcd::detail::call_request;
using support::background;
using support::owner;
using support::rivals;
using support::scripted_env;
using support::world;

namespace {

lock_options retained(std::chrono::milliseconds most = 10s) {
    lock_options o;
    o.retain = most;
    return o;
}

/// Session `one` retains the lock `m`, if it may; the others of `rivals` want it, too.
struct keeper : rivals {
    explicit keeper(std::chrono::milliseconds most = 10s, coetcd::session_options first = {60s})
        : rivals(std::move(first), {60s})
        , kept(one, "m", retained(most)) {}

    std::size_t keys() const { return w.etcd->under("m/").size(); }
    std::size_t requests() const { return w.env->calls.size(); }
    void pass(std::chrono::nanoseconds time = 10ms) { w.env->pass(time); }
    void take_and_give_back() {
        w.await(kept.lock());
        REQUIRE(kept.owns_lock());
        REQUIRE(w.await(kept.unlock()));
    }

    coetcd::mutex kept;
};

asio::awaitable<void> nothing() {
    co_return;
}

} // namespace

TEST_CASE("a lock that is retained is taken again without a request", "[retain]") {
    keeper k;
    k.take_and_give_back();
    CHECK(k.keys() == 1);
    CHECK_FALSE(k.kept.owns_lock());
    k.pass();
    const std::size_t before = k.requests();
    const auto began = k.w.env->now();
    std::int64_t token = 0;
    for (int i = 0; i != 5; ++i) {
        k.w.await(k.kept.lock());
        token = k.kept.fencing_token();
        CHECK(token > 0);
        CHECK(k.w.await(k.kept.unlock()));
        CHECK(k.w.await(k.kept.try_lock()));
        CHECK(k.kept.fencing_token() == token);
        CHECK(k.w.await(k.kept.unlock()));
        k.w.await(coetcd::with_lock(k.kept, &nothing));
        CHECK(k.w.await(coetcd::with_lock_for(k.kept, 1s, &nothing)));
        held_lock held = k.w.await(k.kept.scoped_lock());
        CHECK(held.fencing_token() == token);
        CHECK(k.w.await(held.unlock()));
    }
    CHECK(k.requests() == before);
    CHECK(k.w.env->now() == began);
    CHECK(k.keys() == 1);
    coetcd::mutex another(k.one, "m", retained()); // another object of the session
    k.w.await(another.lock());
    CHECK(another.fencing_token() == token);
    CHECK_FALSE(k.w.await(k.kept.try_lock()));
    CHECK(k.w.await(another.unlock()));
    CHECK(k.requests() == before);
}

TEST_CASE("a retained lock goes as soon as another session wants it", "[retain]") {
    keeper k;
    k.take_and_give_back();
    k.pass();
    SECTION("while nobody holds it") {
        auto waiting = k.w.start(k.b.lock());
        k.pass();
        CHECK(waiting.ended());
        CHECK(k.b.owns_lock());
        CHECK(k.keys() == 1);
    }
    SECTION("at the end of the hold, and before others of its session") {
        k.w.await(k.kept.lock());
        auto waiting = k.w.start(k.b.lock());
        k.pass();
        coetcd::mutex another(k.one, "m", retained());
        auto behind = k.w.start(another.lock());
        k.pass();
        CHECK_FALSE(waiting.ended());
        CHECK(k.w.await(k.kept.unlock()));
        k.pass();
        CHECK(k.b.owns_lock());
        CHECK_FALSE(behind.ended());
        CHECK(k.w.await(k.b.unlock()));
        k.pass();
        CHECK(another.owns_lock());
    }
    SECTION("by a request to give it back") {
        auto asking = k.w.start(coetcd::request_release(k.two, "m"));
        k.pass();
        CHECK(asking.ended());
        CHECK(k.keys() == 0);
    }
    SECTION("try_lock does not wait, try_lock_for gets it") {
        CHECK_FALSE(k.w.await(k.b.try_lock()));
        CHECK(k.keys() == 1);
        CHECK(k.w.await(k.b.try_lock_for(1s)));
        CHECK(k.b.owns_lock());
    }
}

TEST_CASE("a lock that others wait for is not retained", "[retain]") {
    keeper k;
    k.w.await(k.kept.lock());
    auto waiting = k.w.start(k.b.lock());
    k.pass();
    CHECK(k.w.await(k.kept.unlock()));
    k.pass();
    CHECK(k.b.owns_lock());
    CHECK(k.w.await(k.b.unlock()));
    // That was a miss, so the next one is a release at once.
    k.w.await(k.kept.lock());
    CHECK(k.w.await(k.kept.unlock()));
    CHECK(k.keys() == 0);
    k.take_and_give_back();
    CHECK(k.keys() == 1);
}

TEST_CASE("who queues between the look and its watch is not overlooked", "[retain]") {
    keeper k;
    k.w.await(k.kept.lock());
    bool looked = false;
    k.w.env->on_call = [&, serve = k.w.env->on_call](const call_request& r,
                                                     coetcd::detail::reply& answer) {
        serve(r, answer);
        const bool changes = r.body.find("request_put") != std::string::npos ||
                             r.body.find("request_delete_range") != std::string::npos;
        if (r.what == coetcd::detail::rpc::txn && !changes && !looked) {
            looked = true;
            k.w.etcd->write("m/of-others", ""); // the very next revision
        }
    };
    CHECK(k.w.await(k.kept.unlock()));
    CHECK(looked);
    k.pass(50ms);
    CHECK(k.w.etcd->under("m/") == std::vector<std::string>{"m/of-others"});
}

TEST_CASE("a lock that somebody has asked for is not retained", "[retain]") {
    keeper k;
    k.w.await(k.kept.lock());
    CHECK(k.w.await(coetcd::request_release(k.two, "m")));
    CHECK(k.w.await(k.kept.unlock()));
    CHECK(k.keys() == 0);
    // After that miss; the request was for an earlier hold.
    k.take_and_give_back();
    CHECK(k.keys() == 0);
    k.take_and_give_back();
    CHECK(k.keys() == 1);
}

TEST_CASE("a retained lock is kept for no longer than asked for", "[retain]") {
    keeper k(2s);
    k.take_and_give_back();
    k.pass(1500ms);
    k.take_and_give_back(); // which begins that time anew
    k.pass(1500ms);
    CHECK(k.keys() == 1);
    k.pass(600ms);
    CHECK(k.keys() == 0);
    k.take_and_give_back();
    CHECK(k.keys() == 1); // that was no miss
    k.w.await(k.kept.lock());
    k.pass(5s);
    CHECK(k.kept.owns_lock()); // it bounds no hold
}

TEST_CASE("only a clean end retains", "[retain]") {
    keeper k;
    SECTION("a handle that is destroyed") {
        { const held_lock held = k.w.await(k.kept.scoped_lock()); }
        k.pass();
        CHECK(k.keys() == 0);
    }
    SECTION("a body that throws") {
        auto fails = []() -> asio::awaitable<void> {
            throw std::runtime_error("out of stock");
            co_return;
        };
        auto failed = k.w.start(coetcd::with_lock(k.kept, fails));
        k.pass();
        CHECK_THROWS_WITH(failed.get(), "out of stock");
        CHECK(k.keys() == 0);
    }
    SECTION("one that is cancelled") {
        auto cancelled = k.w.start(coetcd::with_lock(k.kept, [&k] {
            return [](world& w) -> asio::awaitable<void> {
                coetcd::detail::notifier n(*w.env);
                (void)co_await n.wait();
            }(k.w);
        }));
        k.pass();
        cancelled.cancel();
        k.pass();
        CHECK(cancelled.ended());
        CHECK(k.keys() == 0);
    }
    SECTION("a hold at home that ends so") {
        k.take_and_give_back();
        CHECK(k.keys() == 1);
        { const held_lock held = k.w.await(k.kept.scoped_lock()); }
        k.pass();
        CHECK(k.keys() == 0);
    }
    SECTION("a body that returns") {
        k.w.await(coetcd::with_lock(k.kept, &nothing));
        k.pass();
        CHECK(k.keys() == 1);
    }
    SECTION("its time is over") {
        lock_options both = retained();
        both.max_hold = 1s;
        coetcd::mutex brief(k.one, "m", both);
        k.w.await(brief.lock());
        k.pass(2s);
        CHECK(k.keys() == 0);
    }
}

TEST_CASE("a retained lock that is ended by force is not taken at home", "[retain]") {
    keeper k;
    k.take_and_give_back();
    k.pass();
    SECTION("by force_unlock") {
        const auto holder = k.w.await(k.b.holder());
        REQUIRE(holder);
        CHECK(k.w.await(coetcd::force_unlock(k.client, "m", holder->fencing_token)));
    }
    SECTION("by hand") {
        k.w.etcd->erase(k.w.etcd->under("m/").front());
    }
    k.pass();
    CHECK(k.keys() == 0);
    k.w.await(k.b.lock());
    CHECK_FALSE(k.w.await(k.kept.try_lock()));
    CHECK(k.w.await(k.b.unlock()));
    k.w.await(k.kept.lock());
    CHECK(k.keys() == 1);
}

TEST_CASE("a retained lock goes with its session", "[retain]") {
    std::optional<keeper> k(std::in_place);
    k->take_and_give_back();
    k->pass();
    SECTION("closed") {
        k->w.await(k->one.close());
        CHECK(k->keys() == 0);
    }
    SECTION("orphaned: it is given back") {
        (void)k->one.orphan();
        k->pass();
        CHECK(k->keys() == 0);
    }
    SECTION("orphaned while it is held: it stays") {
        k->w.await(k->kept.lock());
        (void)k->one.orphan();
        k->pass();
        CHECK(k->keys() == 1);
    }
    SECTION("destroyed") {
        k->kept = coetcd::mutex(k->two, "n");
        k->a = coetcd::mutex(k->two, "n");
        { const coetcd::session gone = std::move(k->one); }
        k->pass();
        CHECK(k->keys() == 0);
    }
    SECTION("the whole world") {
        k.reset();
    }
}

TEST_CASE("a retained lock goes when nobody could ask for it", "[retain]") {
    keeper k;
    k.take_and_give_back();
    k.pass();
    k.w.env->break_streams();
    k.pass(500ms); // another stream tells what has happened meanwhile
    const std::size_t before = k.requests();
    k.take_and_give_back();
    CHECK(k.requests() == before);
    k.pass(3s);
    CHECK(k.keys() == 1);
    k.w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.refused = r.what == coetcd::detail::rpc::watch;
        return f;
    };
    k.w.env->break_streams();
    k.pass(500ms);
    CHECK(k.keys() == 1);
    k.take_and_give_back(); // for a second it is as before
    k.pass(600ms);
    CHECK(k.keys() == 0);
    k.take_and_give_back(); // without a watch it stays for a second
    k.pass(1100ms);
    CHECK(k.keys() == 0);
}

TEST_CASE("a retained lock goes when its watch waits for a stream of its own", "[retain]") {
    keeper k;
    k.take_and_give_back();
    k.pass();
    k.w.env->decide = [](const call_request& r) {
        scripted_env::fate f;
        f.arrives = r.what != coetcd::detail::rpc::watch; // nor refused
        return f;
    };
    for (int i = 0; i != 4; ++i) { // beside the queue, so nobody wants the lock
        k.w.etcd->write("m.large", std::string(100'000, 'x'));
    }
    k.pass(900ms);
    CHECK(k.keys() == 1);
    k.pass(200ms);
    CHECK(k.keys() == 0);
}

TEST_CASE("where others wait, the release and the session's next one share a request", "[retain]") {
    keeper k;
    k.w.await(k.kept.lock());
    auto waiting = k.w.start(k.b.lock());
    k.pass();
    coetcd::mutex another(k.one, "m", retained());
    auto behind = k.w.start(another.lock());
    k.pass();
    const std::size_t before = k.requests();
    CHECK(k.w.await(k.kept.unlock()));
    bool together = false;
    for (std::size_t i = before; i != k.requests(); ++i) {
        const call_request& r = k.w.env->calls[i];
        together =
            together || (support::has(r, "request_delete_range") && support::has(r, "request_put"));
    }
    CHECK(together);
    CHECK_FALSE(behind.ended());
}

TEST_CASE("a session retains no more locks than its options say", "[retain]") {
    coetcd::session_options two_locks(60s);
    two_locks.retained = 2;
    keeper k(10s, two_locks);
    std::vector<coetcd::mutex> all;
    for (const char* name : {"n/1", "n/2", "n/3"}) {
        all.emplace_back(k.one, name, retained());
    }
    for (const std::size_t i : {0U, 1U, 0U, 2U}) {
        k.w.await(all[i].lock());
        CHECK(k.w.await(all[i].unlock()));
    }
    k.pass();
    CHECK(k.w.etcd->under("n/1/").size() == 1);
    CHECK(k.w.etcd->under("n/2/").empty()); // not used for the longest time
    CHECK(k.w.etcd->under("n/3/").size() == 1);
}

TEST_CASE("a burst of locks is bounded, too, and what is held does not count", "[retain]") {
    coetcd::session_options one_lock(60s);
    one_lock.retained = 1;
    keeper k(10s, one_lock);
    std::vector<coetcd::mutex> all;
    for (const char* name : {"n/1", "n/2", "n/3", "n/4"}) {
        all.emplace_back(k.one, name, retained());
        k.w.await(all.back().lock());
    }
    std::vector<background<bool>> ends;
    for (coetcd::mutex& each : all) {
        ends.push_back(k.w.start(each.unlock()));
    }
    k.pass();
    CHECK(k.w.etcd->under("n/").size() == 1);
    CHECK(k.w.etcd->under("n/4/").size() == 1);
    k.w.await(all[3].lock());
    k.take_and_give_back();
    k.pass();
    CHECK(k.keys() == 1);
    CHECK(k.w.await(all[3].unlock()));
    k.pass();
    CHECK(k.keys() == 0); // the one that was used last stays
    CHECK(k.w.etcd->under("n/4/").size() == 1);
}

TEST_CASE("an event that is lost delays the end of a retained lock, and no more", "[retain]") {
    keeper k(1h);
    k.take_and_give_back();
    k.pass();
    k.w.etcd->tells = false;
    SECTION("of its own end") {
        k.w.etcd->erase(k.w.etcd->under("m/").front());
        k.pass(11s);
        k.w.etcd->tells = true;
        k.w.await(k.b.lock());
        CHECK_FALSE(k.w.await(k.kept.try_lock()));
    }
    SECTION("of one who waits") {
        auto waiting = k.w.start(k.b.lock());
        int at_home = 0;
        for (int i = 0; i != 30; ++i) {
            if (k.w.await(k.kept.try_lock())) {
                CHECK(k.w.await(k.kept.unlock()));
                ++at_home;
            }
            k.pass(1s);
        }
        CHECK(at_home > 5);
        CHECK(at_home < 12);
        CHECK(waiting.ended()); // by its own look
    }
}

TEST_CASE("a lock that others still work under is given back for real", "[retain]") {
    keeper k;
    SECTION("another coroutine unlocks what a body runs under") {
        auto body = [&]() -> asio::awaitable<void> {
            const bool was_ours = co_await k.kept.unlock();
            CHECK(was_ours);
        };
        auto working = k.w.start(coetcd::with_lock(k.kept, body));
        k.pass();
        CHECK(k.keys() == 0);
    }
    SECTION("a handle that was destroyed before the last one unlocks") {
        held_lock held = k.w.await(k.kept.scoped_lock());
        { const held_lock other = held.share(); }
        CHECK(k.w.await(held.unlock()));
        CHECK(k.keys() == 0);
    }
    SECTION("all of them unlock") {
        held_lock held = k.w.await(k.kept.scoped_lock());
        held_lock other = held.share();
        CHECK(k.w.await(other.unlock()));
        CHECK(k.w.await(held.unlock()));
        CHECK(k.keys() == 1);
    }
    SECTION("max_hold is over, and nobody has noticed yet") {
        lock_options both = retained();
        both.max_hold = 1s;
        coetcd::mutex brief(k.one, "m", both);
        k.w.await(brief.lock());
        k.w.env->stall(2s);
        CHECK_FALSE(k.w.await(brief.unlock()));
        k.pass();
        CHECK(k.keys() == 0);
    }
}

TEST_CASE("one that takes locks at home without a pause lets others run", "[retain]") {
    keeper k;
    k.take_and_give_back();
    k.pass();
    bool stop = false;
    int rounds = 0;
    auto loop = [&]() -> asio::awaitable<void> {
        while (!stop) {
            co_await k.kept.lock();
            k.w.env->stall(300us); // it computes
            (void)co_await k.kept.unlock();
            ++rounds;
        }
    };
    auto working = k.w.start(loop());
    auto waiting = k.w.start(k.b.lock());
    k.pass(50ms);
    CHECK(k.b.owns_lock());
    stop = true;
    CHECK(k.w.await(k.b.unlock()));
    k.pass(50ms);
    CHECK(working.ended());
    CHECK(rounds > 3);
}

TEST_CASE("a retained lock heeds the time that its last holder has said", "[retain]") {
    keeper k(1h);
    k.take_and_give_back();
    coetcd::mutex brief(k.one, "m", retained(1s));
    k.w.await(brief.lock());
    CHECK(k.w.await(brief.unlock()));
    k.pass(900ms);
    CHECK(k.keys() == 1);
    k.pass(200ms);
    CHECK(k.keys() == 0);
}

TEST_CASE("the coroutines of a session hand a retained lock on without a request", "[retain]") {
    keeper k;
    int done = 0;
    auto in_turn = [&](int rounds) -> asio::awaitable<void> {
        for (int i = 0; i != rounds; ++i) {
            co_await coetcd::with_lock(k.kept, &nothing);
            ++done;
        }
    };
    const std::size_t before = k.requests();
    std::vector<background<void>> all;
    for (int i = 0; i != 8; ++i) {
        all.push_back(k.w.start(in_turn(5)));
    }
    k.pass(50ms);
    CHECK(done == 40);
    CHECK(k.requests() == before + 2); // the first takes it, and gives it back with a look
}

TEST_CASE("other kinds of locks of the session recall what it retains", "[retain]") {
    keeper k;
    k.take_and_give_back();
    k.pass();
    SECTION("a shared_mutex") {
        coetcd::shared_mutex other(k.one, "m");
        k.w.await(other.lock());
        CHECK(other.owns_lock());
    }
    SECTION("several") {
        coetcd::multi_lock other(k.one, {coetcd::exclusive("m"), coetcd::exclusive("n")});
        k.w.await(other.lock());
        CHECK(other.owns_lock());
    }
    SECTION("an election") {
        coetcd::election other(k.one, "m");
        const coetcd::leadership term = k.w.await(other.campaign("a"));
        CHECK(term.leads());
    }
    SECTION("a mutex that leaves notes") {
        lock_options how;
        how.delay = 1s;
        coetcd::mutex other(k.one, "m", how);
        k.w.await(other.lock());
        CHECK(k.w.etcd->under("m.own").size() == 1);
    }
    SECTION("a mutex that does not retain has it at home, and gives it back") {
        const std::size_t before = k.requests();
        k.w.await(k.a.lock());
        CHECK(k.requests() == before);
        CHECK(k.w.await(k.a.unlock()));
        CHECK(k.keys() == 0);
    }
}

TEST_CASE("the observer is told which holds cost no request", "[retain]") {
    struct listener : coetcd::observer {
        void on_lock_hold(const coetcd::lock_hold_report& r) override {
            at_home.push_back(r.at_home);
        }
        std::vector<bool> at_home;
    };
    const auto heard = std::make_shared<listener>();
    coetcd::client_options how;
    how.observer = heard;
    owner all({60s}, how);
    coetcd::mutex m(all.session, "m", retained());
    for (int i = 0; i != 3; ++i) {
        all.w.await(m.lock());
        CHECK(all.w.await(m.unlock()));
    }
    CHECK(heard->at_home == std::vector<bool>{false, true, true});
}

TEST_CASE("a keeper's session retains what its bodies have locked", "[retain][session_keeper]") {
    world w;
    const coetcd::client client = w.client();
    const coetcd::session_keeper keeper(client, coetcd::session_keeper_options(60s));
    const auto lock = [&] { return coetcd::with_lock(keeper, "m", &nothing, retained()); };
    w.await(lock());
    w.env->pass(10ms);
    const std::size_t before = w.env->calls.size();
    w.await(lock());
    CHECK(w.await(coetcd::with_lock_for(keeper, "m", 1s, &nothing, retained())));
    CHECK(w.env->calls.size() == before);
    CHECK(w.etcd->under("m/").size() == 1);
    CHECK_THROWS_AS(coetcd::with_lock(keeper, "m", &nothing, retained(0ms)), std::invalid_argument);
}

TEST_CASE("what is retained is checked before anything is sent", "[retain]") {
    keeper k;
    lock_options wrong;
    wrong.retain = 0ms;
    CHECK_THROWS_AS(coetcd::mutex(k.one, "m", wrong), std::invalid_argument);
    lock_options both = retained();
    both.delay = 1s;
    CHECK_THROWS_AS(coetcd::mutex(k.one, "m", both), std::invalid_argument);
}

TEST_CASE("an unlock whose look is not answered gives the lock back", "[retain]") {
    for (const bool arrives : {false, true}) {
        keeper k;
        k.w.await(k.kept.lock());
        k.w.env->decide = [arrives](const call_request&) {
            scripted_env::fate f;
            f.answered = false;
            f.arrives = arrives;
            return f;
        };
        auto unlocking = k.w.start(k.kept.unlock());
        k.pass(1ms);
        auto trying = k.w.start(k.kept.lock()); // which waits for what is decided
        k.pass(1s);
        k.w.env->decide = nullptr;
        k.pass(60s);
        CHECK(unlocking.ended());
        CHECK(trying.ended());
        CHECK(k.kept.owns_lock());
    }
}
