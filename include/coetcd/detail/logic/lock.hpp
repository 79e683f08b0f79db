// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

/// The lock's transactions, and what their answers mean. The owner of a lock is the key under its
/// name with the smallest create_revision, as in the Go client and in `etcdctl lock`.
namespace coetcd::detail::logic {

/// The keys of one attempt to take a lock. No other attempt, of this or any other process, ever
/// has the same: so a request of this one that arrives late can do nothing to another.
struct lock_keys {
    std::string queue; ///< What all keys of the lock begin with.
    std::string key;
    /// Says that the attempt is over: a request to enter that arrives later is void. It lies in
    /// no lock's queue: there is no slash behind the name.
    std::string tombstone;
    lease_id lease = 0;
};

inline lock_keys make_lock_keys(const std::string& name, lease_id lease, std::uint64_t serial) {
    const auto hex = [](std::uint64_t value) {
        char digits[16];
        const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
        return std::string(digits, end);
    };
    const std::string owner = hex(static_cast<std::uint64_t>(lease));
    const std::string number = hex(serial);
    return {
        name + "/", name + "/" + owner + "-" + number, name + "." + owner + "-" + number, lease};
}

/// Another key in the queue.
struct predecessor {
    std::string key;
    std::int64_t create_revision;
};

/// Where an attempt stands.
struct standing {
    enum class place {
        owner,  ///< The lock is ours.
        behind, ///< Somebody was here before us.
        queued, ///< Our key is there; who is before us, this answer does not say.
        gone,   ///< Our key is not there.
    };
    place at = place::gone;
    std::int64_t create_revision = 0;   ///< Of our key, unless `gone`.
    std::optional<predecessor> ahead{}; ///< If `behind`.
};

/// Takes a place in the queue, and tells who is next before us.
inline txn enter(const lock_keys& keys, std::string label) {
    range_options newest_two;
    newest_two.limit = 2;
    newest_two.order = sort_order::descend;
    newest_two.target = sort_target::create;
    newest_two.keys_only = true;
    put_options with_lease;
    with_lease.lease = keys.lease;
    range_options keys_only;
    keys_only.keys_only = true;
    return txn()
        .when(compare::create_revision(keys.key) == 0,
              compare::create_revision(keys.tombstone) == 0)
        .then(op::put(keys.key, std::move(label), with_lease),
              op::get(key_range::prefix(keys.queue), newest_two))
        .otherwise(op::get(keys.key, keys_only));
}

/// Takes the lock if its queue is empty, in one step.
inline txn enter_if_free(const lock_keys& keys, std::string label) {
    put_options with_lease;
    with_lease.lease = keys.lease;
    range_options keys_only;
    keys_only.keys_only = true;
    return txn()
        .when(compare::create_revision(key_range::prefix(keys.queue)) == 0,
              compare::create_revision(keys.tombstone) == 0)
        .then(op::put(keys.key, std::move(label), with_lease))
        .otherwise(op::get(keys.key, keys_only));
}

/// Proves ownership, by a write: a read may be stale where a member has stalled.
inline txn confirm(const lock_keys& keys, std::int64_t create_revision) {
    put_options touch;
    touch.ignore_value = true;
    touch.ignore_lease = true;
    range_options keys_only;
    keys_only.keys_only = true;
    range_options next_older = keys_only;
    next_older.limit = 1;
    next_older.order = sort_order::descend;
    next_older.target = sort_target::create;
    next_older.max_create_revision = create_revision - 1;
    return txn()
        .when(compare::create_revision(keys.key) == create_revision,
              compare::create_revision(key_range::prefix(keys.queue)) > create_revision - 1)
        .then(op::put(keys.key, "", touch))
        .otherwise(op::get(keys.key, keys_only),
                   op::get(key_range::prefix(keys.queue), next_older));
}

/// Reads our key and the one ahead.
inline txn look(const lock_keys& keys, const predecessor& ahead) {
    range_options keys_only;
    keys_only.keys_only = true;
    return txn().then(op::get(keys.key, keys_only), op::get(ahead.key, keys_only));
}

/// Gives up what may have been taken, owned or not.
/// @param unresolved A request to enter may still be under way.
inline txn leave(const lock_keys& keys, bool unresolved) {
    txn t = txn().then(op::erase(keys.key));
    if (unresolved) {
        put_options with_lease;
        with_lease.lease = keys.lease;
        t.success.push_back(op::put(keys.tombstone, "", with_lease));
    }
    return t;
}

/// As `leave`; tells whether the key was still the one that was taken.
inline txn release(const lock_keys& keys, std::int64_t create_revision, bool unresolved) {
    txn t = leave(keys, unresolved).when(compare::create_revision(keys.key) == create_revision);
    if (unresolved) {
        t.failure = t.success; // a late request may put it again, or has done so
    }
    return t;
}

namespace answers {

/// A key that exists has a revision; without one there would be no fencing token.
inline std::int64_t require_revision(std::int64_t revision) {
    if (revision <= 0) {
        throw error(errc::protocol_error, "txn: the answer lacks the revision of our key");
    }
    return revision;
}

/// The answer to one read of a transaction.
inline const range_response& range_at(const txn_response& response, std::size_t index) {
    const auto* found = index < response.responses.size()
                            ? std::get_if<range_response>(&response.responses[index])
                            : nullptr;
    if (!found) {
        throw error(errc::protocol_error, "txn: the answer lacks a read that was asked for");
    }
    return *found;
}

inline bool holds(const range_response& r, const std::string& key, std::int64_t create_revision) {
    return !r.kvs.empty() && r.kvs.front().key == key &&
           (create_revision == 0 || r.kvs.front().create_revision == create_revision);
}

} // namespace answers

/// Whether a key that we hold a lock by is gone for certain. A member that has stalled may show the
/// store as it was before the key was put, which says nothing.
inline bool is_gone(const txn_response& response,
                    const range_response& read,
                    const std::string& key,
                    std::int64_t create_revision) {
    return response.header.revision >= create_revision &&
           !answers::holds(read, key, create_revision);
}

/// What the answer to `enter` means.
inline standing after_enter(const txn_response& response, const lock_keys& keys) {
    standing result;
    if (!response.succeeded) {
        // An earlier attempt of the same request was applied, or void from the start.
        const range_response& own = answers::range_at(response, 0);
        if (answers::holds(own, keys.key, 0)) {
            result.at = standing::place::queued;
            result.create_revision = answers::require_revision(own.kvs.front().create_revision);
        }
        return result;
    }
    result.at = standing::place::owner;
    for (const key_value& kv : answers::range_at(response, 1).kvs) {
        if (kv.key == keys.key) {
            result.create_revision = kv.create_revision;
        } else {
            result.at = standing::place::behind;
            result.ahead = {kv.key, kv.create_revision};
        }
    }
    (void)answers::require_revision(result.create_revision);
    return result;
}

/// What the answer to `enter_if_free` means: `owner`, or `gone` if the lock was not free.
inline standing after_enter_if_free(const txn_response& response, const lock_keys& keys) {
    standing result;
    if (response.succeeded) {
        result.at = standing::place::owner;
        result.create_revision = answers::require_revision(response.header.revision);
    } else {
        const range_response& own = answers::range_at(response, 0);
        if (answers::holds(own, keys.key, 0)) { // by an earlier attempt: then nobody was before it
            result.at = standing::place::owner;
            result.create_revision = answers::require_revision(own.kvs.front().create_revision);
        }
    }
    return result;
}

/// What the answer to `confirm` means.
inline standing
after_confirm(const txn_response& response, const lock_keys& keys, std::int64_t create_revision) {
    standing result;
    if (response.succeeded) {
        result.at = standing::place::owner;
    } else if (!answers::holds(answers::range_at(response, 0), keys.key, create_revision)) {
        return result;
    } else if (const auto& older = answers::range_at(response, 1); older.kvs.empty()) {
        result.at = standing::place::queued;
    } else {
        result.at = standing::place::behind;
        result.ahead = {older.kvs.front().key, older.kvs.front().create_revision};
    }
    result.create_revision = create_revision;
    return result;
}

/// Whether the answer to `look` calls for a `confirm`: the key ahead is gone, or ours is.
inline bool has_moved(const txn_response& response,
                      const lock_keys& keys,
                      std::int64_t create_revision,
                      const predecessor& ahead) {
    return !answers::holds(answers::range_at(response, 0), keys.key, create_revision) ||
           !answers::holds(answers::range_at(response, 1), ahead.key, ahead.create_revision);
}

} // namespace coetcd::detail::logic
