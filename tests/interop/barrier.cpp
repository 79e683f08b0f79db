// SPDX-License-Identifier: BSL-1.0
#include <coetcd/barrier.hpp>
#include <coetcd/client.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <string>

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
using coetcd::session;

TEST_CASE("A barrier and Go's Barrier are the same", "[interop][barrier]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        go_client go(shared_etcd());
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("barrier");
        const std::string named = "?name=" + name;
        coetcd::barrier b(s, name);

        // Theirs keeps us waiting, until they or we open it.
        for (const bool we_open : {false, true}) {
            (void)co_await go.call("hold" + named);
            const bool closed = co_await b.hold();
            CHECK(!closed);
            task<void> ours(executor, b.wait());
            const bool passed = co_await b.wait_for(200ms);
            CHECK(!passed);
            CHECK(!ours.done());
            if (we_open) {
                const bool opened = co_await b.release();
                CHECK(opened);
            } else {
                (void)co_await go.call("lift" + named);
            }
            co_await ours.result();
        }
        // Ours keeps them waiting.
        for (const bool we_open : {false, true}) {
            const bool closed = co_await b.hold();
            CHECK(closed);
            const std::string refused = co_await go.call("hold" + named);
            CHECK(refused == "closed");
            task<std::string> theirs(executor, go.call("await" + named));
            const bool passed = co_await b.wait_for(200ms);
            CHECK(!passed);
            CHECK(!theirs.done());
            if (we_open) {
                const bool opened = co_await b.release();
                CHECK(opened);
            } else {
                (void)co_await go.call("lift" + named);
            }
            (void)co_await theirs.result();
        }
        (void)co_await go.call("await" + named); // it is open
        co_await s.close();
        co_await until_count(c, name, 0);
    });
}
