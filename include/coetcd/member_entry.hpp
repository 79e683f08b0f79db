// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>

namespace coetcd {

/// A member of a `group`.
struct member_entry {
    std::string key;           ///< In etcd; no other member has it, now or later.
    std::string value;         ///< What it has joined with, or has changed that to.
    std::int64_t joined = 0;   ///< The revision at which it joined.
    std::int64_t revision = 0; ///< The revision of its value.
    lease_id lease = 0;        ///< Its session's.

    bool operator==(const member_entry&) const = default;
};

} // namespace coetcd
