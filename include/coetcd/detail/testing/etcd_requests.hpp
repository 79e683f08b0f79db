// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace coetcd::detail::testing {

inline constexpr std::string_view member_ids[] = {
    "10276657743932975437", "9372538179322589801", "13803658152347727308"};

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

COETCD_DECL etcd::etcd(clock now, int members, dialect speaks)
    : now_(std::move(now))
    , speaks_(speaks)
    , members_(static_cast<std::size_t>(members)) {}

// Requests.

COETCD_DECL void etcd::header(json_writer& out, int of, std::int64_t at_revision) const {
    out.name("header").open();
    out.word("cluster_id", std::to_string(cluster));
    out.word("member_id", member_ids[index(of) % std::size(member_ids)]);
    out.number("revision", at_revision);
    out.number("raft_term", static_cast<std::int64_t>(term));
    out.close();
}

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

COETCD_DECL etcd::answer
etcd::call(int at, rpc what, std::string_view body, const std::string& token, answer a) {
    a.wait = false;
    const peer& here = members_[index(at)];
    const bool stranded = here.cut || leader_ < 0;
    const bool still_leads = at == deposed_ && now_() < deposed_until_;
    if (stranded && what != rpc::member_list && !(what == rpc::lease_keep_alive && still_leads)) {
        const std::chrono::seconds patience(7);
        if (now_() - here.since < patience) {
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
            renew(at, still_leads, body, a);
            return a;
        }
        const json request(body);
        check_token(what, token);
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

/// A stream of renewals, each answered by a line: one after the other, so that one that has to wait
/// holds up those behind it.
COETCD_DECL void etcd::renew(int at, bool still_leads, std::string_view body, answer& a) {
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
            return; // the gateway sends nothing of what comes behind
        }
        const auto found = leases_.find(id);
        if (found != leases_.end() && still_leads && leader_ >= 0 && found->second.term == term) {
            a.wait = true; // the new leader granted it, and the old one does not know it
            return;
        }
        if (found != leases_.end() && !still_leads) {
            if (found->second.ends <= now_()) {
                a.wait = true; // until it is revoked, or there is a new leader
                return;
            }
            found->second.ends = now_() + found->second.ttl;
        }
        json_writer out;
        out.open().name("result").open();
        header(out, at, applied(at));
        out.number("ID", id);
        if (found != leases_.end()) {
            out.number("TTL", found->second.ttl.count());
        }
        out.close().close();
        a.body += out.take() + "\n";
        a.served = std::min(body.size(), body.find('{', a.served + length));
    }
}

COETCD_DECL void etcd::serve(int of, rpc what, value in, json_writer& out) {
    const bool changes = what == rpc::put || what == rpc::delete_range || what == rpc::compact ||
                         what == rpc::lease_grant || what == rpc::lease_revoke ||
                         (what == rpc::txn && !only_reads(in));
    if (corrupt && changes) {
        throw refusal{15, "etcdserver: corrupt cluster"};
    }
    serving s{writer(), {revision + 1, {}}};
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

COETCD_DECL void etcd::answer_to(rpc what, value in, serving& s) {
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

COETCD_DECL void etcd::serve_range(value in, serving& s) {
    if (in["key"].text().empty()) {
        throw refusal{3, "etcdserver: key is not provided"};
    }
    s.shown = std::max<std::int64_t>(1, revision - stale_by);
    range(in, s.shown, {}, s.rest);
}

COETCD_DECL void etcd::serve_put(value in, serving& s) {
    check_put_shape(in);
    if (no_space) {
        throw refusal{8, "etcdserver: mvcc: database space exceeded"};
    }
    check_put(in, false);
    put(in, s.changes, s.rest);
}

COETCD_DECL void etcd::serve_delete_range(value in, serving& s) {
    if (in["key"].text().empty()) {
        throw refusal{3, "etcdserver: key is not provided"};
    }
    erase_range(in, s.changes, &s.rest);
}

COETCD_DECL void etcd::serve_txn(value in, serving& s) {
    check_shape(in, 128);
    for (const char* branch : {"success", "failure"}) {
        std::vector<value> erased;
        (void)check_overlaps(in[branch], erased);
    }
    if (no_space && puts(in)) {
        throw refusal{8, "etcdserver: mvcc: database space exceeded"};
    }
    store_map past;
    const bool is_stale = stale_by != 0 && only_reads(in);
    if (is_stale) {
        s.shown = std::max<std::int64_t>(1, revision - stale_by);
        past = keys_at(s.shown, {});
    }
    std::vector<bool> taken;
    decide(in, is_stale ? past : keys, taken);
    std::size_t at = 0;
    std::string_view unreadable;
    check_branches(in, taken, at, unreadable);
    if (!unreadable.empty()) {
        throw refusal{11, std::string(unreadable)};
    }
    at = 0;
    txn(in, taken, at, s.changes, s.shown != 0 ? s.shown : revision, s.rest);
}

COETCD_DECL void etcd::serve_compact(value in) {
    const std::int64_t before = in["revision"].number();
    if (before > revision) {
        throw refusal{11, "etcdserver: mvcc: required revision is a future revision"};
    }
    if (before < 0 || (before <= compacted && compacted != 0)) {
        throw refusal{11, "etcdserver: mvcc: required revision has been compacted"};
    }
    compact(before);
}

COETCD_DECL void etcd::serve_lease_grant(value in, serving& s) {
    lease_id id = in["ID"].number();
    const std::int64_t asked = in["TTL"].number();
    if (asked > 9'000'000'000) {
        throw refusal{11, "etcdserver: too large lease TTL"};
    }
    if (no_space) {
        throw refusal{8, "etcdserver: mvcc: database space exceeded"};
    }
    while (id == 0 || (in["ID"].number() == 0 && leases_.contains(id))) {
        id = ++last_lease_;
    }
    if (leases_.contains(id)) {
        throw refusal{9, "etcdserver: lease already exists"};
    }
    const std::chrono::seconds ttl = std::max(shortest_ttl, std::chrono::seconds(asked));
    leases_[id] = {ttl, now_() + ttl, term};
    s.rest.number("ID", id);
    s.rest.number("TTL", ttl.count());
}

COETCD_DECL void etcd::serve_lease_time_to_live(value in, serving& s) {
    json_writer& rest = s.rest;
    const lease_id id = in["ID"].number();
    const auto found = leases_.find(id);
    rest.number("ID", id);
    if (found == leases_.end()) {
        rest.number("TTL", -1);
        return;
    }
    const auto left = std::chrono::floor<std::chrono::seconds>(found->second.ends - now_());
    rest.number("TTL", std::max<std::int64_t>(0, left.count()));
    rest.number("grantedTTL", found->second.ttl.count());
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
    if (leases_.empty()) {
        return;
    }
    s.rest.name("leases").open('[');
    for (const auto& [id, l] : leases_) {
        s.rest.item();
        s.rest.open().number("ID", id);
        s.rest.close();
    }
    s.rest.close(']');
}

COETCD_DECL void etcd::serve_authenticate(value in, serving& s) {
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
        rest.open().word("ID", member_ids[index(m) % std::size(member_ids)]);
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
    if (leader_ >= 0) {
        s.rest.word("leader", member_ids[index(leader_) % std::size(member_ids)]);
    } else {
        s.rest.name("errors").raw(R"(["etcdserver: no leader"])");
    }
}

} // namespace coetcd::detail::testing
