// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <optional>

namespace coetcd {

/// How a lock is held. Trivially destructible, so that a call may spell it in braces.
struct lock_options {
    /// Wait for so long before the lock is taken after a holder that has vanished: one whose
    /// session was lost or closed while it held the lock, or whose key was deleted. It gives work
    /// that is still on its way time to end. Empty: do not wait. Must be positive.
    ///
    /// All users of the lock have to set it: a holder that has set it leaves a note, `<name>.own`,
    /// and takes it away when it gives the lock back. A holder that has not set it neither leaves a
    /// note nor heeds one, nor does Go's client. It is a courtesy, not a fence: the note of a
    /// vanished holder may be lost, and work may be on its way for longer. A lock that is given
    /// back just before its session is closed may look as if it had vanished: await `unlock` first.
    /// A holder that lives, and notices that its key was deleted, takes its note away as well.
    /// While no holder vanishes it costs no round trip, except that a hand-over within a session
    /// takes a request of its own.
    ///
    /// A key without a lease stays behind a holder that has vanished, until the next one gives
    /// back.
    std::optional<std::chrono::milliseconds> delay{};

    /// The longest time that the lock is held, from when it is granted or resumed; empty: for as
    /// long as the session lives. Must be positive.
    ///
    /// At its end `owns_lock` is false, which looks at the clock, `with_lock` cancels its body, and
    /// the lock is given back in the background: `errc::hold_expired`. If the process is stuck or
    /// cut off then, the lease ends it. So the next holder has the lock after `max_hold`, or in
    /// such a case at most a ttl later.
    std::optional<std::chrono::milliseconds> max_hold{};

    /// Watch the lock's key while it is held: `force_unlock`, or a deletion by hand, is then
    /// noticed at once rather than with the next renewal. Not of a `multi_lock`. Costs a watch on
    /// the client's stream for locks, and a look, for each time that the lock is taken.
    bool watch_while_held = false;
};

} // namespace coetcd
