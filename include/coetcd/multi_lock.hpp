// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/lock_mode.hpp>
#include <coetcd/mutex.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd {

class held_locks;
class multi_lock;

namespace detail {
std::shared_ptr<ownership> ownership_of_all(const held_locks& held);
boost::asio::any_io_executor home_of(const held_locks& held);
held_locks another_handle(const held_locks& held);
} // namespace detail

/// One of the locks that a `multi_lock` takes.
struct lock_part {
    std::string name;
    lock_mode mode;
};

/// A part that is held alone: nobody else holds a `mutex` or a `shared_mutex` of this name.
inline lock_part exclusive(std::string name) {
    return {std::move(name), lock_mode::exclusive};
}
/// A part that is read together with others: nobody holds a `shared_mutex` of this name to write.
inline lock_part shared(std::string name) {
    return {std::move(name), lock_mode::shared};
}

/// Locks that are held together, from `multi_lock::scoped_lock`. To `multi_lock` it is what
/// `held_lock` is to `mutex`, without sequencers, requests to release, and changes of the mode.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] held_locks {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No locks: see `held_lock`.
    held_locks() noexcept = default;

    /// The client's executor.
    executor_type get_executor() const;

    /// See `multi_lock::owns_lock`.
    bool owns_lock() const;
    explicit operator bool() const { return owns_lock(); }

    /// Waits until one of them is lost: see `held_lock::wait_lost`.
    boost::asio::awaitable<error_code> wait_lost() const;
    /// See `held_lock::wait_suspect`.
    boost::asio::awaitable<std::chrono::nanoseconds> wait_suspect() const;
    /// See `held_lock::wait_active`.
    boost::asio::awaitable<void> wait_active() const;

    /// Another handle to the same ownership: see `held_lock::share`.
    /// @throws error with `errc::not_owner` if they are not held.
    held_locks share() const;

    /// See `multi_lock::fencing_token`. Also available after a loss.
    std::int64_t fencing_token() const;
    /// See `multi_lock::is_owner`.
    std::vector<compare> is_owner() const;

    /// See `multi_lock::unlock`; only ever touches what this object held. While there are other
    /// handles, it lets go of this one: see `held_lock::unlock`.
    boost::asio::awaitable<bool> unlock();

private:
    friend class detail::access;
    friend std::shared_ptr<detail::ownership> detail::ownership_of_all(const held_locks& held);
    held_locks(std::shared_ptr<detail::holder> m, std::shared_ptr<detail::place> a);
    explicit held_locks(held_lock all) noexcept
        : all_(std::move(all)) {}
    held_locks another() const;

    held_lock all_;
};

/// Several locks at once, each of them exclusive or shared. Either all are held, or none is.
///
/// One transaction takes a place in all their queues. So a waiter has the same age in each queue,
/// and waits only for older ones: there is no deadlock, nobody starves, and each lock is granted in
/// order of arrival, also among waiters that want only one of them. These may use a `mutex`, a
/// `shared_mutex`, Go's client or `etcdctl lock`, and need not know of it.
///
/// While it waits for one of its locks, the waiters behind it wait, in the queues of all of them.
/// Locks that a program already holds do not take part in this: a program that holds `a`, and then
/// waits for `b`, can still deadlock with another program that holds `b` and waits for `a`. Ask for
/// both at once.
///
/// The rules of `mutex` hold here, too: for what ends a lock, for names and their keys, for
/// executors, cancellation and errors. If one of the locks is lost, all of them are, and what is
/// left of them in etcd is given back. Reports to an `observer` name the first one.
///
/// @par Thread safety
/// As `client`.
class multi_lock {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names the locks; no I/O. Their order does not matter. A name that occurs twice counts once,
    /// as exclusive if either is. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if there is no part, or if there are more than 32 names; or if
    ///   a name is empty or longer than 512 bytes, a mode is not an enumerator, or an option is out
    ///   of its range.
    multi_lock(const session& owner, std::vector<lock_part> parts, multi_lock_options options = {});

    multi_lock(multi_lock&&) noexcept = default;
    multi_lock& operator=(multi_lock&&) noexcept;
    ~multi_lock();

    /// The client's executor.
    executor_type get_executor() const;

    /// As `mutex::lock`, for all of them: one round trip if they are free. Otherwise it waits for
    /// the latest place ahead of ours in any of the queues. Each time that this place goes and
    /// others remain, it takes one more round trip.
    boost::asio::awaitable<void> lock();
    /// Takes all of them if they are free right now. One round trip; none if this session has one
    /// of them, or waits for it. As `mutex::try_lock`.
    boost::asio::awaitable<bool> try_lock();
    /// As `mutex::try_lock_for`.
    boost::asio::awaitable<bool> try_lock_for(std::chrono::nanoseconds patience);
    /// As `try_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool> try_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return try_lock_for(detail::logic::time_left(deadline, Clock::now()));
    }
    /// As `lock`; returns an object that gives the locks back when it is destroyed.
    boost::asio::awaitable<held_locks> scoped_lock();
    /// As `try_lock`; returns such an object, or nothing.
    boost::asio::awaitable<std::optional<held_locks>> scoped_try_lock();
    /// As `try_lock_for`; returns such an object, or nothing.
    boost::asio::awaitable<std::optional<held_locks>>
    scoped_lock_for(std::chrono::nanoseconds patience);
    /// As `scoped_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<held_locks>>
    scoped_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return scoped_lock_for(detail::logic::time_left(deadline, Clock::now()));
    }
    /// Gives all of them back. One round trip. As `mutex::unlock`.
    /// @returns False if one of them was no longer ours, or they never were.
    boost::asio::awaitable<bool> unlock();

    /// Whether all of them are held. As `mutex::owns_lock`.
    bool owns_lock() const;
    /// One number for all of them. As `mutex::fencing_token`.
    /// @throws error with `errc::not_owner` if they are not held.
    std::int64_t fencing_token() const;
    /// Conditions for a transaction, one for each lock, that are true only as long as this very
    /// ownership lasts. `txn::when` takes them.
    /// @throws error with `errc::not_owner` if they are not held.
    std::vector<compare> is_owner() const;

    /// What is locked: sorted by names, each once.
    const std::vector<lock_part>& parts() const;

private:
    friend class detail::access;
    detail::handle<detail::holder> impl_;
    std::vector<lock_part> parts_;
};

/// Runs `body` under all these locks: `body()` or `body(const held_locks&)`. As `with_lock` of a
/// `mutex`.
template<class Body>
auto with_lock(multi_lock& m, Body body) {
    return detail::run_guarded(
        m.get_executor(), m.scoped_lock(), &detail::ownership_of_all, std::move(body));
}

/// The same, under locks that are held already. They are given back at the end. As `with_lock` of a
/// `held_lock`.
template<class Body>
auto with_lock(held_locks&& held, Body body) {
    auto home = detail::home_of(held);
    return detail::run_guarded(std::move(home),
                               detail::brought(std::move(held)),
                               &detail::ownership_of_all,
                               std::move(body));
}

/// The same, under locks that are held already and stay so. As `with_lock` of a `held_lock`.
template<class Body>
auto with_lock(const held_locks& held, Body body) {
    return with_lock(detail::another_handle(held), std::move(body));
}

/// The same, if they can be had within `patience`. As `with_lock_for` of a `mutex`.
template<class Body>
auto with_lock_for(multi_lock& m, std::chrono::nanoseconds patience, Body body) {
    return detail::run_guarded_if(
        m.get_executor(), m.scoped_lock_for(patience), &detail::ownership_of_all, std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/multi_lock.hpp>
#endif
