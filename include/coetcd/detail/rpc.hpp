// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace coetcd::detail {

/// etcd's calls.
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
    auth_status,
    auth_enable,
    auth_disable,
    user_add,
    user_delete,
    user_get,
    user_list,
    user_change_password,
    user_grant_role,
    user_revoke_role,
    role_add,
    role_delete,
    role_get,
    role_list,
    role_grant_permission,
    role_revoke_permission,
    member_add,
    member_remove,
    member_update,
    member_promote,
    alarm,
    defragment,
    hash_kv,
    move_leader,
    downgrade,
    snapshot,
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

inline constexpr std::array<rpc_traits, 40> rpcs{{
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
    {rpc::auth_status, "auth_status", "/v3/auth/status", impact::none},
    {rpc::auth_enable, "auth_enable", "/v3/auth/enable", impact::once},
    {rpc::auth_disable, "auth_disable", "/v3/auth/disable", impact::once},
    {rpc::user_add, "user_add", "/v3/auth/user/add", impact::once},
    {rpc::user_delete, "user_delete", "/v3/auth/user/delete", impact::once},
    {rpc::user_get, "user_get", "/v3/auth/user/get", impact::none},
    {rpc::user_list, "user_list", "/v3/auth/user/list", impact::none},
    {rpc::user_change_password, "user_change_password", "/v3/auth/user/changepw", impact::once},
    {rpc::user_grant_role, "user_grant_role", "/v3/auth/user/grant", impact::once},
    {rpc::user_revoke_role, "user_revoke_role", "/v3/auth/user/revoke", impact::once},
    {rpc::role_add, "role_add", "/v3/auth/role/add", impact::once},
    {rpc::role_delete, "role_delete", "/v3/auth/role/delete", impact::once},
    {rpc::role_get, "role_get", "/v3/auth/role/get", impact::none},
    {rpc::role_list, "role_list", "/v3/auth/role/list", impact::none},
    {rpc::role_grant_permission, "role_grant_permission", "/v3/auth/role/grant", impact::once},
    {rpc::role_revoke_permission, "role_revoke_permission", "/v3/auth/role/revoke", impact::once},
    {rpc::member_add, "member_add", "/v3/cluster/member/add", impact::once},
    {rpc::member_remove, "member_remove", "/v3/cluster/member/remove", impact::once},
    {rpc::member_update, "member_update", "/v3/cluster/member/update", impact::once},
    {rpc::member_promote, "member_promote", "/v3/cluster/member/promote", impact::once},
    {rpc::alarm, "alarm", "/v3/maintenance/alarm", impact::once},
    {rpc::defragment, "defragment", "/v3/maintenance/defragment", impact::once},
    {rpc::hash_kv, "hash_kv", "/v3/maintenance/hashkv", impact::none},
    {rpc::move_leader, "move_leader", "/v3/maintenance/transfer-leadership", impact::once},
    {rpc::downgrade, "downgrade", "/v3/maintenance/downgrade", impact::once},
    {rpc::snapshot, "snapshot", "/v3/maintenance/snapshot", impact::none},
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

/// Whether a member without a leader is to refuse it at once. If not, the call is about that member
/// alone.
constexpr bool wants_leader(rpc what) {
    return what != rpc::status && what != rpc::defragment && what != rpc::hash_kv &&
           what != rpc::snapshot;
}

/// Whether the gateway of etcd 3.4 does not have it: it says that there is no such page.
constexpr bool is_since_3_5(rpc what) {
    return what == rpc::auth_status || what == rpc::hash_kv || what == rpc::downgrade;
}

} // namespace coetcd::detail
