// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a session begins: with a new lease, or with an existing one.

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/service/lease.hpp>
#include <coetcd/detail/service/session.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

inline void session_impl::begin(const std::shared_ptr<session_impl>& self,
                                std::size_t most_retained) {
    self->most_retained = most_retained;
    spawn(self->world, keep_alive(self));
}

inline asio::awaitable<std::shared_ptr<session_impl>>
session_impl::open(std::shared_ptr<client_impl> c,
                   std::chrono::nanoseconds timeout,
                   session_options options,
                   const std::function<void(const std::string&)>* tried) {
    lease_guard guard(c); // until the session exists
    call_terms how = c->within(timeout);
    how.tried = tried;
    const outcome<lease_grant_response> granted = co_await guard.grant(how, options.ttl);
    auto world = c->world;
    const logic::trusted_ttl ttl(options.ttl, granted.response.ttl);
    const auto impl = make_at_home<session_impl>(std::move(world),
                                                 std::move(c),
                                                 guard.lease(),
                                                 granted.response.header.cluster_id,
                                                 ttl,
                                                 std::move(options.label),
                                                 granted.sent,
                                                 timeout);
    begin(impl, options.retained);
    guard.release();
    co_return impl;
}

inline asio::awaitable<std::shared_ptr<session_impl>>
session_impl::adopt(std::shared_ptr<client_impl> c,
                    std::chrono::nanoseconds timeout,
                    lease_id lease,
                    session_options options) {
    const call_terms how = c->within(timeout);
    std::shared_ptr<session_impl> impl;
    // Two answers, since one may be wrong.
    const wire::lease_time_to_live_request question{lease, false};
    const outcome<lease_time_to_live_response> told = co_await call(c, question, how);
    told.check();
    if (!is_there(told.response)) {
        co_return impl;
    }
    const outcome<lease_keep_alive_response> renewed = co_await lease_keep_alive(c, how, lease);
    if (!is_there(renewed.response)) {
        co_return impl;
    }
    if (told.response.granted_ttl.count() < 1) {
        throw error(errc::protocol_error, "lease_time_to_live: a lease without a time to live");
    }
    const std::chrono::seconds least = std::min(renewed.response.ttl, told.response.granted_ttl);
    const auto ttl = logic::trusted_ttl::of_granted(least);
    auto world = c->world;
    impl = make_at_home<session_impl>(std::move(world),
                                      std::move(c),
                                      lease,
                                      renewed.response.header.cluster_id,
                                      ttl,
                                      std::move(options.label),
                                      renewed.sent,
                                      timeout);
    begin(impl, options.retained);
    co_return impl;
}

} // namespace coetcd::detail
