// SPDX-License-Identifier: BSL-1.0
#include <coetcd/admin.hpp>
#include <coetcd/as_result.hpp>
#include <coetcd/client.hpp>
#include <coetcd/lock_value.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/common.hpp"
#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::held_lock;
using coetcd::session;
using integration::connect;

namespace {

coetcd::lock_options with_value() {
    coetcd::lock_options o;
    o.value = true;
    return o;
}

awaitable<void> count_value(const held_lock& held) {
    const std::optional<std::string> last = co_await coetcd::get_value(held);
    const int number = last ? std::stoi(*last) : 0;
    co_await coetcd::set_value(held, std::to_string(number + 1));
}

/// A program of its own: it takes the lock again and again, in each of the ways.
awaitable<void> count_under_lock(session& s, std::string name, int times) {
    coetcd::mutex m(s, name, with_value());
    for (int i = 0; i != times; ++i) {
        if (i % 2 == 0) {
            co_await coetcd::with_lock(m, count_value);
        } else {
            held_lock held = co_await m.scoped_lock();
            co_await count_value(held);
            co_await held.unlock();
        }
    }
}

} // namespace

TEST_CASE("No holder misses what another one has left", "[lock_value]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const std::string name = unique_name("value");
        constexpr int programs = 8;
        constexpr int times = 20;
        std::vector<client> clients;
        std::vector<session> sessions;
        for (int i = 0; i != programs; ++i) {
            clients.push_back(connect(executor));
            session next = co_await open_session(clients.back(), 30s);
            sessions.push_back(std::move(next));
        }
        std::vector<task<void>> counting;
        for (session& s : sessions) {
            counting.emplace_back(executor, count_under_lock(s, name, times));
        }
        for (auto& one : counting) {
            co_await one.result();
        }
        const auto last = co_await coetcd::get_value(clients.front(), name);
        CHECK(last == std::to_string(programs * times));
        const auto kv = co_await clients.front().get(name + ".value");
        REQUIRE(kv);
        CHECK(kv->version == programs * times);
        CHECK(kv->lease == 0);
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await clients.front().erase(name + ".value");
    });
}

TEST_CASE("A holder whose lock was ended by force changes no value", "[lock_value][admin]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        session s = co_await open_session(c, 30s);
        const std::string name = unique_name("value");
        coetcd::mutex m(s, name, with_value());
        const held_lock held = co_await m.scoped_lock();
        co_await coetcd::set_value(held, "1");
        const bool ended = co_await coetcd::force_unlock(c, name, held.fencing_token());
        CHECK(ended);
        const auto changed = co_await coetcd::as_result(coetcd::set_value(held, "2"));
        CHECK(changed.error().code() == coetcd::condition::ownership_lost);
        const auto left = co_await coetcd::get_value(c, name);
        CHECK(left == "1");
        co_await s.close();
        co_await c.erase(name + ".value");
    });
}
