// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/kv.hpp>

#include <boost/asio/awaitable.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Users of etcd, their roles, and whether etcd asks for them.

namespace coetcd {

/// What a role may do with keys; in etcd's order.
enum class permission_type { read, write, readwrite };

struct permission {
    permission_type type;
    key_range keys;
};

struct user_info {
    std::vector<std::string> roles; ///< Sorted.
};

struct role_info {
    std::vector<permission> permissions; ///< Of the role "root": whatever this etcd says of it.
};

struct auth_status {
    bool enabled = false;
    std::uint64_t auth_revision = 0; ///< It grows with every change of users and roles.
};

/// For `auth::add_user`: a user that has no password logs in by its certificate alone, which etcd's
/// gateway does not accept. Such a user is for etcd's other clients.
struct no_password_t {
    explicit no_password_t() = default;
};
inline constexpr no_password_t no_password{};

/// Administers the users and roles of a cluster. While authentication is enabled, the client's own
/// user needs the role "root". It keeps the client alive, and needs one round trip for each call.
///
/// Passwords are wiped from this library's memory once they were sent. The caller's own copies are
/// not, and no message, log or metric has any.
///
/// All calls throw `std::invalid_argument`, before anything is sent, if a name is empty or not
/// printable UTF-8, and `error` as those of `client`. Besides:
/// - `server_errc::already_exists` or `server_errc::not_found`, for users, roles, and what is
///   granted to them. etcd itself says `failed_precondition` in these cases.
/// - `errc::outcome_unknown` if a change was sent and its answer was lost. It is not repeated: look
///   at the user or role first.
/// @par Cancellation
/// `terminal`, at once. A change may have been made.
/// @par Thread safety
/// As `client`.
class auth {
public:
    /// @param by Whose endpoints, user and time limit are used: see `client::with_timeout`.
    explicit auth(client by);

    /// Adds a user, without roles.
    /// @param password 1 to 72 bytes of UTF-8: no etcd looks at more of it.
    /// @throws std::invalid_argument also if the password is anything else.
    boost::asio::awaitable<void> add_user(std::string name, std::string password) const;
    /// Adds a user that has no password.
    boost::asio::awaitable<void> add_user(std::string name, no_password_t) const;
    /// Deletes a user. Its tokens end at once.
    /// @returns False if there is no such user.
    /// @throws error with `server_errc::invalid_argument` for "root" while authentication is
    ///   enabled.
    boost::asio::awaitable<bool> delete_user(std::string name) const;
    /// @returns Nothing if there is no such user.
    boost::asio::awaitable<std::optional<user_info>> get_user(std::string name) const;
    /// The names of all users.
    boost::asio::awaitable<std::vector<std::string>> list_users() const;
    /// Gives a user another password. Its tokens end at once: clients with the old password go on
    /// until then.
    boost::asio::awaitable<void> change_password(std::string name, std::string password) const;
    /// Gives a user a role. Not an error if the user has it.
    boost::asio::awaitable<void> grant_role(std::string user, std::string role) const;
    /// @throws error with `server_errc::not_found` also if the user does not have the role.
    boost::asio::awaitable<void> revoke_role(std::string user, std::string role) const;

    /// Adds a role that may do nothing.
    boost::asio::awaitable<void> add_role(std::string name) const;
    /// Deletes a role, and takes it from all users.
    /// @returns False if there is no such role.
    boost::asio::awaitable<bool> delete_role(std::string name) const;
    /// @returns Nothing if there is no such role.
    boost::asio::awaitable<std::optional<role_info>> get_role(std::string name) const;
    /// The names of all roles.
    boost::asio::awaitable<std::vector<std::string>> list_roles() const;
    /// Lets a role use keys. Replaces what it was granted for exactly this range.
    /// @throws std::invalid_argument also if the range has no first key, or ends before it begins:
    ///   etcd 3.4 would store it.
    boost::asio::awaitable<void>
    grant_permission(std::string role, permission_type type, key_range keys) const;
    /// Takes back what was granted for exactly this range. A part of it cannot be taken back.
    /// @throws error with `server_errc::not_found` also if nothing was granted for it.
    boost::asio::awaitable<void> revoke_permission(std::string role, key_range keys) const;

    /// Has etcd ask for users from now on. A client without credentials is refused from then on;
    /// one that has some logs in with its next call.
    /// @throws error with `server_errc::failed_precondition` unless there is a user "root" with the
    ///   role "root".
    boost::asio::awaitable<void> enable() const;
    /// Has etcd serve everybody from now on. Users and roles stay.
    boost::asio::awaitable<void> disable() const;
    /// @throws error with `server_errc::unimplemented` before etcd 3.5.
    boost::asio::awaitable<auth_status> status() const;

private:
    client by_;
};

} // namespace coetcd

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/auth.hpp>
#endif
