// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/error.hpp>
#include <coetcd/lock_options.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd {

class session_keeper;

namespace detail {
class session_keeper_impl;
boost::asio::awaitable<std::optional<held_lock>>
lock_in(const session_keeper& keeper,
        std::string name,
        const lock_options& options,
        std::chrono::nanoseconds patience = std::chrono::nanoseconds::max());
} // namespace detail

/// Options of a `session_keeper`: those of each of its sessions, and how it replaces them.
class session_keeper_options : public session_options {
public:
    using session_options::session_options;

    /// The pause after a session was lost, or could not be opened, before the next attempt; with a
    /// jitter of a half. It doubles with each failure until a session is opened. Must be positive.
    std::chrono::milliseconds pause = std::chrono::milliseconds(100);

    /// The longest pause. Must not be less than `pause`.
    std::chrono::milliseconds max_pause = std::chrono::seconds(5);
};

/// Keeps a session open: it opens a session, and a new one whenever that is lost. For programs that
/// outlive a session, such as servers.
///
/// It never stops trying. Each attempt takes at most the client's `request_timeout`; then it
/// pauses. Calls that wait for a session wait through an outage. If there is an error that will
/// hardly pass by itself, such as a password that etcd refuses, they throw it at once: see
/// `wait_live`.
///
/// Destroying it closes it: its session and that session's locks are lost at once, and calls that
/// wait throw `errc::session_closed`. The lease is revoked in the background.
///
/// @par Thread safety
/// As `client`; all functions but moves and the destructor may be called by any thread at any time.
class [[nodiscard]] session_keeper {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Begins to open the first session, in the background.
    /// @throws std::invalid_argument naming the field, if an option is invalid.
    explicit session_keeper(const client& owner, session_keeper_options options = {});

    session_keeper(session_keeper&&) noexcept = default;
    session_keeper& operator=(session_keeper&&) noexcept;
    ~session_keeper();

    /// The client's executor.
    executor_type get_executor() const;

    /// The live session, or null if there is none. Looks at the clock; no I/O.
    ///
    /// It may be lost at any time, and then stays lost: ask again for each use. Holding the pointer
    /// does not keep the session alive: the keeper ends it.
    std::shared_ptr<const session> current() const;

    /// Waits until there is a session, for at most `patience`; if that is not positive, it only
    /// looks. No I/O.
    /// @returns The session, as `current`; never null.
    /// @throws error with `errc::timed_out` if there was none by then; `what()` says why.
    /// @throws error with `errc::session_closed` if the keeper is closed, before or meanwhile.
    /// @throws error as `session::open`, at once, if the last attempt failed for a reason that will
    ///   hardly pass by itself: a `server_errc` such as `unauthenticated`, `errc::tls_failed`,
    ///   `errc::login_failed` or `errc::cn_auth_unsupported`. The keeper keeps trying.
    /// @par Cancellation
    /// `terminal`, without effect on the keeper.
    boost::asio::awaitable<std::shared_ptr<const session>>
    wait_live(std::chrono::nanoseconds patience = std::chrono::nanoseconds::max()) const;

    /// Waits until `current` differs from `seen`, which is what an earlier call returned, or null:
    ///
    ///     std::shared_ptr<const coetcd::session> now;
    ///     for (;;) {
    ///         now = co_await keeper.wait_changed(now);
    ///         const auto trouble = keeper.trouble();
    ///         log(now ? "there is a session" : trouble ? trouble->what() : "there is none yet");
    ///     }
    ///
    /// Changes that follow each other quickly may be delivered as one; the last one is always
    /// delivered.
    /// @returns What is then current; null if there is no session.
    /// @throws error with `errc::session_closed` if the keeper is closed, and `seen` is null.
    /// @par Cancellation
    /// `terminal`, without effect on the keeper.
    boost::asio::awaitable<std::shared_ptr<const session>>
    wait_changed(std::shared_ptr<const session> seen = {}) const;

    /// Waits until the current session is `session_state::suspect`: its last renewal failed, and
    /// nothing is lost yet. Returns at once if it is. No I/O.
    ///
    /// The wait goes on in the next session if this one is lost without having been suspect, and
    /// through outages in which there is no session: `wait_changed` and `trouble` tell of those.
    ///
    ///     for (;;) {
    ///         const std::chrono::nanoseconds left = co_await keeper.wait_suspect();
    ///         log("renewals fail", left);
    ///         co_await keeper.wait_active(); // this session, or the next one
    ///     }
    ///
    /// @returns How long the lease of that session is still certain to exist: its `remaining`.
    /// @throws error with `errc::session_closed` if the keeper is closed, before or meanwhile.
    /// @par Cancellation
    /// `terminal`, without effect on the keeper.
    boost::asio::awaitable<std::chrono::nanoseconds> wait_suspect() const;

    /// Waits until there is a session that is `session_state::active`: it was just opened, or its
    /// last renewal succeeded. Returns at once if there is one. No I/O.
    /// @throws error as `wait_suspect`.
    /// @par Cancellation
    /// `terminal`, without effect on the keeper.
    boost::asio::awaitable<void> wait_active() const;

    /// Why there is no session now: what `wait_live` would throw at its deadline. Available from
    /// the beginning of the first attempt to open one, not only from its end. For logs and health
    /// checks; no I/O.
    /// @returns Nothing if there is a session. Its renewals may still be failing while nothing is
    ///   lost yet: then its `state` is `session_state::suspect`, and `remaining` says how long it
    ///   can last.
    std::optional<error> trouble() const;

    /// Ends the session and revokes its lease, and opens no more. One round trip; none if there is
    /// no session. Takes as long as `session::close` at most.
    ///
    /// It takes effect at the call: the session and its locks are lost, and calls that wait throw
    /// `errc::session_closed`. An attempt to open a session is cut off; if its lease was granted
    /// already, it is revoked in the background. A second call waits for the same end.
    ///
    /// @throws error as `session::close`.
    /// @par Cancellation
    /// `terminal`. The lease is revoked in the background.
    boost::asio::awaitable<void> close();

private:
    friend class detail::access;
    detail::handle<detail::session_keeper_impl> impl_;
};

/// Runs `body` under a lock, as `with_lock(mutex&, Body)`, in whichever session there is: waits for
/// a session, takes the lock in it, awaits `body()` or `body(const held_lock&)`, gives it back.
///
/// If the session is lost before the lock is acquired, it queues up again in the next session, at
/// the end of the queue. Once `body` has begun it is not run again: if the session is lost then,
/// `body` is cancelled, awaited to its end, and the loss is thrown.
///
/// @param options How the lock is held: see `lock_options`.
/// @throws std::invalid_argument as the constructor of `mutex`.
/// @throws error as `session_keeper::wait_live` and `mutex::lock`; otherwise as `with_lock(mutex&,
/// Body)`.
/// @par Cancellation
/// As `with_lock(mutex&, Body)`.
template<class Body>
auto with_lock(const session_keeper& keeper,
               std::string name,
               Body body,
               lock_options options = {}) {
    return detail::run_guarded(keeper.get_executor(),
                               detail::the_one(detail::lock_in(keeper, std::move(name), options)),
                               &detail::ownership_of,
                               std::move(body));
}

/// The same, if there is a session and the lock can be had in it within `patience`, both together;
/// if that is not positive, if both can be had now. The body may take longer.
/// @returns An optional of what `body` returns, empty if others have the lock; for a `body` that
///   returns nothing, whether it ran.
/// @throws error Also with `errc::timed_out` if by then there is no session, or etcd has not
///   answered about the lock: see `mutex::try_lock_for`. `body` has not begun.
template<class Body>
auto with_lock_for(const session_keeper& keeper,
                   std::string name,
                   std::chrono::nanoseconds patience,
                   Body body,
                   lock_options options = {}) {
    return detail::run_guarded_if(keeper.get_executor(),
                                  detail::lock_in(keeper, std::move(name), options, patience),
                                  &detail::ownership_of,
                                  std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/session_keeper.hpp>
#endif
