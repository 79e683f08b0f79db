// SPDX-License-Identifier: BSL-1.0
// How a lock passes on: what is proved ahead, what events complete, and what is looked at behind.
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/lock_options.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/shared_mutex.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/world.hpp"

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::detail::call_request;
using support::background;
using support::count;
using support::is_confirm;
using support::is_enter;
using support::scripted_env;
using support::world;

namespace {

/// Clients with a session and a mutex each, in a queue.
struct queue {
    explicit queue(std::size_t many, coetcd::session_options how = {})
        : client(w.client()) {
        for (std::size_t i = 0; i != many; ++i) {
            sessions.push_back(w.await(coetcd::session::open(client, how)));
            mutexes.emplace_back(sessions.back(), "m");
        }
    }
    /// The first has the lock, and the others wait, since long ago.
    void line_up() {
        w.await(mutexes.front().lock());
        for (std::size_t i = 1; i != mutexes.size(); ++i) {
            waiting.push_back(w.start(mutexes[i].lock()));
            w.env->pass(20ms);
        }
        w.env->pass(1s);
    }
    background<void>& waiter(std::size_t i) {
        return *std::next(waiting.begin(), static_cast<std::ptrdiff_t>(i) - 1);
    }
    /// What the call itself takes, and the event: no request of anybody else fits in.
    void give_back(std::size_t i) {
        auto unlocking = w.start(mutexes[i].unlock());
        w.env->pass(at_once);
        REQUIRE(unlocking.get());
    }
    std::size_t calls() const { return w.env->calls.size(); }

    static constexpr auto at_once = 3ms; // there and back takes two
    world w;
    coetcd::client client;
    std::vector<coetcd::session> sessions;
    std::vector<coetcd::mutex> mutexes;
    std::list<background<void>> waiting;
};

bool is_look(const call_request& r) {
    return r.what == coetcd::detail::rpc::txn && !support::has(r, "request_put") &&
           !support::has(r, "request_delete_range");
}
std::string found(const std::string& key, std::int64_t create_revision) {
    std::string text = R"({"key":")";
    coetcd::detail::wire::append_base64(text, key);
    return text + R"(","create_revision":")" + std::to_string(create_revision) + R"("})";
}

/// The stream on which the watches are, and a way to tell what did not happen.
struct liar {
    explicit liar(world& of)
        : w(of) {
        w.env->on_open = [this, serve = w.env->on_open](const call_request& r, auto opened) {
            stream = opened;
            serve(r, opened);
        };
    }
    void tell_end(const std::string& of, std::int64_t revision) const {
        std::string key;
        coetcd::detail::wire::append_base64(key, of);
        for (int id = 1; id != 9; ++id) {
            stream->push(
                R"({"result":{"header":{"cluster_id":"14841639068965178418"},"watch_id":")" +
                std::to_string(id) + R"(","events":[{"type":"DELETE","kv":{"key":")" + key +
                R"(","mod_revision":")" + std::to_string(revision) + R"("}}]}})");
        }
    }
    world& w;
    std::shared_ptr<scripted_env::server_stream> stream;
};

} // namespace

TEST_CASE("a lock passes on with the event of its release, and a look behind that", "[hand_over]") {
    queue q(2);
    q.line_up();
    const std::size_t before = q.calls();
    q.give_back(0);
    CHECK(q.waiter(1).ended());
    CHECK(q.mutexes[1].owns_lock());
    CHECK(q.calls() == before + 2); // the release, and the look
    q.w.env->pass(100ms);
    CHECK(q.calls() == before + 2);
    CHECK(count(q.w, is_confirm) == 0);
    CHECK(q.mutexes[1].owns_lock());
}

TEST_CASE("the third in a queue asks nothing, the fourth asks once, ahead of its turn",
          "[hand_over]") {
    queue q(6);
    q.line_up();
    CHECK(count(q.w, is_confirm) == 0);
    for (std::size_t i = 0; i != 5; ++i) {
        CAPTURE(i);
        const std::size_t before = count(q.w, is_confirm);
        q.give_back(i);
        CHECK(q.waiter(i + 1).ended());
        for (std::size_t other = i + 2; other < 6; ++other) {
            CHECK_FALSE(q.waiter(other).ended());
        }
        q.w.env->pass(50ms);
        // When the second one has the lock, the fourth asks, and so on.
        CHECK(count(q.w, is_confirm) == before + (i >= 1 && i + 2 < 6 ? 1 : 0));
    }
    CHECK(q.mutexes[5].owns_lock());
}

TEST_CASE("in any order in which those before leave, the last one has the lock, and nobody before",
          "[hand_over]") {
    // Those in the middle are cancelled, the first gives back; with any pause between them.
    std::vector<std::size_t> order{0, 1, 2, 3};
    do {
        for (const auto pause : {0ms, 1ms, 2ms, 30ms}) {
            queue q(5);
            q.line_up();
            for (const std::size_t next : order) {
                CHECK_FALSE(q.waiter(4).ended());
                if (next == 0 || q.waiter(next).ended()) {
                    auto unlocking = q.w.start(q.mutexes[next].unlock());
                    q.w.env->pass(pause);
                } else {
                    q.waiter(next).cancel();
                    q.w.env->pass(pause);
                }
            }
            q.w.env->pass(200ms);
            for (std::size_t i = 1; i != 4; ++i) { // whose turn came before they were cancelled
                if (q.mutexes[i].owns_lock()) {
                    CHECK(q.w.await(q.mutexes[i].unlock()));
                }
            }
            q.w.env->pass(200ms);
            CHECK(q.waiter(4).ended());
            CHECK(q.mutexes[4].owns_lock());
            CHECK(q.w.etcd->under("m/").size() == 1);
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("an end that comes while it is asked who is before us is counted with the answer",
          "[hand_over]") {
    queue q(4);
    q.line_up();
    q.give_back(0);
    q.w.env->pass(100ms);
    // The one before the last gets the lock, and gives it back while the last one asks.
    auto unlocking = q.w.start(q.mutexes[1].unlock());
    while (!q.waiter(2).ended()) {
        q.w.env->pass(100us);
    }
    auto next = q.w.start(q.mutexes[2].unlock());
    q.w.env->pass(20ms);
    CHECK(q.waiter(3).ended());
    CHECK(count(q.w, is_confirm) == 1);
    CHECK(q.mutexes[3].owns_lock());
}

TEST_CASE("an end that comes while it is looked for others is not all that there is",
          "[hand_over]") {
    // Of two ahead, one ends before its watch is in force, the other while it is looked for both.
    for (auto apart = 0us; apart < 12ms; apart += 250us) {
        queue q(3);
        q.w.await(q.mutexes[0].lock());
        auto second = q.w.start(q.mutexes[1].lock());
        q.w.env->pass(1s);
        auto third = q.w.start(q.mutexes[2].lock());
        q.w.env->pass(2100us); // its place is in etcd, its watches are not
        second.cancel();
        q.w.env->pass(apart);
        auto unlocking = q.w.start(q.mutexes[0].unlock());
        q.w.env->pass(30ms);
        CAPTURE(apart.count());
        CHECK(third.ended());
        CHECK(q.mutexes[2].owns_lock());
    }
}

TEST_CASE("after a watch that was interrupted it is asked who is before us", "[hand_over]") {
    queue q(2);
    q.line_up();
    q.w.etcd->tells = false;
    q.w.env->break_streams();
    auto unlocking = q.w.start(q.mutexes[0].unlock());
    q.w.env->pass(1s);
    q.w.etcd->tells = true;
    CHECK(q.waiter(1).ended());
    CHECK(count(q.w, is_confirm) == 1);
}

TEST_CASE("a lock with a delay is confirmed, since its owner leaves a note", "[hand_over]") {
    world w;
    const coetcd::client client = w.client();
    coetcd::lock_options how;
    how.delay = 5s;
    coetcd::session one = w.await(coetcd::session::open(client));
    coetcd::session two = w.await(coetcd::session::open(client));
    coetcd::mutex a(one, "m", how);
    coetcd::mutex b(two, "m", how);
    w.await(a.lock());
    auto waiting = w.start(b.lock());
    w.env->pass(1s);
    CHECK(w.await(a.unlock()));
    w.env->pass(20ms);
    CHECK(waiting.ended());
    CHECK(count(w, is_confirm) == 1);
    CHECK(w.etcd->keys.contains("m.own"));
}

TEST_CASE("a waiter whose key was deleted by hand loses the lock behind its turn", "[hand_over]") {
    // By the operator, or with its lease; and its event is lost, or comes at that moment.
    for (const bool by_lease : {false, true}) {
        for (const bool told : {false, true}) {
            CAPTURE(by_lease, told);
            queue q(2);
            q.w.await(q.mutexes[0].lock());
            auto waiting = q.w.start(q.mutexes[1].lock());
            q.w.env->pass(100ms); // its own key is not watched yet
            q.w.etcd->tells = told;
            if (by_lease) {
                q.w.etcd->revoke(q.sessions[1].lease());
            } else {
                for (const std::string& key : q.w.etcd->under("m/")) {
                    if (key != q.mutexes[0].key()) {
                        q.w.etcd->erase(key);
                    }
                }
            }
            q.w.etcd->tells = true;
            q.give_back(0);
            REQUIRE(waiting.ended());
            waiting.get();
            q.w.env->pass(10ms); // the look, and what becomes of the lease
            CHECK_FALSE(q.mutexes[1].owns_lock());
            const auto gone = by_lease ? errc::session_lost : errc::lock_lost;
            try {
                (void)q.w.await(q.mutexes[1].unlock());
            } catch (const coetcd::error& e) {
                CHECK(e.code() == gone);
            }
            CHECK(q.sessions[1].state() ==
                  (by_lease ? coetcd::session_state::lost : coetcd::session_state::active));
            CHECK(q.w.etcd->under("m/").empty());
        }
    }
}

TEST_CASE("sec.false_end: a lock that was given by an end that is none is lost, and given up",
          "[hand_over][security]") {
    for (const std::int64_t revision :
         {std::int64_t{1000}, std::int64_t{9'000'000'000'000'000'000}}) {
        queue q(2);
        const liar lies(q.w);
        q.line_up();
        const std::string first = q.mutexes[0].key();
        lies.tell_end(first, revision);
        q.w.env->pass(1ms);
        REQUIRE(q.waiter(1).ended()); // nobody can know better
        CHECK(q.mutexes[1].owns_lock());
        const coetcd::held_lock given(q.mutexes[1], std::adopt_lock);
        auto lost = q.w.start(given.wait_lost());
        q.w.env->pass(10ms); // the look, and the proof
        CHECK_FALSE(q.mutexes[1].owns_lock());
        CHECK(lost.get() == errc::lock_lost);
        CHECK(q.mutexes[0].owns_lock());
        CHECK(q.w.etcd->under("m/") == std::vector<std::string>{first});
        CHECK(q.sessions[1].state() == coetcd::session_state::active);
        q.w.env->pass(1min);
        CHECK(q.mutexes[0].owns_lock());
        // It can be locked again, in turn.
        auto again = q.w.start(q.mutexes[1].lock());
        q.w.env->pass(1s);
        CHECK_FALSE(again.ended());
        q.give_back(0);
        q.w.env->pass(2s); // what tells lies is not trusted at once
        CHECK(again.ended());
        CHECK(q.mutexes[1].owns_lock());
    }
}

TEST_CASE("a look of the past behind a grant does not cost the lock", "[hand_over]") {
    // It shows the key that was before ours: a member has stalled, or it is refused once.
    for (const bool refused : {false, true}) {
        queue q(2);
        q.line_up();
        const std::string first = q.mutexes[0].key();
        const std::int64_t life = q.mutexes[0].fencing_token();
        std::size_t looks = 0;
        q.w.env->on_call = [&, serve = q.w.env->on_call](const call_request& r,
                                                         coetcd::detail::reply& a) {
            serve(r, a);
            if (!is_look(r) || looks++ != 0) {
                return;
            }
            if (refused) {
                a.status = 503;
                a.body = R"({"code":14,"message":"etcdserver: leader changed"})";
                return;
            }
            const std::vector<std::string> own = q.w.etcd->under("m/");
            a.body = R"({"header":{"cluster_id":"14841639068965178418","revision":")" +
                     std::to_string(q.w.etcd->revision) +
                     R"("},"succeeded":true,"responses":[{"response_range":{"kvs":[)" +
                     found(own.front(), q.w.etcd->keys.at(own.front()).create_revision) +
                     R"(]}},{"response_range":{"kvs":[)" + found(first, life) + "]}}]}";
        };
        q.give_back(0);
        REQUIRE(q.waiter(1).ended());
        q.w.env->pass(2s);
        CHECK(looks == (refused ? 2 : 1));
        CHECK(q.mutexes[1].owns_lock());
    }
}

TEST_CASE("readers and writers pass on with events, and may change their mode at once",
          "[hand_over]") {
    world w;
    const coetcd::client client = w.client();
    std::vector<coetcd::session> sessions;
    std::vector<coetcd::shared_mutex> all;
    for (int i = 0; i != 6; ++i) {
        sessions.push_back(w.await(coetcd::session::open(client)));
        all.emplace_back(sessions.back(), "s");
    }
    w.await(all[0].lock());
    auto second = w.start(all[1].scoped_lock()); // behind a writer: two keys of one age
    w.env->pass(20ms);
    auto third = w.start(all[2].lock_shared());
    auto fourth = w.start(all[3].lock_shared());
    w.env->pass(20ms);
    auto fifth = w.start(all[4].lock());
    w.env->pass(1s);
    const auto give_back = [&](std::size_t i, bool shared) {
        auto unlocking = w.start(shared ? all[i].unlock_shared() : all[i].unlock());
        w.env->pass(3ms);
        CHECK(unlocking.get());
    };
    give_back(0, false);
    CHECK(second.ended());
    CHECK(count(w, is_confirm) == 0);
    // Before it is known whether the look behind is answered: the write key goes.
    coetcd::held_lock held = second.get();
    auto lowering = w.start(held.downgrade());
    w.env->pass(3ms);
    lowering.get();
    CHECK(third.ended());
    CHECK(fourth.ended());
    CHECK(count(w, is_confirm) == 0);
    w.env->pass(1s);
    CHECK(held.owns_lock());
    CHECK(all[2].owns_lock_shared());
    CHECK(all[3].owns_lock_shared());
    CHECK_FALSE(fifth.ended());
    CHECK(w.await(held.unlock()));
    give_back(3, true);
    CHECK_FALSE(fifth.ended());
    w.env->pass(1s);
    const std::size_t before = count(w, is_confirm);
    give_back(2, true);
    CHECK(fifth.ended());
    CHECK(count(w, is_confirm) == before);
    w.env->pass(1s);
    CHECK(all[4].owns_lock());
}

TEST_CASE("given back at once, or lost, or destroyed, a lock is not looked at behind",
          "[hand_over]") {
    for (const int how : {0, 1, 2}) {
        queue q(2);
        q.line_up();
        q.w.env->decide = [](const call_request& r) {
            scripted_env::fate f;
            f.answered = !is_look(r);
            return f;
        };
        q.give_back(0);
        REQUIRE(q.waiter(1).ended());
        switch (how) {
        case 0:
            CHECK(q.w.await(q.mutexes[1].unlock()));
            break;
        case 1:
            (void)q.sessions[1].orphan();
            break;
        default:
            q.mutexes.pop_back();
            q.sessions.pop_back();
        }
        q.w.env->pass(1min);
        CHECK(q.w.etcd->watches() <= 2);
    }
}
