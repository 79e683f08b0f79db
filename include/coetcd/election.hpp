// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/error.hpp>
#include <coetcd/feed.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lead_options.hpp>
#include <coetcd/leader.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace coetcd {

class election;
class leadership;

namespace detail {
class access;
struct election_impl;
class leading;
std::shared_ptr<ownership> ownership_of(const leadership& held);
boost::asio::awaitable<void>
lead_terms(const client& c,
           std::string name,
           std::string value,
           std::function<boost::asio::awaitable<void>(const leadership&)> body,
           const lead_options& how);
} // namespace detail

/// A term as leader, from `election::campaign`. Destroying it resigns in the background, even if it
/// is lost already; await `resign` to know that it happened.
///
/// It ends when it is resigned, when the session is lost, or when somebody deletes its key. The
/// leader watches that key, so it notices a deletion when the event arrives, at the latest with the
/// next renewal.
///
/// **Leading is a strong hint, not a proof**, like holding a lock: see `mutex`. Where something
/// must not happen twice, write in a transaction with `is_leader()`, or to a resource that rejects
/// a `term()` smaller than one it has seen.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] leadership {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No term, like an object that was moved from: `leads` and `resign` return false, and it can
    /// be assigned to; everything else throws `std::logic_error`. Default-constructible because
    /// `co_spawn` requires it of results.
    leadership() noexcept = default;
    leadership(leadership&&) noexcept = default;
    leadership& operator=(leadership&&) noexcept;
    ~leadership();

    /// The client's executor.
    executor_type get_executor() const;

    /// Whether the term lasts, as far as can be known without asking etcd. Looks at the clock, so
    /// it is right even in the first instruction after a stall.
    bool leads() const;
    explicit operator bool() const { return leads(); }

    /// A number that grows from leader to leader. Also available after a loss.
    std::int64_t term() const;
    /// A condition for a transaction, true only as long as this very term lasts.
    compare is_leader() const;
    /// The key in etcd that stands for this term. A later one of the same session may have the same
    /// key: `is_leader` tells them apart.
    std::string key() const;

    /// Changes the value that observers see. One round trip; two for the first change in a resumed
    /// term, and whenever somebody else has changed the value.
    ///
    /// Retries through network failures for as long as the term lasts, so the outcome is known
    /// unless etcd refuses. Several calls take effect in order, each once; no late copy of a
    /// request undoes a later one. This object may be destroyed or resigned meanwhile: the call
    /// then throws `errc::not_owner`.
    ///
    /// @throws error with `errc::lock_lost`, `errc::session_lost` or `errc::session_closed` if the
    ///   term is over: the value may have been proclaimed in its last moment. With
    ///   `errc::not_owner` if it was resigned. With a `server_errc` if etcd refuses: nothing was
    ///   changed. With `errc::outcome_unknown` if etcd refuses after an answer was lost, and
    ///   reading the key does not settle it: the value may have been proclaimed, or may still be,
    ///   but not after the value of a later call has been.
    /// @par Cancellation
    /// `terminal`, at once. The value may still be proclaimed, but not after the value of a later
    /// call has been.
    boost::asio::awaitable<void> proclaim(std::string value) const;

    /// Ends the term. One round trip. It takes effect at the call: `leads` is false.
    ///
    /// @returns False if the term was already over: nothing was touched.
    /// @throws error as `client`, if no endpoint answers in time. The term is then ended in the
    ///   background.
    /// @par Cancellation
    /// `terminal`. The term is ended in the background.
    boost::asio::awaitable<bool> resign();

    /// Waits until the term is lost.
    /// @returns `errc::session_lost`, `errc::session_closed` or `errc::lock_lost`.
    /// @throws boost::system::system_error with `operation_aborted` if it is resigned, or this
    ///   object is destroyed; at once if that happened before.
    /// @par Cancellation
    /// `terminal`, without effect on the term.
    boost::asio::awaitable<error_code> wait_lost() const;
    /// See `held_lock::wait_suspect`.
    boost::asio::awaitable<std::chrono::nanoseconds> wait_suspect() const;
    /// See `held_lock::wait_active`.
    boost::asio::awaitable<void> wait_active() const;

private:
    friend class detail::access;
    explicit leadership(std::shared_ptr<detail::leading> impl);

    detail::handle<detail::leading> impl_;
};

/// Delivers the leader, and then each change of the leader or of its value; an empty optional while
/// there is no leader. See `feed`. A change of the leader takes one request, a change of its value
/// none.
using leader_feed = feed<std::optional<leader>>;

/// An election: the first candidate for a name leads, in the whole etcd cluster; then the next one
/// does.
///
/// It is a queue like that of a `mutex`. All candidates for one name take turns: coroutines that
/// share one object or one session, other processes, the Go client's `concurrency.Election`,
/// `etcdctl elect`, and every `mutex` of that name. Names and keys are those of a `mutex`.
///
/// It holds nothing, and may be destroyed at any moment; calls under way complete.
///
/// All calls throw
/// - `error` with `errc::session_lost` if the session is lost, or gets lost meanwhile, or
///   `errc::session_closed` if this program has ended it; except `leader` and `observe`, which need
///   the client only;
/// - `error` with a `server_errc` if etcd refuses, for example `permission_denied`.
///
/// @par Thread safety
/// As `client`.
class election {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names an election; no I/O. `owner` may be destroyed first: that loses the session.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    election(const session& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Waits until this candidate leads, retrying through network failures, for as long as the
    /// session lives. One round trip if nobody leads; otherwise one to queue up, and as a
    /// rule none after hand-over. In the background it costs a watch of the key and one more round
    /// trip.
    ///
    /// @param value What observers see at first, such as an address.
    /// @throws error with `errc::lock_lost` if somebody else deleted our place in the queue;
    ///   otherwise see above.
    /// @par Cancellation
    /// As `mutex::lock`. A term that begins at the very moment of the cancellation is resigned.
    boost::asio::awaitable<leadership> campaign(std::string value);

    /// Leads if nobody leads and nobody waits. One round trip; none if this session leads or
    /// campaigns. If the session is still resigning, the call waits until that is done: two. A term
    /// from `resume` counts as another session's. See `mutex::try_lock`.
    /// @returns Nothing if somebody leads or waits; then no key is left in etcd.
    /// @throws error Also as `mutex::try_lock`.
    boost::asio::awaitable<std::optional<leadership>> try_campaign(std::string value);

    /// As `campaign`, for at most `patience`; if that is not positive, as `try_campaign`.
    /// @returns Nothing if others lead, as `mutex::try_lock_for` says.
    /// @throws error Also with `errc::timed_out` if etcd has not answered by then, as
    ///   `mutex::try_lock_for` says. In either case the session lives on, and etcd keeps at most
    ///   what `mutex::lock` leaves.
    boost::asio::awaitable<std::optional<leadership>>
    campaign_for(std::string value, std::chrono::nanoseconds patience);

    /// As `campaign_for`, until a time on any clock.
    template<class Clock, class Duration>
    boost::asio::awaitable<std::optional<leadership>>
    campaign_until(std::string value, std::chrono::time_point<Clock, Duration> deadline) {
        return campaign_for(std::move(value), detail::logic::time_left(deadline, Clock::now()));
    }

    /// For an adopted session: resumes a term that its lease already has. `mutex::resume` does the
    /// same for a lock. Go's client may have campaigned for the term. Two round trips; one if the
    /// lease has no place in the queue.
    ///
    /// @returns Nothing if the lease does not lead, or this session has resumed that term before.
    /// @throws error Also as `client`, if no endpoint answers in time.
    /// @par Cancellation
    /// `terminal`, at once. The term stays as it is.
    boost::asio::awaitable<std::optional<leadership>> resume();

    /// Resumes one term whose `leadership::key` and `leadership::term` were written down. One round
    /// trip. Other keys of the lease are left as they are.
    ///
    /// @returns Nothing if that term is over or does not lead yet, if the key does not belong to
    ///   the session's lease, or if this session has that term already.
    /// @throws std::invalid_argument if `key` is not one of this election, or `term` is not
    ///   positive.
    /// @throws error Also as `client`, if no endpoint answers in time.
    /// @par Cancellation
    /// `terminal`, at once. The term stays as it is.
    boost::asio::awaitable<std::optional<leadership>> resume(std::string key, std::int64_t term);

    /// Who leads now. One round trip.
    boost::asio::awaitable<std::optional<coetcd::leader>> leader() const;

    /// Who leads, now and from now on. No I/O before the first `next`.
    leader_feed observe() const;

private:
    friend class detail::access;
    detail::handle<detail::election_impl> impl_;
};

/// Who leads, now and from now on, without a session. See `election::observe`.
/// @throws std::invalid_argument as `election`.
leader_feed observe(const client& c, std::string name);

/// Who leads now, without a session. One round trip.
/// @throws std::invalid_argument as `election`.
boost::asio::awaitable<std::optional<leader>> leader_of(const client& c, std::string name);

/// Runs `body` while it leads: campaigns, awaits `body()` or `body(const leadership&)`, resigns.
///
/// If the term is lost meanwhile, `body` is cancelled (`terminal`), awaited to its end, and the
/// loss is reported, even if `body` succeeded: it may not have been alone. Everything else is as
/// with `with_lock`, including cost and cancellation.
///
/// @returns What `body` returns.
/// @throws What `body` throws; as `election::campaign`; or error with `errc::session_lost`,
///   `errc::session_closed` or `errc::lock_lost` if the term was lost. An exception of `body` is
///   then nested in it.
template<class Body>
auto lead(election& e, std::string value, Body body) {
    return detail::run_guarded(
        e.get_executor(), e.campaign(std::move(value)), &detail::ownership_of, std::move(body));
}

/// Runs `body` whenever it leads: opens a session of its own, campaigns, awaits `body()` or
/// `body(const leadership&)`, which returns `awaitable<void>`, and resigns. Then it campaigns again
/// if `how.again` says so, and finally closes the session.
///
/// A lost session is replaced, and a failed campaign is made again if the cause may pass: an
/// outage, a lost session, a key deleted by hand. If the term is lost, `body` is cancelled
/// (`terminal`) and awaited to its end before anything else is done: in one process its terms never
/// overlap. What `body` throws then is dropped if another term is to follow.
///
/// @param c Its executor does all work but that of `body`, which runs on the caller's.
/// @throws std::invalid_argument as `election` and `session::open`, at once.
/// @throws What `body` throws while it leads. error if etcd refuses; with `again::never` also with
///   `errc::session_lost` or `errc::lock_lost` if the term was lost, with an exception of `body`
///   nested in it.
/// @par Cancellation
/// `terminal`: passed on to `body`, whose end is awaited; then this ends as `body` did. The rest is
/// done in the background.
template<class Body>
boost::asio::awaitable<void>
lead(const client& c, std::string name, std::string value, Body body, lead_options how = {}) {
    if constexpr (detail::require_body<Body, leadership>()) {
        const auto kept = std::make_shared<Body>(std::move(body));
        auto entry = [kept](const leadership& held) { return detail::start(*kept, held); };
        using result = typename decltype(entry(std::declval<const leadership&>()))::value_type;
        static_assert(std::is_void_v<result>, "the body of lead() returns awaitable<void>");
        return detail::lead_terms(c, std::move(name), std::move(value), std::move(entry), how);
    } else {
        return {}; // so that the compiler reports nothing else
    }
}

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/election.hpp>
#endif
