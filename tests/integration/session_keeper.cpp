// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session_keeper.hpp>
#include <coetcd/task_group.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/run_test.hpp"
#include "support/tcp_proxy.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::errc;
using coetcd::session;
using coetcd::session_end;
using coetcd::session_keeper;
using coetcd::session_keeper_options;
using coetcd::task_group;
using shared_session = std::shared_ptr<const session>;

namespace {

/// A body that counts how often it runs.
auto counting(int& runs) {
    return [&runs]() -> awaitable<void> {
        ++runs;
        co_return;
    };
}

} // namespace

TEST_CASE("A keeper has a session again after etcd was away for longer than its ttl",
          "[session_keeper]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        const client c(executor, etcd.url());
        session_keeper keeper(c, session_keeper_options(2s, "kept"));
        const shared_session before = co_await keeper.wait_live(10s);

        int began = 0;
        int aborted = 0;
        auto long_work = [&]() -> awaitable<void> {
            ++began;
            try {
                co_await sleep_for(1h);
            } catch (const boost::system::system_error&) {
                ++aborted;
                throw;
            }
        };
        int runs = 0;
        task<void> working(executor, coetcd::with_lock(keeper, "m", long_work));
        task<bool> queued(executor, coetcd::with_lock_for(keeper, "m", 60s, counting(runs)));
        auto begun = [&]() -> awaitable<bool> { co_return began == 1; };
        co_await eventually(begun, 5s, "the body runs");

        auto kill = [&etcd] { etcd.kill(); };
        co_await in_thread(std::move(kill));
        const shared_session none = co_await keeper.wait_changed(before);
        CHECK(none == nullptr);
        CHECK(before->reason() == session_end::deadline);
        const auto e = co_await working.how_it_ended();
        CHECK(e.code == errc::session_lost);
        CHECK(aborted == 1);

        // Requests that come now have patience, or are told why not.
        task<bool> requested(executor, coetcd::with_lock_for(keeper, "n", 60s, counting(runs)));
        const auto hurried = co_await ending_of(keeper.wait_live(100ms));
        CHECK(hurried.code == errc::timed_out);
        CHECK(keeper.trouble().has_value());
        CHECK(!queued.done());
        CHECK(!requested.done());

        auto start = [&etcd] { etcd.start(); };
        co_await in_thread(std::move(start));
        const bool first = co_await queued.result();
        const bool second = co_await requested.result();
        CHECK(first);
        CHECK(second);
        CHECK(runs == 2);
        CHECK(began == 1);
        CHECK(keeper.current());
        CHECK(keeper.current() != before);
        CHECK(!keeper.trouble());

        const auto lease = keeper.current()->lease();
        co_await keeper.close();
        CHECK(!lists_lease(etcd, lease));
        CHECK(etcd.etcdctl({"get", "--prefix", "m"}).output.empty());
    });
}

TEST_CASE("A keeper keeps its session through a restart of etcd", "[session_keeper]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        const client c(executor, etcd.url());
        session_keeper keeper(c, session_keeper_options(60s));
        const shared_session before = co_await keeper.wait_live(10s);
        int runs = 0;
        co_await coetcd::with_lock(keeper, "m", counting(runs));
        auto restart = [&etcd] { etcd.restart(); };
        co_await in_thread(std::move(restart));
        const bool ran = co_await coetcd::with_lock_for(keeper, "m", 20s, counting(runs));
        CHECK(ran);
        CHECK(keeper.current() == before);
        co_await keeper.close();
    });
}

TEST_CASE("A keeper replaces a session whose lease is revoked by hand", "[session_keeper]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        const std::string name = unique_name("kept");
        session rival = co_await open_session(c, 60s);
        coetcd::mutex held(rival, name);
        co_await held.lock();

        session_keeper keeper(c, session_keeper_options(2s));
        shared_session now = co_await keeper.wait_live(10s);
        int runs = 0;
        task<void> waiting(executor, coetcd::with_lock(keeper, name, counting(runs)));
        for (int round = 0; round < 3; ++round) {
            co_await until_count(c, name + "/", 2); // it stands in the queue
            const shared_session before = now;
            revoke_by_hand(shared_etcd(), before->lease());
            now = co_await keeper.wait_changed(before);
            if (!now) {
                now = co_await keeper.wait_changed(now);
            }
            CHECK(before->reason() == session_end::expired);
            CHECK(now != before);
            CHECK(!waiting.done());
        }
        co_await until_count(c, name + "/", 2);
        co_await held.unlock();
        co_await waiting.result();
        CHECK(runs == 1);
        co_await keeper.close();
        co_await rival.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A keeper that is closed at any moment leaves no lease", "[session_keeper]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        const client direct(executor, etcd.url());
        const auto leases = [&]() -> awaitable<std::size_t> {
            const auto left = co_await direct.lease_leases();
            co_return left.leases.size();
        };
        auto one = [&]() -> awaitable<bool> { co_return co_await leases() == 1; };
        auto none = [&]() -> awaitable<bool> { co_return co_await leases() == 0; };

        tcp_proxy proxy(executor, etcd.port());
        const client c(executor, proxy.url());
        for (const bool orderly : {true, false}) {
            proxy.answers(traffic::hold);
            std::optional<session_keeper> keeper;
            keeper.emplace(c, session_keeper_options(600s));
            co_await eventually(one, 5s, "etcd has granted it");
            if (orderly) {
                task<void> closing(executor, keeper->close());
                proxy.answers(traffic::pass);
                co_await closing.result();
            }
            keeper.reset();
            proxy.answers(traffic::pass);
            co_await eventually(none, 10s, "the lease is revoked");
        }

        // At any moment. A grant that etcd carries out after the revoke ends by itself.
        for (int i = 0; i < 60; ++i) {
            std::optional<session_keeper> keeper;
            keeper.emplace(c, session_keeper_options(2s));
            int runs = 0;
            task<void> working(executor, coetcd::with_lock(*keeper, "m", counting(runs)));
            co_await yield(i);
            if (i % 2 == 0) {
                co_await keeper->close();
            }
            keeper.reset();
            (void)co_await working.how_it_ended();
        }
        co_await eventually(none, 10s, "no lease is left");
    });
}

TEST_CASE("A service ends in order: requests finish or are cut off, and no key is left",
          "[session_keeper][task_group]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, shared_etcd().url());
        const std::string name = unique_name("orderly");
        session_keeper keeper(c, session_keeper_options(30s));
        task_group requests(c);
        int finished = 0;
        int cut_off = 0;
        auto request = [&](std::string lock, std::chrono::milliseconds takes) -> awaitable<void> {
            auto body = [takes]() -> awaitable<void> { co_await sleep_for(takes); };
            try {
                co_await coetcd::with_lock(keeper, std::move(lock), body);
                ++finished;
            } catch (const boost::system::system_error& e) {
                cut_off += e.code() == asio::error::operation_aborted ? 1 : 100;
            }
        };
        CHECK(requests.spawn(executor, request(name + "/1", 1h)));
        CHECK(requests.spawn(executor, request(name + "/1", 1h))); // waits behind that
        CHECK(requests.spawn(executor, request(name + "/2", 200ms)));
        CHECK(requests.spawn(executor, request(name + "/2", 200ms)));
        co_await until_count(c, name, 2);
        const auto began = clock::now();
        auto ending = requests.shutdown(1500ms);
        CHECK(!requests.spawn(executor, request(name + "/3", 0ms)));
        const std::size_t cancelled = co_await std::move(ending);
        CHECK(cancelled == 2);
        CHECK(finished == 2);
        CHECK(cut_off == 2);
        CHECK(ms_between(began, clock::now()) >= 1500);
        CHECK(ms_between(began, clock::now()) < 5000);
        CHECK(keeper.current()); // which they needed until now
        co_await keeper.close();
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A keeper whose client is cut off is replaced when it can be", "[session_keeper]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        tcp_proxy proxy(executor, shared_etcd().port());
        const client c(executor, proxy.url());
        const client direct(executor, shared_etcd().url());
        const std::string name = unique_name("cut-off");
        session_keeper keeper(c, session_keeper_options(2s));
        const shared_session before = co_await keeper.wait_live(10s);
        proxy.requests(traffic::lose);
        proxy.answers(traffic::lose);
        int runs = 0;
        task<bool> requested(executor, coetcd::with_lock_for(keeper, name, 60s, counting(runs)));
        const shared_session none = co_await keeper.wait_changed(before);
        CHECK(none == nullptr);
        proxy.cut();
        proxy.requests(traffic::pass);
        proxy.answers(traffic::pass);
        const bool ran = co_await requested.result();
        CHECK(ran);
        CHECK(runs == 1);
        co_await keeper.close();
        co_await until_count(direct, name, 0);
    });
}
