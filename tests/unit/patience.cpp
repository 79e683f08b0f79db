// SPDX-License-Identifier: BSL-1.0
// What those are told whose patience is over.
#include <coetcd/election.hpp>
#include <coetcd/multi_lock.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/semaphore.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/shared_mutex.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::errc;
using std::chrono::nanoseconds;
using support::background;
using support::scripted_env;
using support::world;

namespace {

enum class kind { mutex, write, read, several, term, permit };
constexpr kind all_kinds[] = {
    kind::mutex, kind::write, kind::read, kind::several, kind::term, kind::permit};

std::vector<coetcd::lock_part> two_names() {
    return {coetcd::exclusive("m"), coetcd::exclusive("n")};
}

/// Asks for what is called "m".
/// @returns Whether it was had; it is given back at once.
asio::awaitable<bool> ask(const coetcd::session& s, kind what, nanoseconds patience) {
    bool had = false;
    if (what == kind::mutex) {
        coetcd::mutex m(s, "m");
        had = co_await m.try_lock_for(patience);
    } else if (what == kind::write) {
        coetcd::shared_mutex m(s, "m");
        had = co_await m.try_lock_for(patience);
    } else if (what == kind::read) {
        coetcd::shared_mutex m(s, "m");
        had = co_await m.try_lock_shared_for(patience);
    } else if (what == kind::several) {
        coetcd::multi_lock m(s, two_names());
        had = co_await m.try_lock_for(patience);
    } else if (what == kind::term) {
        coetcd::election e(s, "m");
        const auto term = co_await e.campaign_for("me", patience);
        had = term.has_value();
    } else {
        coetcd::semaphore permits(s, "m", 1);
        const auto permit = co_await permits.acquire_for(1, patience);
        had = permit.has_value();
    }
    co_return had;
}

/// Holds it until it is cancelled.
asio::awaitable<void> hold(const coetcd::session& s, kind what) {
    if (what == kind::permit) {
        coetcd::semaphore permits(s, "m", 1);
        const auto permit = co_await permits.acquire();
        (void)co_await permit.wait_lost();
    } else if (what == kind::write || what == kind::read) {
        coetcd::shared_mutex m(s, "m");
        const auto held = co_await m.scoped_lock();
        (void)co_await held.wait_lost();
    } else { // their queue is that of a mutex
        coetcd::mutex m(s, "m");
        const auto held = co_await m.scoped_lock();
        (void)co_await held.wait_lost();
    }
}

/// One holds it, and those of another session want it.
struct contended {
    explicit contended(kind k = kind::mutex)
        : what(k)
        , client(w.client())
        , one(w.await(coetcd::session::open(client, 60s)))
        , two(w.await(coetcd::session::open(client, 60s)))
        , holder(w.start(hold(one, what))) {
        w.env->pass(20ms);
    }
    void want(nanoseconds patience) { wait.push_back(w.start(ask(two, what, patience))); }
    /// Whether each of them was told that others have it.
    void check_all_false() {
        for (auto& one_of : wait) {
            REQUIRE(one_of.ended());
            REQUIRE(one_of.code() == coetcd::error_code());
            CHECK_FALSE(one_of.get());
        }
    }
    void cut_off() {
        w.env->decide = [](const coetcd::detail::call_request& r) {
            scripted_env::fate f;
            f.answered = r.way == coetcd::detail::connection_kind::renewal;
            return f;
        };
    }

    const kind what;
    world w;
    coetcd::client client;
    coetcd::session one;
    coetcd::session two;
    background<void> holder;
    std::vector<background<bool>> wait;
};

} // namespace

TEST_CASE("patiences of one session that end close together all say that others have it",
          "[patience]") {
    for (const kind what : all_kinds) {
        for (const auto apart : {0us, 1us, 200us, 1000us, 3000us, 100'000us, 1'000'000us}) {
            INFO("kind " << static_cast<int>(what) << ", apart " << apart.count());
            contended all(what);
            for (int i = 0; i != 6; ++i) {
                all.want(500ms);
                all.w.env->pass(apart);
            }
            all.w.env->pass(600ms);
            all.check_all_false();
            CHECK_FALSE(all.holder.ended());
            all.w.env->pass(100ms); // their keys go
            CHECK(all.w.etcd->under("m/").size() <= 3);
        }
    }
}

TEST_CASE("patiences that end in another order than they began all say so", "[patience]") {
    for (const kind what : all_kinds) {
        contended all(what);
        for (const nanoseconds patience : {504ms, 503ms, 501ms, 500ms, 502ms, 0ms, 100ms}) {
            all.want(patience);
        }
        all.w.env->pass(600ms);
        all.check_all_false();
    }
}

TEST_CASE("a patience says so as well behind one that has none, until that is cancelled",
          "[patience]") {
    contended all;
    auto& w = all.w;
    coetcd::mutex m(all.two, "m");
    auto first = w.start(m.lock());
    w.env->pass(10ms);
    for (int i = 0; i != 3; ++i) {
        all.want(500ms);
    }
    w.env->pass(499ms + 900us);
    SECTION("it goes just before") {
        first.cancel();
    }
    SECTION("it stays") {}
    w.env->pass(10ms);
    all.check_all_false();
}

TEST_CASE("a patience says so as well if its own session had it until just before", "[patience]") {
    contended all;
    auto& w = all.w;
    all.holder.cancel();
    w.env->pass(10ms);
    coetcd::mutex m(all.two, "m");
    w.await(m.lock());
    for (int i = 0; i != 3; ++i) {
        all.want(500ms);
    }
    w.env->pass(499ms + 900us);
    auto unlocking = w.start(m.unlock());
    w.env->pass(10ms);
    all.check_all_false();
}

TEST_CASE("in a keeper's session a patience says so, too", "[patience][session_keeper]") {
    for (const nanoseconds patience : {0ms, 100ms, 1500ms}) {
        contended all;
        auto& w = all.w;
        coetcd::session_keeper keeper(all.client);
        w.env->pass(10ms);
        int runs = 0;
        auto body = [&runs]() -> asio::awaitable<void> {
            ++runs;
            co_return;
        };
        for (int i = 0; i != 4; ++i) {
            all.wait.push_back(w.start(coetcd::with_lock_for(keeper, "m", patience, body)));
        }
        w.env->pass(patience + 20ms);
        all.check_all_false();
        CHECK(runs == 0);
    }
}

TEST_CASE("a patience that ends while etcd does not answer is an error", "[patience]") {
    contended all;
    auto& w = all.w;
    SECTION("nothing was ever known") {
        all.cut_off();
        for (int i = 0; i != 3; ++i) {
            all.want(500ms);
        }
        w.env->pass(600ms);
        for (auto& one : all.wait) {
            CHECK(one.code() == errc::timed_out);
        }
    }
    SECTION("what was known is from long ago") {
        all.holder.cancel();
        w.env->pass(10ms);
        coetcd::mutex m(all.two, "m");
        w.await(m.lock());
        all.want(1500ms);
        all.want(6s);
        all.want(6s);
        w.env->pass(10ms);
        all.cut_off();
        auto unlocking = w.start(m.unlock());
        w.env->pass(8s);
        CHECK_FALSE(all.wait[0].get()); // an answer may take so long
        CHECK(all.wait[1].code() == errc::timed_out);
        CHECK(all.wait[2].code() == errc::timed_out);
    }
}
