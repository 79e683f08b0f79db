// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/leader.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

/// Elections: the queue is that of a lock, and the oldest key leads. Its value is what the leader
/// proclaims. The Go client and `etcdctl elect` do the same.
namespace coetcd::detail::logic {

/// Reads the key that leads.
inline range_request oldest_of(const std::string& name) {
    range_options first;
    first.limit = 1;
    first.order = sort_order::ascend;
    first.target = sort_target::create;
    return range_request(key_range::prefix(name + "/"), first);
}

inline leader leader_by(const key_value& kv) {
    leader l;
    l.value = kv.value;
    l.key = kv.key;
    l.term = answers::require_revision(kv.create_revision);
    l.revision = answers::require_revision(kv.mod_revision);
    l.lease = kv.lease;
    return l;
}

/// What the answer to `oldest_of` means.
inline std::optional<leader> leader_in(const range_response& read) {
    std::optional<leader> found;
    if (!read.kvs.empty()) {
        found = leader_by(read.kvs.front());
    }
    return found;
}

/// The leader after a change in the queue; nothing if only a look can tell.
inline std::optional<std::optional<leader>> leader_after(const std::optional<leader>& now,
                                                         const event& e) {
    const bool put = e.type == event_type::put;
    const std::int64_t since = e.kv.create_revision;
    bool leads = false;
    bool is_clear = true;
    if (!now) {
        leads = put; // nobody was there: a key that has just come is the oldest
        is_clear = !put || since == e.kv.mod_revision;
    } else if (e.kv.key == now->key) {
        leads = put; // an end does not say who is next; another life has lost its place
        is_clear = put && since == now->term;
    } else {
        is_clear = !put || since >= now->term; // else something was missed
    }
    std::optional<std::optional<leader>> next;
    if (is_clear) {
        next.emplace(leads ? leader_by(e.kv) : now);
    }
    return next;
}

/// The leader, and each later one.
inline question<std::optional<leader>> who_leads(const std::string& name) {
    wire::watch_create_request queue(key_range::prefix(name + "/"));
    return {"election \"" + wire::printable(name) + "\", observe",
            oldest_of(name),
            std::move(queue),
            &leader_in,
            &leader_after};
}

/// Proclaims a value. The last change of the key is compared, too, so that a late copy of the
/// request does not undo a later change.
/// @param last A mod_revision that the key has had in this term; 0 if none is known.
inline txn proclaim(const std::string& key,
                    lease_id lease,
                    std::int64_t term,
                    std::int64_t last,
                    const std::string& value) {
    put_options with_lease;
    with_lease.lease = lease;
    txn t;
    t.compares.push_back(compare::create_revision(key) == term);
    t.compares.push_back(compare::mod_revision(key) == last);
    t.success.push_back(op::put(key, value, with_lease));
    t.failure.push_back(op::range(key));
    return t;
}

struct proclaimed {
    enum class state {
        done,    ///< The value is there, and no copy of an earlier request can change it.
        moved,   ///< The key has changed since. Ask again, with `last`.
        refused, ///< No copy was applied, and none will be.
        unknown, ///< A copy may have been applied, or may still be.
        gone,    ///< The term is over.
    };
    state now = state::gone;
    std::int64_t last = 0; ///< The mod_revision of the key.
};

/// What the answer to `proclaim` means.
inline proclaimed after_proclaim(const txn_response& response,
                                 const std::string& key,
                                 std::int64_t term,
                                 std::int64_t last,
                                 const std::string& value) {
    using state = proclaimed::state;
    if (response.succeeded) {
        return {state::done, answers::require_revision(response.header.revision)};
    }
    const range_response& read = answers::range_at(response, 0);
    if (is_gone(response.header, read, key, term)) {
        return {};
    }
    const std::int64_t now = answers::holds(read, key, term) ? read.kvs.front().mod_revision : 0;
    if (now == 0 || now == last) {
        throw error(errc::protocol_error, "txn: the answer contradicts itself");
    }
    // A change after `last` was made by an earlier copy of this very request; or somebody else has
    // put the same value, and then no copy can be applied any more. As long as `last` is not known,
    // copies that we do not know of may be under way.
    const bool there = last != 0 && now > last && read.kvs.front().value == value;
    return {there ? state::done : state::moved, now};
}

/// Reads what a refused `proclaim` has left: one of its copies may have been applied. The read goes
/// through etcd's consensus, as the copies did, and needs no space.
/// @param c The keys that we lead by.
inline txn read_proclaimed(const name_keys& c, const std::string& key, std::int64_t term) {
    txn t;
    t.compares.push_back(compare::create_revision(key) == term);
    t.success.push_back(op::erase(c.void_key));
    t.success.push_back(op::range(key));
    t.failure.push_back(op::range(key));
    return t;
}

/// What the answer to `read_proclaimed` means. The read does not stop a copy that is still under
/// way. And if somebody else has changed the key since `last`, a copy may have been applied before
/// that.
/// @param left What the copies left, together.
inline proclaimed after_reading(const txn_response& response,
                                const std::string& key,
                                std::int64_t term,
                                std::int64_t last,
                                const std::string& value,
                                effect left) {
    using state = proclaimed::state;
    const range_response& read = answers::range_at(response, response.succeeded ? 1 : 0);
    if (!response.succeeded && is_gone(response.header, read, key, term)) {
        return {};
    }
    if (!response.succeeded || !answers::holds(read, key, term)) {
        throw error(errc::protocol_error, "txn: the answer contradicts itself");
    }
    const std::int64_t now = read.kvs.front().mod_revision;
    if (now > last && read.kvs.front().value == value) {
        return {state::done, now};
    }
    const bool untouched = now == last && left == effect::settled;
    return {untouched ? state::refused : state::unknown, now};
}

/// Whether to repeat a campaign that failed in this way, with another session if need be.
inline bool may_campaign_again(const error_code& ec) {
    return is_transient(ec) || ec == condition::ownership_lost;
}

} // namespace coetcd::detail::logic
