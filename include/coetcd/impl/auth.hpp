// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/auth.hpp>
#include <coetcd/detail/config.hpp>
#include <coetcd/detail/logic/administration.hpp>
#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/service/administration.hpp>
#include <coetcd/detail/wire/auth_admin.hpp>

#include <stdexcept>
#include <utility>

namespace coetcd {

namespace detail {

/// The password is wiped, whatever becomes of it.
template<rpc What>
asio::awaitable<void> ask_with_password(const client& by, std::string name, secret password) {
    logic::require_account("user", name);
    logic::require_password(password.view());
    wire::password_request<What> request{std::move(name), std::move(password)};
    return end_of(ask_as_admin(by, std::move(request)));
}

template<rpc What>
asio::awaitable<std::vector<std::string>>
names_of(asio::awaitable<wire::names_response<What>> work) {
    wire::names_response<What> r = co_await std::move(work);
    co_return std::move(r.names);
}

inline asio::awaitable<user_info>
user_of(asio::awaitable<wire::names_response<rpc::user_get>> work) {
    wire::names_response<rpc::user_get> r = co_await std::move(work);
    user_info u;
    u.roles = std::move(r.names);
    co_return u;
}

inline asio::awaitable<role_info> role_of(asio::awaitable<wire::role_response> work) {
    wire::role_response r = co_await std::move(work);
    role_info role;
    for (wire::granted_permission& p : r.permissions) {
        role.permissions.push_back({static_cast<permission_type>(p.type), std::move(p.keys)});
    }
    co_return role;
}

inline asio::awaitable<auth_status> status_of(asio::awaitable<wire::auth_status_response> work) {
    const wire::auth_status_response r = co_await std::move(work);
    auth_status s;
    s.enabled = r.enabled;
    s.auth_revision = r.auth_revision;
    co_return s;
}

inline void require_user_and_role(const std::string& user, const std::string& role) {
    logic::require_account("user", user);
    logic::require_account("role", role);
}

} // namespace detail

COETCD_DECL auth::auth(client by)
    : by_(std::move(by)) {}

COETCD_DECL boost::asio::awaitable<void> auth::add_user(std::string name,
                                                        std::string password) const {
    return detail::ask_with_password<detail::rpc::user_add>(
        by_, std::move(name), detail::secret(std::move(password)));
}

COETCD_DECL boost::asio::awaitable<void> auth::add_user(std::string name, no_password_t) const {
    detail::logic::require_account("user", name);
    detail::wire::password_request<detail::rpc::user_add> request{std::move(name), {}, true};
    return detail::end_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<bool> auth::delete_user(std::string name) const {
    detail::logic::require_account("user", name);
    detail::wire::named_request<detail::rpc::user_delete> request{std::move(name)};
    return detail::whether_found(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<std::optional<user_info>>
auth::get_user(std::string name) const {
    detail::logic::require_account("user", name);
    detail::wire::named_request<detail::rpc::user_get> request{std::move(name)};
    return detail::if_found(detail::user_of(detail::ask_as_admin(by_, std::move(request))));
}

COETCD_DECL boost::asio::awaitable<std::vector<std::string>> auth::list_users() const {
    const detail::wire::plain_request<detail::rpc::user_list> request;
    return detail::names_of(detail::ask_as_admin(by_, request));
}

COETCD_DECL boost::asio::awaitable<void> auth::change_password(std::string name,
                                                               std::string password) const {
    return detail::ask_with_password<detail::rpc::user_change_password>(
        by_, std::move(name), detail::secret(std::move(password)));
}

COETCD_DECL boost::asio::awaitable<void> auth::grant_role(std::string user,
                                                          std::string role) const {
    detail::require_user_and_role(user, role);
    detail::wire::user_role_request<detail::rpc::user_grant_role> request{std::move(user),
                                                                          std::move(role)};
    return detail::end_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<void> auth::revoke_role(std::string user,
                                                           std::string role) const {
    detail::require_user_and_role(user, role);
    detail::wire::user_role_request<detail::rpc::user_revoke_role> request{std::move(user),
                                                                           std::move(role)};
    return detail::end_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<void> auth::add_role(std::string name) const {
    detail::logic::require_account("role", name);
    detail::wire::named_request<detail::rpc::role_add> request{std::move(name)};
    return detail::end_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<bool> auth::delete_role(std::string name) const {
    detail::logic::require_account("role", name);
    detail::wire::named_request<detail::rpc::role_delete> request{std::move(name)};
    return detail::whether_found(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<std::optional<role_info>>
auth::get_role(std::string name) const {
    detail::logic::require_account("role", name);
    detail::wire::named_request<detail::rpc::role_get> request{std::move(name)};
    return detail::if_found(detail::role_of(detail::ask_as_admin(by_, std::move(request))));
}

COETCD_DECL boost::asio::awaitable<std::vector<std::string>> auth::list_roles() const {
    const detail::wire::plain_request<detail::rpc::role_list> request;
    return detail::names_of(detail::ask_as_admin(by_, request));
}

COETCD_DECL boost::asio::awaitable<void>
auth::grant_permission(std::string role, permission_type type, key_range keys) const {
    detail::logic::require_account("role", role);
    detail::logic::require_range(keys);
    const auto number = static_cast<std::int64_t>(type);
    if (number < 0 || number > static_cast<std::int64_t>(permission_type::readwrite)) {
        throw std::invalid_argument("type: is none of permission_type");
    }
    detail::wire::grant_permission_request request{std::move(role), number, std::move(keys)};
    return detail::end_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<void> auth::revoke_permission(std::string role,
                                                                 key_range keys) const {
    detail::logic::require_account("role", role);
    detail::logic::require_range(keys);
    detail::wire::revoke_permission_request request{std::move(role), std::move(keys)};
    return detail::end_of(detail::ask_as_admin(by_, std::move(request)));
}

COETCD_DECL boost::asio::awaitable<void> auth::enable() const {
    const detail::wire::plain_request<detail::rpc::auth_enable> request;
    return detail::end_of(detail::ask_as_admin(by_, request));
}

COETCD_DECL boost::asio::awaitable<void> auth::disable() const {
    const detail::wire::plain_request<detail::rpc::auth_disable> request;
    return detail::end_of(detail::ask_as_admin(by_, request));
}

COETCD_DECL boost::asio::awaitable<auth_status> auth::status() const {
    const detail::wire::plain_request<detail::rpc::auth_status> request;
    return detail::status_of(detail::ask_as_admin(by_, request));
}

} // namespace coetcd
