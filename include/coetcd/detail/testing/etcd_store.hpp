// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/etcd_keys.hpp>
#include <coetcd/detail/testing/json.hpp>

#include <algorithm>
#include <utility>

namespace coetcd::detail::testing {

// Changes. They take effect at once; `apply` tells of them.

COETCD_DECL void etcd::put(value in, edit& e, json_writer& out) {
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

COETCD_DECL std::int64_t etcd::erase_range(value in, edit& e, json_writer* out) {
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

COETCD_DECL void etcd::apply(edit& e, cause why) {
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

COETCD_DECL bool etcd::end_lease(lease_id id, lease_end how) {
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

COETCD_DECL std::vector<std::string> etcd::under(const std::string& prefix) const {
    std::vector<std::string> found;
    for (auto k = keys.lower_bound(prefix); k != keys.end() && k->first.starts_with(prefix); ++k) {
        found.push_back(k->first);
    }
    return found;
}

COETCD_DECL std::vector<lease_id> etcd::lease_ids() const {
    std::vector<lease_id> all;
    for (const auto& [id, l] : leases_) {
        all.push_back(id);
    }
    return all;
}

COETCD_DECL std::size_t etcd::watching_streams() const {
    std::set<std::uint64_t> all;
    for (const watch& w : watches_) {
        all.insert(w.stream);
    }
    return all.size();
}

COETCD_DECL void etcd::write(const std::string& key, const std::string& text) {
    edit e{revision + 1, {}};
    record& r = keys[key];
    const record before = r;
    r = {text, before.version == 0 ? e.at : before.create_revision, e.at, before.version + 1, 0};
    e.changes.push_back({false, key, e.at, r, before});
    apply(e, cause::operator_);
}

COETCD_DECL void etcd::erase(const std::string& key) {
    edit e{revision + 1, {}};
    if (const auto found = keys.find(key); found != keys.end()) {
        e.changes.push_back(erasure(key, e.at, found->second));
        keys.erase(found);
    }
    apply(e, cause::operator_);
}

COETCD_DECL void etcd::revoke(lease_id id) {
    end_lease(id, lease_end::by_operator);
}

COETCD_DECL void etcd::compact(std::int64_t before) {
    compacted = std::max(compacted, before);
}

COETCD_DECL void etcd::restore(const etcd& from) {
    for (int m = 0; m != members(); ++m) {
        end_streams(m, false);
    }
    keys = from.keys;
    revision = from.revision;
    compacted = from.compacted;
    history_ = from.history_;
    leases_ = from.leases_;
    last_lease_ = from.last_lease_;
    elect(0); // from when on all leases have their whole time
}

COETCD_DECL void etcd::require_user(std::string name, std::string password) {
    auth_ = true;
    user_ = std::move(name);
    password_ = std::move(password);
}

// Members.

COETCD_DECL void etcd::cut(int m, bool off) {
    peer& one = members_[index(m)];
    one.cut = off;
    one.since = now_();
    if (off && m == leader_) {
        depose();
    }
}

COETCD_DECL void etcd::depose() {
    deposed_ = leader_;
    deposed_until_ = now_() + election_timeout;
    leader_ = -1;
    for (peer& m : members_) {
        m.since = now_();
    }
}

COETCD_DECL void etcd::elect(int m) {
    leader_ = m;
    deposed_ = deposed_ == m ? -1 : deposed_;
    ++term;
    for (auto& [id, l] : leases_) {
        l.ends = now_() + l.ttl + election_timeout;
    }
}

COETCD_DECL void etcd::expire() {
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

} // namespace coetcd::detail::testing
