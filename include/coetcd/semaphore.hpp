// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/permit_entry.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

namespace detail {
class access;
class place;
class semaphore_impl;
} // namespace detail

/// Permits of a semaphore, from `semaphore::acquire`. Destroying this object gives them back in the
/// background; await `release` to know that it happened.
///
/// They are lost, all at once, if the session is lost, or if somebody deletes a key of theirs; the
/// latter is noticed with the next renewal.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] permit {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No permits, like an object that was moved from: `owns_lock` and `release` return false,
    /// `weight` returns 0, and it can be assigned to; everything else throws `std::logic_error`.
    /// Default-constructible because `co_spawn` requires it of results.
    permit() noexcept = default;
    permit(permit&& other) noexcept;
    permit& operator=(permit&& other) noexcept;
    ~permit();

    /// The client's executor.
    executor_type get_executor() const;

    /// Whether they are ours, as far as can be known without asking etcd. Looks at the clock, so it
    /// is right even in the first instruction after a stall.
    bool owns_lock() const;
    explicit operator bool() const { return owns_lock(); }

    /// Waits until they are lost: see `held_lock::wait_lost`.
    /// @returns `errc::session_lost`, `errc::session_closed` or `errc::lock_lost`.
    /// @throws boost::system::system_error with `operation_aborted` if they are given back, or this
    ///   object is destroyed; at once if that happened before.
    /// @par Cancellation
    /// `terminal`, without effect on the permits.
    boost::asio::awaitable<error_code> wait_lost() const;
    /// See `held_lock::wait_suspect`.
    boost::asio::awaitable<std::chrono::nanoseconds> wait_suspect() const;
    /// See `held_lock::wait_active`.
    boost::asio::awaitable<void> wait_active() const;

    /// The number of permits.
    std::int64_t weight() const { return weight_; }

    /// A number that grows from one permit to the next, in the order in which etcd has counted
    /// them; a `try_acquire` that had to wait (see there) may be granted after greater ones. There
    /// may be several owners at a time, so the greatest number that a resource has seen does not
    /// tell it which owner is late. Also available after a loss.
    std::int64_t token() const;
    /// A condition for a transaction, true only as long as these permits are ours. If one of
    /// several keys was deleted by hand, the condition may look at another key, and still be true.
    compare is_owner() const;
    /// A key in etcd that stands for them. Later permits of the same session may have the same key:
    /// `is_owner` tells them apart.
    std::string key() const;

    /// Gives them back. One round trip.
    ///
    /// It takes effect at the call: `owns_lock` is false. Await the result to know that etcd has
    /// done it.
    ///
    /// @returns False if they were no longer ours: nothing was touched, or what was left of them
    ///   was given back.
    /// @throws error as `client`, if no endpoint answers in time. They are then given back in the
    ///   background. A repeated call touches nothing newer.
    /// @par Cancellation
    /// `terminal`. They are given back in the background.
    boost::asio::awaitable<bool> release();

private:
    friend class detail::access;
    permit(std::shared_ptr<detail::place> a, std::int64_t weight);

    detail::handle<detail::place> held_;
    std::int64_t weight_ = 0;
};

/// The state of a semaphore.
struct semaphore_state {
    /// The one that is stored. If none is, the one that the constructor was given, or 0.
    std::int64_t limit = 0;
    /// May exceed `limit` after the limit was lowered, or briefly when concurrent requests
    /// overshoot. After an overshoot the last permits are given up at once; a `try_acquire` keeps
    /// them until etcd has confirmed what its session gave back before, at most for
    /// `client_options::request_timeout`.
    std::int64_t used = 0;
    /// Waiters in etcd's queue: up to 16 of each session. Those behind them in the process are not
    /// counted.
    std::int64_t waiting = 0;
};

/// A limited number of permits for the whole etcd cluster, granted in order of arrival.
///
/// A waiter for several permits waits until there is room for all of them; no later waiter
/// overtakes it, even if a smaller request would fit. Up to 16 coroutines of each session stand in
/// that queue; its others wait behind them in the process.
///
/// **The limit is kept in etcd**, and may be changed at any time: all users of the name follow.
/// While there are more permits than the limit allows, no further permit is granted. With a limit
/// of 0 there are none. `ensure_limit` stores a limit if none is stored, `set_limit` in any case.
/// Without a stored limit there are no permits, unless the constructor was given one.
///
/// A permit ends when it is given back, when the session is lost, or when somebody deletes its
/// keys. As with a `mutex`, holding one is a strong hint, not a proof: see `permit::is_owner`.
///
/// All keys in etcd that begin with `<name>/` or `<name>.` belong to it. Do not use the name for
/// anything else, least of all for a `mutex`: it would wait for all permits and waiters, which
/// would not see it. A user needs to read and write all keys from `<name>.` up to, but not
/// including, `<name>0`. `<name>.limit`, a decimal number, is the only key that outlives its
/// sessions; delete it to forget the limit.
///
/// A session reuses its keys. An adopted session keeps the permits of its earlier owner in use for
/// as long as its lease lives.
///
/// It may be destroyed at any moment. Calls under way complete, and permits stay as they are.
///
/// Calls throw
/// - `error` with `errc::session_lost` if the session is lost, or gets lost meanwhile, or
///   `errc::session_closed` if this program has ended it; calls that only read need no live
///   session;
/// - `error` with `errc::wrong_kind` if what is stored as the limit is not a number;
/// - `error` with a `server_errc` if etcd refuses, for example `permission_denied`.
///
/// @par Thread safety
/// As `client`.
class semaphore {
public:
    using executor_type = boost::asio::any_io_executor;

    /// The most permits that one call can ask for, and the greatest limit.
    static constexpr std::int64_t max_weight = 65'535;
    static constexpr std::int64_t max_limit = std::int64_t{1} << 40;

    /// Names a semaphore whose limit others store, or `ensure_limit` does; no I/O. `owner` may be
    /// destroyed first: that loses the session. While no limit is stored, permits are refused with
    /// `errc::exceeds_limit`.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    semaphore(const session& owner, std::string name);

    /// The same, with a limit of its own.
    /// @param initial_limit Stored by the first `acquire` if none is stored. **A limit that is
    ///   stored stays**, whatever this one is: `state` tells it, `set_limit` changes it.
    /// @throws std::invalid_argument Also if `initial_limit` is negative or over `max_limit`.
    semaphore(const session& owner, std::string name, std::int64_t initial_limit);

    semaphore(semaphore&&) noexcept = default;
    semaphore& operator=(semaphore&&) noexcept = default;
    ~semaphore() = default;

    /// The client's executor.
    executor_type get_executor() const;

    /// Waits until there is room for `n` permits, and takes them, retrying through network failures
    /// for as long as the session lives. One round trip if there is room and nobody waits.
    /// Otherwise one or two to queue up, one more behind many others, and one to be admitted. Up to
    /// 16 coroutines of a session queue up in etcd at once. A permit that is given back wakes all
    /// for which there is room now.
    ///
    /// @throws std::invalid_argument if `n` is not from 1 to `max_weight`.
    /// @throws error with `errc::exceeds_limit` if the limit is less than `n`, or if none is stored
    ///   and the constructor was given none. So it is if the limit is lowered or deleted while we
    ///   wait, as soon as we learn of it. With `errc::lock_lost` if somebody else deleted our place
    ///   in the queue; otherwise see above.
    /// @par Cancellation
    /// `terminal`, at once. As `mutex::lock`, also in what is left in etcd; permits that are
    /// granted at that very moment are given back.
    boost::asio::awaitable<permit> acquire(std::int64_t n = 1);

    /// Takes `n` permits if there is room right now, and nobody waits. One round trip, two if there
    /// is no room; none if this session has a waiter. If there is no room while this session is
    /// still giving permits back, the call waits until that is done: up to four. Concurrent
    /// requests may keep each other out if there is not room for all of them.
    /// @returns Nothing if there is no room, or somebody waits.
    /// @throws error As `acquire`; also as `client`, if no endpoint answers in time, and with
    ///   `errc::timed_out` if etcd has not confirmed by then what the session gives back.
    boost::asio::awaitable<std::optional<permit>> try_acquire(std::int64_t n = 1);

    /// As `acquire`, for at most `patience`; if that is not positive, as `try_acquire`.
    /// @returns Nothing if there was no room by then, or others were before us.
    /// @throws error Also with `errc::timed_out` if etcd has not answered by then, as
    ///   `mutex::try_lock_for` says. The session lives on in either case.
    boost::asio::awaitable<std::optional<permit>> acquire_for(std::int64_t n,
                                                              std::chrono::nanoseconds patience);

    /// As `acquire_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<permit>>
    acquire_until(std::int64_t n, std::chrono::time_point<Clock, Duration> deadline) {
        return acquire_for(n, detail::logic::time_left(deadline, Clock::now()));
    }

    const std::string& name() const;

    /// The limit, and how much of it is used. One round trip.
    boost::asio::awaitable<semaphore_state> state() const;

    /// Stores the limit if none is stored, and otherwise leaves it as it is. One round trip.
    ///
    /// For a program that knows what the limit is to be at first, however many of its instances
    /// call this, while an operator may change it later.
    /// @returns The limit that is stored then. If it is not `limit`, somebody else stored it.
    /// @throws std::invalid_argument As `set_limit`.
    /// @throws error Also as `client`: with `errc::outcome_unknown` the limit may have been stored.
    ///   Call it again: it changes nothing then.
    /// @par Cancellation
    /// `terminal`. It may have been stored.
    boost::asio::awaitable<std::int64_t> ensure_limit(std::int64_t limit);

    /// Changes the limit, for all users of the name. Two round trips, more if others change it,
    /// too. A higher limit lets waiters in; a lower one takes no permits away.
    /// @throws std::invalid_argument if `limit` is negative or over `max_limit`.
    /// @throws error Also as `client`: with `errc::outcome_unknown` the limit may have been
    ///   changed. Each call changes it once, or not at all, whatever happens to its requests. With
    ///   `errc::conflict` if others keep changing it.
    /// @par Cancellation
    /// `terminal`. It may have been changed.
    boost::asio::awaitable<void> set_limit(std::int64_t limit);

    /// Adds to the limit that is stored by then, or, if none is, to the one that the constructor
    /// was given.
    /// @returns The new limit.
    /// @throws error As `set_limit`; also with `errc::exceeds_limit` if it would be negative, or
    ///   over `max_limit`, or if there is none to add to.
    boost::asio::awaitable<std::int64_t> adjust_limit(std::int64_t by);

    /// The permits that are held, in order of their tokens. One round trip.
    boost::asio::awaitable<std::vector<permit_entry>> holders() const;

    /// The waiters, next first. One round trip.
    /// @param limit Maximum number to list; 0 for all.
    boost::asio::awaitable<std::vector<permit_entry>> waiters(std::size_t limit = 0) const;

private:
    friend class detail::access;
    detail::handle<detail::semaphore_impl> impl_;
};

namespace detail {
std::shared_ptr<ownership> ownership_of_permit(const permit& held);
} // namespace detail

/// Runs `body` with `n` permits: acquires them, awaits `body()` or `body(const permit&)`, gives
/// them back. See `with_lock` for what happens if they are lost, and for cancellation.
/// @returns What `body` returns.
template<class Body>
auto with_permits(semaphore& s, std::int64_t n, Body body) {
    return detail::run_guarded(
        s.get_executor(), s.acquire(n), &detail::ownership_of_permit, std::move(body));
}

/// The same, if they can be had within `patience`: see `semaphore::acquire_for`. The body may take
/// longer.
/// @returns An optional of what `body` returns, empty if there was no room; for a `body` that
///   returns nothing, whether it ran.
template<class Body>
auto with_permits_for(semaphore& s, std::int64_t n, std::chrono::nanoseconds patience, Body body) {
    return detail::run_guarded_if(s.get_executor(),
                                  s.acquire_for(n, patience),
                                  &detail::ownership_of_permit,
                                  std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/semaphore.hpp>
#endif
