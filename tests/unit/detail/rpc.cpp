// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/rpc.hpp>

#include <iterator>
#include <set>
#include <string_view>

#include "support/catch.hpp"

using namespace coetcd::detail;

TEST_CASE("each call has a name, a path, and may be repeated or not", "[rpc]") {
    struct {
        rpc what;
        const char* name;
        const char* path;
        impact usual;
    } const rows[] = {
        {rpc::range, "range", "/v3/kv/range", impact::none},
        {rpc::put, "put", "/v3/kv/put", impact::once},
        {rpc::delete_range, "delete_range", "/v3/kv/deleterange", impact::once},
        {rpc::txn, "txn", "/v3/kv/txn", impact::once},
        {rpc::compact, "compact", "/v3/kv/compaction", impact::once},
        {rpc::lease_grant, "lease_grant", "/v3/lease/grant", impact::idempotent},
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
        {rpc::role_revoke_permission,
         "role_revoke_permission",
         "/v3/auth/role/revoke",
         impact::once},
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
    };
    REQUIRE(std::size(rows) == rpcs.size());
    std::set<std::string_view> paths;
    for (const auto& row : rows) {
        CAPTURE(row.name);
        CHECK(name(row.what) == row.name);
        CHECK(path(row.what) == row.path);
        CHECK((traits(row.what).usual == row.usual));
        paths.insert(row.path);
    }
    CHECK(paths.size() == rpcs.size());
}

TEST_CASE("a member without a leader refuses what is not about itself", "[rpc]") {
    std::set<std::string_view> local;
    for (const rpc_traits& each : rpcs) {
        if (!wants_leader(each.what)) {
            local.insert(each.name);
        }
    }
    CHECK((local == std::set<std::string_view>{"defragment", "hash_kv", "snapshot", "status"}));
}
