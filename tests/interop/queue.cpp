// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/queue.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <optional>
#include <set>
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
using coetcd::queue;
using coetcd::session;

TEST_CASE("A queue and Go's Queue are the same", "[interop][queue]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("queue");
        const std::string enqueue = "enqueue?name=" + name + "&value=";
        const std::string dequeue = "dequeue?name=" + name;
        queue q(s, name);

        // They take what we append, in its order.
        std::vector<std::string> values = {"1", "2"};
        co_await q.enqueue(std::move(values));
        co_await q.enqueue(std::string("3"));
        for (const char* value : {"1", "2", "3"}) {
            const std::string theirs = co_await go.call(dequeue);
            CHECK(theirs == value);
        }
        // We take what they append, and both what is from both.
        for (const char* value : {"4", "5", "6"}) {
            (void)co_await go.call(enqueue + value);
        }
        co_await q.enqueue(std::string("ours"));
        const auto size = co_await q.size();
        CHECK(size == 4);
        const std::string first = co_await go.call(dequeue); // the one that was put first
        CHECK(first == "4");
        for (const char* value : {"ours", "5", "6"}) {
            const std::string ours = co_await q.dequeue();
            CHECK(ours == value);
        }
        // Each side waits for the other, and takes no key that is no item.
        for (const bool they_append : {false, true}) {
            task<std::string> ours(executor, q.dequeue());
            co_await until_count(c, "." + name + ".line/", 1);
            task<std::string> theirs(executor, go.call(dequeue));
            const std::optional<std::string> none = co_await q.dequeue_for(200ms);
            CHECK(!none);
            CHECK(!theirs.done()); // it was told of our keys, if they begin with the name
            CHECK(!ours.done());
            for (const char* value : {"x", "y"}) {
                if (they_append) {
                    (void)co_await go.call(enqueue + value);
                } else {
                    co_await q.enqueue(std::string(value));
                }
            }
            const std::string we = co_await ours.result();
            const std::string they = co_await theirs.result();
            const std::set<std::string> taken = {we, they};
            CHECK(taken == std::set<std::string>{"x", "y"});
        }
        co_await s.close();
        co_await until_count(c, name, 0);
        co_await until_count(c, "." + name, 0);
    });
}

TEST_CASE("What both sides append goes to either of them once", "[interop][queue]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("queue");
        constexpr int items = 60;
        std::vector<std::string> taken;
        auto ours = [&](queue q) -> awaitable<void> {
            for (int i = 0; i != items; ++i) {
                const std::string value = co_await q.dequeue();
                taken.push_back(value);
            }
        };
        auto theirs = [&]() -> awaitable<void> {
            for (int i = 0; i != items; ++i) {
                const std::string value = co_await go.call("dequeue?name=" + name);
                taken.push_back(value);
            }
        };
        task<void> we(executor, ours(queue(s, name)));
        task<void> they(executor, theirs());
        queue q(s, name);
        for (int i = 0; i != items; ++i) {
            const std::string value = std::to_string(i);
            (void)co_await go.call("enqueue?name=" + name + "&value=go" + value);
            co_await q.enqueue("c" + value);
        }
        co_await we.result();
        co_await they.result();
        const std::set<std::string> distinct(taken.begin(), taken.end());
        CHECK(taken.size() == 2 * items);
        CHECK(distinct.size() == 2 * items);
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}
