// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/turns.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::detail::turns;

TEST_CASE("calls take turns in the order in which they come", "[async]") {
    support::world w;
    turns all(*w.env);
    std::vector<int> order;
    std::vector<std::unique_ptr<support::background<void>>> calls;
    auto call = [&](int n) -> asio::awaitable<void> {
        const turns::turn mine = co_await all.take();
        order.push_back(n);
        co_await coetcd::detail::sleep_until(*w.env, w.env->now() + 10ms);
        order.push_back(n);
    };
    for (int n = 0; n != 4; ++n) {
        calls.push_back(std::make_unique<support::background<void>>(*w.context, call(n)));
        w.env->pass(1ms);
    }
    REQUIRE(order == std::vector<int>{0});
    calls[1]->cancel(); // a waiter
    w.env->pass(0ms);
    CHECK(calls[1]->code() == asio::error::operation_aborted);
    w.env->pass(10ms);
    REQUIRE(order == std::vector<int>{0, 0, 2});
    calls[2]->cancel(); // it has its turn
    w.env->pass(20ms);
    CHECK(order == std::vector<int>{0, 0, 2, 3, 3});
    CHECK(calls[3]->ended());
}

TEST_CASE("a turn that ends is handed over: nobody who comes then is faster", "[async]") {
    support::world w;
    turns all(*w.env);
    std::optional<turns::turn> first = all.try_take();
    REQUIRE(first);
    auto take = [&]() -> asio::awaitable<turns::turn> { return all.take(); };
    auto waiting = w.start(take());
    w.env->pass(1ms);
    CHECK_FALSE(waiting.ended());
    first.reset();
    CHECK_FALSE(all.try_take()); // before the one that waits goes on
    waiting.cancel();            // too late: it has its turn, and drops it
    w.env->pass(1ms);
    CHECK(waiting.ended());
}

TEST_CASE("a turn is waited for until a deadline", "[async]") {
    support::world w;
    turns all(*w.env);
    std::optional<turns::turn> first = all.try_take();
    REQUIRE(first);
    auto take = [&]() -> asio::awaitable<bool> {
        const auto mine = co_await all.take_until(w.env->now() + 10ms);
        co_return mine.has_value();
    };
    auto late = w.start(take());
    w.env->pass(10ms);
    REQUIRE(late.ended());
    CHECK_FALSE(late.get());
    auto in_time = w.start(take());
    w.env->pass(5ms);
    first.reset();
    w.env->pass(1ms);
    REQUIRE(in_time.ended());
    CHECK(in_time.get());
    CHECK(all.try_take());
}

TEST_CASE("a turn that was moved from does not end twice", "[async]") {
    support::world w;
    turns all(*w.env);
    auto take = [&]() -> asio::awaitable<turns::turn> { return all.take(); };
    std::optional<turns::turn> first(w.await(take()));
    turns::turn mine(std::move(*first));
    first.reset();
    auto second = w.start(take());
    w.env->pass(1ms);
    CHECK_FALSE(second.ended());
    { const turns::turn end(std::move(mine)); }
    w.env->pass(1ms);
    CHECK(second.ended());
}
