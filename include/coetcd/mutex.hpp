// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lock_entry.hpp>
#include <coetcd/lock_mode.hpp>
#include <coetcd/lock_name.hpp>
#include <coetcd/lock_options.hpp>
#include <coetcd/sequencer.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coetcd {

class held_lock;
class mutex;

namespace detail {
class access;
class holder;
class place;
std::shared_ptr<ownership> ownership_of(const held_lock& held);
boost::asio::any_io_executor home_of(const held_lock& held);
held_lock another_handle(const held_lock& held);
body_watch<held_lock> yields_after(std::chrono::nanoseconds grace);
} // namespace detail

/// A lock that is held, from `mutex::scoped_lock` or a `shared_mutex`. Destroying it gives the lock
/// back in the background, even if it is lost already; await `unlock` to know that it happened.
///
/// A function that needs the lock takes a `const held_lock&`: coroutines have no identity, so a
/// lock cannot detect that it is taken again. A coroutine that outlives the call takes a handle of
/// its own, from `share`.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] held_lock {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No lock, like an object that was moved from: `owns_lock` and `unlock` return false, and it
    /// can be assigned to; everything else throws `std::logic_error`. Default-constructible because
    /// `co_spawn` requires it of results.
    held_lock() noexcept = default;
    /// Takes over a lock that was taken with `mutex::lock` or `mutex::try_lock`.
    /// @throws error with `errc::not_owner` if it is not held.
    held_lock(mutex& m, std::adopt_lock_t);

    held_lock(held_lock&&) noexcept = default;
    held_lock& operator=(held_lock&&) noexcept;
    ~held_lock();

    /// The client's executor.
    executor_type get_executor() const;

    /// See `mutex::owns_lock`.
    bool owns_lock() const;
    explicit operator bool() const { return owns_lock(); }

    /// Waits until the lock is lost: `co_await (work() || held.wait_lost())`, with Asio's awaitable
    /// operators, ends with the work or with the loss.
    /// @returns `errc::session_lost`, `errc::session_closed`, `errc::lock_lost` or
    ///   `errc::hold_expired`.
    /// @throws boost::system::system_error with `operation_aborted` if the lock is given back, or
    ///   the last handle to it is destroyed; at once if that happened before.
    /// @par Cancellation
    /// `terminal`, without effect on the lock.
    boost::asio::awaitable<error_code> wait_lost() const;

    /// Waits until the session of the lock is suspect: see `session::wait_suspect`. The body of a
    /// `with_lock` can warn, or take on no more work. It is about the session: it goes on waiting
    /// after the lock was given back.
    /// @throws error as `session::wait_suspect`.
    /// @par Cancellation
    /// `terminal`, without effect on the lock.
    boost::asio::awaitable<std::chrono::nanoseconds> wait_suspect() const;
    /// Waits until the session of the lock is active again: see `session::wait_active`.
    /// @throws error as `wait_suspect`.
    /// @par Cancellation
    /// `terminal`, without effect on the lock.
    boost::asio::awaitable<void> wait_active() const;

    /// Waits until somebody asks for the lock, with `request_release`; at once if somebody already
    /// has. Two round trips at first: a look and a watch. The lock stays held: whether to give it
    /// back is up to you.
    /// @throws error with `errc::session_lost`, `errc::session_closed`, `errc::lock_lost` or
    ///   `errc::hold_expired` if the lock is lost; with a `server_errc` if etcd refuses the watch.
    /// @throws boost::system::system_error with `operation_aborted` as `wait_lost`.
    /// @par Cancellation
    /// `terminal`, without effect on the lock or the request.
    boost::asio::awaitable<void> release_requested() const;

    /// Another handle to the same ownership. The lock is given back by the last of its handles,
    /// when that is unlocked or destroyed; or by `mutex::unlock` for all of them.
    /// @throws error with `errc::not_owner` if it is not held.
    held_lock share() const;

    /// See `mutex::fencing_token`. Also available after a loss.
    std::int64_t fencing_token() const;
    /// This ownership as text, to be sent to others. Also available after a loss.
    coetcd::sequencer sequencer() const;
    /// See `mutex::is_owner`. Also available after a loss: etcd then refuses what it guards.
    compare is_owner() const;
    /// See `mutex::key`. The key changes with the mode.
    std::string key() const;

    /// `exclusive`, unless a `shared_mutex` was locked to read.
    lock_mode mode() const;
    /// Downgrades to reading. Keeps the place in the queue and the fencing token: nobody writes in
    /// between, and waiting writers keep their turn. One round trip; none if it is shared already.
    ///
    /// It takes effect at the call: `mode` is `shared`, whatever happens next, and other readers of
    /// this session may enter in the same request. Await the result to know that etcd lets in
    /// readers of other sessions.
    ///
    /// @throws std::logic_error if this is the lock of a `mutex`.
    /// @throws error with `errc::not_owner` if it was given back; with the code of its loss; or as
    ///   `mutex::unlock`. It is then downgraded in the background.
    /// @par Cancellation
    /// `terminal`. It is downgraded in the background.
    boost::asio::awaitable<void> downgrade();
    /// Upgrades to writing if there is no other reader, no waiting reader, and no older place in
    /// the queue. Waiting writers keep waiting. One round trip; none if it is exclusive already.
    /// One change of the mode at a time: it waits for the end of an earlier one.
    ///
    /// The fencing token stays the same: it is smaller than those of waiting writers. A reader that
    /// came and went meanwhile may have had a greater one: let a resource remember the tokens of
    /// writers only.
    ///
    /// @returns False if that is impossible, or `downgrade` was called meanwhile. The lock is still
    ///   shared.
    /// @throws std::logic_error if this is the lock of a `mutex`.
    /// @throws error with `errc::not_owner` if it was given back; with the code of its loss; or as
    ///   `mutex::try_lock`. The lock stays shared; an upgrade under way is undone in the
    ///   background.
    /// @par Cancellation
    /// `terminal`. The lock stays shared; an upgrade under way is undone in the background.
    boost::asio::awaitable<bool> try_upgrade();

    /// See `mutex::unlock`; only ever touches what this object held. While there are other handles
    /// from `share`, it lets go of this one: the lock stays held, and no request is made.
    /// @returns Whether it was held until now.
    boost::asio::awaitable<bool> unlock();

private:
    friend class detail::access;
    held_lock(std::shared_ptr<detail::holder> m, std::shared_ptr<detail::place> a);
    held_lock another() const;
    bool is_last();

    std::shared_ptr<detail::holder> mutex_;
    detail::handle<detail::place> held_;
    bool answers_ = false; // for what it holds: it was not unlocked
};

/// A cluster-wide lock, held by one owner at a time, in order of arrival.
///
/// It excludes every other `mutex` of the same name, in this process or elsewhere, as well as the
/// Go client's `concurrency.Mutex` and `etcdctl lock`. Coroutines that share one object, or one
/// session, exclude each other too. It is not recursive: unlock it before you lock it again, even
/// after a loss.
///
/// **A lock on a network is a strong hint, not a proof**: a process can stall for longer than its
/// ttl and then continue as if it still held the lock. Where something must not happen twice, write
/// in a transaction with `is_owner()`, or to a resource that rejects a `fencing_token()` smaller
/// than one it has seen.
///
/// A lock ends when it is unlocked, when the session is lost, when somebody deletes its key, which
/// is noticed with the next renewal, or when `lock_options::max_hold` has passed. See `owns_lock`.
///
/// All keys in etcd that begin with `<name>/` are the lock's queue: any other key there blocks it
/// for as long as it exists, and so does another lock there: `orders` would wait for `orders/42`.
/// `lock_name` makes names from ids that do not nest. Keys that begin with `<name>.` are the
/// lock's, too, and block nobody. A user needs to read and write both: all keys from `<name>.` up
/// to, but not including, `<name>0`.
///
/// A session reuses its keys, however often it takes the lock.
///
/// It may be destroyed at any moment. Calls under way complete; a lock that `lock` or `try_lock`
/// took is given back in the background; one that a `held_lock` holds stays with that.
///
/// Calls that take the lock throw
/// - `error` with `errc::session_lost` if the session is lost, or gets lost meanwhile, or
///   `errc::session_closed` if this program has ended it;
/// - `error` with a `server_errc` if etcd refuses, for example `permission_denied`.
///
/// Calls that only read need no live session, and throw as `client`.
///
/// @par Thread safety
/// As `client`.
class mutex {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a lock; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or an option is
    ///   invalid.
    mutex(const session& owner, std::string name, lock_options options = {});

    mutex(mutex&&) noexcept = default;
    mutex& operator=(mutex&&) noexcept;
    ~mutex();

    /// The client's executor.
    executor_type get_executor() const;

    /// Waits until the lock is acquired, retrying through network failures, for as long as the
    /// session lives. One round trip if free; otherwise one to queue up, more while it waits, and
    /// as a rule none after hand-over. If a coroutine of this session hands it over, its `unlock`
    /// shares the one round trip that is needed.
    ///
    /// @throws error with `errc::lock_lost` if somebody else deleted our place in the queue;
    ///   otherwise see above.
    /// @par Cancellation
    /// `terminal`, at once. Our place in the queue is deleted in the background, until etcd
    /// answers. The session is given up only if etcd itself refuses, twice in a row, or if
    /// deletions failed for a whole ttl while renewals succeeded, so that no key of ours is left to
    /// block others. At most two keys that begin with `<name>.` stay behind a fault or a
    /// cancellation; they block nobody, and go with the lease. The same holds for every other end
    /// without the lock. A lock that is granted at the very moment of the cancellation is given
    /// back: after `lock() || timer` it is held only if the timer has not won. The same holds for
    /// `try_lock` and the others.
    boost::asio::awaitable<void> lock();

    /// Takes the lock if it is free right now. One round trip; none if this session has it, or
    /// waits for it. If the session is still giving it back, the call waits until that is done:
    /// two. A hold from `resume` counts as another session's, until etcd has confirmed its end.
    /// @returns False if it is held, or waited for; then no key is left in etcd. An exception or a
    ///   cancellation leaves what `lock` leaves.
    /// @throws error Also as `client`, if no endpoint answers in time, and with `errc::timed_out`
    ///   if etcd has not confirmed by then what the session gives back.
    boost::asio::awaitable<bool> try_lock();

    /// As `lock`, for at most `patience`; if that is not positive, as `try_lock`.
    /// @returns False if the lock was not acquired by then, because others have it: etcd said so,
    ///   or has meanwhile answered a coroutine of this session that is ahead of us.
    /// @throws error Also with `errc::timed_out` if etcd has not answered by then: neither us nor
    ///   any coroutine of this session ahead of us, or none of these in the last
    ///   `client_options::attempt_timeout`. In either case our place in the queue is deleted, the
    ///   session lives on, and etcd keeps at most what `lock` leaves.
    boost::asio::awaitable<bool> try_lock_for(std::chrono::nanoseconds patience);

    /// As `try_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool> try_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return try_lock_for(detail::logic::time_left(deadline, Clock::now()));
    }

    /// As `lock`; returns an object that gives the lock back when it is destroyed.
    boost::asio::awaitable<held_lock> scoped_lock();
    /// As `try_lock`; returns such an object, or nothing.
    boost::asio::awaitable<std::optional<held_lock>> scoped_try_lock();
    /// As `try_lock_for`; returns such an object, or nothing.
    boost::asio::awaitable<std::optional<held_lock>>
    scoped_lock_for(std::chrono::nanoseconds patience);
    /// As `scoped_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<held_lock>>
    scoped_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return scoped_lock_for(detail::logic::time_left(deadline, Clock::now()));
    }

    /// For an adopted session: resumes a lock that its lease already holds. The session's earlier
    /// owner was orphaned or has died; it may have been Go's client. Two round trips; one if the
    /// lease does not hold the lock.
    ///
    /// Call it before `lock`, which would wait for that hold. It is the same ownership, with the
    /// same fencing token. Other keys of the lease in the lock's queue are deleted in the
    /// background, since nobody waits there any more. A request of the earlier owner to give the
    /// lock back that is still on its way ends the hold, as if the key was deleted by hand. If two
    /// sessions adopt one lease at the same time, both may resume its hold: make sure that only one
    /// does.
    ///
    /// A lock that the earlier session had only retained, see `lock_options::retain`, is resumed as
    /// if it was held.
    ///
    /// @returns False if the lease does not hold the lock, or this session has resumed that hold
    ///   before.
    /// @throws error Also as `client`, if no endpoint answers in time.
    /// @par Cancellation
    /// `terminal`, at once. The hold stays as it is.
    boost::asio::awaitable<bool> resume();

    /// Gives the lock back. One round trip; with `lock_options::retain` it may stay with the
    /// session instead, and need none.
    ///
    /// It gives back what this object holds now, whichever coroutine took it. Coroutines that share
    /// an object use `scoped_lock` or `with_lock`: after a loss, after `max_hold`, or when an
    /// `unlock` is repeated, the object may hold the lock for another coroutine already.
    ///
    /// It takes effect at the call: `owns_lock` is false, and the next coroutine of this session
    /// may enter, in the same request. Await the result to know that etcd has done it.
    ///
    /// @returns False if it was no longer ours, or never was: nothing was touched.
    /// @throws error as `client`, if no endpoint answers in time. The lock is then given back
    ///   in the background. A repeated request touches nothing newer.
    /// @par Cancellation
    /// `terminal`. The lock is given back in the background.
    boost::asio::awaitable<bool> unlock();

    /// Whether the lock is held, as far as can be known without asking etcd. Looks at the clock, so
    /// it is right even in the first instruction after a stall.
    bool owns_lock() const;

    /// A number that grows with each owner of a lock of this name. With `lock_options::retain`,
    /// consecutive holders of one session may share it.
    /// @throws error with `errc::not_owner` if it is not held.
    std::int64_t fencing_token() const;

    /// A condition for a transaction, true only as long as this very ownership lasts. Holders that
    /// share a token count as one.
    /// @throws error with `errc::not_owner` if it is not held.
    compare is_owner() const;

    /// The key in etcd that stands for this ownership. A later ownership of the same session may
    /// have the same key: `is_owner` tells them apart.
    /// @throws error with `errc::not_owner` if it is not held.
    std::string key() const;

    const std::string& name() const;

    /// The holder now, if there is one. One round trip.
    boost::asio::awaitable<std::optional<lock_entry>> holder() const;

    /// The waiters, next first. One round trip. Only one of each session is listed: its others
    /// queue inside the session.
    /// @param limit Maximum number to list; 0 for all.
    boost::asio::awaitable<std::vector<lock_entry>> waiters(std::size_t limit = 0) const;

    /// How many sessions are ahead of this one in the lock's queue: 0 for the holder. One round
    /// trip, which reads all keys of the queue. Coroutines of the same session do not count.
    /// @returns Nothing if this session neither holds the lock nor waits for it, as far as etcd
    ///   knows.
    boost::asio::awaitable<std::optional<std::size_t>> position() const;

private:
    friend class detail::access;
    detail::handle<detail::holder> impl_;
};

/// Runs `body` under the lock: takes it, awaits `body()` or `body(const held_lock&)`, gives it
/// back.
///
/// If the lock is lost meanwhile, `body` is cancelled (`terminal`), awaited to its end, and the
/// loss is reported, even if `body` succeeded: it may not have been alone. Once `body` has ended,
/// the lock is given back in the background: another process may find it taken for one round trip
/// more, and a failure to unlock is not reported. Where that matters, use `scoped_lock`, and await
/// `unlock`. `body` runs on the executor of the caller, or, if that is neither a strand nor that of
/// an `io_context`, on a strand of its own there. Exactly one thread must run such an `io_context`.
///
/// @returns What `body` returns.
/// @throws What `body` throws; as `mutex::lock`; or error with `errc::session_lost`,
///   `errc::session_closed`, `errc::lock_lost` or `errc::hold_expired` if the lock was lost. An
///   exception of `body` is then nested in it.
/// @par Cancellation
/// `terminal`: passed on to `body`, whose end is awaited.
/// @par With Asio's awaitable operators
/// `a || b` waits for the first *success*, and a loss is a failure: `with_lock(m, body) || timer`
/// goes on until the timer ends. Write `as_result(with_lock(m, body)) || timer`.
/// @par Cost
/// As `lock`. The next transaction of the client's locks takes the `unlock` along; if there is none
/// at that moment, it goes by itself.
template<class Body>
auto with_lock(mutex& m, Body body) {
    return detail::run_guarded(
        m.get_executor(), m.scoped_lock(), &detail::ownership_of, std::move(body));
}

/// How `with_lock` answers a request for the lock: see `request_release`.
class yield_on_request {
public:
    /// @param grace How long the body may go on after the request.
    explicit yield_on_request(std::chrono::nanoseconds grace = std::chrono::nanoseconds(0))
        : grace_(grace) {}
    std::chrono::nanoseconds grace() const { return grace_; }

private:
    std::chrono::nanoseconds grace_;
};

/// The same; `body` is also cancelled if somebody asks for the lock, which is given back when
/// `body` has ended. What it returns or throws then is the outcome: `operation_aborted`, unless it
/// catches that. A `body` that does not heed cancellation continues as if nobody had asked.
///
/// Costs a look and a watch in addition.
template<class Body>
auto with_lock(mutex& m, Body body, yield_on_request when) {
    return detail::run_guarded(m.get_executor(),
                               m.scoped_lock(),
                               &detail::ownership_of,
                               std::move(body),
                               detail::yields_after(when.grace()));
}

/// The same, under a lock that is held already. It is given back at the end.
/// @throws error with `errc::not_owner` if it was given back, or with the code of its loss; then
///   `body` has not begun.
template<class Body>
auto with_lock(held_lock&& held, Body body) {
    auto home = detail::home_of(held);
    return detail::run_guarded(
        std::move(home), detail::brought(std::move(held)), &detail::ownership_of, std::move(body));
}

/// The same, under a lock that is held already and stays so: no request is made. If `held` and all
/// others that share it let go of the lock meanwhile, it is given back at the end of `body`.
/// @throws error with `errc::not_owner` if it was given back, or with the code of its loss; then
///   `body` has not begun.
template<class Body>
auto with_lock(const held_lock& held, Body body) {
    return with_lock(detail::another_handle(held), std::move(body));
}

/// The same, if the lock can be had within `patience`: see `mutex::try_lock_for`. The body may take
/// longer.
/// @returns An optional of what `body` returns, empty if others have the lock; for a `body` that
///   returns nothing, whether it ran.
template<class Body>
auto with_lock_for(mutex& m, std::chrono::nanoseconds patience, Body body) {
    return detail::run_guarded_if(
        m.get_executor(), m.scoped_lock_for(patience), &detail::ownership_of, std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/mutex.hpp>
#endif
