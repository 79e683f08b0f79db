// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>

namespace coetcd {

/// An endpoint of a service: see `resolve`.
struct service_endpoint {
    std::string key;           ///< In etcd.
    std::string address;       ///< As it was registered, for example "10.0.0.7:8080".
    std::string metadata;      ///< A JSON text; "null" for none.
    std::int64_t revision = 0; ///< At which it was written.
    lease_id lease = 0;        ///< That of its session; 0 for none.

    bool operator==(const service_endpoint&) const = default;
};

} // namespace coetcd
