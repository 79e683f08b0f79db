// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <memory>
#include <string>

namespace coetcd {

class session_keeper;

namespace detail {
class access;
class kept_key;
} // namespace detail

/// A key that exists while its session does: it carries the session's lease. Destroying this object
/// removes the key in the background; await `remove` to know that it happened.
///
/// What is done to the key by hand is put right: if somebody deletes it, or writes to it without a
/// lease, it is put again, with our value and our lease. So it may be absent for a moment. **Do not
/// use it as a lock**: those are never put again. If somebody else has put the key with a lease of
/// theirs after it was deleted, it is lost.
///
/// In a `session_keeper` it is put again in the next session after a session was lost. A key that
/// the lease of the lost one still has is taken over, so it need not be absent in between.
///
/// In the background it costs a watch of the key, one round trip at first and one about every 10 s.
/// Besides the key, etcd may have `<key>.<id>` until the session ends: it is put only if the key is
/// removed after the answer to the request that put it was lost, and makes late copies of that
/// request void.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] ephemeral {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Puts the key, if there is none; retries through network failures for as long as the session
    /// lives. One round trip; two if the lease of `owner` has the key already, as that of an
    /// adopted session may: then this takes it over, and gives it the value.
    ///
    /// If an earlier object of this session is still removing the key, waits for that first.
    ///
    /// @throws std::invalid_argument if `key` is empty or longer than 512 bytes.
    /// @throws error with `errc::already_exists` if somebody else has the key: `what()` names the
    ///   lease. Also if this session has it already by another object.
    /// @throws error with `errc::session_lost` or `errc::session_closed` if the session has ended,
    ///   or ends meanwhile. With a `server_errc` if etcd refuses: no key was put. With
    ///   `errc::outcome_unknown` if etcd refuses after an answer was lost: if the key was put, it
    ///   is removed in the background.
    /// @par Cancellation
    /// `terminal`, at once. If the key may have been put, it is removed in the background.
    static boost::asio::awaitable<ephemeral>
    create(const session& owner, std::string key, std::string value);

    /// The same in whichever session `owner` has; waits until it has one. It is lost only if
    /// somebody else has put the key while there was no session, or if the keeper is closed.
    /// @throws error Also as `session_keeper::wait_live`, for a reason that will hardly pass.
    static boost::asio::awaitable<ephemeral>
    create(const session_keeper& owner, std::string key, std::string value);

    /// No key, like an object that was moved from: `exists` and `remove` return false, and it can
    /// be assigned to; everything else throws `std::logic_error`. Default-constructible because
    /// `co_spawn` requires it of results.
    ephemeral() noexcept = default;
    ephemeral(ephemeral&&) noexcept = default;
    ephemeral& operator=(ephemeral&&) noexcept;
    ~ephemeral();

    /// The client's executor.
    executor_type get_executor() const;

    /// Also available after a loss.
    std::string key() const;

    /// Whether the key exists, as far as can be known without asking etcd. Looks at the clock, so
    /// it is right even in the first instruction after a stall. With a keeper it is false while
    /// there is no session.
    bool exists() const;
    explicit operator bool() const { return exists(); }

    /// Changes the value. One round trip; two if somebody else has changed the key meanwhile.
    ///
    /// Retries through network failures for as long as the session lives; with a keeper, until it
    /// has a session. Several calls take effect in order; a value that is followed by another one
    /// before it was sent is left out, and its call returns once the later one is there. No late
    /// copy of a request undoes a later one.
    ///
    /// @throws error with `errc::not_owner` if it was removed; otherwise as `wait_lost` returns, if
    ///   it is lost. With a `server_errc` if etcd refuses: nothing was changed. With
    ///   `errc::outcome_unknown` if etcd refuses after an answer was lost: the value may be there
    ///   for a moment, and the earlier one is put again.
    /// @par Cancellation
    /// `terminal`, at once. The value is changed all the same, in the background.
    boost::asio::awaitable<void> update(std::string value) const;

    /// Removes the key. One round trip; none if it is lost. It takes effect at the call: `exists`
    /// is false.
    ///
    /// @returns False if it was not there any more: nothing was touched.
    /// @throws error with `errc::timed_out` if etcd has not answered within the client's
    ///   `request_timeout`, or with a `server_errc` if it refuses. It is then removed in the
    ///   background, at the latest with the session.
    /// @par Cancellation
    /// `terminal`, at once. It is removed in the background.
    boost::asio::awaitable<bool> remove();

    /// Waits until it is lost. No I/O.
    /// @returns Why: `errc::session_lost`, `errc::session_closed`, or `errc::lock_lost` if somebody
    ///   else has the key now.
    /// @par Cancellation
    /// `terminal`, without effect on the key. If the key is removed by this object, this ends with
    /// `operation_aborted`, too.
    boost::asio::awaitable<error_code> wait_lost() const;

private:
    friend class detail::access;
    explicit ephemeral(std::shared_ptr<detail::kept_key> impl);

    detail::handle<detail::kept_key> impl_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/ephemeral.hpp>
#endif
