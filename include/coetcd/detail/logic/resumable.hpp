// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// What an earlier object with the same lease has left in the queue of a mutex. That object is an
/// orphaned session, a session of a process that has died, or one of Go's client, which has one
/// key, `<name>/<lease>`.
namespace coetcd::detail::logic {

struct resumable_key {
    std::string id; ///< What follows the name and a slash.
    std::int64_t create_revision = 0;
    bool has_epoch = false; ///< A slot: late requests to put it compare an epoch. Go's do not.
};

/// Reads a queue, oldest first. With `keys_only`, etcd 3.7 leaves out the leases.
inline range_request whole_queue(const std::string& name, range_options how = {}) {
    how.order = sort_order::ascend;
    how.target = sort_target::create;
    return range_request(key_range::prefix(name + "/"), std::move(how));
}

/// Whether a key of this id is a slot of some session object with this lease.
inline bool is_slot(std::string_view id, lease_id lease) {
    return id.starts_with(hex(static_cast<std::uint64_t>(lease)) + "-");
}
/// Whether it is a slot of the session object with this nonce.
inline bool is_own_slot(std::string_view id, lease_id lease, std::uint64_t nonce) {
    return id.starts_with(hex(static_cast<std::uint64_t>(lease)) + "-" + hex(nonce) + "-");
}

/// @param queue As it was read, the oldest first.
/// @param nonce That of the session object that asks: slots with it are its own.
inline std::vector<resumable_key> resumable_of(const std::vector<key_value>& queue,
                                               const std::string& name,
                                               lease_id lease,
                                               std::uint64_t nonce) {
    const std::string of_lease = hex(static_cast<std::uint64_t>(lease));
    std::vector<resumable_key> result;
    for (const key_value& kv : queue) {
        const std::string_view id =
            std::string_view(kv.key).substr(std::min(kv.key.size(), name.size() + 1));
        const bool slot = is_slot(id, lease);
        const bool is_resumable = (slot && !is_own_slot(id, lease, nonce)) || id == of_lease;
        if (kv.lease != lease || !is_resumable || id.find('/') != id.npos) {
            continue;
        }
        result.push_back({std::string(id), kv.create_revision, slot});
    }
    return result;
}

inline name_keys resumable_keys(const std::string& name,
                                const std::string& id,
                                lease_id lease,
                                std::uint64_t nonce) {
    name_keys result = exclusive_keys(name, lease, nonce, 0, 0); // nobody ever puts its void key
    result.keys = {name + "/" + id};
    result.epoch_key = name + "." + id;
    return result;
}

/// Like `confirm`, but the key must have the lease, too.
inline txn confirm_resumed(const attempt_keys& a, std::int64_t create_revision) {
    txn t = confirm(a, create_revision);
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            t.compares.push_back(compare::lease(key) == a.lease);
        }
    }
    return t;
}

/// Gives up this life of a resumable key, and nothing else. With `bumps`, another epoch, which we
/// need not know, makes void what the first owner may still have under way to put the key again,
/// even if the key is gone already.
inline txn
end_resumed(const name_keys& c, lease_id lease, std::int64_t create_revision, bool bumps) {
    txn t = release(c, create_revision);
    if (bumps) {
        put_options with_lease;
        with_lease.lease = lease;
        t.compares.front() = compare::create_revision(c.keys.front()) < create_revision + 1;
        t.success.push_back(op::put(c.epoch_key, "", with_lease));
    }
    return t;
}

/// What the answer to `end_resumed` means: the place is over, whether it was there or not.
inline left_place after_ending_resumed(const txn_response& response) {
    left_place result;
    result.over = true;
    for (const op_response& r : response.responses) {
        const auto* erased = std::get_if<erase_response>(&r);
        result.was_there =
            result.was_there || (response.succeeded && erased && erased->deleted > 0);
    }
    return result;
}

} // namespace coetcd::detail::logic
