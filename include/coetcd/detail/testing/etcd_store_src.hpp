// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd_store.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace coetcd::detail::testing {

inline etcd_store::change
erasure(const std::string& key, std::int64_t at, const etcd_store::record& before) {
    etcd_store::change c;
    c.deleted = true;
    c.key = key;
    c.revision = at;
    c.before = before;
    return c;
}

COETCD_DECL void etcd_store::put(json::value in, edit& e, json_writer& out) {
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

COETCD_DECL void etcd_store::put_value(const std::string& key, const std::string& value, edit& e) {
    record& r = keys[key];
    const record before = r;
    r = {value, before.version == 0 ? e.at : before.create_revision, e.at, before.version + 1, 0};
    e.changes.push_back({false, key, e.at, r, before});
}

COETCD_DECL std::int64_t etcd_store::erase_range(json::value in, edit& e, json_writer* out) {
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

COETCD_DECL void etcd_store::erase_key(const std::string& key, edit& e) {
    if (const auto found = keys.find(key); found != keys.end()) {
        e.changes.push_back(erasure(key, e.at, found->second));
        keys.erase(found);
    }
}

COETCD_DECL void etcd_store::erase_with(lease_id lease, edit& e) {
    for (auto k = keys.begin(); k != keys.end();) {
        const auto here = k++;
        if (here->second.lease == lease) {
            e.changes.push_back(erasure(here->first, e.at, here->second));
            keys.erase(here);
        }
    }
}

COETCD_DECL void etcd_store::commit(const edit& e) {
    revision = e.at;
    history_.insert(history_.end(), e.changes.begin(), e.changes.end());
}

COETCD_DECL void etcd_store::take_over(const etcd_store& from) {
    keys = from.keys;
    revision = from.revision;
    compacted = from.compacted;
    history_ = from.history_;
}

COETCD_DECL std::vector<std::string> etcd_store::under(const std::string& prefix) const {
    std::vector<std::string> found;
    for (auto k = keys.lower_bound(prefix); k != keys.end() && k->first.starts_with(prefix); ++k) {
        found.push_back(k->first);
    }
    return found;
}

COETCD_DECL etcd_store::store_map etcd_store::keys_at(std::int64_t then,
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

COETCD_DECL void etcd_store::write_kv(json_writer& out,
                                      const std::string& key,
                                      const record& r,
                                      bool keys_only) const {
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

COETCD_DECL void etcd_store::range(json::value in,
                                   std::int64_t now,
                                   const std::vector<change>& pending,
                                   json_writer& out) const {
    const std::int64_t then = in["revision"].number();
    if (then > now) {
        throw etcd_refusal{11, "etcdserver: mvcc: required revision is a future revision"};
    }
    if (then > 0 && then < compacted) {
        throw etcd_refusal{11, "etcdserver: mvcc: required revision has been compacted"};
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

} // namespace coetcd::detail::testing
