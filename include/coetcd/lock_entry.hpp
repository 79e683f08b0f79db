// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>

namespace coetcd {

/// A key in the queue of a lock: its holder, or a waiter.
struct lock_entry {
    std::string key;
    std::string label;  ///< See `session_options::label`. Untrusted text: see `printable`.
    lease_id lease = 0; ///< 0: a stray key; it blocks everybody until it is deleted.
    std::int64_t create_revision = 0; ///< The holder's is the fencing token.
};

} // namespace coetcd
