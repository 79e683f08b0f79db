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

/// What others than its owner do to a place in a queue.
///
/// *To end a place by force* is safe with slots and epochs, as it compares a life and no epoch.
/// A create_revision names one life of one key, for good: while the key has it, the slot is in use
/// by the attempt that put it, and whatever else is in the slot is that attempt's. So what is
/// erased is that attempt's alone, and a copy of this request that comes late finds no such life,
/// and does no harm to the next owner. The new epoch makes void what its owner may still have under
/// way to put the key again. The owner need not know the new epoch: `release` and `end` find
/// neither key nor their epoch, and are told the one that counts; `enter` and `take` likewise, and
/// begin anew. Another epoch than the owner knows frees no slot and puts no key by itself. It goes
/// with the owner's lease, since that is what it is put with; if that lease is gone, so is the key,
/// and etcd refuses the whole request.
namespace coetcd::detail::logic {

/// The keys of the queue of a name that were put at a revision: those of one attempt. Whole: of
/// keys only etcd 3.7 does not tell the leases.
inline range_request life_of(const std::string& name, std::int64_t token) {
    range_options how;
    how.min_create_revision = token;
    how.max_create_revision = token;
    return range_request(key_range::prefix(name + "/"), how);
}

/// Ends the place that has this life; or else asks what is there of it now: one that has just been
/// lowered has fewer keys than before.
/// @param found The answer to `life_of`, or to that question.
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
            // A writer's slot may have a second key, of another age: from an upgrade.
            for (const std::string_view line : lines_of_a_slot) {
                erased.insert(name + "/" + std::string(line) + std::string(parts->id));
            }
        }
        // Go's client and etcdctl, whose ids are a lease and no more, compare no epoch.
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

/// What the keys of one place have in common, and no other key of the queue.
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

// Requests to a holder, to give the lock back: `<name>.ask/<lease>-<nonce>`, whose value is the
// token of the hold that is meant. One key for each session object that asks: it is used again, and
// those of several who ask do not get mixed up.

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

/// Asks a holder to give the lock back. If it is not the holder any more: who is?
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

/// Whether such a key asks for the hold with this token.
inline bool asks_for(const key_value& kv, std::int64_t token) {
    return kv.value == hex(static_cast<std::uint64_t>(token));
}

/// Whether anybody has asked for that hold.
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
