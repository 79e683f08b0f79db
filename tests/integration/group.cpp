// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/ephemeral.hpp>
#include <coetcd/group.hpp>
#include <coetcd/registry.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
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
using coetcd::ephemeral;
using coetcd::errc;
using coetcd::group;
using coetcd::member_entry;
using coetcd::members_feed;
using coetcd::membership;
using coetcd::session;
using coetcd::session_keeper;
using coetcd::session_keeper_options;
using integration::connect;

namespace {

/// The values of the members, in order.
std::string values(const std::vector<member_entry>& all) {
    std::string text;
    for (const member_entry& m : all) {
        text += m.value + ' ';
    }
    return text;
}

/// Waits until a feed tells this.
awaitable<void> until_told(members_feed& feed, std::string wanted) {
    for (;;) {
        const std::vector<member_entry> now = co_await feed.next();
        if (values(now) == wanted) {
            co_return;
        }
    }
}

/// Waits until a key has this value, and this lease.
awaitable<void> until_there(client c, std::string key, std::string value, coetcd::lease_id lease) {
    auto there = [c, key, value, lease]() -> awaitable<bool> {
        const auto kv = co_await c.get(key);
        co_return kv && kv->value == value && kv->lease == lease;
    };
    co_await eventually(there, 10s, key + " is there");
}

} // namespace

TEST_CASE("An ephemeral key is there while its session is, whatever is done by hand",
          "[ephemeral]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string key = unique_name("ephemeral");
        session s = co_await open_session(c, 30s);
        session other = co_await open_session(c, 30s);
        ephemeral e = co_await ephemeral::create(s, key, "one");
        co_await until_there(c, key, "one", s.lease());
        const auto taken = co_await ending_of(ephemeral::create(other, key, "theirs"));
        CHECK(taken.code == errc::already_exists);
        co_await e.update("two");
        co_await until_there(c, key, "two", s.lease());

        // Deleted and written by hand, with etcdctl.
        for (int i = 0; i < 3; ++i) {
            (void)shared_etcd().etcdctl({"del", key});
            co_await until_there(c, key, "two", s.lease());
            (void)shared_etcd().etcdctl({"put", key, "by hand"});
            co_await until_there(c, key, "two", s.lease());
        }
        CHECK(e.exists());
        const bool removed = co_await e.remove();
        CHECK(removed);
        co_await until_count(c, key, 0);

        ephemeral next = co_await ephemeral::create(other, key, "theirs");
        ephemeral dropped = co_await ephemeral::create(s, key + "-2", "dropped");
        dropped = ephemeral();
        co_await until_count(c, key, 1);
        revoke_by_hand(shared_etcd(), other.lease());
        co_await until_count(c, key, 0);
        task<coetcd::error_code> loss(executor, next.wait_lost());
        const auto why = co_await loss.result();
        CHECK(why == errc::session_lost);
        co_await s.close();
    });
}

TEST_CASE("Members join and leave, and all are told", "[group]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("group");
        members_feed feed = coetcd::watch_members(c, name);
        co_await until_told(feed, "");
        std::vector<session> sessions;
        std::vector<membership> members;
        std::string all;
        for (int i = 0; i < 5; ++i) {
            sessions.push_back(co_await open_session(c, 30s));
            group g(sessions.back(), name);
            const std::string value = std::to_string(i);
            members.push_back(co_await g.join(value));
            all += value + ' ';
            co_await until_told(feed, all);
        }
        co_await members[0].update("first");
        co_await until_told(feed, "first 1 2 3 4 ");
        const bool left = co_await members[1].leave();
        CHECK(left);
        co_await until_told(feed, "first 2 3 4 ");
        co_await sessions[2].close();
        co_await until_told(feed, "first 3 4 ");
        members[3] = membership();
        co_await until_told(feed, "first 4 ");
        (void)shared_etcd().etcdctl({"del", members[0].key()}); // it is put again, as a younger one
        co_await until_told(feed, "4 first ");
        const auto listed = co_await coetcd::members_of(c, name);
        CHECK(values(listed) == "4 first ");

        // Many at once.
        std::vector<awaitable<void>> many;
        for (int i = 0; i < 20; ++i) {
            many.push_back([](session& in, std::string n) -> awaitable<void> {
                group g(in, n);
                for (int j = 0; j < 10; ++j) {
                    membership m = co_await g.join("many");
                    const bool was_there = co_await m.leave();
                    CHECK(was_there);
                }
            }(sessions[static_cast<std::size_t>(i % 2 == 0 ? 0 : 4)], name));
        }
        co_await run_all(std::move(many));
        auto settled = [&]() -> awaitable<bool> {
            const auto now = co_await coetcd::members_of(c, name);
            co_return values(now) == "4 first ";
        };
        co_await eventually(settled, 5s, "the two are left");
        for (session& s : sessions) {
            co_await s.close();
        }
        co_await until_count(c, name, 0);
    });
}

TEST_CASE("A member and its feed go on through a restart of etcd", "[group][restart]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        etcd_server etcd;
        const client c(executor, etcd.url());
        session s = co_await open_session(c, 60s);
        group g(s, "g");
        membership m = co_await g.join("one");
        members_feed feed = g.changes();
        co_await until_told(feed, "one ");
        const std::function<void()> restart = [&etcd] {
            etcd.kill();
            etcd.start();
        };
        co_await in_thread(restart);
        co_await m.update("two");
        co_await until_told(feed, "two ");
        (void)etcd.etcdctl({"del", m.key()});
        co_await until_told(feed, "");
        co_await until_told(feed, "two ");
        const bool left = co_await m.leave();
        CHECK(left);
        co_await until_told(feed, "");
        co_await s.close();
    });
}

TEST_CASE("A keeper's member, key and endpoint are there again after a loss", "[group]") {
    run_test([]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c = connect(executor);
        const std::string name = unique_name("kept");
        session_keeper keeper(c, session_keeper_options(5s));
        group g(keeper, name);
        membership m = co_await g.join("one");
        ephemeral e = co_await ephemeral::create(keeper, name + "-key", "two");
        coetcd::registration r =
            co_await coetcd::register_service(keeper, name + "-service", "a:1");
        const std::string key = m.key();
        for (int round = 0; round < 2; ++round) {
            const auto before = keeper.current();
            REQUIRE(before);
            revoke_by_hand(shared_etcd(), before->lease());
            (void)co_await keeper.wait_changed(before);
            const auto now = co_await keeper.wait_live();
            REQUIRE(now->lease() != before->lease());
            co_await until_there(c, key, "one", now->lease());
            co_await until_there(c, name + "-key", "two", now->lease());
            const auto there = [&]() -> awaitable<bool> { co_return m&& e&& r; };
            co_await eventually(there, 5s, "all know that they are there");
        }
        const auto endpoints = co_await coetcd::endpoints_of(c, name + "-service");
        REQUIRE(endpoints.size() == 1);
        CHECK(endpoints[0].address == "a:1");
        co_await keeper.close();
        co_await until_count(c, name, 0);
        const auto why = co_await m.wait_lost();
        CHECK(why == errc::session_closed);
    });
}
