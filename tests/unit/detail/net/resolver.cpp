// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/net/default_env.hpp>
#include <coetcd/detail/net/resolver.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/run_test.hpp"
#include "support/scripted_env.hpp"
#include "support/world.hpp"

using namespace coetcd;
using namespace coetcd::detail;
using namespace coetcd::detail::net;
using namespace std::chrono_literals;
using support::run_test;

namespace {

/// A resolver, in the real world.
struct real_world {
    explicit real_world(const asio::any_io_executor& ex)
        : env(ex, net_options()) {}
    time_point soon() const { return env.now() + 30s; }
    time_point past() const { return env.now() - 1s; }
    default_env env;
    resolver names{env};
};

bool is_loopback(const resolver::result& found, std::uint16_t port) {
    return !found.ec && !found.addresses.empty() &&
           std::all_of(found.addresses.begin(), found.addresses.end(), [&](const auto& a) {
               return a.address().is_loopback() && a.port() == port;
           });
}

/// A resolver whose lookups take as long as the test says.
struct slow_names {
    support::background<resolver::result> look(time_point deadline) {
        return {context, names.lookup("name", 7, deadline)};
    }
    void answer() {
        asked.back()({}, {asio::ip::make_address("127.0.0.1")});
        env->pass(0s);
    }

    asio::io_context context;
    const std::shared_ptr<support::scripted_env> env =
        std::make_shared<support::scripted_env>(context);
    std::vector<std::function<void(error_code, addresses)>> asked;
    resolver names{*env,
                   [this](const std::string&, auto tell) { asked.push_back(std::move(tell)); }};
};

} // namespace

TEST_CASE("an address needs no lookup", "[net][resolver]") {
    asio::io_context context; // in which nothing would ever be looked up
    const auto env = std::make_shared<support::scripted_env>(context);
    resolver names(*env);
    auto look = [&](std::string host) -> asio::awaitable<void> {
        const resolver::result found = co_await names.lookup(host, 7, env->now() - 1s);
        CHECK_FALSE(found.ec);
        REQUIRE(found.addresses.size() == 1);
        CHECK(found.addresses[0].address().to_string() == host);
        CHECK(found.addresses[0].port() == 7);
    };
    for (const char* host : {"127.0.0.1", "::1", "10.1.2.3", "fe80::1"}) {
        CAPTURE(host);
        env->run(look(host));
    }
}

TEST_CASE("a name is looked up, and remembered", "[net][resolver]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        const auto w = std::make_shared<real_world>(ex);
        std::string host = "localhost";
        const resolver::result first = co_await w->names.lookup(host, 7, w->soon());
        CHECK(is_loopback(first, 7));
        // Now there is nothing to wait for.
        const resolver::result second = co_await w->names.lookup(host, 8, w->past());
        CHECK(is_loopback(second, 8));
        CHECK(second.addresses.size() == first.addresses.size());
    });
}

TEST_CASE("a lookup that takes too long goes on for others", "[net][resolver]") {
    slow_names w;
    auto late = w.look(w.env->now() + 1s);
    w.env->pass(1s);
    const resolver::result nothing = late.get();
    CHECK(nothing.ec == errc::timed_out);
    CHECK(nothing.addresses.empty());
    auto patient = w.look(time_point::max());
    w.env->pass(1s);
    CHECK_FALSE(patient.ended());
    CHECK(w.asked.size() == 1);
    w.answer();
    CHECK(is_loopback(patient.get(), 7));
}

TEST_CASE("a waiter for a lookup can be cancelled", "[net][resolver][cancellation]") {
    slow_names w;
    auto first = w.look(time_point::max());
    auto second = w.look(time_point::max());
    w.env->pass(1s);
    first.cancel();
    w.env->pass(0s);
    CHECK(first.code() == asio::error::operation_aborted);
    CHECK_FALSE(second.ended());
    w.answer();
    CHECK(is_loopback(second.get(), 7));
    CHECK(w.asked.size() == 1);
}

TEST_CASE("two may wait for the same lookup", "[net][resolver]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        const auto w = std::make_shared<real_world>(ex);
        const auto other = std::make_shared<std::optional<resolver::result>>();
        std::string host = "localhost";
        asio::co_spawn(ex,
                       w->names.lookup(host, 7, w->soon()),
                       [w, other](std::exception_ptr, resolver::result r) { *other = r; });
        const resolver::result found = co_await w->names.lookup(host, 8, w->soon());
        while (!*other) {
            co_await asio::post(ex, asio::use_awaitable);
        }
        CHECK(is_loopback(found, 8));
        CHECK(is_loopback(**other, 7));
    });
}

TEST_CASE("the address that works comes first, and one that does not comes last",
          "[net][resolver]") {
    asio::io_context context;
    const auto env = std::make_shared<support::scripted_env>(context);
    std::vector<const char*> now{"10.0.0.1", "10.0.0.2", "10.0.0.3"};
    int lookups = 0;
    resolver names(*env, [&](const std::string&, auto tell) {
        ++lookups;
        addresses found;
        for (const char* each : now) {
            found.push_back(asio::ip::make_address(each));
        }
        tell({}, found);
    });
    const auto seen = [&] {
        std::string all;
        auto look = [&]() -> asio::awaitable<void> {
            std::string host = "name";
            const resolver::result found = co_await names.lookup(host, 7, env->now());
            for (const auto& a : found.addresses) {
                all += a.address().to_string().substr(7);
            }
        };
        env->run(look());
        return all;
    };
    const auto address = [](const char* text) { return asio::ip::make_address(text); };
    CHECK(seen() == "123");
    names.prefer("name", address("10.0.0.3"));
    CHECK(seen() == "312");
    CHECK(names.avoid("name", address("10.0.0.3")));
    CHECK(seen() == "123");
    names.avoid("name", address("10.0.0.1"));
    names.prefer("name", address("10.0.0.9")); // which is gone
    CHECK_FALSE(names.avoid("another", address("10.0.0.2")));
    CHECK(seen() == "231");
    CHECK(lookups == 1);
    // A new lookup does not change what is known; what is new comes before what does not work.
    now = {"10.0.0.4", "10.0.0.1", "10.0.0.2"};
    env->pass(11s);
    CHECK(seen() == "241");
    CHECK(lookups == 2);
    names.keep_only([](const std::string& host) { return host == "name"; });
    CHECK(seen() == "241");
    names.keep_only([](const std::string&) { return false; });
    CHECK(seen() == "412");
    CHECK(lookups == 3);
}

TEST_CASE("a lookup that cannot begin is an error, and the next one is tried", "[net][resolver]") {
    asio::io_context context;
    const auto env = std::make_shared<support::scripted_env>(context);
    const bool full = GENERATE(false, true); // of memory; else no thread can be started
    const error_code none =
        full ? error_code(asio::error::no_memory) : error_code(asio::error::try_again);
    std::function<void(error_code, addresses)> waiting;
    int lookups = 0;
    bool works = false;
    resolver names(*env, [&](const std::string&, auto tell) {
        ++lookups;
        if (!works && full) {
            throw std::bad_alloc();
        }
        if (!works) {
            throw boost::system::system_error(none, "thread");
        }
        waiting = tell;
    });
    const auto look = [&] {
        return support::background<resolver::result>(context,
                                                     names.lookup("name", 7, env->now() + 1min));
    };
    auto first = look();
    env->pass(0s);
    CHECK(first.get().ec == none);
    works = true;
    env->pass(500ms);
    auto second = look();
    env->pass(0s);
    REQUIRE(waiting);
    CHECK_FALSE(second.ended());
    waiting({}, {asio::ip::make_address("127.0.0.1")});
    env->pass(0s);
    CHECK(is_loopback(second.get(), 7));
    // What is known serves still.
    works = false;
    env->pass(11s);
    auto third = look();
    env->pass(0s);
    CHECK(is_loopback(third.get(), 7));
    CHECK(lookups == 3);
}

TEST_CASE("a name that does not exist is an error, and is looked up again", "[net][resolver]") {
    run_test([]() -> asio::awaitable<void> {
        const auto ex = co_await asio::this_coro::executor;
        const auto w = std::make_shared<real_world>(ex);
        std::string host(64, 'a'); // no label is that long: no server is asked
        for (int i = 0; i != 2; ++i) {
            const resolver::result found = co_await w->names.lookup(host, 7, w->soon());
            CHECK(found.ec);
            CHECK(found.ec != errc::timed_out);
            CHECK(found.addresses.empty());
        }
    });
}
