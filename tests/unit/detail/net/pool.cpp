// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/pool.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"

using namespace coetcd::detail;
using namespace coetcd::detail::net;
using namespace std::chrono_literals;
using support::scripted_env;

namespace {

struct fake {
    explicit fake(int n)
        : number(n) {}
    bool reusable() const { return in_order; }
    int number;
    bool in_order = true;
    bool alive = true;
};

/// Coroutines that take from a pool of two places, by name.
class pool_fixture {
public:
    ~pool_fixture() {
        for (const auto& s : stops_) {
            s->emit(asio::cancellation_type::terminal);
        }
        env->pass(0s);
    }

    asio::cancellation_signal& start(std::string name,
                                     time_point deadline = time_point::max(),
                                     std::string key = "k",
                                     std::size_t cap = 2,
                                     std::chrono::nanoseconds patience = 24h) {
        stops_.push_back(std::make_unique<asio::cancellation_signal>());
        asio::co_spawn(
            context,
            take(std::move(name), deadline, std::move(key), cap, patience),
            asio::bind_cancellation_slot(stops_.back()->slot(), [](std::exception_ptr e) {
                if (e) {
                    std::rethrow_exception(e);
                }
            }));
        return *stops_.back();
    }
    /// Takes a place and fills it if it is empty.
    fake& take_now(const std::string& name, std::string key = "k", std::size_t cap = 2) {
        start(name, time_point::max(), std::move(key), cap);
        env->pass(0s);
        REQUIRE(held.count(name) == 1);
        auto& c = held.at(name).connection;
        if (!c) {
            c = std::make_unique<fake>(++made);
        }
        return *c;
    }
    void give_back(const std::string& name) { held.erase(name); }
    bool has(const std::string& name) const { return held.count(name) == 1; }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    pool<fake> all{*env};
    std::map<std::string, pool<fake>::loan> held;
    std::vector<std::string> log; ///< Which ones got a place, and which did not.
    int made = 0;

private:
    asio::awaitable<void> take(std::string name,
                               time_point deadline,
                               std::string key,
                               std::size_t cap,
                               std::chrono::nanoseconds patience) {
        std::string end;
        try {
            auto is_alive = [](fake& c) { return c.alive; };
            pool<fake>::loan got =
                co_await all.take(std::move(key), cap, deadline, is_alive, patience);
            end = got ? "" : got.crowded ? " crowded out" : " late";
            CHECK((got || got.waited));
            if (got) {
                held.emplace(name, std::move(got));
            }
        } catch (const boost::system::system_error& e) {
            end = e.code() == asio::error::operation_aborted ? " aborted" : " failed";
        }
        log.push_back(name + end);
    }

    std::vector<std::unique_ptr<asio::cancellation_signal>> stops_;
};

using entries = std::vector<std::string>;

} // namespace

TEST_CASE("a connection is used again", "[net][pool]") {
    pool_fixture f;
    CHECK(f.take_now("a").number == 1);
    f.give_back("a");
    CHECK(f.take_now("b").number == 1);
    CHECK(f.take_now("c").number == 2);
    f.give_back("b");
    f.give_back("c");
    CHECK(f.take_now("d").number == 2); // the one that was used last
    CHECK(f.take_now("e").number == 1);
}

TEST_CASE("a connection that is not in order is dropped", "[net][pool]") {
    pool_fixture f;
    f.take_now("a").in_order = false;
    f.give_back("a");
    CHECK(f.take_now("b").number == 2);
}

TEST_CASE("a connection that died while idle is dropped", "[net][pool]") {
    pool_fixture f;
    f.take_now("a");
    f.take_now("b").alive = false;
    f.give_back("a");
    f.give_back("b");
    CHECK(f.take_now("c").number == 1);
    f.held.at("c").connection->alive = false;
    f.give_back("c");
    CHECK(f.take_now("d").number == 3);
}

TEST_CASE("an idle connection may serve another key", "[net][pool]") {
    pool_fixture f;
    const auto alive = [](fake& c) { return c.alive; };
    CHECK_FALSE(f.all.has_any("k"));
    CHECK(f.all.take_from("k", alive) == nullptr);
    f.take_now("a");
    CHECK(f.all.has_any("k"));
    CHECK(f.all.take_from("k", alive) == nullptr); // it is in use
    f.give_back("a");
    CHECK(f.all.has_any("k"));
    const std::unique_ptr<fake> taken = f.all.take_from("k", alive);
    REQUIRE(taken);
    CHECK(taken->number == 1);
    CHECK_FALSE(f.all.has_any("k"));
    // One that is dead is dropped.
    f.take_now("b").alive = false;
    f.give_back("b");
    CHECK(f.all.take_from("k", alive) == nullptr);
    CHECK_FALSE(f.all.has_any("k"));
}

TEST_CASE("a place that was never filled is given back", "[net][pool]") {
    pool_fixture f;
    for (int i = 0; i != 5; ++i) {
        f.start("a");
        f.env->pass(0s);
        REQUIRE(f.has("a"));
        CHECK_FALSE(f.held.at("a").connection);
        f.give_back("a");
    }
}

TEST_CASE("sec.limits: there are no more places than the cap, for each key", "[net][pool]") {
    pool_fixture f;
    f.take_now("a");
    f.take_now("b");
    f.start("c");
    f.env->pass(1h);
    CHECK_FALSE(f.has("c"));
    f.take_now("other", "k2", 1);
    f.start("late", f.env->now() + 1s, "k2", 1);
    f.env->pass(1s);
    CHECK(f.log.back() == "late late");
    f.give_back("a");
    f.env->pass(0s);
    REQUIRE(f.has("c"));
    CHECK(f.held.at("c").connection->number == 1);
}

TEST_CASE("a waiter for a place waits until its deadline", "[net][pool]") {
    pool_fixture f;
    f.take_now("a");
    f.take_now("b");
    f.log.clear();
    f.start("c", f.env->now() + 1s);
    f.env->pass(1s - 1ns);
    CHECK(f.log.empty());
    f.env->pass(1ns);
    CHECK(f.log == entries{"c late"});
    f.give_back("a");
    CHECK(f.take_now("d").number == 1); // nothing is left of c
}

TEST_CASE("a waiter leaves as soon as nothing has come back for a while", "[net][pool]") {
    pool_fixture f;
    f.take_now("a");
    f.take_now("b");
    f.log.clear();
    const time_point began = f.env->now();
    f.start("waits", began + 60s, "k", 2, 2s);
    f.env->pass(1s);
    f.start("later", began + 60s, "k", 2, 2s);
    SECTION("if the other end stands still") {
        f.env->pass(1s - 1ns);
        CHECK(f.log.empty());
        f.env->pass(1ns);
        CHECK(f.log == entries{"waits late"});
        f.env->pass(1s);
        CHECK(f.log == entries{"waits late", "later late"});
    }
    SECTION("and not while others are served") {
        for (int i = 0; i != 30; ++i) { // each time another was there before
            f.start("other " + std::to_string(i), time_point::max(), "k", 2);
        }
        f.give_back("a");
        f.env->pass(0s);
        CHECK(f.log == entries{"waits"}); // in order of arrival, as ever
    }
    SECTION("nor if what comes back is broken") {
        f.held.at("b").connection->in_order = false;
        f.give_back("b");
        f.env->pass(0s);
        CHECK(f.log == entries{"waits"});
        CHECK(f.held.at("waits").waited);
        f.env->pass(2s);
        CHECK(f.log == entries{"waits", "later late"});
    }
}

TEST_CASE("a crowd of our own is told apart from an end that stands still", "[net][pool]") {
    pool_fixture f;
    f.take_now("a", "k", 1);
    f.log.clear();
    const time_point began = f.env->now();
    // The one before has the place for most of the time, and gives it back in order.
    f.start("first", began + 60s, "k", 1, 2s);
    f.start("second", began + 5s, "k", 1, 2s);
    f.env->pass(1s);
    f.give_back("a");
    f.env->pass(0s);
    f.held.at("first").connection->in_order = true;
    CHECK(f.log == entries{"first"});
    f.env->pass(1s);
    f.start("third", began + 3s, "k", 1, 2s);
    f.env->pass(1s);                                // at 3 s
    CHECK(f.log == entries{"first", "third late"}); // nothing came back while it was there
    f.env->pass(1s);                                // at 4 s: nothing has come back since 2 s
    CHECK(f.log == entries{"first", "third late", "second late"});
    f.give_back("first");
    f.take_now("b", "k", 1);
    f.log.clear();
    const time_point then = f.env->now();
    f.start("next", then + 60s, "k", 1, 2s);
    f.start("last", then + 1s, "k", 1, 2s);
    f.env->pass(500ms);
    f.give_back("b");
    f.env->pass(500ms);
    CHECK(f.log == entries{"next", "last crowded out"});
}

TEST_CASE("places are given in order of arrival", "[net][pool]") {
    pool_fixture f;
    f.take_now("a");
    f.take_now("b");
    f.log.clear();
    f.start("c");
    f.start("d");
    f.start("e");
    f.env->pass(0s);
    f.give_back("a");
    f.env->pass(0s);
    CHECK(f.log == entries{"c"});
    f.give_back("b");
    f.give_back("c");
    f.env->pass(0s);
    CHECK(f.log == entries{"c", "d", "e"});
}

TEST_CASE("no newcomer gets in before the waiters", "[net][pool]") {
    pool_fixture f;
    f.take_now("a", "k", 1);
    f.start("waits", time_point::max(), "k", 1);
    f.env->pass(0s);
    f.log.clear();
    f.env->at(f.env->now(), [&] {
        f.start("hurry", time_point::max(), "k", 1); // runs before the waiter that is woken
        f.give_back("a");
    });
    f.env->pass(0s);
    CHECK(f.log == entries{"waits"});
    f.give_back("waits");
    f.env->pass(0s);
    CHECK(f.log == entries{"waits", "hurry"});
    CHECK(f.held.at("hurry").connection->number == 1);
}

TEST_CASE("a place is not lost with a waiter that is cancelled", "[net][pool][cancellation]") {
    pool_fixture f;
    f.take_now("a", "k", 1);
    auto& stop = f.start("b", time_point::max(), "k", 1);
    f.start("c", time_point::max(), "k", 1);
    f.env->pass(0s);
    f.log.clear();
    SECTION("before the place is given back") {
        stop.emit(asio::cancellation_type::terminal);
        f.env->pass(0s);
        CHECK(f.log == entries{"b aborted"});
        f.give_back("a");
        f.env->pass(0s);
        CHECK(f.log == entries{"b aborted", "c"});
    }
    SECTION("when the place is on its way to the waiter") {
        f.give_back("a");
        stop.emit(asio::cancellation_type::terminal);
        f.env->pass(0s);
        f.give_back("b"); // it may have it, or not
        f.env->pass(0s);
        CHECK(f.log.back() == "c");
    }
    f.give_back("c");
    CHECK(f.take_now("d", "k", 1).number == 1);
}

TEST_CASE("idle connections are dropped, but for those that were used last", "[net][pool]") {
    pool_fixture f;
    for (const char* name : {"a", "b", "c", "d"}) {
        f.take_now(name, "k", 9);
    }
    f.take_now("e", "other", 9);
    f.take_now("f", "k", 9); // is not idle
    for (const char* name : {"c", "a", "d", "b", "e"}) {
        f.give_back(name);
    }
    f.all.shrink(3, [](const fake& c) { return c.number == 1; });
    f.all.shrink(1, [](const fake& c) { return c.number != 4; });
    CHECK(f.take_now("g", "k", 9).number == 2);
    CHECK(f.take_now("h", "k", 9).number == 4);
    CHECK(f.take_now("i", "k", 9).number == 7);
    CHECK(f.take_now("l", "other", 9).number == 5);
}

TEST_CASE("connections of keys that are not wanted any more are dropped", "[net][pool]") {
    pool_fixture f;
    f.take_now("a", "old");
    f.take_now("b", "old");
    f.take_now("c", "stays", 1);
    f.start("waits", time_point::max(), "old");
    f.env->pass(0s);
    f.give_back("a");
    f.env->pass(0s);
    f.give_back("c");
    f.all.keep_only([](const std::string& key) { return key == "stays"; });
    CHECK(f.take_now("d", "old").number == 4); // a fresh start
    f.give_back("d");
    f.give_back("b"); // too late to be kept
    REQUIRE(f.has("waits"));
    f.give_back("waits");
    CHECK(f.take_now("e", "old").number == 4);
    CHECK(f.take_now("f", "old").number == 5);
    CHECK(f.take_now("g", "stays", 1).number == 3);
}

TEST_CASE("a loan may outlive its pool", "[net][pool]") {
    asio::io_context context;
    const auto env = std::make_shared<scripted_env>(context);
    auto all = std::make_unique<pool<fake>>(*env);
    std::vector<pool<fake>::loan> held;
    auto take = [](pool<fake>& from, std::vector<pool<fake>::loan>& to) -> asio::awaitable<void> {
        auto is_alive = [](fake&) { return true; };
        std::string key = "k";
        pool<fake>::loan got = co_await from.take(std::move(key), 1, time_point::max(), is_alive);
        to.push_back(std::move(got));
    };
    env->run(take(*all, held));
    REQUIRE(held.size() == 1);
    held[0].connection = std::make_unique<fake>(1);
    all.reset();
    held.clear();
}
