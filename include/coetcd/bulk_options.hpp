// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace coetcd {

/// The size of the transactions that carry many writes. Trivially destructible, so that a call may
/// spell them in braces.
struct bulk_options {
    /// The most keys that one transaction writes or erases, from 1 to 128, etcd's limit. With
    /// `erase_range` a few more, if others put keys there meanwhile.
    std::size_t keys = 128;
    /// The most bytes that one transaction has, in keys, values, and 48 for each key. A single key
    /// with a larger value goes alone. etcd refuses requests of more than 1.5 MiB, unless it is
    /// configured otherwise (`--max-request-bytes`). Must be positive.
    std::size_t bytes = 1024 * 1024;
    /// Whether a transaction whose answer is lost is sent again, until there is an answer or no
    /// time is left. Set it only if nobody else writes these keys meanwhile, or soon after: the
    /// second copy makes undone what somebody has written after the first one.
    bool repeat = false;
};

/// What has been done so far.
struct bulk_step {
    std::int64_t revision = 0; ///< Of this transaction.
    std::size_t keys = 0;      ///< That it has written, or erased.
    std::size_t total = 0;     ///< By all transactions so far.
};

} // namespace coetcd
