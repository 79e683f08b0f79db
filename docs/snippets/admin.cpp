// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/admin.md shows.
#include <coetcd/auth.hpp>
#include <coetcd/client.hpp>
#include <coetcd/cluster.hpp>
#include <coetcd/maintenance.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <vector>

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace manual {

asio::awaitable<void> admin_users(const coetcd::client& client, std::string password) {
    const coetcd::auth auth(client);
    const auto keys = coetcd::key_range::prefix("app/");
    co_await auth.add_user("app", password);
    co_await auth.add_role("app");
    co_await auth.grant_permission("app", coetcd::permission_type::readwrite, keys);
    co_await auth.grant_role("app", "app");
}

asio::awaitable<void> admin_members(const coetcd::client& client,
                                    std::vector<std::string> peer_urls) {
    const coetcd::cluster cluster(client);
    const coetcd::cluster_member added = co_await cluster.add_learner(peer_urls);
    const std::vector<coetcd::cluster_member> all = co_await cluster.members();
    for (const coetcd::cluster_member& m : all) {
        std::cout << m.id << (m.is_learner ? " learns\n" : " votes\n");
    }
    // Start its process. Once it has caught up with the leader:
    (void)co_await cluster.promote_member(added.id);
}

asio::awaitable<void> admin_defragment(const coetcd::client& client, std::string endpoint) {
    const coetcd::maintenance maintenance(client.with_timeout(5min));
    co_await maintenance.defragment(endpoint);
    const std::vector<coetcd::raised_alarm> alarms = co_await maintenance.alarms();
    for (const coetcd::raised_alarm& alarm : alarms) {
        (void)co_await maintenance.disarm(alarm);
    }
}

asio::awaitable<void> admin_snapshot(const coetcd::client& client, std::string endpoint) {
    const coetcd::maintenance maintenance(client);
    auto tell = [](const coetcd::snapshot_progress& p) {
        std::cout << p.received << " of " << p.total << " bytes\n";
    };
    const coetcd::snapshot_info taken =
        co_await maintenance.snapshot(endpoint, "etcd-backup.db", tell);
    std::cout << taken.size << " bytes, SHA-256 " << taken.sha256 << '\n';
}

} // namespace manual
