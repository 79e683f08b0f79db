// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/service/client.hpp>
#include <coetcd/lease.hpp>

#include <chrono>
#include <memory>
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
        try {
            const outcome<lease_keep_alive_response> renewed =
                co_await lease_keep_alive(std::move(impl), how, id);
            response.header = renewed.response.header;
            response.id = renewed.response.id;
            response.ttl = renewed.response.ttl;
            granted.sent = renewed.sent;
        } catch (const error& e) {
            throw error(errc::outcome_unknown, e.what());
        }
        if (response.ttl.count() <= 0) {
            throw error(server_errc::not_found, "lease_grant: the lease has ended already");
        }
        granted.ec.clear();
    }
    granted.check();
    co_return granted;
}

inline asio::awaitable<lease_revoke_response>
lease_revoke(std::shared_ptr<client_impl> impl, when how, lease_id id) {
    const wire::lease_revoke_request request{id};
    const outcome<lease_revoke_response> revoked = co_await call(std::move(impl), request, how);
    // It was there, if an attempt of ours may have ended it.
    const bool done =
        revoked.ec == server_errc::not_found && revoked.left == logic::effect::unresolved;
    if (!done) {
        revoked.check();
    }
    co_return revoked.response;
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
