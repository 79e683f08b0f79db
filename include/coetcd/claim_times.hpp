// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

namespace coetcd {

/// How long a claim lasts, and how long to wait for it.
struct claim_times {
    /// As for `try_claim`. Must be set.
    std::chrono::seconds hold{0};
    /// Not positive: as `try_claim`.
    std::chrono::nanoseconds wait{0};
    /// For how long the name stays taken at least, even if it is given back sooner, or the program
    /// goes away: "at most once in this time". It counts from when the name was taken. Not
    /// negative, and less than `hold`; 0 for no such time.
    ///
    /// `release`, and the destruction of the claim, let it last until then. If the program ends
    /// before it has told etcd so, the claim lasts until `hold` has passed. A deletion by hand,
    /// `force_unlock` and a revocation of the lease end it all the same. No clocks of several
    /// machines are compared: the program's own says how much is left, and etcd's leases do the
    /// rest. They never end early.
    std::chrono::seconds min_hold{0};
};

} // namespace coetcd
