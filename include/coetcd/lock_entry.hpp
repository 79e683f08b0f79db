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
    /// The holder's; a waiter's, once it holds the lock. For `force_unlock`, too.
    std::int64_t fencing_token = 0;
};

} // namespace coetcd
