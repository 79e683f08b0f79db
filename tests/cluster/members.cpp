// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/cluster.hpp>
#include <coetcd/maintenance.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/etcd_cluster.hpp"
#include "support/run_test.hpp"
#include "support/temporary_file.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;

namespace {

run_options for_a_cluster() {
    run_options o;
    o.timeout = 3min;
    return o;
}

/// The id of the member that serves at this URL.
awaitable<std::uint64_t> id_of(client c, std::string url) {
    const auto status = co_await coetcd::maintenance(c).status(url);
    co_return status.header.member_id;
}

} // namespace

TEST_CASE("A learner is added, promoted, moved to the lead and removed", "[cluster][admin]") {
    etcd_cluster etcd;
    const auto learner = etcd.add_learner();
    run_test(
        [&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const client c = client(executor, etcd.urls()).with_timeout(20s);
            const coetcd::cluster all(c);
            const coetcd::maintenance m(c);
            const std::uint64_t id = co_await id_of(c, etcd.url(learner));
            const auto with_learner = co_await all.members();
            CHECK(with_learner.size() == 4);
            const auto it = std::find_if(with_learner.begin(),
                                         with_learner.end(),
                                         [&](const auto& each) { return each.id == id; });
            REQUIRE(it != with_learner.end());
            CHECK(it->is_learner);
            CHECK(it->is_started());

            const auto promoted = [&]() -> awaitable<bool> { // once it has caught up
                const auto ended = co_await ending_of(all.promote_member(id));
                CHECK((!ended.code || ended.code == coetcd::server_errc::failed_precondition));
                co_return !ended.code;
            };
            co_await eventually(promoted, 20s, "the learner is promoted");
            const auto voting = co_await all.members();
            CHECK(std::none_of(
                voting.begin(), voting.end(), [](const auto& each) { return each.is_learner; }));

            const auto moved = [&]() -> awaitable<bool> { // once it is known to be up to date
                const auto ended = co_await ending_of(m.move_leader(id));
                const auto status = co_await m.status(etcd.url(learner));
                co_return !ended.code && status.is_leader();
            };
            co_await eventually(moved, 30s, "the new member leads");
            co_await m.move_leader(id); // it does already
            const std::uint64_t first = co_await id_of(c, etcd.url(0));
            co_await m.move_leader(first);
            const auto leads = co_await m.status(etcd.url(0));
            CHECK(leads.is_leader());

            const auto left = co_await all.remove_member(id);
            CHECK(left.size() == 3);
            (void)co_await c.put("k", "v");
        },
        for_a_cluster());
    etcd.kill(learner);
    etcd.wait_healthy();
}

TEST_CASE("A snapshot of one member is restored as a cluster", "[cluster][admin]") {
    etcd_cluster etcd;
    const temporary_file file("snapshot");
    run_test(
        [&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const client c(executor, etcd.urls());
            (void)co_await c.put("kept", std::string(200'000, 'k'));
            // Another member may have answered. A linearizable read waits until this one has it,
            // too.
            const client one(executor, etcd.url(1));
            const auto before = co_await one.get("kept");
            REQUIRE(before);
            (void)co_await coetcd::maintenance(c).snapshot(etcd.url(1), file.path());
            (void)co_await c.erase("kept");
        },
        for_a_cluster());
    etcd.restore(file.path());
    etcd.wait_healthy();
    run_test(
        [&]() -> awaitable<void> {
            const auto executor = co_await asio::this_coro::executor;
            const client c(executor, etcd.urls());
            const auto kept = co_await c.get("kept");
            REQUIRE(kept);
            CHECK(kept->value == std::string(200'000, 'k'));
        },
        for_a_cluster());
}
