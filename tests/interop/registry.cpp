// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/registry.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "go_client.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace interop;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::endpoints_feed;
using coetcd::errc;
using coetcd::registration;
using coetcd::service_endpoint;
using coetcd::session;

namespace {

/// What a feed tells next.
awaitable<std::string> next_list(endpoints_feed& feed) {
    const std::vector<service_endpoint> now = co_await feed.next();
    std::string text;
    for (const service_endpoint& e : now) {
        text += (text.empty() ? "" : ", ") + e.address + ' ' + e.metadata;
    }
    co_return text;
}

awaitable<void> until_told(endpoints_feed& feed, std::string wanted) {
    for (;;) {
        const std::string told = co_await next_list(feed);
        if (told == wanted) {
            co_return;
        }
    }
}
awaitable<void> until_told(go_client& go, std::string wanted) {
    for (;;) {
        const std::string told = co_await go.told();
        if (told == wanted) {
            co_return;
        }
    }
}

} // namespace

TEST_CASE("Go's resolver and ours find the endpoints of both", "[interop][registry]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("services/orders");
        const std::string who = "?session=a&name=" + name;
        endpoints_feed feed = coetcd::resolve(c, name);
        const std::string none = co_await next_list(feed);
        CHECK(none.empty());
        (void)co_await go.call("open?session=a&ttl=30");
        (void)co_await go.call("resolve" + who);

        // It finds ours, ...
        registration ours = co_await coetcd::register_service(s, name, "b:1", "{\"zone\":\"x\"}");
        co_await until_told(go, "resolved b:1");
        const std::string listed = co_await go.call("listed" + who);
        CHECK(listed == "b:1 {\"zone\":\"x\"}");
        co_await until_told(feed, "b:1 {\"zone\":\"x\"}");

        // ... and we find its.
        (void)co_await go.call("register" + who + "&address=a:1&metadata=7");
        co_await until_told(feed, "a:1 7, b:1 {\"zone\":\"x\"}");
        co_await until_told(go, "resolved a:1 b:1");
        co_await ours.update("[1,2]");
        co_await until_told(feed, "a:1 7, b:1 [1,2]");
        const std::string changed = co_await go.call("listed" + who);
        CHECK(changed == "a:1 7, b:1 [1,2]");
        const bool removed = co_await ours.remove();
        CHECK(removed);
        co_await until_told(go, "resolved a:1");
        co_await until_told(feed, "a:1 7");
        (void)co_await go.call("unregister" + who + "&address=a:1");
        co_await until_told(go, "resolved");
        co_await until_told(feed, "");

        (void)co_await go.call("close?session=a");
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("The last one to register an address has it, Go's client or ours",
          "[interop][registry]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("orders");
        const std::string who = "?session=a&name=" + name;
        (void)co_await go.call("open?session=a&ttl=30");
        (void)co_await go.call("register" + who + "&address=a:1&metadata=1");
        registration ours = co_await coetcd::register_service(s, name, "a:1", "2");
        const std::string first = co_await go.call("listed" + who);
        CHECK(first == "a:1 2");
        (void)co_await go.call("register" + who + "&address=a:1&metadata=3");
        const auto lost = co_await ours.wait_lost();
        CHECK(lost == errc::lock_lost);
        const std::string then = co_await go.call("listed" + who);
        CHECK(then == "a:1 3");
        // Not with our session, but with its.
        co_await s.close();
        const std::string still = co_await go.call("listed" + who);
        CHECK(still == "a:1 3");
        (void)co_await go.call("close?session=a");
        co_await until_count(c, name, 0);
    });
}
