// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/logic/resumable.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/lock_entry.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// What clients other than its owner do with a place in a queue.
///
/// Ending a place by force is safe with slots and epochs, because it compares a life and no epoch.
/// A create_revision names one life of one key, for good. While the key has it, the slot is in use
/// by the attempt that put the key, and everything else in the slot belongs to that attempt. So
/// only keys of that attempt are erased; a late copy of this request finds no such life, and does
/// the next owner no harm. The new epoch makes void any request of the owner that is still under
/// way to put the key again. The owner need not know the new epoch: `release` and `end` find
/// neither the key nor their epoch, and are told the current one; so are `enter` and `take`, which
/// begin anew. An epoch other than the one that the owner knows frees no slot and puts no key by
/// itself. The epoch disappears with the owner's lease, since it is put with that lease. If the
/// lease is gone, so is the key, and etcd refuses the whole request.
namespace coetcd::detail::logic {

/// Reads the keys of a name's queue that were put at one revision: those of one attempt. It reads
/// their values, too: etcd 3.7 leaves out the leases if it is asked for keys only.
inline range_request life_of(const std::string& name, std::int64_t token) {
    range_options how;
    how.min_create_revision = token;
    how.max_create_revision = token;
    return range_request(key_range::prefix(name + "/"), how);
}

/// Ends the place that has this life. If that fails, reads what is there of the place now: one that
/// has just been lowered has fewer keys than before.
/// @param found The answer to `life_of`, or to the read of an earlier `force`.
/// @returns Nothing if there is no such place.
inline std::optional<txn>
force(const std::string& name, std::int64_t token, const std::vector<key_value>& found) {
    txn t;
    std::set<std::string> erased;
    std::set<std::string> epochs;
    for (const key_value& kv : found) {
        const std::optional<queue_key> parts = split_key(name, kv.key);
        if (!parts || kv.create_revision != token) {
            continue;
        }
        t.compares.push_back(compare::create_revision(kv.key) == token);
        erased.insert(kv.key);
        if (std::ranges::count(lines_of_a_slot, parts->line) != 0) {
            // The slot of a writer may have a second key, of another age: from an upgrade.
            for (const std::string_view line : lines_of_a_slot) {
                erased.insert(name + "/" + std::string(line) + std::string(parts->id));
            }
        }
        // Go's client and etcdctl, whose ids are a lease and nothing else, compare no epoch.
        const std::string epoch = name + "." + std::string(parts->id);
        if (kv.lease != 0 && is_slot(parts->id, kv.lease) && epochs.insert(epoch).second) {
            put_options with_lease;
            with_lease.lease = kv.lease;
            t.success.push_back(op::put(epoch, "", with_lease));
        }
    }
    if (t.compares.empty()) {
        return std::nullopt;
    }
    for (const std::string& key : erased) {
        t.success.push_back(op::erase(key));
    }
    const range_request rest = life_of(name, token);
    t.failure.push_back(op::range(rest.range, rest.options));
    return t;
}

/// What the keys of one place have in common, and no other key of the queue has.
inline std::string_view place_of(std::string_view name, std::string_view key) {
    const std::optional<queue_key> parts = split_key(name, key);
    return parts ? parts->id : key;
}

/// One key of each place.
/// @param queue As it was read, oldest first.
inline void each_place_once(std::vector<lock_entry>& queue, std::string_view name) {
    std::set<std::string, std::less<>> seen;
    std::erase_if(queue,
                  [&](const lock_entry& e) { return !seen.emplace(place_of(name, e.key)).second; });
}

/// How many places of a queue are before the first one that is ours.
/// @param queue As it was read, oldest first.
/// @param ours What we hold now; empty for nothing.
/// @returns Nothing if none of them is ours.
inline std::optional<std::size_t> position_in(const std::vector<key_value>& queue,
                                              const std::string& name,
                                              lease_id lease,
                                              std::uint64_t nonce,
                                              const std::string& ours) {
    std::set<std::string_view> before;
    for (const key_value& kv : queue) {
        const std::optional<queue_key> parts = split_key(name, kv.key);
        if (kv.key == ours || (parts && is_own_slot(parts->id, lease, nonce))) {
            return before.size();
        }
        before.insert(place_of(name, kv.key));
    }
    return std::nullopt;
}

// Requests to a holder to give the lock back: a key `<name>.ask/<lease>-<nonce>`, whose value is
// the token of the hold that is meant. Each session object that asks has one such key and uses it
// again, so that the requests of several sessions do not get mixed up.

inline std::string asking_keys(const std::string& name) {
    return name + ".ask/";
}

/// The oldest key of a queue.
inline range_request oldest_key_of(const std::string& name) {
    range_options how = transactions::keys_only();
    how.limit = 1;
    how.order = sort_order::ascend;
    how.target = sort_target::create;
    return range_request(key_range::prefix(name + "/"), how);
}

/// Asks a holder to give the lock back. If it no longer holds the lock, reads who does.
inline txn ask_for_release(const std::string& name,
                           const predecessor& holder,
                           lease_id lease,
                           std::uint64_t nonce) {
    put_options with_lease;
    with_lease.lease = lease;
    const range_request oldest = oldest_key_of(name);
    txn t;
    t.compares.push_back(compare::create_revision(holder.key) == holder.create_revision);
    t.success.push_back(
        op::put(asking_keys(name) + hex(static_cast<std::uint64_t>(lease)) + "-" + hex(nonce),
                hex(static_cast<std::uint64_t>(holder.create_revision)),
                with_lease));
    t.failure.push_back(op::range(oldest.range, oldest.options));
    return t;
}

/// The first key of an answer.
inline std::optional<predecessor> first_in(const range_response& read) {
    if (read.kvs.empty()) {
        return std::nullopt;
    }
    const key_value& first = read.kvs.front();
    return predecessor{first.key, answers::require_revision(first.create_revision)};
}

/// Whether a key of `asking_keys` asks for the hold with this token.
inline bool asks_for(const key_value& kv, std::int64_t token) {
    return kv.value == hex(static_cast<std::uint64_t>(token));
}

/// Whether anybody has asked for the hold with this token.
inline question<bool> is_asked_for(const std::string& name, std::int64_t token) {
    const key_range all = key_range::prefix(asking_keys(name));
    wire::watch_create_request signs(all);
    signs.no_delete = true;
    question<bool> q{"release_requested \"" + wire::printable(name) + "\"", {all}, signs, {}, {}};
    q.from = [token](const range_response& r) {
        return std::any_of(
            r.kvs.begin(), r.kvs.end(), [&](const key_value& kv) { return asks_for(kv, token); });
    };
    q.follow = [token](const bool& asked, const event& e) {
        return std::optional<bool>(asked || asks_for(e.kv, token));
    };
    return q;
}

} // namespace coetcd::detail::logic
