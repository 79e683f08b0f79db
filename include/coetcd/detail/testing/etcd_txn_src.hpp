// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd_txn.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

inline void check_put_shape(json::value request) {
    if (request["key"].text().empty()) {
        throw etcd_refusal{3, "etcdserver: key is not provided"};
    }
    if (request["ignore_value"].flag() && !request["value"].text().empty()) {
        throw etcd_refusal{3, "etcdserver: value is provided"};
    }
    if (request["ignore_lease"].flag() && request["lease"].number() != 0) {
        throw etcd_refusal{3, "etcdserver: lease is provided"};
    }
}

/// Whether a condition holds. A comparison that has only a key asks for version 0: whether the key
/// does not exist.
inline bool holds(json::value condition, const etcd_store::store_map& in) {
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
    const auto meets = [&](const etcd_store::record& r, bool exists) {
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
    return any ? all : meets(etcd_store::record(), false);
}

inline void check_shape(json::value t, std::size_t most) {
    const std::size_t widest =
        std::max({t["compare"].size(), t["success"].size(), t["failure"].size()});
    if (widest > most) {
        throw etcd_refusal{3, "etcdserver: too many operations in txn request"};
    }
    t["compare"].each([](json::value c) {
        if (c["key"].text().empty()) {
            throw etcd_refusal{3, "etcdserver: key is not provided"};
        }
    });
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](json::value op) {
            if (const json::value inner = op["request_txn"]) {
                check_shape(inner, most - widest);
                return;
            }
            const json::value request = op["request_range"] ? op["request_range"]
                                        : op["request_put"] ? op["request_put"]
                                                            : op["request_delete_range"];
            if (!request) {
                throw etcd_refusal{3, "etcdserver: key not found"};
            }
            if (request["key"].text().empty()) {
                throw etcd_refusal{3, "etcdserver: key is not provided"};
            }
            if (op["request_put"]) {
                check_put_shape(request);
            }
        });
    }
}

/// The keys that a branch writes, whatever is in it. No key may be written twice.
inline std::set<std::string> check_overlaps(json::value ops, std::vector<json::value>& erased) {
    ops.each([&](json::value op) {
        if (const json::value request = op["request_delete_range"]) {
            erased.push_back(request);
        }
    });
    std::set<std::string> written;
    const auto check = [&](const std::string& key, const std::set<std::string>* except) {
        const bool is_erased = std::any_of(erased.begin(), erased.end(), [&](const json::value& e) {
            // etcd does not see that "from this key on" is a range.
            const std::string end = e["range_end"].bytes();
            return end != std::string_view("\0", 1) && in_range(key, e["key"].bytes(), end);
        });
        if (is_erased || (written.contains(key) && !(except && except->contains(key)))) {
            throw etcd_refusal{3, "etcdserver: duplicate key given in txn request"};
        }
    };
    ops.each([&](json::value op) {
        if (const json::value inner = op["request_txn"]) {
            std::vector<json::value> erased_then;
            std::vector<json::value> erased_otherwise;
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
    ops.each([&](json::value op) {
        if (const json::value request = op["request_put"]) {
            const std::string key = request["key"].bytes();
            check(key, nullptr);
            written.insert(key);
        }
    });
    return written;
}

COETCD_DECL void etcd_txn::decide(const etcd_store::store_map& in) {
    decide(request_, in);
}

COETCD_DECL void etcd_txn::decide(json::value t, const etcd_store::store_map& in) {
    bool all = true;
    t["compare"].each([&](json::value c) { all = all && holds(c, in); });
    taken_.push_back(all);
    t[all ? "success" : "failure"].each([&](json::value op) {
        if (const json::value inner = op["request_txn"]) {
            decide(inner, in);
        }
    });
}

COETCD_DECL void etcd_txn::check_taken() const {
    std::size_t at = 0;
    std::string_view unreadable;
    check_branches(request_, at, unreadable);
    if (!unreadable.empty()) {
        throw etcd_refusal{11, std::string(unreadable)};
    }
}

/// @param at The index of the next branch that is taken.
/// @param unreadable Why a read is refused. A gateway of the first dialect belongs to an etcd that
///   checks all puts before reads; one of the second, to an etcd that checks them in order.
COETCD_DECL void
etcd_txn::check_branches(json::value t, std::size_t& at, std::string_view& unreadable) const {
    t[taken_[at++] ? "success" : "failure"].each([&](json::value op) {
        if (how_.speaks == dialect::v2 && !unreadable.empty()) {
            return;
        }
        if (const json::value inner = op["request_txn"]) {
            check_branches(inner, at, unreadable);
        } else if (const json::value request = op["request_put"]) {
            how_.check_put(request);
        } else if (const json::value read = op["request_range"]; read && unreadable.empty()) {
            const std::int64_t then = read["revision"].number();
            if (then > store_.revision) {
                unreadable = "etcdserver: mvcc: required revision is a future revision";
            } else if (then != 0 && then < store_.compacted) {
                unreadable = "etcdserver: mvcc: required revision has been compacted";
            }
        }
    });
}

COETCD_DECL bool etcd_txn::only_reads(json::value t) {
    bool only = true;
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](json::value op) { only = only && op["request_range"]; });
    }
    return only;
}

COETCD_DECL bool etcd_txn::puts(json::value t) const {
    bool any = false;
    for (const char* branch : {"success", "failure"}) {
        t[branch].each([&](json::value op) {
            any = any || op["request_put"] ||
                  (how_.counts_inner_puts && op["request_txn"] && puts(op["request_txn"]));
        });
    }
    return any;
}

COETCD_DECL void etcd_txn::check() const {
    check_shape(request_, 128);
    for (const char* branch : {"success", "failure"}) {
        std::vector<json::value> erased;
        (void)check_overlaps(request_[branch], erased);
    }
}

COETCD_DECL void etcd_txn::carry_out(etcd_store::edit& e, std::int64_t before, json_writer& out) {
    std::size_t at = 0;
    carry_out(request_, at, e, before, out);
}

COETCD_DECL void etcd_txn::carry_out(
    json::value in, std::size_t& at, etcd_store::edit& e, std::int64_t before, json_writer& out) {
    const bool succeeded = taken_[at++];
    const json::value ops = in[succeeded ? "success" : "failure"];
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
    ops.each([&](json::value op) {
        out.item();
        out.open();
        if (const json::value read = op["request_range"]) {
            out.name("response_range").open();
            inner_header();
            store_.range(read, e.changes.empty() ? before : e.at, e.changes, out);
        } else if (const json::value write = op["request_put"]) {
            json_writer rest(how_.speaks == dialect::v2);
            rest.open();
            store_.put(write, e, rest);
            out.name("response_put").open();
            inner_header();
            if (rest.text().size() > 1) {
                out.item();
                out.raw(std::string_view(rest.text()).substr(1));
            }
        } else if (const json::value erasure = op["request_delete_range"]) {
            json_writer rest(how_.speaks == dialect::v2);
            rest.open();
            (void)store_.erase_range(erasure, e, &rest);
            out.name("response_delete_range").open();
            inner_header();
            if (rest.text().size() > 1) {
                out.item();
                out.raw(std::string_view(rest.text()).substr(1));
            }
        } else {
            out.name("response_txn").open();
            out.name("header").open().close();
            carry_out(op["request_txn"], at, e, before, out);
        }
        out.close().close();
    });
    out.close(']');
}

} // namespace coetcd::detail::testing
