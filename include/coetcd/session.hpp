// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session_options.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <optional>

namespace coetcd {

namespace detail {
class access;
class session_impl;
} // namespace detail

/// A lease that is kept alive, and with it the locks that are taken through it.
///
/// It is renewed every third of its ttl, on connections used for nothing else, at any endpoint that
/// answers; sessions of one client that are due together share requests.
///
/// It is lost when etcd reports its lease gone, or when the lease may have expired: ttl minus a
/// margin of 10 % (at least 250 ms) after the last successful renewal was *sent*, on a clock that
/// runs through a suspend of the machine. A lost session stays lost: open a new one.
///
/// The renewals run on the client's executor. Blocking the event loop for half the ttl may lose its
/// locks; for 90 % of the ttl it always loses them, as it should.
///
/// Destroying it closes it: its locks are lost at once, and a request to revoke the lease is sent
/// in the background. If that fails, the keys go when the lease expires.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] session {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Grants a lease and begins to renew it. One round trip. If an answer was lost and there is
    /// time, it draws another number, with one more, and revokes the first lease in the background.
    ///
    /// @throws std::invalid_argument if `options.ttl` is invalid; otherwise as `client`.
    /// @par Cancellation
    /// `terminal`. If the lease may have been granted, it is revoked in the background.
    static boost::asio::awaitable<session> open(const client& owner, session_options options = {});

    /// Takes over an existing lease: that of an orphaned session, or of a program that has died.
    /// Two round trips. `options.ttl` has no effect. `mutex::resume` resumes the locks that the
    /// lease holds.
    /// @returns Nothing if there is no such lease.
    /// @throws std::invalid_argument if `lease` cannot be a lease; otherwise as `client`.
    /// @par Cancellation
    /// `terminal`. The lease is left as it is; perhaps it was renewed once.
    static boost::asio::awaitable<std::optional<session>>
    adopt(const client& owner, lease_id lease, session_options options = {});

    /// No session, like an object that was moved from: it can be assigned to and destroyed;
    /// everything else throws `std::logic_error`. Default-constructible because `co_spawn` requires
    /// it of results.
    session() noexcept = default;
    session(session&&) noexcept = default;
    session& operator=(session&&) noexcept;
    ~session();

    /// The client's executor.
    executor_type get_executor() const;

    /// The lease in etcd. Also available after the session has ended.
    lease_id lease() const;
    /// How long each renewal is counted on: the ttl that was asked for, or, from the first renewal
    /// on, what etcd has raised it to. For an adopted session, what its lease was granted for.
    std::chrono::seconds ttl() const;

    /// Looks at the clock, so it is right even in the first instruction after a stall.
    session_state state() const;
    /// Why it has ended; `session_end::none` if it has not. Looks at the clock, too.
    session_end reason() const;

    /// How long the lease is certain to exist if no further renewal succeeds; 0 if lost.
    std::chrono::nanoseconds remaining() const;

    /// Waits until the session is lost.
    /// @returns Why.
    /// @par Cancellation
    /// `terminal`, without effect on the session.
    boost::asio::awaitable<session_end> wait_lost() const;

    /// Waits until the session is `session_state::suspect`: its last renewal failed, and nothing is
    /// lost yet. Returns at once if it is. No I/O.
    ///
    /// Use it to warn, and to take on no more work. Usually a later renewal succeeds, so keep the
    /// locks: `wait_active` waits for that.
    ///
    /// @returns How long the lease is still certain to exist: `remaining`.
    /// @throws error with `errc::session_lost` if the session is lost, before or meanwhile; with
    ///   `errc::session_closed` if it was closed, destroyed or orphaned.
    /// @par Cancellation
    /// `terminal`, without effect on the session.
    boost::asio::awaitable<std::chrono::nanoseconds> wait_suspect() const;

    /// Waits until the session is `session_state::active`: its last renewal succeeded. Returns at
    /// once if it is. No I/O.
    /// @throws error as `wait_suspect`.
    /// @par Cancellation
    /// `terminal`, without effect on the session.
    boost::asio::awaitable<void> wait_active() const;

    /// Ends the session and revokes its lease. One round trip; none if it was closed before. Takes
    /// at most its ttl or five seconds, whichever is less; twice that if an earlier request to end
    /// the lease was still under way, and fails.
    ///
    /// It takes effect at the call: the session and its locks are lost, and the request is on its
    /// way. Await the result to know that etcd has deleted its keys.
    ///
    /// @throws error as `client`: the lease then ends by itself, within its ttl, unless a second
    ///   call revokes it.
    /// @par Cancellation
    /// `terminal`. The lease is revoked in the background.
    boost::asio::awaitable<void> close();

    /// Ends the session without revoking its lease, which lasts for its ttl and can be handed over:
    /// see `adopt`.
    ///
    /// The keys of the locks that it holds stay in etcd, whatever is done with the mutexes. The
    /// keys of calls that wait for a lock, and of locks that were given back before, are deleted in
    /// the background.
    lease_id orphan();

private:
    friend class detail::access;
    explicit session(std::shared_ptr<detail::session_impl> impl);

    detail::handle<detail::session_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/session.hpp>
#endif
