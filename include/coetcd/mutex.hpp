// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lock_entry.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/awaitable.hpp>

#include <chrono>
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

namespace detail {
class access;
class holder;
class place;
std::shared_ptr<ownership> ownership_of(const held_lock& held);
} // namespace detail

/// A lock that is held, from `mutex::scoped_lock`. Its destruction gives the lock back in the
/// background, also when it is lost already; await `unlock` to know that it happened.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] held_lock {
public:
    /// No lock: `owns_lock` is false, and it can be assigned to. Completion tokens want that.
    held_lock() noexcept = default;
    /// Takes over a lock that was taken with `mutex::lock` or `mutex::try_lock`.
    /// @throws error with `errc::not_owner` if it is not held.
    held_lock(class mutex& m, std::adopt_lock_t);

    held_lock(held_lock&&) noexcept = default;
    held_lock& operator=(held_lock&&) noexcept;
    ~held_lock();

    /// See `mutex::owns_lock`.
    bool owns_lock() const;
    explicit operator bool() const { return owns_lock(); }

    /// See `mutex::fencing_token`. Still told after a loss.
    std::int64_t fencing_token() const;
    /// See `mutex::is_owner`.
    compare is_owner() const;
    const std::string& key() const;

    /// See `mutex::unlock`; only ever touches what this object held.
    boost::asio::awaitable<bool> unlock();

private:
    friend class detail::access;
    held_lock(std::shared_ptr<detail::holder> m, std::shared_ptr<detail::place> a);

    std::shared_ptr<detail::holder> mutex_;
    std::shared_ptr<detail::place> held_;
};

/// A lock that one owner at a time holds, in the whole etcd cluster, in order of arrival.
///
/// It excludes every other `mutex` of the same name, in this process or elsewhere, as well as the
/// Go client's `concurrency.Mutex` and `etcdctl lock`. Coroutines that share one object, or one
/// session, exclude each other too. It is not recursive: unlock it before it is locked again, also
/// after a loss.
///
/// **A lock on a network is a strong hint, not a proof**: a process can stall for longer than its
/// ttl and go on as if it still held the lock. Whatever must not happen twice is to be written by a
/// transaction with `is_owner()`, or to a resource that refuses a `fencing_token()` smaller than
/// one it has seen.
///
/// A lock is over when it is unlocked, when the session is lost, or when somebody deletes its key.
/// The latter is noticed with the next renewal. See `owns_lock`.
///
/// Everything in etcd below `<name>/` is the lock's queue: a key of somebody else's there blocks it
/// for as long as it exists, and so does another lock there: `orders` would wait for `orders/42`.
///
/// It may be destroyed at any moment. Calls under way complete; a lock that `lock` or `try_lock`
/// took is given back in the background, one that a `held_lock` holds stays with that.
///
/// All calls throw
/// - `error` with `errc::session_lost` if the session is lost, or gets lost meanwhile;
/// - `error` with a `server_errc` if etcd refuses, for example `permission_denied`.
///
/// @par Thread safety
/// As `client`.
class mutex {
public:
    /// Names a lock; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    mutex(const session& owner, std::string name);

    mutex(mutex&&) noexcept = default;
    mutex& operator=(mutex&&) noexcept;
    ~mutex();

    /// Waits for the lock, without limit, as long as the session lives; failures of the network
    /// in between are ridden out. One round trip if it is free; else, once it is handed over, one.
    ///
    /// @throws error with `errc::lock_lost` if our place in the queue was deleted by somebody else;
    ///   else see above.
    /// @par Cancellation
    /// `terminal`, at once. Our place in the queue is deleted in the background; if even that fails
    /// the session is given up, so that no key of ours is left to block others. So it is with every
    /// other end without the lock.
    boost::asio::awaitable<void> lock();

    /// Takes the lock if it is free right now. One round trip; none if this session has it.
    /// @returns False if somebody has it, or waits for it. Nothing is left in etcd.
    /// @throws error Also as `client`, if no endpoint answers in time.
    boost::asio::awaitable<bool> try_lock();

    /// As `lock`, for as long as `patience` at the most; if that is not positive, as `try_lock`.
    /// @returns False if it was not handed over by then.
    boost::asio::awaitable<bool> try_lock_for(std::chrono::nanoseconds patience);

    /// As `try_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool> try_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return try_lock_for(
            std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()));
    }

    /// As `lock`; returns an object that gives the lock back when it is destroyed.
    boost::asio::awaitable<held_lock> scoped_lock();

    /// Gives the lock back. One round trip.
    ///
    /// @returns False if it was not ours any more, or never was: nothing was touched.
    /// @throws error as `client`, if no endpoint answers in time. It counts as unlocked here at
    ///   once, and is given back in the background. A call that is repeated touches nothing newer.
    /// @par Cancellation
    /// `terminal`. It is given back in the background.
    boost::asio::awaitable<bool> unlock();

    /// Whether the lock is held, as far as can be known without asking etcd. Looks at the clock: it
    /// tells the truth in the first instruction after a stall.
    bool owns_lock() const;

    /// A number that grows with each owner of a lock of this name.
    /// @throws error with `errc::not_owner` if it is not held.
    std::int64_t fencing_token() const;

    /// A condition for a transaction: it is applied only as long as this very ownership lasts.
    /// @throws error with `errc::not_owner` if it is not held.
    compare is_owner() const;

    /// The key in etcd that stands for this ownership.
    /// @throws error with `errc::not_owner` if it is not held.
    const std::string& key() const;

    const std::string& name() const;

    /// Who holds the lock now. One round trip.
    boost::asio::awaitable<std::optional<lock_entry>> holder() const;

    /// Who waits for it, next first. One round trip. Of each session only one is seen: the others
    /// queue inside it.
    boost::asio::awaitable<std::vector<lock_entry>> waiters() const;

private:
    friend class detail::access;
    std::shared_ptr<detail::holder> impl_;
};

/// Runs `body` under the lock: takes it, awaits `body()` or `body(const held_lock&)`, gives it
/// back.
///
/// If the lock is lost meanwhile, `body` is cancelled (`terminal`), awaited to its end, and the
/// loss is reported, even if `body` succeeded: it may not have been alone. Once `body` has
/// succeeded, a failure to unlock is not reported: it is made good in the background.
///
/// @returns What `body` returns.
/// @throws What `body` throws; as `mutex::lock`; or error with `errc::session_lost` or
///   `errc::lock_lost` if the lock was lost. An exception of `body` is then nested in it.
/// @par Cancellation
/// `terminal`: passed on to `body`, whose end is awaited.
template<class Body>
auto with_lock(mutex& m, Body body) {
    return detail::run_guarded(m.scoped_lock(), &detail::ownership_of, std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/mutex.hpp>
#endif
