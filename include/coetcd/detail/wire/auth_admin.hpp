// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/rpc.hpp>
#include <coetcd/detail/secret.hpp>
#include <coetcd/detail/wire/decode.hpp>
#include <coetcd/detail/wire/encode.hpp>
#include <coetcd/detail/wire/json.hpp>
#include <coetcd/detail/wire/requests.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The messages about users, roles and permissions.
namespace coetcd::detail::wire {

/// A call that says nothing but its name.
template<rpc What>
struct plain_request {};

/// A call about one user, or one role.
template<rpc What>
struct named_request {
    std::string name;
};

/// A call about a role of a user.
template<rpc What>
struct user_role_request {
    std::string user;
    std::string role;
};

/// A call about a user's password. Its text holds the password, and must be wiped.
template<rpc What>
struct password_request {
    std::string name;
    secret password;
    bool without = false; ///< The user has none.
};

struct grant_permission_request {
    std::string role;
    std::int64_t type = 0; ///< In etcd's order.
    key_range keys;
};

struct revoke_permission_request {
    std::string role;
    key_range keys;
};

/// The answer to a change.
struct done_response {
    response_header header;
};

/// Names of users, or of roles.
template<rpc What>
struct names_response {
    response_header header;
    std::vector<std::string> names;
};

struct auth_status_response {
    response_header header;
    bool enabled = false;
    std::uint64_t auth_revision = 0;
};

struct granted_permission {
    std::int64_t type = 0;
    key_range keys{std::string()};
};

struct role_response {
    response_header header;
    std::vector<granted_permission> permissions;
};

template<rpc What>
struct answer_to : answered_by<What, done_response> {};
template<>
struct answer_to<rpc::auth_status> : answered_by<rpc::auth_status, auth_status_response> {};
template<>
struct answer_to<rpc::user_get> : answered_by<rpc::user_get, names_response<rpc::user_get>> {};
template<>
struct answer_to<rpc::user_list> : answered_by<rpc::user_list, names_response<rpc::user_list>> {};
template<>
struct answer_to<rpc::role_list> : answered_by<rpc::role_list, names_response<rpc::role_list>> {};
template<>
struct answer_to<rpc::role_get> : answered_by<rpc::role_get, role_response> {};

template<rpc What>
struct request_traits<plain_request<What>> : answer_to<What> {};
template<rpc What>
struct request_traits<named_request<What>> : answer_to<What> {};
template<rpc What>
struct request_traits<user_role_request<What>> : answer_to<What> {};
template<rpc What>
struct request_traits<password_request<What>> : answer_to<What> {};
template<>
struct request_traits<grant_permission_request> : answer_to<rpc::role_grant_permission> {};
template<>
struct request_traits<revoke_permission_request> : answer_to<rpc::role_revoke_permission> {};

inline void
text_field(object_writer& object, std::string& out, std::string_view name, std::string_view value) {
    object.start(name);
    append_json_string(out, value);
}

template<rpc What>
void append(std::string& out, const plain_request<What>&) {
    out += "{}";
}

template<rpc What>
void append(std::string& out, const named_request<What>& request) {
    constexpr bool of_role = What == rpc::role_get || What == rpc::role_delete;
    object_writer object(out);
    text_field(object, out, of_role ? "role" : "name", request.name);
    object.end();
}

template<rpc What>
void append(std::string& out, const user_role_request<What>& request) {
    object_writer object(out);
    text_field(object, out, What == rpc::user_grant_role ? "user" : "name", request.user);
    text_field(object, out, "role", request.role);
    object.end();
}

/// The result holds the password, and the caller must wipe it. If `out` was empty, no second copy
/// of the password is left in memory.
template<rpc What>
void append(std::string& out, const password_request<What>& request) {
    const std::string_view password = request.password.view();
    out.reserve(64 + 6 * (request.name.size() + password.size()));
    object_writer object(out);
    text_field(object, out, "name", request.name);
    if (request.without) {
        object.start("options");
        out += R"({"no_password":true})";
    } else {
        text_field(object, out, "password", password);
    }
    object.end();
}

/// The permission is always there: without it every member of etcd 3.4 crashes.
inline void append(std::string& out, const grant_permission_request& request) {
    object_writer object(out);
    text_field(object, out, "name", request.role);
    object.start("perm");
    object_writer permission(out);
    permission.number("permType", request.type);
    permission.range(request.keys);
    permission.end();
    object.end();
}

inline void append(std::string& out, const revoke_permission_request& request) {
    object_writer object(out);
    text_field(object, out, "role", request.role);
    object.range(request.keys);
    object.end();
}

inline void read(const json_value& body, done_response& response) {
    read_header(body, response.header);
}

template<rpc What>
void read(const json_value& body, names_response<What>& response) {
    constexpr const char* field = What == rpc::user_list ? "users" : "roles";
    read_header(body, response.header);
    for (const auto& item : read_array(body, field)) {
        response.names.push_back(to_text(item, field));
    }
}

inline void read(const json_value& body, auth_status_response& response) {
    read_header(body, response.header);
    response.enabled = read_bool(body, "enabled");
    response.auth_revision = read_uint64(body, "authRevision");
}

inline void read(const json_value& body, role_response& response) {
    read_header(body, response.header);
    for (const auto& item : read_array(body, "perm")) {
        granted_permission& p = response.permissions.emplace_back();
        p.type = read_enum<std::int64_t>(
            item, "permType", {{"READ", 0}, {"WRITE", 1}, {"READWRITE", 2}});
        p.keys.key = read_bytes(item, "key");
        p.keys.range_end = read_bytes(item, "range_end");
    }
}

} // namespace coetcd::detail::wire
