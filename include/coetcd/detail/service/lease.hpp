// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/lease.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A lease that was granted, although the answer of the attempt that did it was lost: to us, or to
/// a proxy that tried again by itself. Nobody else has chosen the same number at random.
inline bool is_ours_already(const answer& a, bool random_id) {
    return a.ec == server_errc::failed_precondition &&
           (random_id || a.left == logic::effect::unresolved) &&
           a.text.find("lease already exists") != std::string::npos;
}

// How etcd says that there is no such lease.
inline bool is_there(const lease_keep_alive_response& r) {
    return r.ttl.count() > 0;
}
inline bool is_there(const lease_time_to_live_response& r) {
    return r.ttl.count() >= 0; // 0: in its last second
}

/// @returns What was renewed, or is known to have ended. Throws the rest.
inline asio::awaitable<outcome<lease_keep_alive_response>>
lease_keep_alive(std::shared_ptr<client_impl> impl, when how, lease_id id) {
    const wire::lease_keep_alive_request request{id};
    outcome<lease_keep_alive_response> renewed = co_await call(std::move(impl), request, how);
    renewed.check();
    co_return renewed;
}

/// @returns What was granted. Throws the rest.
inline asio::awaitable<outcome<lease_grant_response>> lease_grant(std::shared_ptr<client_impl> impl,
                                                                  when how,
                                                                  std::chrono::seconds ttl,
                                                                  lease_id id,
                                                                  bool random_id = false) {
    // The id is ours to choose, so that the grant can be repeated. Positive, as etcd's own.
    if (id == 0) {
        random_id = true;
        id = static_cast<lease_id>(impl->world->random() >> 1) | 1;
    }
    const wire::lease_grant_request request{ttl, id};
    outcome<lease_grant_response> granted = co_await call(impl, request, how);
    if (is_ours_already(granted, random_id)) {
        // What its ttl is, another call has to tell.
        how.known.reset();
        lease_grant_response& response = granted.response;
        const wire::lease_keep_alive_request renewal{id};
        const outcome<lease_keep_alive_response> renewed =
            co_await call(std::move(impl), renewal, how);
        if (renewed.ec) {
            throw error(errc::outcome_unknown, renewed.text);
        }
        response.header = renewed.response.header;
        response.id = renewed.response.id;
        response.ttl = renewed.response.ttl;
        granted.sent = renewed.sent;
        if (response.ttl.count() <= 0) {
            throw error(server_errc::not_found, "lease_grant: the lease has ended already");
        }
        granted.ec.clear();
    }
    granted.check();
    co_return granted;
}

/// @returns Nothing if there is no such lease. Throws the rest.
inline asio::awaitable<std::optional<lease_revoke_response>>
lease_revoke(std::shared_ptr<client_impl> impl, when how, lease_id id) {
    const wire::lease_revoke_request request{id};
    const outcome<lease_revoke_response> revoked = co_await call(std::move(impl), request, how);
    std::optional<lease_revoke_response> there;
    if (revoked.ec != server_errc::not_found) {
        revoked.check();
        there = revoked.response;
    } else if (revoked.left == logic::effect::unresolved) {
        there = revoked.response; // it was there, if an attempt of ours may have ended it
    }
    co_return there;
}

/// What `asking` tells of a lease; nothing if there is none.
template<class Response>
asio::awaitable<std::optional<Response>> if_there(asio::awaitable<Response> asking) {
    Response r = co_await std::move(asking);
    std::optional<Response> there;
    if (is_there(r)) {
        there.emplace(std::move(r));
    }
    co_return there;
}

/// Has etcd end a lease. That there is none is as good.
inline asio::awaitable<answer>
end_lease(std::shared_ptr<client_impl> impl, lease_id id, std::chrono::nanoseconds patience) {
    const wire::lease_revoke_request request{id};
    const when how = impl->within(patience);
    const outcome<lease_revoke_response> revoked = co_await call(std::move(impl), request, how);
    answer result = revoked;
    if (result.ec == server_errc::not_found) {
        result.ec.clear();
    }
    co_return result;
}

/// The same, in the background, of a lease that no key can have: it keeps nobody from anything, and
/// ends by itself. So nobody is kept waiting for it for long, as a program is that wants to end.
inline void end_empty_lease(std::shared_ptr<client_impl> impl, lease_id id) {
    constexpr std::chrono::seconds patience(1);
    auto quietly = [](asio::awaitable<answer> work) -> asio::awaitable<void> {
        (void)co_await std::move(work);
    };
    env& world = *impl->world;
    spawn(world, quietly(end_lease(std::move(impl), id, patience)));
}

inline void require_ttl(std::chrono::seconds ttl) {
    constexpr std::chrono::seconds longest(9'000'000'000); // etcd's
    if (ttl.count() <= 0 || ttl > longest) {
        throw std::invalid_argument("ttl: must be from one second to 9,000,000,000");
    }
}

inline void require_lease(lease_id id) {
    if (id == 0) {
        throw std::invalid_argument("lease: 0 is no lease");
    }
}

} // namespace coetcd::detail
