// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/mutex.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd {

class shared_mutex;

namespace detail {
class shared_holds;
} // namespace detail

/// A cluster-wide lock, held by one writer or any number of readers, in order of arrival. A reader
/// that arrives after a waiting writer waits behind it, so that nobody starves.
///
/// It is to `mutex` what `std::shared_mutex` is to `std::mutex`: the same rules hold for what ends
/// a lock, names and their keys, executors, cancellation and errors. The Go client's
/// `recipe.RWMutex` of the same name takes turns with it. A `mutex` and a writer of the same name
/// exclude each other, but a reader does not see a `mutex`: give them different names.
///
/// One object can hold the lock once to write, or several times to read. Readers of one session
/// hold it together; each has a key of its own in etcd. A `held_lock` goes from writing to reading
/// with `downgrade`, and back with `try_upgrade`.
///
/// There is no `resume`: what an orphaned session holds is free when its lease ends.
///
/// @par Thread safety
/// As `client`.
class shared_mutex {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a lock; no I/O. `owner` may be destroyed first: that loses the session.
    /// @param options For readers and writers alike, through changes of the mode.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or if an option
    ///   is out of its range.
    shared_mutex(const session& owner, std::string name, shared_mutex_options options = {});

    shared_mutex(shared_mutex&&) noexcept = default;
    shared_mutex& operator=(shared_mutex&&) noexcept;
    ~shared_mutex();

    /// The client's executor.
    executor_type get_executor() const;

    // To write.

    /// As `mutex::lock`. Behind readers, it waits for the one that arrived last. Each time that
    /// this reader leaves and others remain, it takes one more round trip.
    boost::asio::awaitable<void> lock();
    /// As `mutex::try_lock`. One round trip even if this session itself reads.
    boost::asio::awaitable<bool> try_lock();
    /// As `mutex::try_lock_for`.
    boost::asio::awaitable<bool> try_lock_for(std::chrono::nanoseconds patience);
    /// As `try_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool> try_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return try_lock_for(detail::logic::time_left(deadline, Clock::now()));
    }
    /// As `lock`; returns an object that gives the lock back when it is destroyed.
    boost::asio::awaitable<held_lock> scoped_lock();
    /// As `mutex::scoped_try_lock`.
    boost::asio::awaitable<std::optional<held_lock>> scoped_try_lock();
    /// As `mutex::scoped_lock_for`.
    boost::asio::awaitable<std::optional<held_lock>>
    scoped_lock_for(std::chrono::nanoseconds patience);
    /// As `scoped_lock_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<held_lock>>
    scoped_lock_until(std::chrono::time_point<Clock, Duration> deadline) {
        return scoped_lock_for(detail::logic::time_left(deadline, Clock::now()));
    }
    /// As `mutex::unlock`, for what `lock`, `try_lock` and the like have taken.
    boost::asio::awaitable<bool> unlock();
    /// Whether it is held to write. As `mutex::owns_lock`.
    bool owns_lock() const;
    /// The writer's fencing token. Tokens of concurrent readers cannot be compared.
    /// @throws error with `errc::not_owner` if it is not held to write.
    std::int64_t fencing_token() const;
    /// As `mutex::is_owner`.
    /// @throws error with `errc::not_owner` if it is not held to write.
    compare is_owner() const;

    // To read.

    /// Waits until no writer is ahead of it. One round trip if there is none; otherwise as a rule
    /// none after hand-over, however many readers it is handed over to. As `mutex::lock`.
    boost::asio::awaitable<void> lock_shared();
    /// Takes the lock to read if there is no writer, and no waiting writer, right now. One round
    /// trip; none if this session writes or waits to. As `mutex::try_lock`.
    boost::asio::awaitable<bool> try_lock_shared();
    /// As `mutex::try_lock_for`.
    boost::asio::awaitable<bool> try_lock_shared_for(std::chrono::nanoseconds patience);
    /// As `try_lock_shared_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<bool>
    try_lock_shared_until(std::chrono::time_point<Clock, Duration> deadline) {
        return try_lock_shared_for(detail::logic::time_left(deadline, Clock::now()));
    }
    /// As `lock_shared`; returns an object that gives the lock back when it is destroyed.
    boost::asio::awaitable<held_lock> scoped_lock_shared();
    /// As `try_lock_shared`; returns such an object, or nothing.
    boost::asio::awaitable<std::optional<held_lock>> scoped_try_lock_shared();
    /// As `try_lock_shared_for`; returns such an object, or nothing.
    boost::asio::awaitable<std::optional<held_lock>>
    scoped_lock_shared_for(std::chrono::nanoseconds patience);
    /// As `scoped_lock_shared_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<held_lock>>
    scoped_lock_shared_until(std::chrono::time_point<Clock, Duration> deadline) {
        return scoped_lock_shared_for(detail::logic::time_left(deadline, Clock::now()));
    }
    /// Gives back one of the locks that this object has taken with `lock_shared`, `try_lock_shared`
    /// and the like. As `mutex::unlock`. Call it once for each of them, also after a loss: a lost
    /// one goes first, so that the others are held for as long as anybody reads.
    boost::asio::awaitable<bool> unlock_shared();
    /// Whether it is held to read, at least once. As `mutex::owns_lock`.
    bool owns_lock_shared() const;

    const std::string& name() const;

    /// How many are ahead of this session in the lock's queue, whether they read or write: 0 for
    /// the first one. If this session has several places, the first one counts. As
    /// `mutex::position`.
    boost::asio::awaitable<std::optional<std::size_t>> position() const;

private:
    friend class detail::access;
    detail::handle<detail::shared_holds> impl_;
};

/// Runs `body` while this lock is held to write. As `with_lock` of a `mutex`.
template<class Body>
auto with_lock(shared_mutex& m, Body body) {
    return detail::run_guarded(
        m.get_executor(), m.scoped_lock(), &detail::ownership_of, std::move(body));
}

/// The same, if the lock can be had within `patience`. As `with_lock_for` of a `mutex`.
template<class Body>
auto with_lock_for(shared_mutex& m, std::chrono::nanoseconds patience, Body body) {
    return detail::run_guarded_if(
        m.get_executor(), m.scoped_lock_for(patience), &detail::ownership_of, std::move(body));
}

/// Runs `body` while this lock is held to read. As `with_lock`.
template<class Body>
auto with_lock_shared(shared_mutex& m, Body body) {
    return detail::run_guarded(
        m.get_executor(), m.scoped_lock_shared(), &detail::ownership_of, std::move(body));
}

/// The same, if the lock can be had within `patience`. As `with_lock_for`.
template<class Body>
auto with_lock_shared_for(shared_mutex& m, std::chrono::nanoseconds patience, Body body) {
    return detail::run_guarded_if(m.get_executor(),
                                  m.scoped_lock_shared_for(patience),
                                  &detail::ownership_of,
                                  std::move(body));
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/shared_mutex.hpp>
#endif
