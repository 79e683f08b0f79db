// SPDX-License-Identifier: BSL-1.0
#include <coetcd/lease.hpp>

#include <chrono>
#include <type_traits>

#include "support/catch.hpp"

using namespace coetcd;

// A ttl counts in seconds on the wire; nothing finer gets lost without a cast.
static_assert(std::is_same_v<decltype(lease_grant_response::ttl), std::chrono::seconds>);
static_assert(
    !std::is_constructible_v<decltype(lease_grant_response::ttl), std::chrono::milliseconds>);

TEST_CASE("an answer about a lease begins with no lease", "[lease]") {
    CHECK(lease_grant_response().id == 0);
    CHECK(lease_grant_response().ttl.count() == 0);
    CHECK(lease_revoke_response().header.revision == 0);
    CHECK(lease_keep_alive_response().id == 0);
    CHECK(lease_keep_alive_response().ttl.count() == 0);
    CHECK(lease_time_to_live_response().id == 0);
    CHECK(lease_time_to_live_response().ttl.count() == 0);
    CHECK(lease_time_to_live_response().granted_ttl.count() == 0);
    CHECK(lease_time_to_live_response().keys.empty());
    CHECK(lease_leases_response().leases.empty());
}
