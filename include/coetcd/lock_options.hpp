// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <optional>

namespace coetcd {

/// How a lock is held. Trivially destructible, so that a call may spell it in braces.
struct lock_options {
    /// The longest time that the lock is held, from when it is granted or resumed; empty: for as long as the
    /// session lives. Must be positive.
    ///
    /// At its end `owns_lock` is false, which looks at the clock, `with_lock` cancels its body, and
    /// the lock is given back in the background: `errc::hold_expired`. If the process is stuck or
    /// cut off then, the lease ends it. So another one has the lock after `max_hold`, or in such a
    /// case at most a ttl later.
    std::optional<std::chrono::milliseconds> max_hold{};

    /// Watch the lock's key while it is held: `force_unlock`, or a deletion by hand, is then
    /// noticed at once rather than with the next renewal. Costs a watch on the client's shared
    /// stream, and a look, for each time that the lock is taken.
    bool watch_while_held = false;
};

} // namespace coetcd
