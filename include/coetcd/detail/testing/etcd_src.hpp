// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/etcd.hpp>
#include <coetcd/detail/testing/etcd_requests_src.hpp>
#include <coetcd/detail/testing/etcd_store_src.hpp>
#include <coetcd/detail/testing/etcd_watches_src.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace coetcd::detail::testing {

COETCD_DECL etcd::etcd(clock now, int members, dialect speaks)
    : etcd_members(members)
    , now_(std::move(now))
    , speaks_(speaks)
    , watches_(*this,
               *this,
               {[this](const std::string& token, json::value range) {
                    check_token(rpc::watch, token);
                    check_rights(range);
                },
                [this](std::uint64_t stream,
                       std::int64_t id,
                       std::int64_t start_revision,
                       const std::string& key) {
                    if (told) {
                        told->watched(stream, id, start_revision, key);
                    }
                },
                [this] { return loses_event && loses_event(); },
                [this](const std::string& key) { return invents_end && invents_end(key); }}) {}

// Changes.

COETCD_DECL void etcd::check_put(json::value request, bool in_txn) const {
    const std::string key = request["key"].bytes();
    const bool below = !forbidden_prefix.empty() && key.starts_with(forbidden_prefix);
    if (below || forbidden.contains(key)) {
        throw refusal{7, "etcdserver: permission denied"};
    }
    const lease_id with = request["lease"].number();
    const bool no_lease = with != 0 && !has_lease(with);
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

COETCD_DECL void etcd::apply(const edit& e, cause why) {
    if (e.changes.empty()) {
        return;
    }
    commit(e);
    if (told) {
        told->changed(e.changes, why);
    }
    if (tells) {
        watches_.tell(e.changes.data(), e.changes.data() + e.changes.size());
    }
}

COETCD_DECL bool etcd::end_lease(lease_id id, lease_end how) {
    if (!leases_.end(id)) {
        return false;
    }
    edit e = next_edit();
    erase_with(id, e);
    if (told) {
        told->lease_ended(id, how);
    }
    apply(e, cause::lease);
    return true;
}

// What an operator does.

COETCD_DECL void etcd::write(const std::string& key, const std::string& text) {
    edit e = next_edit();
    put_value(key, text, e);
    apply(e, cause::operator_);
}

COETCD_DECL void etcd::erase(const std::string& key) {
    edit e = next_edit();
    erase_key(key, e);
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
    take_over(from);
    leases_ = from.leases_;
    elect(0); // from now on all leases have their whole time
}

COETCD_DECL void etcd::require_user(std::string name, std::string password) {
    auth_ = true;
    user_ = std::move(name);
    password_ = std::move(password);
}

// The cluster.

COETCD_DECL void etcd::end_streams(int at, bool says_why) {
    std::optional<std::string> why;
    if (says_why) {
        why = stream_error(14, "etcdserver: no leader");
    }
    watches_.end_streams(at, why);
}

COETCD_DECL void etcd::cut(int m, bool off) {
    set_cut(m, off, now_());
    if (off && m == leader()) {
        depose();
    }
}

COETCD_DECL void etcd::lag(int m, bool on) {
    if (on == lags(m)) {
        return;
    }
    const std::int64_t knew = applied(m, revision);
    set_lag(m, on, revision, compacted);
    if (!on && tells) {
        watches_.catch_up(m, knew);
    }
}

COETCD_DECL void etcd::depose() {
    lose_leader(now_());
}

COETCD_DECL void etcd::elect(int m) {
    set_leader(m);
    leases_.renew_all(now_(), election_timeout);
}

COETCD_DECL void etcd::expire() {
    if (leader() < 0) {
        return;
    }
    for (const lease_id id : leases_.over(now_())) {
        end_lease(id, lease_end::expired);
    }
}

} // namespace coetcd::detail::testing
