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

/// An answer, and when the request that brought it was sent.
template<class Response>
struct timed {
    Response response;
    time_point sent;
};

/// The answer alone.
template<class Response>
asio::awaitable<Response> untimed(asio::awaitable<timed<Response>> call) {
    timed<Response> result = co_await std::move(call);
    co_return std::move(result.response);
}

inline asio::awaitable<timed<lease_keep_alive_response>>
lease_keep_alive(std::shared_ptr<client_impl> impl, call_spec spec, lease_id id) {
    timed<lease_keep_alive_response> result;
    std::string body = wire::encode_lease_keep_alive(id);
    decoder decode = decode_stream_into(result.response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    a.check();
    result.sent = a.sent;
    co_return result;
}

inline asio::awaitable<timed<lease_grant_response>> lease_grant(std::shared_ptr<client_impl> impl,
                                                                call_spec spec,
                                                                std::chrono::seconds ttl,
                                                                lease_id id,
                                                                bool random_id = false) {
    // The id is ours to choose, so that the grant can be repeated. Positive, as etcd's own.
    if (id == 0) {
        random_id = true;
        id = static_cast<lease_id>(impl->world->random() >> 1) | 1;
    }
    timed<lease_grant_response> result;
    lease_grant_response& response = result.response;
    std::string body = wire::encode_lease_grant(ttl, id);
    decoder decode = decode_into(response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    if (is_ours_already(a, random_id)) {
        // What its ttl is, another call has to tell.
        spec.what = rpc::lease_keep_alive;
        try {
            const timed<lease_keep_alive_response> renewed =
                co_await lease_keep_alive(std::move(impl), spec, id);
            response.header = renewed.response.header;
            response.id = renewed.response.id;
            response.ttl = renewed.response.ttl;
            result.sent = renewed.sent;
        } catch (const error& e) {
            throw error(errc::outcome_unknown, e.what());
        }
        if (response.ttl.count() <= 0) {
            throw error(server_errc::not_found, "lease_grant: the lease has ended already");
        }
        co_return result;
    }
    a.check();
    result.sent = a.sent;
    co_return result;
}

inline asio::awaitable<lease_revoke_response>
lease_revoke(std::shared_ptr<client_impl> impl, call_spec spec, std::string body) {
    lease_revoke_response response;
    decoder decode = decode_into(response);
    const answer a = co_await impl->cluster_router->call(spec, std::move(body), std::move(decode));
    // It was there, if an attempt of ours may have ended it.
    const bool done = a.ec == server_errc::not_found && a.left == logic::effect::unresolved;
    if (!done) {
        a.check();
    }
    co_return response;
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
