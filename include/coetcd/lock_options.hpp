// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <optional>

namespace coetcd {

/// How a `mutex` is held. Trivially destructible, so that a call may spell it in braces.
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
    /// At its end `owns_lock`, which looks at the clock, is false, `with_lock` cancels its body and
    /// throws `errc::hold_expired`, and the lock is given back in the background. If the process is
    /// stuck or cut off then, the lock ends with the lease. So the next holder has it after
    /// `max_hold`, or in that case at most a ttl later.
    std::optional<std::chrono::milliseconds> max_hold{};

    /// How long the session keeps the lock after it was given back, so that its next holder needs
    /// no request; each use restarts that time. Empty: not at all. Must be positive. Not together
    /// with `delay`.
    ///
    /// Meanwhile the session's next holder has the lock at once, without a request. As soon as
    /// anybody else queues for the lock, or asks for it, it goes: at once, or when the holder has
    /// given it back. To others it looks held until then, so their `try_lock` returns false;
    /// `try_lock_for` gets it. A lock that others often want before this session does is given back
    /// to etcd at once, most of the time.
    ///
    /// Only a clean end keeps the lock: `unlock`, or a body of `with_lock` that returns.
    /// Consecutive holders of one session may then share a fencing token: finish what was begun
    /// under the lock before it is given back.
    ///
    /// The first `unlock` costs a read in place of a write, and a watch on the client's stream for
    /// locks; those after it cost nothing. See `session_options::retained` for how many there may
    /// be. The lock's key stays in etcd as long as the session keeps the lock.
    std::optional<std::chrono::milliseconds> retain{};

    /// Watch the lock's key while it is held: `force_unlock`, or a deletion by hand, is then
    /// noticed at once rather than with the next renewal. Costs a watch on the client's stream for
    /// locks, and a look, each time the lock is taken.
    bool watch_while_held = false;

    /// Read the lock's value with the grant: see `<coetcd/lock_value.hpp>`. Costs 3 to 6 % of the
    /// request that takes the lock, and no round trip.
    bool value = false;
};

/// How a `shared_mutex` is held, by readers and writers alike.
struct shared_mutex_options {
    /// As `lock_options::max_hold`.
    std::optional<std::chrono::milliseconds> max_hold{};
    /// As `lock_options::watch_while_held`. A writer costs two watches; each change of the mode
    /// costs them anew.
    bool watch_while_held = false;
};

/// How the locks of a `multi_lock` are held.
struct multi_lock_options {
    /// As `lock_options::max_hold`.
    std::optional<std::chrono::milliseconds> max_hold{};
};

} // namespace coetcd
