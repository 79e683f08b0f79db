// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace coetcd::detail {

/// etcd's calls, as far as the library makes them.
enum class rpc {
    range,
    put,
    delete_range,
    txn,
    compact,
    lease_grant,
    lease_revoke,
    lease_keep_alive,
    lease_time_to_live,
    lease_leases,
    watch,
    authenticate,
    member_list,
    status,
};

/// What a request does to the store, and so whether it may be repeated when its answer is lost.
enum class impact {
    none,       ///< It changes nothing that its caller has to know of. It may be repeated.
    idempotent, ///< It changes the store, and no more if it is repeated. It may be repeated.
    once,       ///< It changes the store. It is not repeated once it may have been applied.
};

struct rpc_traits {
    rpc what;
    std::string_view name; ///< In etcd's API, for messages.
    std::string_view path; ///< Where the gateway serves it.
    impact usual;          ///< The caller may know better about a single request.
};

inline constexpr std::array<rpc_traits, 14> rpcs{{
    {rpc::range, "range", "/v3/kv/range", impact::none},
    {rpc::put, "put", "/v3/kv/put", impact::once},
    {rpc::delete_range, "delete_range", "/v3/kv/deleterange", impact::once},
    {rpc::txn, "txn", "/v3/kv/txn", impact::once},
    {rpc::compact, "compact", "/v3/kv/compaction", impact::once},
    {rpc::lease_grant, "lease_grant", "/v3/lease/grant", impact::idempotent}, // we choose the id
    {rpc::lease_revoke, "lease_revoke", "/v3/lease/revoke", impact::idempotent},
    {rpc::lease_keep_alive, "lease_keep_alive", "/v3/lease/keepalive", impact::none},
    {rpc::lease_time_to_live, "lease_time_to_live", "/v3/lease/timetolive", impact::none},
    {rpc::lease_leases, "lease_leases", "/v3/lease/leases", impact::none},
    {rpc::watch, "watch", "/v3/watch", impact::none},
    {rpc::authenticate, "authenticate", "/v3/auth/authenticate", impact::none},
    {rpc::member_list, "member_list", "/v3/cluster/member/list", impact::none},
    {rpc::status, "status", "/v3/maintenance/status", impact::none},
}};

constexpr const rpc_traits& traits(rpc what) {
    return rpcs[static_cast<std::size_t>(what)];
}
static_assert(
    [] {
        for (const rpc_traits& each : rpcs) {
            if (&traits(each.what) != &each) {
                return false;
            }
        }
        return true;
    }(),
    "in the order of the enumerators");

constexpr std::string_view name(rpc what) {
    return traits(what).name;
}
constexpr std::string_view path(rpc what) {
    return traits(what).path;
}

} // namespace coetcd::detail
