// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// A key that exists while its session does: the transactions, and what their answers mean. It is
/// put, changed and put again by one coroutine, which sends one transaction at a time; but copies
/// of earlier ones may come late. Each change compares the last change that we know of, so one that
/// comes late does nothing. A late copy of the first put would find no key once that was erased:
/// then a *tombstone* makes it void, which goes with the lease.
namespace coetcd::detail::logic {

/// What there is under a key.
struct key_state {
    std::optional<key_value> kv;
    std::int64_t as_of = 0; ///< A revision at which it was so.

    bool operator==(const key_state&) const = default;
};

inline key_state key_state_in(const response_header& header, const range_response& read) {
    key_state now;
    now.as_of = answers::require_revision(header.revision);
    if (!read.kvs.empty()) {
        now.kv = read.kvs.front();
    }
    return now;
}

/// What there is, and what becomes of it.
inline question<key_state> key_and_changes(const std::string& title, const std::string& key) {
    const auto from = [](const range_response& read) {
        key_state now = key_state_in(read.header, read);
        if (now.kv) {
            now.as_of = now.kv->mod_revision; // so that a second look tells nothing new
        }
        return now;
    };
    const auto follow = [](const key_state&, const event& e) {
        key_state next;
        next.as_of = e.kv.mod_revision;
        if (e.type == event_type::put) {
            next.kv = e.kv;
        }
        return std::optional<key_state>(std::move(next));
    };
    wire::watch_create_request changes{key_range(key)};
    return {title, range_request(key), std::move(changes), from, follow};
}

/// What is to be there.
struct kept_terms {
    std::string name; ///< What the tombstone's key begins with.
    std::string key;
    std::string tombstone;
    lease_id lease = 0;           ///< Of the session that it is kept in now.
    std::vector<lease_id> former; ///< Of those that it was kept in before.
    std::int64_t life = 0;        ///< The create_revision that it had last; 0: never ours so far.
    bool takes_over = false;      ///< At first it replaces what somebody else has there.
};

/// Whether we may put it right, or erase it.
inline bool is_ours(const key_value& kv, const kept_terms& t) {
    if (kv.lease == 0) { // put by hand, if it is the same life
        return t.life != 0 && kv.create_revision == t.life;
    }
    return kv.lease == t.lease ||
           std::find(t.former.begin(), t.former.end(), kv.lease) != t.former.end();
}

enum class key_step {
    none,    ///< It is as it should be.
    create,  ///< There is no key, or we do not know.
    change,  ///< There is another value, or another lease.
    give_up, ///< It is somebody else's.
};

/// What to do about it.
inline key_step
next_step(const std::optional<key_state>& seen, const std::string& value, const kept_terms& t) {
    if (!seen || !seen->kv) {
        return key_step::create;
    }
    const key_value& kv = *seen->kv;
    if (!is_ours(kv, t)) {
        return t.takes_over && t.life == 0 ? key_step::change : key_step::give_up;
    }
    return kv.value == value && kv.lease == t.lease ? key_step::none : key_step::change;
}

/// @param change What is there is changed; if null, there is nothing so far.
inline txn put_kept(const kept_terms& t, const std::string& value, const key_value* change) {
    put_options with_lease;
    with_lease.lease = t.lease;
    txn what;
    if (change) {
        what.compares.push_back(compare::create_revision(t.key) == change->create_revision);
        what.compares.push_back(compare::mod_revision(t.key) == change->mod_revision);
    } else {
        what.compares.push_back(compare::create_revision(t.tombstone) == 0);
        what.compares.push_back(compare::create_revision(t.key) == 0);
    }
    what.success.push_back(op::put(t.key, value, with_lease));
    what.failure.push_back(op::range(t.key));
    return what;
}

/// What the answer to `put_kept` tells.
inline key_state after_put(const txn_response& response,
                           const kept_terms& t,
                           const std::string& value,
                           const key_value* change) {
    if (response.succeeded) {
        key_state now;
        now.as_of = answers::require_revision(response.header.revision);
        key_value kv;
        kv.key = t.key;
        kv.value = value;
        kv.create_revision = change ? change->create_revision : now.as_of;
        kv.mod_revision = now.as_of;
        kv.version = change ? change->version + 1 : 1;
        kv.lease = t.lease;
        now.kv = std::move(kv);
        return now;
    }
    key_state now = key_state_in(response.header, answers::range_at(response, 0));
    const bool as_before = change && now.kv && now.kv->mod_revision == change->mod_revision;
    if (as_before || (!change && !now.kv)) {
        throw error(errc::protocol_error, "txn: the answer contradicts itself");
    }
    return now;
}

/// Erases it.
/// @param shown What is erased, if it is ours by more than its lease.
/// @param makes_void A copy of a request that puts it may still be under way.
inline txn erase_kept(const kept_terms& t, const std::optional<key_value>& shown, bool makes_void) {
    txn what;
    what.compares.push_back(shown ? compare::mod_revision(t.key) == shown->mod_revision
                                  : compare::lease(t.key) == t.lease);
    what.success.push_back(op::erase(t.key));
    what.failure.push_back(op::range(t.key));
    if (makes_void) {
        put_options with_lease;
        with_lease.lease = t.lease;
        what.success.push_back(op::put(t.tombstone, {}, with_lease));
        what.failure.push_back(op::put(t.tombstone, {}, with_lease));
    }
    return what;
}

/// How a key that we cannot have is described.
inline std::string whose_key(const key_value& kv) {
    return kv.lease == 0 ? "the key has no lease"
                         : "the key has lease " + hex(static_cast<std::uint64_t>(kv.lease));
}

} // namespace coetcd::detail::logic
