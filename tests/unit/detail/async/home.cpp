// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/net/default_env.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "support/catch.hpp"

using namespace coetcd::detail;
using namespace std::chrono_literals;

namespace {

/// What can be moved only, and not be made from nothing.
struct thing {
    explicit thing(int v)
        : value(std::make_unique<int>(v)) {}
    std::unique_ptr<int> value;
};

/// A home, and another place from which it is called. Each runs only when it is told to.
struct places {
    asio::io_context home;
    asio::io_context away;
    std::shared_ptr<env> world =
        std::make_shared<net::default_env>(home.get_executor(), net::net_options());

    void run() {
        for (int i = 0; i != 10; ++i) {
            away.restart();
            away.poll();
            home.restart();
            home.poll();
        }
    }
    template<class T>
    asio::awaitable<T> at_home(asio::awaitable<T> work) {
        return go_home(world->executor(), std::move(work));
    }
    /// Runs `work` away.
    void start(asio::awaitable<void> work) {
        asio::co_spawn(away, std::move(work), asio::bind_cancellation_slot(stop.slot(), at_end()));
    }
    std::function<void(std::exception_ptr)> at_end() {
        return [this](std::exception_ptr e) {
            ended = true;
            failure = e;
        };
    }
    asio::cancellation_signal stop;
    bool ended = false;
    std::exception_ptr failure;
};

asio::awaitable<bool> is_on(asio::any_io_executor expected) {
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    co_return here == expected;
}

asio::awaitable<thing> make(int value) {
    co_return thing(value);
}

asio::awaitable<int> fail() {
    throw std::runtime_error("this one");
    co_return 0;
}

} // namespace

TEST_CASE("what is awaited from elsewhere is done at home, and comes back", "[home]") {
    places p;
    int seen = 0;
    auto caller = [&]() -> asio::awaitable<void> {
        const bool there = co_await p.at_home(is_on(p.home.get_executor()));
        const bool back = co_await is_on(p.away.get_executor());
        seen += there && back ? 1 : 100;
        const thing got = co_await p.at_home(make(7));
        seen += *got.value;
        bool threw = false;
        try {
            (void)co_await p.at_home(fail());
        } catch (const std::runtime_error& e) {
            threw = e.what() == std::string("this one");
        }
        seen += threw ? 10 : 100;
        auto nothing = []() -> asio::awaitable<void> { co_return; };
        co_await p.at_home(nothing());
        seen += 20;
    };
    p.start(caller());
    p.away.poll();
    CHECK(seen == 0); // home has not run yet
    p.run();
    CHECK(p.ended);
    CHECK(seen == 38);
}

TEST_CASE("what is awaited at home is just awaited", "[home]") {
    places p;
    bool done = false;
    auto caller = [&]() -> asio::awaitable<void> {
        const thing got = co_await p.at_home(make(7));
        done = *got.value == 7;
    };
    asio::co_spawn(p.home, caller(), p.at_end());
    (void)p.home.poll_one(); // in one go
    CHECK(done);
    p.run();
    CHECK(p.ended);
}

TEST_CASE("a cancellation goes home, and its end comes back", "[home][cancellation]") {
    places p;
    bool told = false;
    auto work = [&]() -> asio::awaitable<int> {
        asio::steady_timer never(p.home, asio::steady_timer::time_point::max());
        try {
            co_await never.async_wait(asio::use_awaitable);
        } catch (const boost::system::system_error& e) {
            told = e.code() == asio::error::operation_aborted;
            throw;
        }
        co_return 0;
    };
    auto caller = [&]() -> asio::awaitable<void> { (void)co_await p.at_home(work()); };
    p.start(caller());
    p.run();
    CHECK_FALSE(p.ended);
    p.stop.emit(asio::cancellation_type::terminal);
    CHECK_FALSE(told); // that is home's concern
    p.run();
    CHECK(told);
    CHECK(p.ended);
    CHECK(p.failure);
}

TEST_CASE("a cancellation that comes too late does nothing", "[home][cancellation]") {
    places p;
    int got = 0;
    auto caller = [&]() -> asio::awaitable<void> {
        const thing result = co_await p.at_home(make(7));
        got = *result.value;
    };
    p.start(caller());
    p.away.poll();
    p.home.poll(); // it is done there, and not yet known here
    p.stop.emit(asio::cancellation_type::terminal);
    p.run();
    CHECK(p.ended);
    CHECK(got == 7);
}

TEST_CASE("what has not begun is not begun once its caller is cancelled", "[home][cancellation]") {
    places p;
    bool began = false;
    auto work = [&]() -> asio::awaitable<void> {
        began = true;
        co_return;
    };
    auto caller = [&]() -> asio::awaitable<void> {
        co_await asio::post(p.away, asio::use_awaitable);
        p.stop.emit(asio::cancellation_type::terminal);
        co_await p.at_home(work());
    };
    p.start(caller());
    p.run();
    CHECK(p.ended);
    CHECK(p.failure);
    CHECK_FALSE(began);
}

TEST_CASE("a function is called at home: at once, if that is here", "[home]") {
    places p;
    int calls = 0;
    at_home(*p.world, [&] { ++calls; });
    CHECK(calls == 0);
    p.run();
    CHECK(calls == 1);
    asio::post(p.home, [&] {
        at_home(*p.world, [&] { ++calls; });
        calls *= 10;
    });
    p.run();
    CHECK(calls == 20);
}

TEST_CASE("what is made at home ends there, or with it", "[home]") {
    struct witness {
        explicit witness(int& e)
            : ended(e) {}
        ~witness() { ++ended; }
        int& ended;
    };
    int ended = 0;
    {
        places p;
        auto first = make_at_home<witness>(p.world, ended);
        first.reset();
        CHECK(ended == 0);
        p.run();
        CHECK(ended == 1);
        auto second = make_at_home<witness>(p.world, ended);
        asio::post(p.home, [&] {
            second.reset();
            CHECK(ended == 2);
        });
        p.run();
        CHECK(ended == 2);
        make_at_home<witness>(p.world, ended).reset();
        p.world.reset(); // the last one keeps it
    }
    CHECK(ended == 3);
}

TEST_CASE("an object on its way home to its end gives out no reference any more", "[home]") {
    struct owned : std::enable_shared_from_this<owned> {};
    places p;
    auto made = make_at_home<owned>(p.world);
    owned& object = *made;
    made.reset();
    CHECK(object.weak_from_this().expired()); // it is still there: home has not run yet
    p.run();
}
