// SPDX-License-Identifier: BSL-1.0
#include "sim/etcd.hpp"

#include <algorithm>
#include <utility>

namespace sim {
namespace {

constexpr std::string_view ids[] = {
    "10276657743932975437", "9372538179322589801", "13803658152347727308"};

bool in_range(const std::string& key, const std::string& first, const std::string& end) {
    if (end.empty()) {
        return key == first;
    }
    return key >= first && (end == std::string_view("\0", 1) || key < end);
}

/// Calls `take` with each entry of `keys` in the range.
template<class Keys, class F>
void each_in(Keys& keys, const std::string& first, const std::string& end, F take) {
    for (auto k = keys.lower_bound(first); k != keys.end() && in_range(k->first, first, end);) {
        const auto here = k++;
        take(*here);
    }
}

etcd::change erasure(const std::string& key, std::int64_t at, const etcd::record& before) {
    etcd::change c;
    c.deleted = true;
    c.key = key;
    c.revision = at;
    c.before = before;
    return c;
}

unsigned http_status(int code) {
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
        return 500;
    default:
        return 400;
    }
}

std::string_view http_text(unsigned status) {
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

} // namespace

etcd::etcd(clock now, int members, dialect speaks)
    : now_(std::move(now))
    , speaks_(speaks)
    , members_(static_cast<std::size_t>(members)) {}

// Requests.

void etcd::header(json_writer& out, int of, std::int64_t at_revision) const {
    out.name("header").open();
    out.word("cluster_id", "14841639068965178418");
    out.word("member_id", ids[index(of) % std::size(ids)]);
    out.number("revision", at_revision);
    out.number("raft_term", static_cast<std::int64_t>(term));
    out.close();
}

etcd::answer etcd::refuse(rpc what, const refusal& no, answer a) const {
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

etcd::answer etcd::failure(rpc what, int code, std::string_view message) const {
    return refuse(what, {code, std::string(message)}, {});
}

std::string etcd::stream_error(int code, std::string_view message) const {
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

void etcd::check_token(rpc what, const std::string& token) const {
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

etcd::answer
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
void etcd::renew(int at, bool still_leads, std::string_view body, answer& a) {
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
            a.wait = true; // the new leader's, of which the old one does not know
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

void etcd::serve(int of, rpc what, value in, json_writer& out) {
    // What the answer holds besides its header, which tells the revision after the change.
    json_writer rest = writer();
    rest.open();
    const std::size_t empty = rest.text().size();
    edit e{revision + 1, {}};
    std::int64_t shown = 0;
    switch (what) {
    case rpc::range:
        if (in["key"].text().empty()) {
            throw refusal{3, "etcdserver: key is not provided"};
        }
        shown = std::max<std::int64_t>(1, revision - stale_by);
        range(in, shown, {}, rest);
        break;
    case rpc::put: {
        check_put_shape(in);
        if (no_space) {
            throw refusal{8, "etcdserver: mvcc: database space exceeded"};
        }
        check_put(in, false);
        put(in, e, rest);
        break;
    }
    case rpc::delete_range: {
        if (in["key"].text().empty()) {
            throw refusal{3, "etcdserver: key is not provided"};
        }
        erase_range(in, e, &rest);
        break;
    }
    case rpc::txn: {
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
            shown = std::max<std::int64_t>(1, revision - stale_by);
            past = keys_at(shown, {});
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
        txn(in, taken, at, e, shown != 0 ? shown : revision, rest);
        break;
    }
    case rpc::compact: {
        const std::int64_t before = in["revision"].number();
        if (before > revision) {
            throw refusal{11, "etcdserver: mvcc: required revision is a future revision"};
        }
        if (before < 0 || (before <= compacted && compacted != 0)) {
            throw refusal{11, "etcdserver: mvcc: required revision has been compacted"};
        }
        compact(before);
        break;
    }
    case rpc::lease_grant: {
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
        rest.number("ID", id);
        rest.number("TTL", ttl.count());
        break;
    }
    case rpc::lease_revoke:
        if (!end_lease(in["ID"].number(), lease_end::revoked)) {
            throw refusal{5, "etcdserver: requested lease not found"};
        }
        break;
    case rpc::lease_time_to_live: {
        const lease_id id = in["ID"].number();
        const auto found = leases_.find(id);
        rest.number("ID", id);
        if (found == leases_.end()) {
            rest.number("TTL", -1);
            break;
        }
        const auto left = std::chrono::floor<std::chrono::seconds>(found->second.ends - now_());
        rest.number("TTL", std::max<std::int64_t>(0, left.count()));
        rest.number("grantedTTL", found->second.ttl.count());
        if (in["keys"].flag()) {
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
        break;
    }
    case rpc::lease_leases:
        if (!leases_.empty()) {
            rest.name("leases").open('[');
            for (const auto& [id, l] : leases_) {
                rest.item();
                rest.open().number("ID", id);
                rest.close();
            }
            rest.close(']');
        }
        break;
    case rpc::authenticate: {
        if (!auth_) {
            throw refusal{9, "etcdserver: authentication is not enabled"};
        }
        if (locked_out || in["name"].text() != user_ || in["password"].text() != password_) {
            throw refusal{3, "etcdserver: authentication failed, invalid user ID or password"};
        }
        const std::string token = "token." + std::to_string(++last_token_);
        tokens_.insert(token);
        rest.word("token", token);
        break;
    }
    case rpc::member_list:
        rest.name("members").open('[');
        for (int m = 0; m != members(); ++m) {
            std::string name("m");
            name += json_writer::digits(m);
            rest.item();
            rest.open().word("ID", ids[index(m) % std::size(ids)]);
            rest.word("name", name);
            rest.name("peerURLs").raw(R"(["http://)" + name + R"(:2380"])");
            rest.name("clientURLs").raw(R"(["http://)" + name + R"("])");
            rest.close();
        }
        rest.close(']');
        break;
    case rpc::status:
        rest.word("version", "3.6.0");
        rest.number("dbSize", 20'480);
        if (leader_ >= 0) {
            rest.word("leader", ids[index(leader_) % std::size(ids)]);
        } else {
            rest.name("errors").raw(R"(["etcdserver: no leader"])");
        }
        break;
    default:
        throw refusal{12, "Method Not Allowed"};
    }
    if (!e.changes.empty()) {
        apply(e, cause::request);
    }
    out.open();
    header(out, of, what == rpc::member_list ? 0 : shown != 0 ? shown : revision);
    if (rest.text().size() != empty) {
        out.item();
        out.raw(std::string_view(rest.text()).substr(empty));
    }
    out.close();
}

// Reads.

etcd::store_map etcd::keys_at(std::int64_t then, const std::vector<change>& pending) const {
    store_map past = keys;
    const auto undo = [&](const std::vector<change>& changes) {
        for (auto c = changes.rbegin(); c != changes.rend() && c->revision > then; ++c) {
            if (c->before.version != 0) {
                past[c->key] = c->before;
            } else {
                past.erase(c->key);
            }
        }
    };
    undo(pending);
    undo(history_);
    return past;
}

void etcd::write_kv(json_writer& out, const std::string& key, const record& r, bool keys_only) {
    out.open();
    out.bytes("key", key);
    out.number("create_revision", r.create_revision);
    out.number("mod_revision", r.mod_revision);
    out.number("version", r.version);
    if (!keys_only) {
        out.bytes("value", r.value);
    }
    out.number("lease", r.lease);
    out.close();
}

/// Writes what an answer to a range holds, but for its header.
/// `pending`: the changes of the same transaction, so far.
void etcd::range(value in,
                 std::int64_t now,
                 const std::vector<change>& pending,
                 json_writer& out) const {
    const std::int64_t then = in["revision"].number();
    if (then > now) {
        throw refusal{11, "etcdserver: mvcc: required revision is a future revision"};
    }
    if (then > 0 && then < compacted) {
        throw refusal{11, "etcdserver: mvcc: required revision has been compacted"};
    }
    const std::int64_t at = then > 0 ? then : now;
    const bool is_past = at < (pending.empty() ? revision : pending.back().revision);
    store_map past;
    if (is_past) {
        past = keys_at(at, pending);
    }
    using entry = std::pair<const std::string, record>;
    std::vector<const entry*> found;
    each_in(is_past ? past : keys, in["key"].bytes(), in["range_end"].bytes(), [&](const entry& e) {
        found.push_back(&e);
    });
    const std::size_t count = found.size();
    const auto filter = [&](std::string_view name, auto drop) {
        if (const std::int64_t bound = in[name].number(); bound != 0) {
            std::erase_if(found, [&](const entry* e) { return drop(e->second, bound); });
        }
    };
    filter("min_mod_revision", [](const record& r, auto b) { return r.mod_revision < b; });
    filter("max_mod_revision", [](const record& r, auto b) { return r.mod_revision > b; });
    filter("min_create_revision", [](const record& r, auto b) { return r.create_revision < b; });
    filter("max_create_revision", [](const record& r, auto b) { return r.create_revision > b; });

    constexpr std::string_view targets[] = {"KEY", "VERSION", "CREATE", "MOD", "VALUE"};
    constexpr std::string_view orders[] = {"NONE", "ASCEND", "DESCEND"};
    const std::string_view target = targets[in["sort_target"].choice(targets)];
    const bool descend = orders[in["sort_order"].choice(orders)] == "DESCEND";
    const auto sort_by = [&](auto field) {
        std::stable_sort(found.begin(), found.end(), [&](const entry* a, const entry* b) {
            return descend ? field(*b) < field(*a) : field(*a) < field(*b);
        });
    };
    if (target == "CREATE") {
        sort_by([](const entry& e) { return e.second.create_revision; });
    } else if (target == "MOD") {
        sort_by([](const entry& e) { return e.second.mod_revision; });
    } else if (target == "VERSION") {
        sort_by([](const entry& e) { return e.second.version; });
    } else if (target == "VALUE") {
        sort_by([](const entry& e) -> const std::string& { return e.second.value; });
    } else if (descend) {
        std::reverse(found.begin(), found.end());
    }
    const auto limit = static_cast<std::size_t>(in["limit"].number());
    const bool more = limit != 0 && found.size() > limit;
    if (more) {
        found.resize(limit);
    }
    if (!in["count_only"].flag()) {
        const bool keys_only = in["keys_only"].flag();
        if (!found.empty()) {
            out.name("kvs").open('[');
            for (const entry* e : found) {
                out.item();
                write_kv(out, e->first, e->second, keys_only);
            }
            out.close(']');
        }
        out.flag("more", more);
    }
    out.number("count", static_cast<std::int64_t>(count));
}

/// A comparison that says no more than a key asks for version 0: whether it does not exist.
bool etcd::holds(value condition, const store_map& in) {
    constexpr std::string_view targets[] = {"VERSION", "CREATE", "MOD", "VALUE", "LEASE"};
    constexpr std::string_view results[] = {"EQUAL", "GREATER", "LESS", "NOT_EQUAL"};
    const std::string_view target = targets[condition["target"].choice(targets)];
    const std::string_view how = results[condition["result"].choice(results)];
    const auto judge = [&](const auto& have, const auto& want) {
        return how == "GREATER"     ? have > want
               : how == "LESS"      ? have < want
               : how == "NOT_EQUAL" ? have != want
                                    : have == want;
    };
    const auto meets = [&](const record& r, bool exists) {
        if (target == "VALUE") {
            return exists && judge(r.value, condition["value"].bytes());
        }
        if (target == "CREATE") {
            return judge(r.create_revision, condition["create_revision"].number());
        }
        if (target == "MOD") {
            return judge(r.mod_revision, condition["mod_revision"].number());
        }
        if (target == "LEASE") {
            return judge(r.lease, condition["lease"].number());
        }
        return judge(r.version, condition["version"].number());
    };
    bool any = false;
    bool all = true;
    each_in(in, condition["key"].bytes(), condition["range_end"].bytes(), [&](const auto& e) {
        any = true;
        all = all && meets(e.second, true);
    });
    return any ? all : meets(record(), false);
}

// Transactions.

void etcd::check_shape(value t, std::size_t most) const {
    const std::size_t widest =
        std::max({t["compare"].size(), t["success"].size(), t["failure"].size()});
    if (widest > most) {
        throw refusal{3, "etcdserver: too many operations in txn request"};
    }
    t["compare"].each([](value c) {
        if (c["key"].text().empty()) {
            throw refusal{3, "etcdserver: key is not provided"};
        }
    });
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](value op) {
            if (const value inner = op["request_txn"]) {
                check_shape(inner, most - widest);
                return;
            }
            const value request = op["request_range"] ? op["request_range"]
                                  : op["request_put"] ? op["request_put"]
                                                      : op["request_delete_range"];
            if (!request) {
                throw refusal{3, "etcdserver: key not found"};
            }
            if (request["key"].text().empty()) {
                throw refusal{3, "etcdserver: key is not provided"};
            }
            if (op["request_put"]) {
                check_put_shape(request);
            }
        });
    }
}

/// Which keys a branch writes, whatever is in it. No key may be written twice.
std::set<std::string> etcd::check_overlaps(value ops, std::vector<value>& erased) const {
    ops.each([&](value op) {
        if (const value request = op["request_delete_range"]) {
            erased.push_back(request);
        }
    });
    std::set<std::string> written;
    const auto check = [&](const std::string& key, const std::set<std::string>* except) {
        const bool is_erased = std::any_of(erased.begin(), erased.end(), [&](const value& e) {
            // etcd does not see that "from this key on" is a range.
            const std::string end = e["range_end"].bytes();
            return end != std::string_view("\0", 1) && in_range(key, e["key"].bytes(), end);
        });
        if (is_erased || (written.contains(key) && !(except && except->contains(key)))) {
            throw refusal{3, "etcdserver: duplicate key given in txn request"};
        }
    };
    ops.each([&](value op) {
        if (const value inner = op["request_txn"]) {
            std::vector<value> erased_then;
            std::vector<value> erased_otherwise;
            const auto then = check_overlaps(inner["success"], erased_then);
            const auto otherwise = check_overlaps(inner["failure"], erased_otherwise);
            for (const std::string& key : then) {
                check(key, nullptr);
                written.insert(key);
            }
            for (const std::string& key : otherwise) {
                check(key, &then); // only one of the two is taken
                written.insert(key);
            }
            erased.insert(erased.end(), erased_then.begin(), erased_then.end());
            erased.insert(erased.end(), erased_otherwise.begin(), erased_otherwise.end());
        }
    });
    ops.each([&](value op) {
        if (const value request = op["request_put"]) {
            const std::string key = request["key"].bytes();
            check(key, nullptr);
            written.insert(key);
        }
    });
    return written;
}

void etcd::check_put_shape(value request) {
    if (request["key"].text().empty()) {
        throw refusal{3, "etcdserver: key is not provided"};
    }
    if (request["ignore_value"].flag() && !request["value"].text().empty()) {
        throw refusal{3, "etcdserver: value is provided"};
    }
    if (request["ignore_lease"].flag() && request["lease"].number() != 0) {
        throw refusal{3, "etcdserver: lease is provided"};
    }
}

void etcd::check_put(value request, bool in_txn) const {
    const std::string key = request["key"].bytes();
    if (forbidden.contains(key)) {
        throw refusal{7, "etcdserver: permission denied"};
    }
    const lease_id with = request["lease"].number();
    const bool no_lease = with != 0 && !leases_.contains(with);
    if (!in_txn && no_lease) { // of two reasons, etcd names this one first, or last
        throw refusal{5, "etcdserver: requested lease not found"};
    }
    const bool keeps = request["ignore_value"].flag() || request["ignore_lease"].flag();
    if (keeps && !keys.contains(key)) {
        throw refusal{3, "etcdserver: key not found"};
    }
    if (no_lease) {
        throw refusal{5, "etcdserver: requested lease not found"};
    }
}

/// Which branch is taken, of this one and of those in it, in the order of a walk.
void etcd::decide(value t, const store_map& in, std::vector<bool>& taken) {
    bool all = true;
    t["compare"].each([&](value c) { all = all && holds(c, in); });
    taken.push_back(all);
    t[all ? "success" : "failure"].each([&](value op) {
        if (const value inner = op["request_txn"]) {
            decide(inner, in, taken);
        }
    });
}

/// `unreadable`: why a read is refused. A gateway of the first dialect belongs to an etcd that
/// looks at all puts before it looks at reads; one of the second, to an etcd that goes by their
/// order.
void etcd::check_branches(value t,
                          const std::vector<bool>& taken,
                          std::size_t& at,
                          std::string_view& unreadable) const {
    t[taken[at++] ? "success" : "failure"].each([&](value op) {
        if (speaks_ == dialect::v2 && !unreadable.empty()) {
            return;
        }
        if (const value inner = op["request_txn"]) {
            check_branches(inner, taken, at, unreadable);
        } else if (const value request = op["request_put"]) {
            check_put(request, true);
        } else if (const value read = op["request_range"]; read && unreadable.empty()) {
            const std::int64_t then = read["revision"].number();
            if (then > revision) {
                unreadable = "etcdserver: mvcc: required revision is a future revision";
            } else if (then != 0 && then < compacted) {
                unreadable = "etcdserver: mvcc: required revision has been compacted";
            }
        }
    });
}

/// Whether it is no entry of the raft log. One that holds others always is, even if all of them
/// only read; and so is one that erases what is not there.
bool etcd::only_reads(value t) {
    bool only = true;
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](value op) { only = only && op["request_range"]; });
    }
    return only;
}

bool etcd::puts(value t) const {
    bool any = false;
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](value op) {
            any = any || op["request_put"] ||
                  (counts_inner_puts && op["request_txn"] && puts(op["request_txn"]));
        });
    }
    return any;
}

/// Writes what the answer holds, but for its header.
void etcd::txn(value in,
               const std::vector<bool>& taken,
               std::size_t& at,
               edit& e,
               std::int64_t before,
               json_writer& out) {
    const bool succeeded = taken[at++];
    const value ops = in[succeeded ? "success" : "failure"];
    out.flag("succeeded", succeeded);
    if (ops.size() == 0) {
        return;
    }
    const auto inner_header = [&] {
        out.name("header").open();
        out.number("revision", e.changes.empty() ? before : e.at);
        out.close();
    };
    out.name("responses").open('[');
    ops.each([&](value op) {
        out.item();
        out.open();
        if (const value read = op["request_range"]) {
            out.name("response_range").open();
            inner_header();
            range(read, e.changes.empty() ? before : e.at, e.changes, out);
        } else if (const value write = op["request_put"]) {
            json_writer rest = writer();
            rest.open();
            put(write, e, rest);
            out.name("response_put").open();
            inner_header();
            if (rest.text().size() > 1) {
                out.item();
                out.raw(std::string_view(rest.text()).substr(1));
            }
        } else if (const value erasure = op["request_delete_range"]) {
            json_writer rest = writer();
            rest.open();
            erase_range(erasure, e, &rest);
            out.name("response_delete_range").open();
            inner_header();
            if (rest.text().size() > 1) {
                out.item();
                out.raw(std::string_view(rest.text()).substr(1));
            }
        } else {
            out.name("response_txn").open();
            out.name("header").open().close();
            txn(op["request_txn"], taken, at, e, before, out);
        }
        out.close().close();
    });
    out.close(']');
}

// Changes. They take effect at once; `apply` tells of them.

void etcd::put(value in, edit& e, json_writer& out) {
    const std::string key = in["key"].bytes();
    record& r = keys[key];
    const record before = r;
    r.create_revision = r.version == 0 ? e.at : r.create_revision;
    r.mod_revision = e.at;
    ++r.version;
    if (!in["ignore_value"].flag()) {
        r.value = in["value"].bytes();
    }
    if (!in["ignore_lease"].flag()) {
        r.lease = in["lease"].number();
    }
    e.changes.push_back({false, key, e.at, r, before});
    if (in["prev_kv"].flag() && before.version != 0) {
        out.name("prev_kv");
        write_kv(out, key, before, false);
    }
}

std::int64_t etcd::erase_range(value in, edit& e, json_writer* out) {
    const std::size_t had = e.changes.size();
    each_in(keys, in["key"].bytes(), in["range_end"].bytes(), [&](const auto& entry) {
        e.changes.push_back(erasure(entry.first, e.at, entry.second));
    });
    for (std::size_t i = had; i != e.changes.size(); ++i) {
        keys.erase(e.changes[i].key);
    }
    const auto deleted = static_cast<std::int64_t>(e.changes.size() - had);
    if (out) {
        out->number("deleted", deleted);
        if (in["prev_kv"].flag() && deleted != 0) {
            out->name("prev_kvs").open('[');
            for (std::size_t i = had; i != e.changes.size(); ++i) {
                out->item();
                write_kv(*out, e.changes[i].key, e.changes[i].before, false);
            }
            out->close(']');
        }
    }
    return deleted;
}

void etcd::apply(edit& e, cause why) {
    if (e.changes.empty()) {
        return;
    }
    revision = e.at;
    history_.insert(history_.end(), e.changes.begin(), e.changes.end());
    if (told) {
        told->changed(e.changes, why);
    }
    tell(e.changes.data(), e.changes.data() + e.changes.size());
}

bool etcd::end_lease(lease_id id, lease_end how) {
    if (leases_.erase(id) == 0) {
        return false;
    }
    edit e{revision + 1, {}};
    for (const auto& [key, r] : keys) {
        if (r.lease == id) {
            e.changes.push_back(erasure(key, e.at, r));
        }
    }
    for (const change& c : e.changes) {
        keys.erase(c.key);
    }
    if (told) {
        told->lease_ended(id, how);
    }
    apply(e, cause::lease);
    return true;
}

std::vector<std::string> etcd::under(const std::string& prefix) const {
    std::vector<std::string> found;
    for (auto k = keys.lower_bound(prefix); k != keys.end() && k->first.starts_with(prefix); ++k) {
        found.push_back(k->first);
    }
    return found;
}

std::vector<lease_id> etcd::lease_ids() const {
    std::vector<lease_id> all;
    for (const auto& [id, l] : leases_) {
        all.push_back(id);
    }
    return all;
}

std::size_t etcd::watching_streams() const {
    std::set<std::uint64_t> all;
    for (const watch& w : watches_) {
        all.insert(w.stream);
    }
    return all.size();
}

void etcd::write(const std::string& key, const std::string& text) {
    edit e{revision + 1, {}};
    record& r = keys[key];
    const record before = r;
    r = {text, before.version == 0 ? e.at : before.create_revision, e.at, before.version + 1, 0};
    e.changes.push_back({false, key, e.at, r, before});
    apply(e, cause::operator_);
}

void etcd::erase(const std::string& key) {
    edit e{revision + 1, {}};
    if (const auto found = keys.find(key); found != keys.end()) {
        e.changes.push_back(erasure(key, e.at, found->second));
        keys.erase(found);
    }
    apply(e, cause::operator_);
}

void etcd::revoke(lease_id id) {
    end_lease(id, lease_end::by_operator);
}

void etcd::compact(std::int64_t before) {
    compacted = std::max(compacted, before);
}

void etcd::require_user(std::string name, std::string password) {
    auth_ = true;
    user_ = std::move(name);
    password_ = std::move(password);
}

// Members.

void etcd::cut(int m, bool off) {
    peer& one = members_[index(m)];
    one.cut = off;
    one.since = now_();
    if (off && m == leader_) {
        depose();
    }
}

void etcd::depose() {
    deposed_ = leader_;
    deposed_until_ = now_() + election_timeout;
    leader_ = -1;
    for (peer& m : members_) {
        m.since = now_();
    }
}

void etcd::elect(int m) {
    leader_ = m;
    deposed_ = deposed_ == m ? -1 : deposed_;
    ++term;
    for (auto& [id, l] : leases_) {
        l.ends = now_() + l.ttl + election_timeout;
    }
}

void etcd::expire() {
    if (leader_ < 0) {
        return;
    }
    std::vector<lease_id> over;
    for (const auto& [id, l] : leases_) {
        if (l.ends <= now_()) {
            over.push_back(id);
        }
    }
    for (const lease_id id : over) {
        end_lease(id, lease_end::expired);
    }
}

// Watches.

std::uint64_t etcd::open(int at, listener to, std::string token) {
    streams_[++last_stream_] = {at, std::move(to), std::move(token)};
    return last_stream_;
}

void etcd::close(std::uint64_t id) {
    streams_.erase(id);
    std::erase_if(watches_, [&](const watch& w) {
        unsynced_ -= w.stream == id && !w.synced ? 1 : 0;
        return w.stream == id;
    });
}

void etcd::end_streams(int at, bool says_why) {
    std::vector<std::uint64_t> here;
    for (const auto& [id, s] : streams_) {
        if (s.at == at) {
            here.push_back(id);
        }
    }
    for (const std::uint64_t id : here) {
        if (const auto s = streams_.find(id); s != streams_.end()) {
            const listener to = s->second.to;
            if (says_why) {
                to.on_line(stream_error(14, "etcdserver: no leader"));
            }
            if (to.on_end) {
                to.on_end();
            }
            close(id);
        }
    }
}

void etcd::listen(std::uint64_t id, std::string_view messages) {
    while (!messages.empty()) {
        const auto found = streams_.find(id);
        if (found == streams_.end()) {
            return;
        }
        const json message(messages);
        messages.remove_prefix(message.end());
        if (const auto next = messages.find('{'); next != messages.npos) {
            messages.remove_prefix(next);
        } else {
            messages = {};
        }
        stream& from = found->second;
        const auto say = [&](std::int64_t watch_id, std::string_view field) {
            json_writer out;
            out.open().name("result").open();
            header(out, from.at, applied(from.at));
            out.number("watch_id", watch_id);
            if (!field.empty()) {
                out.flag(field, true);
            }
            out.close().close();
            from.to.on_line(out.take());
        };
        if (const value create = message["create_request"]) {
            create_watch(id, create);
        } else if (const value cancel = message["cancel_request"]) {
            const std::int64_t watch_id = cancel["watch_id"].number();
            const auto gone = std::erase_if(watches_, [&](const watch& w) {
                const bool this_one = w.stream == id && w.id == watch_id;
                unsynced_ -= this_one && !w.synced ? 1 : 0;
                return this_one;
            });
            if (gone != 0) {
                say(watch_id, "canceled");
            }
        } else if (message["progress_request"]) {
            bool any = false;
            bool all = true;
            for (const watch& w : watches_) {
                if (w.stream == id) {
                    any = true;
                    all = all && w.synced && w.next <= applied(w.at) + 1;
                }
            }
            if (any && all) {
                say(-1, "");
            }
        }
    }
}

void etcd::create_watch(std::uint64_t id, value request) {
    stream& from = streams_.at(id);
    std::int64_t watch_id = request["watch_id"].number();
    const auto say = [&](const char* refused) {
        json_writer out;
        out.open().name("result").open();
        header(out, from.at, applied(from.at));
        out.number("watch_id", refused ? -1 : watch_id);
        out.flag("created", true);
        out.flag("canceled", refused != nullptr);
        if (refused) {
            out.word("cancel_reason", refused);
        }
        out.close().close();
        from.to.on_line(out.take());
    };
    try {
        check_token(rpc::watch, from.token);
    } catch (const refusal& no) {
        say(no.code == 16 ? "rpc error: code = Unauthenticated desc = etcdserver: invalid auth "
                            "token"
                          : "rpc error: code = InvalidArgument desc = etcdserver: user name is "
                            "empty");
        return;
    }
    const auto taken = std::any_of(watches_.begin(), watches_.end(), [&](const watch& w) {
        return w.stream == id && w.id == watch_id;
    });
    if (taken) {
        say("mvcc: duplicate watch ID provided on the WatchStream");
        return;
    }
    watch w{id,
            from.at,
            watch_id,
            request["key"].bytes(),
            request["range_end"].bytes(),
            false,
            false,
            request["prev_kv"].flag(),
            request["progress_notify"].flag(),
            request["fragment"].flag(),
            true,
            request["start_revision"].number()};
    if (w.key.empty()) {
        w.key = std::string(1, '\0');
    }
    if (!w.range_end.empty() && w.range_end != std::string_view("\0", 1) && w.key >= w.range_end) {
        say("mvcc: watcher range is empty");
        return;
    }
    request["filters"].each([&](value f) {
        constexpr std::string_view filters[] = {"NOPUT", "NODELETE"};
        const bool first = f.choice(filters) == 0;
        w.no_put = w.no_put || first;
        w.no_delete = w.no_delete || !first;
    });
    w.synced = w.next == 0 || w.next > applied(from.at);
    unsynced_ += w.synced ? 0 : 1;
    watches_.push_back(std::move(w));
    say(nullptr);
}

void etcd::send_events(const watch& w, const std::vector<const change*>& changes) {
    const change* const* from = changes.data();
    const change* const* const end = from + changes.size();
    const std::size_t most = w.takes_pieces && piece != 0 ? piece : changes.size();
    while (from != end) {
        const change* const* const to = from + std::min(most, static_cast<std::size_t>(end - from));
        send_piece(w, from, to, to != end);
        from = to;
    }
}

void etcd::send_piece(const watch& w,
                      const change* const* first,
                      const change* const* last,
                      bool more) {
    const auto found = streams_.find(w.stream);
    if (found == streams_.end()) {
        return;
    }
    json_writer out;
    out.open().name("result").open();
    header(out, found->second.at, applied(found->second.at));
    out.number("watch_id", w.id);
    out.flag("fragment", more);
    out.name("events").open('[');
    for (; first != last; ++first) {
        const change* const c = *first;
        out.item();
        out.open();
        if (c->deleted) {
            out.word("type", "DELETE");
        }
        out.name("kv");
        if (c->deleted) {
            record gone;
            gone.mod_revision = c->revision;
            write_kv(out, c->key, gone, true);
        } else {
            write_kv(out, c->key, c->now, false);
        }
        if (w.prev_kv && c->before.version != 0) {
            out.name("prev_kv");
            write_kv(out, c->key, c->before, false);
        }
        out.close();
    }
    out.close(']').close().close();
    found->second.to.on_line(out.take());
}

void etcd::tell_progress() {
    for (std::size_t i = 0; i != watches_.size(); ++i) {
        const watch& w = watches_[i];
        const auto found = streams_.find(w.stream);
        if (w.wants_progress && w.synced && w.next <= applied(w.at) + 1 &&
            found != streams_.end()) {
            json_writer out;
            out.open().name("result").open();
            header(out, w.at, applied(w.at));
            out.number("watch_id", w.id);
            out.close().close();
            found->second.to.on_line(out.take());
        }
    }
}

void etcd::tell(const change* first, const change* last, std::optional<int> only_at) {
    if (!tells || first == last) {
        return;
    }
    std::vector<const change*> mine;
    for (std::size_t i = 0; i != watches_.size(); ++i) {
        const watch& w = watches_[i];
        if (!w.synced || w.next > first->revision || (only_at && w.at != *only_at) || lags(w.at)) {
            continue;
        }
        mine.clear();
        for (const change* c = first; c != last; ++c) {
            if (in_range(c->key, w.key, w.range_end) && !(c->deleted ? w.no_delete : w.no_put)) {
                mine.push_back(c);
            }
        }
        if (!mine.empty() && !(loses_event && loses_event())) {
            send_events(w, mine);
        }
    }
}

void etcd::lag(int m, bool on) {
    peer& one = members_[index(m)];
    if (on == one.lagging) {
        return;
    }
    one.lagging = on;
    if (on) {
        one.applied = revision;
        one.compacted = compacted;
        return;
    }
    // One revision after the other.
    auto from = std::lower_bound(history_.begin(),
                                 history_.end(),
                                 one.applied + 1,
                                 [](const change& c, std::int64_t r) { return c.revision < r; });
    while (from != history_.end()) {
        const auto to = std::find_if(
            from, history_.end(), [&](const change& c) { return c.revision != from->revision; });
        tell(&*from, &*from + (to - from), m);
        from = to;
    }
}

void etcd::sync() {
    for (std::size_t i = 0; unsynced_ != 0 && i < watches_.size();) {
        watch& w = watches_[i];
        if (w.synced) {
            ++i;
            continue;
        }
        if (w.next < compacted_at(w.at)) {
            --unsynced_;
            const auto found = streams_.find(w.stream);
            json_writer out;
            out.open().name("result").open();
            header(out, found->second.at, 0);
            out.number("watch_id", w.id);
            out.flag("canceled", true);
            out.number("compact_revision", compacted_at(w.at));
            out.close().close();
            const auto line = found->second.to.on_line;
            watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i));
            line(out.take());
            continue;
        }
        std::vector<const change*> mine;
        std::size_t revisions = 0;
        std::int64_t last = 0;
        bool all = true;
        const auto begin = std::lower_bound(
            history_.begin(), history_.end(), w.next, [](const change& c, std::int64_t from) {
                return c.revision < from;
            });
        for (auto c = begin; c != history_.end() && c->revision <= applied(w.at); ++c) {
            if (!in_range(c->key, w.key, w.range_end) || (c->deleted ? w.no_delete : w.no_put)) {
                continue;
            }
            if (c->revision != last && ++revisions > batch) {
                all = false;
                w.next = c->revision;
                break;
            }
            last = c->revision;
            mine.push_back(&*c);
        }
        if (all) {
            --unsynced_;
            w.synced = true;
            w.next = 0;
        }
        send_events(w, mine);
        ++i;
    }
}

} // namespace sim
