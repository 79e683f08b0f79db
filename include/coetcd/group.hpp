// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/handle.hpp>
#include <coetcd/error.hpp>
#include <coetcd/feed.hpp>
#include <coetcd/member_entry.hpp>
#include <coetcd/session.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <memory>
#include <string>
#include <vector>

namespace coetcd {

class session_keeper;

namespace detail {
class access;
struct group_impl;
class kept_key;
} // namespace detail

/// Delivers who is in a group, the oldest member first, and then each change. See `feed`. A change
/// takes no request.
using members_feed = feed<std::vector<member_entry>>;

/// A membership in a `group`. Destroying it leaves in the background; await `leave` to know that it
/// happened.
///
/// The member's key is put again if somebody deletes it, or writes to it without a lease: see
/// `ephemeral`, also for what it costs in the background. In a `session_keeper` it outlives its
/// sessions: in the next one it is the same member, with the same key, and if it could be taken
/// over before the lost session's lease ended, it has not been absent.
///
/// @par Thread safety
/// As `client`.
class [[nodiscard]] membership {
public:
    using executor_type = boost::asio::any_io_executor;

    /// No membership, like an object that was moved from: `is_member` and `leave` return false, and
    /// it can be assigned to; everything else throws `std::logic_error`. Default-constructible
    /// because `co_spawn` requires it of results.
    membership() noexcept = default;
    membership(membership&&) noexcept = default;
    membership& operator=(membership&&) noexcept;
    ~membership();

    /// The client's executor.
    executor_type get_executor() const;

    /// `member_entry::key` of this member. Also available after a loss.
    std::string key() const;

    /// Whether others see it, as far as can be known without asking etcd. Looks at the clock. With
    /// a keeper it is false while there is no session.
    bool is_member() const;
    explicit operator bool() const { return is_member(); }

    /// Changes the value that others see. As `ephemeral::update`.
    boost::asio::awaitable<void> update(std::string value) const;

    /// Leaves the group. As `ephemeral::remove`.
    boost::asio::awaitable<bool> leave();

    /// Waits until it is lost. As `ephemeral::wait_lost`; with a keeper, only the end of that ends
    /// it.
    boost::asio::awaitable<error_code> wait_lost() const;

private:
    friend class detail::access;
    explicit membership(std::shared_ptr<detail::kept_key> impl);

    detail::handle<detail::kept_key> impl_;
};

/// Who takes part in something, each member with a value such as an address: the keys below
/// `<name>/`. Each key exists while its member's session does.
///
/// The list of members is the past, as all that one is told by etcd: a member may be gone by now,
/// and one whose process has died is listed for as long as its session's ttl. On a partition, those
/// who are cut off keep the list that they had, and are listed until their ttl has passed.
///
/// It holds nothing, and may be destroyed at any moment; calls under way complete. `members` and
/// `changes` need the client only.
///
/// @par Thread safety
/// As `client`.
class group {
public:
    using executor_type = boost::asio::any_io_executor;

    /// Names a group; no I/O. `owner` may be destroyed first: that loses the session, or closes the
    /// keeper.
    /// @throws std::invalid_argument if `name` is empty or longer than 512 bytes.
    group(const session& owner, std::string name);
    /// For members that outlive a session.
    group(const session_keeper& owner, std::string name);

    /// The client's executor.
    executor_type get_executor() const;

    const std::string& name() const;

    /// Becomes a member. One round trip. Each call makes another member.
    /// @param value What others see.
    /// @throws error as `ephemeral::create`, but not with `errc::already_exists`.
    /// @par Cancellation
    /// As `ephemeral::create`.
    boost::asio::awaitable<membership> join(std::string value);

    /// Who is in the group, the oldest member first. One round trip.
    /// @throws error as `client`.
    /// @par Cancellation
    /// `terminal`, at once.
    boost::asio::awaitable<std::vector<member_entry>> members() const;

    /// Who is in the group, now and from now on. No I/O before the first `next`.
    members_feed changes() const;

private:
    detail::handle<const detail::group_impl> impl_;
};

/// Who is in a group, without a session. As `group::members`.
/// @throws std::invalid_argument as `group`.
boost::asio::awaitable<std::vector<member_entry>> members_of(const client& c, std::string name);

/// Who is in a group, now and from now on, without a session. As `group::changes`.
/// @throws std::invalid_argument as `group`.
members_feed watch_members(const client& c, std::string name);

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/group.hpp>
#endif
