// SPDX-License-Identifier: BSL-1.0
// What docs/pages/recipes/group.md shows.
#include <coetcd/client.hpp>
#include <coetcd/ephemeral.hpp>
#include <coetcd/group.hpp>
#include <coetcd/printable.hpp>
#include <coetcd/registry.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>

#include <boost/asio/awaitable.hpp>

#include <iostream>
#include <vector>

namespace asio = boost::asio;

namespace manual {

asio::awaitable<void> group_smallest(coetcd::client client) {
    coetcd::session_keeper keeper(client);
    coetcd::group workers(keeper, "workers");
    const coetcd::membership member = co_await workers.join("10.0.0.7"); // while this lives
    const std::vector<coetcd::member_entry> all = co_await workers.members();
    for (const coetcd::member_entry& each : all) {
        std::cout << coetcd::printable(each.value) << '\n'; // the oldest one first
    }
}

asio::awaitable<void> group_member(coetcd::membership& member) {
    co_await member.update("10.0.0.7, busy"); // what others see
    co_await member.leave();
}

asio::awaitable<void> group_changes(coetcd::client client) {
    coetcd::members_feed feed = coetcd::watch_members(client, "workers");
    for (;;) {
        // The present list at once, then each change.
        const std::vector<coetcd::member_entry> members = co_await feed.next();
        std::cout << members.size() << " members\n";
    }
}

asio::awaitable<void> group_ephemeral(coetcd::session& session) {
    coetcd::ephemeral config = co_await coetcd::ephemeral::create(session, "hosts/7", "up");
    co_await config.update("draining");
    co_await config.remove();
}

asio::awaitable<void> group_registry(coetcd::client client, coetcd::session_keeper& keeper) {
    coetcd::registration here =
        co_await coetcd::register_service(keeper, "orders", "10.0.0.7:8080", R"({"zone":"b"})");

    coetcd::endpoints_feed feed = coetcd::resolve(client, "orders");
    for (;;) {
        const std::vector<coetcd::service_endpoint> now = co_await feed.next();
        for (const coetcd::service_endpoint& each : now) {
            std::cout << coetcd::printable(each.address) << '\n';
        }
    }
}

} // namespace manual
