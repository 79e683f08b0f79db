// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace coetcd {

namespace detail {
class access;
class job_impl;
class work_queue_impl;
} // namespace detail

/// An item of a work queue that is ours to work on, from `work_queue::take`. **One that is
/// destroyed without `ack`, `retry` or `bury` is retried**, in the background.
///
/// It is lost if its session is lost, or if somebody deletes its claim; the latter is noticed with
/// the next renewal. Then somebody else gets the item.
///
/// `ack`, `retry` and `bury` take effect at the call, awaited or not: `owns` is false, and the
/// request is sent until etcd answers or the session ends. A call that fails, or whose condition
/// does not hold, gives the job back to its owner: `owns` is true again.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] job {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No job, like an object that was moved from: `owns` and `lost` return false, and it can be
    /// assigned to; everything else throws `std::logic_error`. Default-constructible because
    /// `co_spawn` requires it of results.
    job() noexcept = default;
    job(job&& other) noexcept;
    job& operator=(job&& other) noexcept;
    ~job();

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& value() const;
    /// 1 at the first attempt. Each attempt that was begun counts, however it ended.
    int attempt() const;
    /// The same for all attempts at an item, and for no other item of the queue.
    const std::string& id() const;

    /// Whether it is ours, as far as can be known without asking etcd. Looks at the clock, so it is
    /// right even in the first instruction after a stall.
    bool owns() const;
    explicit operator bool() const { return owns(); }
    /// Whether it was ours and somebody else may have it now.
    bool lost() const;

    /// A number that no other attempt has, and that grows from each attempt at an item to the next.
    /// Something else than etcd that works for several consumers can refuse, for each item, smaller
    /// numbers than it has seen.
    std::int64_t token() const;
    /// A condition for a transaction, true only as long as the job is ours.
    compare is_mine() const;

    /// The work is done: the item is erased. One round trip.
    /// @returns False if it was no longer ours: somebody else may have it, and nothing was touched.
    ///   A repeated call waits for the first one, and returns the same.
    /// @throws error with `errc::outcome_unknown` if there is no answer within
    ///   `client_options::request_timeout`, or the session is lost meanwhile; otherwise as
    ///   `client`: nothing was changed.
    /// @par Cancellation
    /// `terminal`. It goes on in the background.
    boost::asio::awaitable<bool> ack();

    /// The same, together with the effect of the work: in one transaction, so that **both happen
    /// exactly once, or neither does**.
    /// @param with Its conditions, at most 120, have to hold, too; its operations, at most 120, are
    ///   carried out. It must not have operations for the case that a condition fails.
    /// @returns False if nothing was done: the job was no longer ours, or a condition of `with`
    ///   failed. In the latter case `owns` is true: `ack` can be called again.
    /// @throws std::invalid_argument at once if `with` is not as described.
    /// @throws error As `ack`.
    /// @par Cancellation
    /// As `ack`.
    boost::asio::awaitable<bool> ack(txn with);

    /// The attempt has failed: the item is ready again, before all that were never taken, for
    /// the next consumer; after the last attempt it is dead. One round trip.
    /// @returns False if it was no longer ours.
    /// @throws error As `ack`.
    /// @par Cancellation
    /// As `ack`.
    boost::asio::awaitable<bool> retry();

    /// No further attempt is of use: the item is dead. Otherwise as `retry`.
    boost::asio::awaitable<bool> bury();

private:
    friend class detail::access;
    job(std::shared_ptr<detail::job_impl> held);

    detail::handle<detail::job_impl> held_;
};

/// Options of a work queue. All consumers of a name should have the same.
struct work_options {
    /// After so many attempts an item is dead; at least 1. Attempts whose consumer died count, too.
    int max_attempts = 5;
};

/// How many items a work queue has.
struct work_state {
    std::int64_t ready = 0; ///< Nobody works on them.
    std::int64_t busy = 0;  ///< Somebody does, or died while doing so a short time ago.
    std::int64_t dead = 0;  ///< Given up.
};

/// An item that was given up.
struct dead_item {
    std::string id; ///< As `job::id` at each of its attempts.
    std::string value;
    int attempts = 0;
    std::string key;           ///< In etcd: `<name>.dead/...`.
    std::int64_t revision = 0; ///< Of that key: what tells a later one from it.
};

/// A queue of work for many consumers, any of which may die: **an item is erased only when a
/// consumer says that its work is done.** Until then it is in etcd, and goes to somebody else if
/// its consumer dies. So each item is worked on at least once; `job::ack(txn)` makes the effects in
/// etcd happen exactly once.
///
/// Items are in order: one whose `enqueue` was over before that of another began is before it. One
/// that is tried again comes before all that were never taken. A consumer that waits takes the
/// first item that it is told of: that may be a later one, if the event of an earlier one is lost,
/// or came before its watch was in force.
///
/// When the session of a consumer ends, its items are ready again as soon as some consumer looks:
/// at once if one waits in `take`, otherwise within half the session's time to live, at most 10 s,
/// while there are calls of `take`.
///
/// All keys in etcd that begin with `<name>/` or `<name>.` belong to it; do not use the name for
/// anything else. A user needs to read and write all keys from `<name>.` up to, but not including,
/// `<name>0`. Items have no lease: they outlive all sessions, at `<name>/ready/`, `<name>/again/`,
/// `<name>/run/busy/` or `<name>.dead/`. All other keys go with the lease of their session.
///
/// It may be destroyed at any moment. Calls under way complete, and jobs stay as they are.
///
/// Calls throw
/// - `error` with `errc::session_lost` if the session is lost, or gets lost meanwhile, or
///   `errc::session_closed` if this program has ended it; calls that only read need no live
///   session;
/// - `error` with a `server_errc` if etcd refuses, for example `permission_denied`.
///
/// @par Thread safety
/// As `client`.
class work_queue {
public:
    using executor_type = boost::asio::any_io_executor;

    /// The most items that one `enqueue` accepts.
    static constexpr std::size_t max_batch = 60;

    /// Names a queue; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or
    ///   `options.max_attempts` is less than 1.
    work_queue(const session& owner, std::string name, work_options options = {});

    work_queue(work_queue&&) noexcept = default;
    work_queue& operator=(work_queue&&) noexcept = default;
    ~work_queue() = default;

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Appends an item. One round trip while no other producer appends, otherwise two; one more for
    /// each answer that is lost. It is appended once, however often its request is sent.
    ///
    /// @throws error with
    /// - `errc::outcome_unknown` if it was sent and no answer came in time, or the session was lost
    ///   meanwhile: it may have been appended, or may still be;
    /// - otherwise as above, or as `client`: nothing was appended.
    /// @par Cancellation
    /// `terminal`, at once. If it was sent, the item may or may not be appended.
    boost::asio::awaitable<void> enqueue(std::string value);
    /// Appends items next to each other, in their order; all or none.
    /// @throws std::invalid_argument if there are none, or more than `max_batch`.
    boost::asio::awaitable<void> enqueue(std::vector<std::string> values);

    /// Waits for an item, retrying through network failures for as long as the session lives.
    ///
    /// Two round trips if there is one, or one while this object takes one after the other and
    /// nobody else takes; more if other consumers are faster. While there is none, the consumers
    /// stand in line, and only the first of them watches the queue: an item costs one event and one
    /// round trip from its arrival.
    ///
    /// @throws error with `errc::lock_lost` if somebody deleted our place in the line; otherwise
    /// see
    ///   above.
    /// @par Cancellation
    /// `terminal`, at once. An item that is taken at that very moment is put back in the
    /// background; that counts as an attempt.
    boost::asio::awaitable<job> take();

    /// Takes an item if there is one now. One round trip if there is none, and one more from time
    /// to time to look for those of consumers that died.
    /// @returns Nothing if there is none.
    /// @throws error As `take`; also as `client`, if no endpoint answers in time.
    boost::asio::awaitable<std::optional<job>> try_take();

    /// As `take`, for at most `patience`; if that is not positive, as `try_take`. The answer to a
    /// request that may have taken an item is waited for beyond that.
    /// @returns Nothing if there was none by then, or others were faster.
    /// @throws error Also with `errc::timed_out` or `errc::unavailable` if there was no answer of
    ///   etcd by then.
    boost::asio::awaitable<std::optional<job>> take_for(std::chrono::nanoseconds patience);

    /// As `take_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<job>>
    take_until(std::chrono::time_point<Clock, Duration> deadline) {
        return take_for(detail::logic::time_left(deadline, Clock::now()));
    }

    /// How many items there are. One round trip.
    boost::asio::awaitable<work_state> state() const;

    /// The items that were given up, in their order. One round trip.
    /// @param limit Maximum number to list; 0 for all.
    boost::asio::awaitable<std::vector<dead_item>> dead(std::size_t limit = 0) const;

    /// Appends a dead item as a new one, with all its attempts to come. Costs, throws and is
    /// cancelled as `enqueue`.
    /// @param which As `dead` has returned it. Everything but `id` and `attempts` counts.
    /// @returns False if it is not there any more.
    /// @throws std::invalid_argument if it is of another queue.
    boost::asio::awaitable<bool> revive(dead_item which);

    /// Erases a dead item. One round trip.
    /// @param which As `dead` has returned it. Only `key` and `revision` count.
    /// @returns False if it is not there any more.
    /// @throws std::invalid_argument if it is of another queue.
    /// @throws error As `enqueue`; with `errc::outcome_unknown` it may have been erased.
    /// @par Cancellation
    /// As `enqueue`.
    boost::asio::awaitable<bool> erase_dead(dead_item which);

private:
    friend class detail::access;
    detail::handle<detail::work_queue_impl> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/work_queue.hpp>
#endif
