// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <optional>

namespace coetcd {

/// How a lock is held. Trivially destructible, so that a call may spell it in braces.
struct lock_options {
    /// How long to wait before taking the lock after a holder that has vanished: one whose session
    /// was lost or closed while it held the lock, or whose key was deleted. It gives work that is
    /// still on its way time to end. Empty: do not wait. Must be positive.
    ///
    /// All users of the lock must set it: a holder that has set it leaves a note, `<name>.own`, and
    /// takes it away when it gives the lock back. A holder that has not set it neither leaves a
    /// note nor heeds one, nor does Go's client. It is a courtesy, not a fence: the note of a
    /// vanished holder may be lost, and work may be on its way for longer. A lock that is given
    /// back just before its session is closed may look as if it had vanished: await `unlock` first.
    /// A holder that lives, and notices that its key was deleted, takes its note away as well.
    /// While no holder vanishes it costs no round trip, except that a hand-over within a session
    /// takes a request of its own.
    ///
    /// After a holder has vanished, a key without a lease stays in etcd until the next holder gives
    /// the lock back.
    std::optional<std::chrono::milliseconds> delay{};

    /// The longest time that the lock is held, from when it is granted or resumed; empty: for as
    /// long as the session lives. Must be positive.
    ///
    /// At its end `owns_lock`, which looks at the clock, is false, `with_lock` cancels its body,
    /// and the lock is given back in the background with `errc::hold_expired`. If the process is
    /// stuck or cut off then, the lock ends with the lease. So the next holder has it after
    /// `max_hold`, or in that case at most a ttl later.
    std::optional<std::chrono::milliseconds> max_hold{};

    /// Watch the lock's keys while it is held: `force_unlock`, or a deletion of one by hand, is
    /// then noticed at once rather than with the next renewal. Not for a `multi_lock`. Costs a
    /// watch on the client's stream for locks, two for who writes in a `shared_mutex`, and a look,
    /// each time the lock is taken or changes its mode.
    bool watch_while_held = false;
};

} // namespace coetcd
