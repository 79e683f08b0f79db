// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/etcd_txn_src.hpp>
#include <coetcd/detail/testing/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace coetcd::detail::testing {

inline unsigned http_status(int code) {
    switch (code) {
    case 4:
        return 504;
    case 5:
        return 404;
    case 7:
        return 403;
    case 8:
        return 429;
    case 12:
        return 501;
    case 14:
        return 503;
    case 16:
        return 401;
    case 2:
    case 13:
    case 15:
        return 500;
    default:
        return 400;
    }
}

inline std::string_view http_text(unsigned status) {
    switch (status) {
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 429:
        return "Too Many Requests";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    default:
        return "Bad Request";
    }
}

// Requests.

COETCD_DECL etcd::answer etcd::refuse(rpc what, const refusal& no, answer a) const {
    const std::string code = std::to_string(no.code);
    if (a.body.empty()) {
        a.status = http_status(no.code);
    }
    if (what == rpc::lease_keep_alive) { // a stream, to the gateway
        a.body += stream_error(no.code, no.message);
    } else if (speaks_ == dialect::v1) {
        a.body = R"({"error":")" + no.message + R"(","message":")" + no.message + R"(","code":)" +
                 code + "}";
    } else {
        a.body = R"({"code":)" + code + R"(, "message":")" + no.message + R"("})";
    }
    return a;
}

COETCD_DECL etcd::answer etcd::failure(rpc what, int code, std::string_view message) const {
    return refuse(what, {code, std::string(message)}, {});
}

COETCD_DECL std::string etcd::stream_error(int code, std::string_view message) const {
    const std::string number = std::to_string(code);
    const std::string text(message);
    if (speaks_ == dialect::v1) {
        const unsigned status = http_status(code);
        return R"({"error":{"grpc_code":)" + number + R"(,"http_code":)" + std::to_string(status) +
               R"(,"message":")" + text + R"(","http_status":")" + std::string(http_text(status)) +
               R"("}})";
    }
    return R"({"error":{"code":)" + number + R"(,"message":")" + text + R"("}})";
}

COETCD_DECL void etcd::check_token(rpc what, const std::string& token) const {
    if (!auth_ || what == rpc::authenticate) {
        return;
    }
    if (!guards_leases) {
        const bool of_no_concern = what == rpc::lease_keep_alive ||
                                   what == rpc::lease_time_to_live || what == rpc::lease_leases;
        const bool open_to_all =
            what == rpc::lease_grant || what == rpc::lease_revoke || what == rpc::compact;
        if (of_no_concern || (open_to_all && token.empty())) {
            return;
        }
    }
    if (token.empty()) {
        throw refusal{3, "etcdserver: user name is empty"};
    }
    if (!tokens_.contains(token)) {
        throw refusal{16, "etcdserver: invalid auth token"};
    }
}

COETCD_DECL void etcd::check_rights(json::value range) const {
    if (!denied) {
        return;
    }
    const std::string key = range["key"].bytes();
    const std::string end = range["range_end"].bytes();
    const bool reaches_it = end == std::string_view("\0", 1) || end > *denied;
    if (key.starts_with(*denied) || (!end.empty() && key < *denied && reaches_it)) {
        throw refusal{7, "etcdserver: permission denied"};
    }
}

/// Whichever branches would be taken.
COETCD_DECL void etcd::check_rights(rpc what, json::value request) const {
    if (!denied) {
        return;
    }
    if (what == rpc::range || what == rpc::put || what == rpc::delete_range) {
        check_rights(request);
    } else if (what == rpc::txn) {
        request["compare"].each([&](json::value c) { check_rights(c); });
        for (const char* branch : {"success", "failure"}) {
            request[branch].each([&](json::value op) {
                if (const json::value inner = op["request_txn"]) {
                    check_rights(rpc::txn, inner);
                }
                for (const char* kind : {"request_range", "request_put", "request_delete_range"}) {
                    if (const json::value range = op[kind]) {
                        check_rights(range);
                    }
                }
            });
        }
    }
}

COETCD_DECL etcd::answer
etcd::call(int at, rpc what, std::string_view body, const std::string& token, answer a) {
    a.wait = false;
    const bool stranded = is_cut(at) || leader() < 0;
    const bool leads_still = still_leads(at, now_());
    if (stranded && what != rpc::member_list && !(what == rpc::lease_keep_alive && leads_still)) {
        const std::chrono::seconds patience(7);
        if (now_() - stranded_since(at) < patience) {
            a.wait = true;
            return a;
        }
        const refusal no{14,
                         what == rpc::lease_keep_alive ? "etcdserver: no leader"
                                                       : "etcdserver: request timed out"};
        return refuse(what, no, std::move(a));
    }
    try {
        if (what == rpc::lease_keep_alive) {
            check_token(what, token);
            renew(at, leads_still, body, a);
            return a;
        }
        const json request(body);
        check_token(what, token);
        check_rights(what, request.root());
        json_writer out = writer();
        serve(at, what, request.root(), out);
        a.body = out.take();
    } catch (const refusal& no) {
        return refuse(what, no, std::move(a));
    } catch (const std::invalid_argument&) {
        return refuse(what, {3, "malformed request"}, std::move(a));
    }
    return a;
}

/// A stream of renewals, each answered by a line, one after the other, so one that has to wait
/// holds up those behind it.
COETCD_DECL void etcd::renew(int at, bool leads_still, std::string_view body, answer& a) {
    while (a.served != body.size()) {
        std::size_t length = 0;
        lease_id id = 0;
        try {
            const json request(body.substr(a.served));
            id = request["ID"].number();
            length = request.end();
        } catch (const std::invalid_argument&) {
            if (a.body.empty()) {
                throw;
            }
            return; // the gateway sends nothing of what follows
        }
        const etcd_leases::lease* const found = leases_.find(id);
        if (found && leads_still && leader() >= 0 && found->term == term) {
            a.wait = true; // the new leader granted it, and the old one does not know it
            return;
        }
        if (found && !leads_still) {
            if (found->ends <= now_()) {
                a.wait = true; // until it is revoked, or there is a new leader
                return;
            }
            leases_.renew(id, now_());
        }
        json_writer out;
        out.open().name("result").open();
        header(out, at, applied(at, revision));
        out.number("ID", id);
        if (found) {
            out.number("TTL", found->ttl.count());
        }
        out.close().close();
        a.body += out.take() + "\n";
        a.served = std::min(body.size(), body.find('{', a.served + length));
    }
}

COETCD_DECL void etcd::serve(int of, rpc what, json::value in, json_writer& out) {
    const bool changes = what == rpc::put || what == rpc::delete_range || what == rpc::compact ||
                         what == rpc::lease_grant || what == rpc::lease_revoke ||
                         (what == rpc::txn && !etcd_txn::only_reads(in));
    if (corrupt && changes) {
        throw refusal{15, "etcdserver: corrupt cluster"};
    }
    serving s{writer(), next_edit()};
    s.rest.open();
    const std::size_t empty = s.rest.text().size();
    answer_to(what, in, s);
    if (!s.changes.changes.empty()) {
        apply(s.changes, cause::request);
    }
    out.open();
    header(out, of, what == rpc::member_list ? 0 : s.shown != 0 ? s.shown : revision);
    if (s.rest.text().size() != empty) {
        out.item();
        out.raw(std::string_view(s.rest.text()).substr(empty));
    }
    out.close();
}

COETCD_DECL void etcd::answer_to(rpc what, json::value in, serving& s) {
    switch (what) {
    case rpc::range:
        return serve_range(in, s);
    case rpc::put:
        return serve_put(in, s);
    case rpc::delete_range:
        return serve_delete_range(in, s);
    case rpc::txn:
        return serve_txn(in, s);
    case rpc::compact:
        return serve_compact(in);
    case rpc::lease_grant:
        return serve_lease_grant(in, s);
    case rpc::lease_revoke:
        if (!end_lease(in["ID"].number(), lease_end::revoked)) {
            throw refusal{5, "etcdserver: requested lease not found"};
        }
        return;
    case rpc::lease_time_to_live:
        return serve_lease_time_to_live(in, s);
    case rpc::lease_leases:
        return serve_lease_leases(s);
    case rpc::authenticate:
        return serve_authenticate(in, s);
    case rpc::member_list:
        return serve_member_list(s);
    case rpc::status:
        return serve_status(s);
    default:
        throw refusal{12, "Method Not Allowed"};
    }
}

COETCD_DECL void etcd::serve_range(json::value in, serving& s) {
    if (in["key"].text().empty()) {
        throw refusal{3, "etcdserver: key is not provided"};
    }
    s.shown = std::max<std::int64_t>(1, revision - stale_by);
    range(in, s.shown, {}, s.rest);
}

COETCD_DECL void etcd::serve_put(json::value in, serving& s) {
    check_put_shape(in);
    if (no_space) {
        throw refusal{8, "etcdserver: mvcc: database space exceeded"};
    }
    check_put(in, false);
    put(in, s.changes, s.rest);
}

COETCD_DECL void etcd::serve_delete_range(json::value in, serving& s) {
    if (in["key"].text().empty()) {
        throw refusal{3, "etcdserver: key is not provided"};
    }
    (void)erase_range(in, s.changes, &s.rest);
}

COETCD_DECL void etcd::serve_txn(json::value in, serving& s) {
    etcd_txn txn(
        *this, in, {speaks_, counts_inner_puts, [this](json::value put) { check_put(put, true); }});
    txn.check();
    if (no_space && txn.puts()) {
        throw refusal{8, "etcdserver: mvcc: database space exceeded"};
    }
    if (stale_by != 0 && etcd_txn::only_reads(in)) {
        s.shown = std::max<std::int64_t>(1, revision - stale_by);
        txn.decide(keys_at(s.shown, {}));
    } else {
        txn.decide(keys);
    }
    txn.check_taken();
    txn.carry_out(s.changes, s.shown != 0 ? s.shown : revision, s.rest);
}

COETCD_DECL void etcd::serve_compact(json::value in) {
    const std::int64_t before = in["revision"].number();
    if (before > revision) {
        throw refusal{11, "etcdserver: mvcc: required revision is a future revision"};
    }
    if (before < 0 || (before <= compacted && compacted != 0)) {
        throw refusal{11, "etcdserver: mvcc: required revision has been compacted"};
    }
    compact(before);
}

COETCD_DECL void etcd::serve_lease_grant(json::value in, serving& s) {
    const std::int64_t asked = in["TTL"].number();
    if (asked > 9'000'000'000) {
        throw refusal{11, "etcdserver: too large lease TTL"};
    }
    if (no_space) {
        throw refusal{8, "etcdserver: mvcc: database space exceeded"};
    }
    const std::chrono::seconds ttl = std::max(shortest_ttl, std::chrono::seconds(asked));
    s.rest.number("ID", leases_.grant(in["ID"].number(), ttl, now_(), term));
    s.rest.number("TTL", ttl.count());
}

COETCD_DECL void etcd::serve_lease_time_to_live(json::value in, serving& s) {
    json_writer& rest = s.rest;
    const lease_id id = in["ID"].number();
    const etcd_leases::lease* const found = leases_.find(id);
    rest.number("ID", id);
    if (!found) {
        rest.number("TTL", -1);
        return;
    }
    const auto left = std::chrono::floor<std::chrono::seconds>(found->ends - now_());
    rest.number("TTL", std::max<std::int64_t>(0, left.count()));
    rest.number("grantedTTL", found->ttl.count());
    if (!in["keys"].flag()) {
        return;
    }
    bool any = false;
    for (const auto& [key, r] : keys) {
        if (r.lease == id) {
            if (!std::exchange(any, true)) {
                rest.name("keys").open('[');
            }
            rest.item();
            std::string text = "\"";
            coetcd::detail::wire::append_base64(text, key);
            rest.raw(text + "\"");
        }
    }
    if (any) {
        rest.close(']');
    }
}

COETCD_DECL void etcd::serve_lease_leases(serving& s) const {
    if (leases_.size() == 0) {
        return;
    }
    s.rest.name("leases").open('[');
    for (const auto& [id, l] : leases_.all()) {
        s.rest.item();
        s.rest.open().number("ID", id);
        s.rest.close();
    }
    s.rest.close(']');
}

COETCD_DECL void etcd::serve_authenticate(json::value in, serving& s) {
    if (!auth_) {
        throw refusal{9, "etcdserver: authentication is not enabled"};
    }
    if (locked_out || in["name"].text() != user_ || in["password"].text() != password_) {
        throw refusal{3, "etcdserver: authentication failed, invalid user ID or password"};
    }
    const std::string token = "token." + std::to_string(++last_token_);
    tokens_.insert(token);
    s.rest.word("token", token);
}

COETCD_DECL void etcd::serve_member_list(serving& s) const {
    json_writer& rest = s.rest;
    rest.name("members").open('[');
    for (int m = 0; m != members(); ++m) {
        std::string name("m");
        name += json_writer::digits(m);
        rest.item();
        rest.open().word("ID", id(m));
        rest.word("name", name);
        rest.name("peerURLs").raw(R"(["http://)" + name + R"(:2380"])");
        rest.name("clientURLs").raw(R"(["http://)" + name + R"("])");
        rest.close();
    }
    rest.close(']');
}

COETCD_DECL void etcd::serve_status(serving& s) const {
    s.rest.word("version", "3.6.0");
    s.rest.number("dbSize", 20'480);
    if (leader() >= 0) {
        s.rest.word("leader", id(leader()));
    } else {
        s.rest.name("errors").raw(R"(["etcdserver: no leader"])");
    }
}

} // namespace coetcd::detail::testing
