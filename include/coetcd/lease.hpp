// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace coetcd {

struct lease_grant_response {
    response_header header;
    lease_id id = 0;
    /// What etcd granted; it raises a ttl that is too short. If the answer says more than any etcd
    /// raises it to, it is not believed: this is then what was asked for.
    std::chrono::seconds ttl{0};
};

struct lease_revoke_response {
    response_header header;
};

struct lease_keep_alive_response {
    response_header header;
    lease_id id = 0;
    std::chrono::seconds ttl{0}; ///< From now on, as one member says.
};

struct lease_time_to_live_response {
    response_header header;
    lease_id id = 0;
    std::chrono::seconds ttl{0}; ///< Rounded down: 0 is a lease in its last second.
    std::chrono::seconds granted_ttl{0};
    std::vector<std::string> keys; ///< Only if asked for.
};

struct lease_leases_response {
    response_header header;
    std::vector<lease_id> leases;
};

} // namespace coetcd
