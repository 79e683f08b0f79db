// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>

namespace coetcd {

/// The leader, as etcd has it.
struct leader {
    std::string value;     ///< What was proclaimed last; at first, what the campaign was made with.
    std::string key;       ///< Exists as long as the term lasts.
    std::int64_t term = 0; ///< The create_revision of `key`: grows from leader to leader.
    std::int64_t revision = 0; ///< When `value` was proclaimed: grows within a term.
    lease_id lease = 0;        ///< The lease of the leader's session.

    bool operator==(const leader&) const = default;
};

} // namespace coetcd
