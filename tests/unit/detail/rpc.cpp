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
