// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/clock.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <optional>

#include "support/catch.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::net;
using namespace std::chrono_literals;

TEST_CASE("the clock never goes back", "[net][clock]") {
    time_point last = boot_clock::now();
    CHECK(last > time_point());
    for (int i = 0; i != 1000; ++i) {
        const time_point next = boot_clock::now();
        CHECK(next >= last);
        last = next;
    }
    static_assert(boot_clock::is_steady);
}

TEST_CASE("the clock counts the time of a suspend", "[net][clock]") {
    // At least that of the clock that does not.
    const auto awake = std::chrono::steady_clock::now().time_since_epoch();
    CHECK(boot_clock::now().time_since_epoch() >= awake);
}

TEST_CASE("a wait is cut into short ones, so that a suspend cannot stretch it", "[net][clock]") {
    struct {
        boot_clock::duration wanted, cut;
    } const rows[] = {
        {-1h, -1h},
        {0ns, 0ns},
        {1ns, 1ns},
        {999ms, 999ms},
        {1s, 1s},
        {1s + 1ns, 1s},
        {1h, 1s},
        {24h, 1s},
        {24h + 1ns, 24h + 1ns}, // as good as without end
        {boot_clock::duration::max(), boot_clock::duration::max()},
    };
    for (const auto& row : rows) {
        CHECK(boot_wait_traits::to_wait_duration(row.wanted) == row.cut);
    }
    CHECK(boot_wait_traits::to_wait_duration(boot_clock::now() + 1h) == 1s);
    CHECK(boot_wait_traits::to_wait_duration(boot_clock::now() - 1h) < 0s);
    CHECK(boot_wait_traits::to_wait_duration(time_point::max()) > 24h);
}

TEST_CASE("a time after now never is before now", "[net][clock]") {
    const time_point now = boot_clock::now();
    CHECK(after(now, 1s) == now + 1s);
    CHECK(after(now, 0s) == now);
    CHECK(after(now, std::chrono::nanoseconds::max()) == time_point::max());
    CHECK(after(now, time_point::max() - now) == time_point::max());
    CHECK(after(now, time_point::max() - now - 1ns) == time_point::max() - 1ns);
}

TEST_CASE("a timer whose time has come fires", "[net][clock]") {
    asio::io_context context;
    timer due(context, boot_clock::now());
    std::optional<error_code> result;
    due.async_wait([&](const error_code& ec) { result = ec; });
    context.run();
    REQUIRE(result);
    CHECK_FALSE(*result);
}

TEST_CASE("a watchdog ends something at its deadline", "[net][clock]") {
    asio::io_context context;
    int ended = 0;
    watchdog limit(context.get_executor(), boot_clock::now() - 1s, [&] { ++ended; });
    CHECK_FALSE(limit.fired());
    context.run();
    CHECK(limit.fired());
    CHECK(ended == 1);
}

TEST_CASE("a watchdog waits for its deadline", "[net][clock]") {
    asio::io_context context;
    int ended = 0;
    {
        watchdog later(context.get_executor(), boot_clock::now() + 1h, [&] { ++ended; });
        watchdog never(context.get_executor(), time_point::max(), [&] { ++ended; });
        context.poll();
        CHECK_FALSE(later.fired());
        CHECK_FALSE(never.fired());
    }
    context.run(); // nothing is left to wait for
    CHECK(ended == 0);
}

TEST_CASE("a watchdog that is gone ends nothing, even if its time has come", "[net][clock]") {
    asio::io_context context;
    int ended = 0;
    auto limit = std::make_unique<watchdog>(
        context.get_executor(), boot_clock::now() - 1s, [&] { ++ended; });
    // Runs together with the watchdog's own handler, before it.
    timer due(context, boot_clock::now() - 2s);
    due.async_wait([&](const error_code&) { limit.reset(); });
    context.run();
    CHECK_FALSE(limit);
    CHECK(ended == 0);
}
