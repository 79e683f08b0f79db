// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/attempts.hpp>
#include <coetcd/detail/logic/endpoint.hpp>
#include <coetcd/detail/logic/members.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/detail/wire/cluster.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/status.hpp>
#include <coetcd/error.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// How a router learns of endpoints, besides by the requests that it carries.
namespace coetcd::detail {

inline asio::awaitable<void> router::look_around(std::weak_ptr<router> of,
                                                 std::shared_ptr<env> world) {
    struct looking {
        explicit looking(std::weak_ptr<router> r)
            : by(std::move(r)) {}
        ~looking() {
            if (const auto self = by.lock()) {
                self->looks_ = false;
            }
        }
        std::weak_ptr<router> by;
    };
    const looking until_the_end(of); // one at a time
    co_await refresh_if_due(of, world);
    std::vector<logic::endpoint> all;
    if (const auto self = of.lock()) {
        all = self->choice_.all();
    }
    for (const logic::endpoint& where : all) {
        // The first request may have to connect.
        for (int i = 0; i != 2; ++i) {
            range_options how;
            how.count_only = true;
            const range_request any(std::string(1, '\0'), how);
            const time_point sent = world->now();
            const reply r = co_await look_at(of, world, where, rpc::range, wire::encode(any));
            const auto self = of.lock();
            if (!self) {
                co_return;
            }
            // It does not matter if the key may not be read: the member was asked, and answered.
            const logic::attempt_end end =
                self->assess(where, r, rpc::range, is_range, false, true);
            if (end.code && end.meaning.blame) {
                self->failed(where, r.by, use::call);
                break;
            }
            if (r.crowded) {
                break; // nothing was learnt
            }
            if (i == 1) {
                self->choice_.measured(where, world->now() - sent);
            }
        }
    }
}

inline asio::awaitable<void> router::refresh_if_due(std::weak_ptr<router> of,
                                                    std::shared_ptr<env> world) {
    std::vector<logic::endpoint> named;
    if (const auto self = of.lock()) {
        const time_point now = world->now();
        if (!self->options_.member_refresh || now < self->next_refresh_) {
            co_return;
        }
        self->next_refresh_ = after(now, *self->options_.member_refresh);
        named = self->choice_.named();
    }
    std::optional<wire::member_list_response> list;
    for (const logic::endpoint& where : named) {
        list = co_await members_by(of, world, where);
        if (list) {
            break;
        }
    }
    const auto self = of.lock();
    if (self && !list && self->options_.lists_from_learned) {
        const call_terms how = self->within(self->options_.login_timeout);
        outcome<wire::member_list_response> any =
            co_await detail::call(self, wire::member_list_request(), how);
        if (!any.ec) {
            list = std::move(any.response);
        }
    }
    if (!self || !list) {
        co_return; // what was known before still serves
    }
    const std::vector<logic::endpoint> usable =
        logic::usable_endpoints(list->members, self->options_.rules);
    if (!usable.empty()) {
        self->choice_.learn(usable);
        self->env_->keep_only(self->choice_.all());
    }
}

inline asio::awaitable<void>
router::look_through(std::weak_ptr<router> of, std::shared_ptr<env> world, logic::endpoint where) {
    const reply r =
        co_await look_at(of, world, where, rpc::status, "{}", std::chrono::milliseconds(500));
    const bool given_up =
        !r.ec && r.status != 200 &&
        logic::code_of(wire::decode_status(r.status, r.body)) == server_errc::deadline_exceeded;
    if (const auto self = of.lock()) {
        self->jam_.heard(where, given_up, world->now());
    }
}

inline asio::awaitable<reply> router::look_at(std::weak_ptr<router> of,
                                              std::shared_ptr<env> world,
                                              logic::endpoint where,
                                              rpc what,
                                              std::string body,
                                              std::optional<std::chrono::nanoseconds> timeout) {
    std::optional<call_request> request;
    if (const auto self = of.lock()) {
        const call_terms how =
            timeout ? self->within(*timeout) : self->within_attempt(look_timeout);
        request.emplace(std::move(where), what, std::move(body), how.deadline);
        request->token = self->login_.token();
    }
    reply r;
    r.ec = asio::error::operation_aborted;
    if (request) {
        r = co_await world->call(std::move(*request));
    }
    co_return r;
}

inline asio::awaitable<std::optional<wire::member_list_response>>
router::members_by(std::weak_ptr<router> of, std::shared_ptr<env> world, logic::endpoint where) {
    const wire::member_list_request which;
    const reply r =
        co_await look_at(of, std::move(world), where, rpc::member_list, wire::encode(which));
    std::optional<wire::member_list_response> list;
    if (!r.ec && r.status == 200) {
        try {
            list = wire::decode<wire::member_list_response>(r.body);
        } catch (const error&) {
            // The answer is not etcd's.
        }
    }
    if (const auto self = of.lock();
        list && (!self || self->rejects(where, list->header.cluster_id))) {
        list.reset();
    }
    co_return list;
}

} // namespace coetcd::detail
