// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/etcd_keys.hpp>
#include <coetcd/detail/testing/json.hpp>

#include <algorithm>
#include <utility>

namespace coetcd::detail::testing {

// Reads.

COETCD_DECL etcd::store_map etcd::keys_at(std::int64_t then,
                                          const std::vector<change>& pending) const {
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

COETCD_DECL void
etcd::write_kv(json_writer& out, const std::string& key, const record& r, bool keys_only) const {
    out.open();
    out.bytes("key", key);
    out.number("create_revision", r.create_revision);
    out.number("mod_revision", r.mod_revision);
    out.number("version", r.version);
    if (!keys_only) {
        out.bytes("value", r.value);
    }
    if (!keys_only || tells_leases_of_keys) {
        out.number("lease", r.lease);
    }
    out.close();
}

/// Writes what an answer to a range holds, but for its header.
/// `pending`: the changes of the same transaction, so far.
COETCD_DECL void etcd::range(value in,
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
COETCD_DECL bool etcd::holds(value condition, const store_map& in) {
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

COETCD_DECL void etcd::check_shape(value t, std::size_t most) const {
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
COETCD_DECL std::set<std::string> etcd::check_overlaps(value ops,
                                                       std::vector<value>& erased) const {
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

COETCD_DECL void etcd::check_put_shape(value request) {
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

COETCD_DECL void etcd::check_put(value request, bool in_txn) const {
    const std::string key = request["key"].bytes();
    const bool below = !forbidden_prefix.empty() && key.starts_with(forbidden_prefix);
    if (below || forbidden.contains(key)) {
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
COETCD_DECL void etcd::decide(value t, const store_map& in, std::vector<bool>& taken) {
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
COETCD_DECL void etcd::check_branches(value t,
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
COETCD_DECL bool etcd::only_reads(value t) {
    bool only = true;
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](value op) { only = only && op["request_range"]; });
    }
    return only;
}

COETCD_DECL bool etcd::puts(value t) const {
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
COETCD_DECL void etcd::txn(value in,
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

} // namespace coetcd::detail::testing
