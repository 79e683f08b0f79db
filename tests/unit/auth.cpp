// SPDX-License-Identifier: BSL-1.0
#include <coetcd/auth.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"
#include "unit/administration.hpp"

namespace administration {

using coetcd::auth;
using coetcd::client;
using coetcd::errc;
using coetcd::key_range;
using coetcd::no_password;
using coetcd::permission_type;
using coetcd::server_errc;
using support::failure_of;
using support::world;

namespace {

std::string words(const std::optional<coetcd::user_info>& u) {
    return u ? joined(u->roles) : "none";
}

std::string words(const std::optional<coetcd::role_info>& r) {
    std::string all;
    for (const coetcd::permission& p : r.value().permissions) {
        all += std::to_string(static_cast<int>(p.type)) + ':' + p.keys.key + '-' +
               p.keys.range_end + ' ';
    }
    return all;
}

std::string words_of_auth_status(const coetcd::auth_status& s) {
    return std::string(s.enabled ? "on " : "off ") + std::to_string(s.auth_revision);
}

} // namespace

std::vector<row> auth_calls() {
    using user = std::optional<coetcd::user_info>;
    using role = std::optional<coetcd::role_info>;
    const std::string done = with("");
    return {
        {"add_user",
         [](client c) { return text(auth(c).add_user("u\"", "p\\\n")); },
         rpc::user_add,
         R"({"name":"u\"","password":"p\\\u000a"})",
         done,
         "done",
         true},
        {"add_user without a password",
         [](client c) { return text(auth(c).add_user("u", no_password)); },
         rpc::user_add,
         R"({"name":"u","options":{"no_password":true}})",
         done,
         "done",
         true},
        {"delete_user",
         [](client c) { return text(auth(c).delete_user("u")); },
         rpc::user_delete,
         R"({"name":"u"})",
         done,
         "yes",
         true},
        {"get_user",
         [](client c) {
             return text<user>(auth(c).get_user("u"), [](const user& u) { return words(u); });
         },
         rpc::user_get,
         R"({"name":"u"})",
         with(R"("roles":["a","b"])"),
         "a b "},
        {"list_users",
         [](client c) { return text(auth(c).list_users()); },
         rpc::user_list,
         "{}",
         with(R"("users":["root","u"])"),
         "root u "},
        {"change_password",
         [](client c) { return text(auth(c).change_password("u", "secret")); },
         rpc::user_change_password,
         R"({"name":"u","password":"secret"})",
         done,
         "done",
         true},
        {"grant_role",
         [](client c) { return text(auth(c).grant_role("u", "r")); },
         rpc::user_grant_role,
         R"({"user":"u","role":"r"})",
         done,
         "done",
         true},
        {"revoke_role",
         [](client c) { return text(auth(c).revoke_role("u", "r")); },
         rpc::user_revoke_role,
         R"({"name":"u","role":"r"})",
         done,
         "done",
         true},
        {"add_role",
         [](client c) { return text(auth(c).add_role("r")); },
         rpc::role_add,
         R"({"name":"r"})",
         done,
         "done",
         true},
        {"delete_role",
         [](client c) { return text(auth(c).delete_role("r")); },
         rpc::role_delete,
         R"({"role":"r"})",
         done,
         "yes",
         true},
        {"get_role",
         [](client c) {
             return text<role>(auth(c).get_role("r"), [](const role& r) { return words(r); });
         },
         rpc::role_get,
         R"({"role":"r"})",
         with(R"("perm":[{"key":"YQ=="},{"permType":"WRITE","key":"YQ==","range_end":"Yg=="},)"
              R"({"permType":"READWRITE","key":"Yw=="}])"),
         "0:a- 1:a-b 2:c- "},
        {"list_roles",
         [](client c) { return text(auth(c).list_roles()); },
         rpc::role_list,
         "{}",
         with(R"("roles":["r"])"),
         "r "},
        {"grant_permission",
         [](client c) {
             return text(auth(c).grant_permission("r", permission_type::readwrite, {"a", "b"}));
         },
         rpc::role_grant_permission,
         R"({"name":"r","perm":{"permType":2,"key":"YQ==","range_end":"Yg=="}})",
         done,
         "done",
         true},
        {"grant_permission to read",
         [](client c) {
             return text(auth(c).grant_permission("r", permission_type::read, key_range::all()));
         },
         rpc::role_grant_permission,
         R"({"name":"r","perm":{"key":"AA==","range_end":"AA=="}})",
         done,
         "done",
         true},
        {"revoke_permission",
         [](client c) { return text(auth(c).revoke_permission("r", "a")); },
         rpc::role_revoke_permission,
         R"({"role":"r","key":"YQ=="})",
         done,
         "done",
         true},
        {"enable",
         [](client c) { return text(auth(c).enable()); },
         rpc::auth_enable,
         "{}",
         done,
         "done",
         true},
        {"disable",
         [](client c) { return text(auth(c).disable()); },
         rpc::auth_disable,
         "{}",
         done,
         "done",
         true},
        {"status",
         [](client c) { return text<coetcd::auth_status>(auth(c).status(), words_of_auth_status); },
         rpc::auth_status,
         "{}",
         with(R"("enabled":true,"authRevision":"18446744073709551615")"),
         "on 18446744073709551615"},
    };
}

TEST_CASE("what does not exist is nothing, or false", "[auth]") {
    const auto refusal = [](const std::string& words) {
        return R"({"code":9,"message":"etcdserver: )" + words + R"("})";
    };
    world w;
    const client c = w.client();
    answers(w, rpc::user_get, refusal("user name not found"), 400);
    answers(w, rpc::user_delete, refusal("user name not found"), 400);
    answers(w, rpc::role_get, refusal("role name not found"), 412);
    answers(w, rpc::role_delete, refusal("role name not found"), 400);
    CHECK_FALSE(w.await(auth(c).get_user("u")));
    CHECK_FALSE(w.await(auth(c).delete_user("u")));
    CHECK_FALSE(w.await(auth(c).get_role("r")));
    CHECK_FALSE(w.await(auth(c).delete_role("r")));
}

TEST_CASE("a refusal says what is there already, and what is not", "[auth]") {
    struct {
        rpc what;
        const char* message;
        server_errc expected;
    } const rows[] = {
        {rpc::user_add, "user name already exists", server_errc::already_exists},
        {rpc::user_add, "user name not found", server_errc::not_found},
        {rpc::user_add, "root user does not exist", server_errc::failed_precondition},
    };
    for (const auto& row : rows) {
        CAPTURE(row.message);
        world w;
        answers(w,
                row.what,
                R"({"code":9,"message":"etcdserver: )" + std::string(row.message) + R"("})",
                400);
        const client c = w.client();
        auto adding = w.start(auth(c).add_user("u", "canary"));
        w.env->pass(std::chrono::milliseconds(10));
        const coetcd::error e = failure_of(adding);
        CHECK(e.code() == row.expected);
        CHECK_THAT(e.what(), support::contains("user_add: etcdserver: "));
        CHECK_THAT(e.what(), support::contains("http://etcd:2379"));
        CHECK(std::string(e.what()).find("canary") == std::string::npos);
        CHECK(w.env->calls.size() == 1);
    }
}

TEST_CASE("auth refuses bad names, passwords and ranges before it sends anything", "[auth]") {
    world w;
    const client c = w.client();
    const auth a(c);
    using bad = std::invalid_argument;
    const std::string zero("\0", 1);
    CHECK_THROWS_AS(a.add_user("", "p"), bad);
    CHECK_THROWS_AS(a.add_user("u\n", "p"), bad);
    CHECK_THROWS_AS(a.add_user("u\xff", "p"), bad);
    CHECK_THROWS_AS(a.add_user("u", ""), bad);
    CHECK_THROWS_AS(a.add_user("u", std::string(73, 'p')), bad);
    CHECK_THROWS_AS(a.add_user("u", "\xff"), bad);
    CHECK_THROWS_AS(a.add_user("", no_password), bad);
    CHECK_THROWS_AS(a.delete_user(""), bad);
    CHECK_THROWS_AS(a.get_user(""), bad);
    CHECK_THROWS_AS(a.change_password("", "p"), bad);
    CHECK_THROWS_AS(a.change_password("u", ""), bad);
    CHECK_THROWS_AS(a.grant_role("", "r"), bad);
    CHECK_THROWS_AS(a.grant_role("u", ""), bad);
    CHECK_THROWS_AS(a.revoke_role("u", ""), bad);
    CHECK_THROWS_AS(a.revoke_role("", "r"), bad);
    CHECK_THROWS_AS(a.add_role(""), bad);
    CHECK_THROWS_AS(a.delete_role(""), bad);
    CHECK_THROWS_AS(a.get_role(""), bad);
    CHECK_THROWS_AS(a.grant_permission("", permission_type::read, "k"), bad);
    CHECK_THROWS_AS(a.grant_permission("r", static_cast<permission_type>(3), "k"), bad);
    CHECK_THROWS_AS(a.grant_permission("r", permission_type::read, ""), bad);
    CHECK_THROWS_AS(a.grant_permission("r", permission_type::read, key_range("b", "a")), bad);
    CHECK_THROWS_AS(a.grant_permission("r", permission_type::read, key_range("b", "b")), bad);
    CHECK_THROWS_AS(a.revoke_permission("r", ""), bad);
    CHECK_THROWS_AS(a.revoke_permission("", "k"), bad);
    try {
        (void)a.add_user("u", "canary\xff");
        FAIL("it was accepted");
    } catch (const bad& e) {
        CHECK(std::string(e.what()).find("canary") == std::string::npos);
    }
    CHECK(w.env->calls.empty());
}

TEST_CASE("etcd 3.4 has no status of authentication, and that is said at once", "[auth]") {
    world w;
    answers(w, rpc::auth_status, "Not Found\n", 404);
    const client c = w.client();
    auto asking = w.start(auth(c).status());
    w.env->pass(std::chrono::milliseconds(500));
    const coetcd::error e = failure_of(asking);
    CHECK(e.code() == server_errc::unimplemented);
    CHECK_THAT(e.what(), support::contains("since etcd 3.5"));
}

TEST_CASE("a user whose token is refused when it enables something logs in again", "[auth]") {
    world w;
    int logins = 0;
    bool refuses = true;
    w.env->on_call = [&](const call_request& q, reply& r) {
        r.status = 200;
        if (q.what == rpc::authenticate) {
            r.body = with(R"("token":"t.)" + std::to_string(++logins) + R"(")");
        } else if (std::exchange(refuses, false)) {
            r.status = 401;
            r.body = R"({"code":16,"message":"etcdserver: invalid auth token"})";
        } else {
            r.body = with("");
        }
    };
    coetcd::client_options o;
    o.credentials = coetcd::credentials("root", "canary");
    o.insecure_plain_text_credentials = true;
    const client c = w.client(o);
    w.await(auth(c).enable());
    CHECK(logins == 2);
    CHECK(count(w, rpc::auth_enable) == 2);
}

} // namespace administration
