// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/claim_times.hpp>
#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace coetcd {

namespace detail {
class access;
class claim_impl;
} // namespace detail

/// A name that is claimed for a fixed time, from `try_claim`: what `SET NX PX` is used for in
/// Redis, such as "once an hour, by one of us". It needs no session, and nobody renews it.
///
/// It is in the queue of the `mutex` of that name, and so excludes that mutex, Go's
/// `concurrency.Mutex` and `etcdctl lock` for as long as it lasts.
///
/// etcd ends it between the end of `hold`, or of its minimum if that is longer, and a second later;
/// each new leader of etcd starts that time anew, so there is no upper bound. Destroying the object
/// gives the claim back in the background, unless `keep` was called. Each claim leaves a dead key
/// in etcd's index until compaction.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] timed_claim {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No claim, like an object that was moved from: `owns_lock` returns false, and it can be
    /// assigned to and destroyed; everything else throws `std::logic_error`. Default-constructible
    /// because `co_spawn` requires it of results.
    timed_claim() noexcept = default;
    timed_claim(timed_claim&&) noexcept = default;
    timed_claim& operator=(timed_claim&&) noexcept = default;

    /// The client's executor.
    executor_type get_executor() const;

    /// Whether it is certain to last, as far as can be known without asking etcd: until `hold`,
    /// minus a margin of 10 % (at least 250 ms), after the request that began it was *sent*, on a
    /// clock that runs through a suspend. False once it was given back. A deletion by hand is not
    /// noticed.
    bool owns_lock() const;
    explicit operator bool() const { return owns_lock(); }
    /// How long it is certain to last; 0 if it is not.
    std::chrono::nanoseconds left() const;

    /// The fencing token: it grows with each owner of a lock of this name, of whichever kind.
    std::int64_t fencing_token() const;
    /// A condition for a transaction, true only as long as this very claim lasts.
    compare is_owner() const;
    std::string key() const;
    lease_id lease() const;

    /// Gives it back. One round trip. It takes effect at the call: `owns_lock` is false. Await the
    /// result to know that etcd has done it.
    ///
    /// Before `claim_times::min_hold` has passed this takes two round trips: the key gets another
    /// lease, which ends a second or two after `min_hold` has passed, whatever becomes of the
    /// program. Others are kept away until then, and `is_owner` remains true.
    /// @returns False if it had ended, or was given back before.
    /// @throws error as `client`: it then ends by itself, when `hold` has passed, unless a second
    ///   call ends it.
    /// @par Cancellation
    /// `terminal`. It is given back in the background.
    boost::asio::awaitable<bool> release();

    /// Lets it last for its time, whatever becomes of this object and of the program.
    void keep();

private:
    friend class detail::access;
    explicit timed_claim(std::shared_ptr<detail::claim_impl> impl);

    detail::handle<detail::claim_impl> impl_;
};

/// Claims a name for a time if nobody has it. Two round trips.
/// @param hold At least one second. etcd raises it to its minimum, by default two, and keeps others
///   away for that long; the claim is valid for what was asked for.
/// @returns Nothing if somebody holds the name, or waits for it. Nothing is left in etcd.
/// @throws std::invalid_argument if `name` is empty or longer than 512 bytes, or `hold` is invalid.
/// @throws error as `client`, but never with `errc::outcome_unknown`: what may have been claimed is
///   given back in the background, as with every other end without a claim.
/// @par Cancellation
/// `terminal`, at once. What may have been claimed is given back in the background.
boost::asio::awaitable<std::optional<timed_claim>>
try_claim(const client& by, std::string name, std::chrono::seconds hold);

/// The same, with all of `claim_times`, and tries again whenever the owner of the name is gone, for
/// at most `times.wait`. The call has no place in the queue: a waiter of a `mutex` comes first, and
/// several waiters of this kind come in any order. It watches one key, and tries after a random
/// moment of up to 50 ms, so that the end of a claim causes no stampede.
/// @returns Nothing if others had it all the time.
/// @throws As `try_claim`; `std::invalid_argument` also if `min_hold` is invalid, error also with
/// `errc::timed_out` if etcd has not answered by then.
/// @par Cancellation
/// As `try_claim`.
boost::asio::awaitable<std::optional<timed_claim>>
claim_for(const client& by, std::string name, claim_times times);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/timed_claim.hpp>
#endif
