// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/administration.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/maintenance.hpp>
#include <coetcd/error.hpp>
#include <coetcd/member_status.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Some answers do not say which cluster they are of. Before such a request changes anything, or
// after it has read something, the same endpoint is asked for its status, which says it.
namespace coetcd::detail {

inline asio::awaitable<std::vector<wire::alarm_member>> alarms(std::shared_ptr<client_impl> by,
                                                               call_terms how) {
    auto asking = administer(by, wire::alarm_request(), how.as(impact::none), std::nullopt);
    outcome<wire::alarm_response> listed = co_await std::move(asking);
    if (listed.response.header.cluster_id == 0) {
        auto who = ask_as_admin(by, wire::status_request(), how, listed.by);
        (void)co_await std::move(who);
    }
    co_return std::move(listed.response.alarms);
}

inline asio::awaitable<bool>
disarm(std::shared_ptr<client_impl> by, call_terms how, wire::alarm_request request) {
    auto who = administer(by, wire::status_request(), how, std::nullopt);
    const outcome<member_status> known = co_await std::move(who);
    auto asking = ask_as_admin(by, request, how, known.by);
    const wire::alarm_response disarmed = co_await std::move(asking);
    co_return !disarmed.alarms.empty();
}

inline asio::awaitable<void>
defragment(std::shared_ptr<client_impl> by, call_terms how, logic::endpoint where) {
    auto who = ask_as_admin(by, wire::status_request(), how, where);
    (void)co_await std::move(who);
    auto asking = ask_as_admin(by, wire::defragment_request(), how, where);
    (void)co_await std::move(asking);
}

/// The endpoint of the leader. Each is asked once, and briefly, if it does not answer.
/// @returns Nothing if `but_not` leads.
inline asio::awaitable<std::optional<logic::endpoint>>
find_leader(std::shared_ptr<client_impl> by, call_terms how, std::uint64_t but_not) {
    std::string last = "no endpoint answered";
    for (const logic::endpoint& where : by->cluster_router->endpoints()) {
        call_terms briefly = how;
        briefly.deadline =
            std::min(how.deadline, after(by->world->now(), by->options.attempt_timeout));
        briefly.only = &where;
        auto asking = call(by->cluster_router, wire::status_request(), briefly);
        const outcome<member_status> s = co_await std::move(asking);
        if (s.ec) {
            last = s.text;
            continue;
        }
        if (s.response.leader == but_not) {
            co_return std::nullopt;
        }
        if (s.response.is_leader()) {
            co_return where;
        }
        last = "the leader " + std::to_string(s.response.leader) + " is at none of them";
        if (s.response.leader == 0) {
            last = "there is no leader, says " + where.text();
        }
    }
    throw error(errc::unavailable,
                "move_leader: this client's endpoints were asked for the leader, which alone can "
                "do it; last: " +
                    last);
}

inline asio::awaitable<void>
move_leader(std::shared_ptr<client_impl> by, call_terms how, std::uint64_t target) {
    auto finding = find_leader(by, how, target);
    const std::optional<logic::endpoint> leader = co_await std::move(finding);
    if (leader) {
        auto asking = ask_as_admin(by, wire::move_leader_request{target}, how, leader);
        (void)co_await std::move(asking);
    }
}

} // namespace coetcd::detail
