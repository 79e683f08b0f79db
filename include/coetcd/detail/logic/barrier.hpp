// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

/// A barrier: a key that is there while it is closed, as in Go's recipes.
namespace coetcd::detail::logic {

/// Closes it, unless it is closed.
/// @param lease 0: it stays closed until somebody opens it.
inline txn close_barrier(const std::string& name, lease_id lease) {
    put_options how;
    how.lease = lease;
    return txn().when(compare::create_revision(name) == 0).then(op::put(name, std::string(), how));
}

/// Which life of the key there is; 0 if there is none.
inline std::int64_t life_in(const range_response& read) {
    return read.kvs.empty() ? 0 : answers::require_revision(read.kvs.front().create_revision);
}

/// Opens a barrier that was seen closed. A copy that comes late does nothing to one that was closed
/// anew.
inline txn open_barrier(const std::string& name, std::int64_t seen) {
    return txn().when(compare::create_revision(name) == seen).then(op::erase(name));
}

/// Which life of the key there is now; 0: the barrier is open.
inline question<std::int64_t> barrier_now(const std::string& title, const std::string& name) {
    const key_range key(name);
    const auto follow = [](const std::int64_t&, const event& e) {
        const bool put = e.type == event_type::put;
        return std::optional<std::int64_t>(put ? e.kv.create_revision : 0);
    };
    return {title + ", wait",
            range_request(key, transactions::keys_only()),
            wire::watch_create_request(key),
            life_in,
            follow};
}

/// Tells whether a waiter may pass: the barrier is open, or it was open in between, since it is
/// closed by another life of the key than at first.
class barrier_watcher {
public:
    bool may_pass(std::int64_t life) {
        if (!first_) {
            first_ = life;
        }
        return life == 0 || life != *first_;
    }

private:
    std::optional<std::int64_t> first_;
};

} // namespace coetcd::detail::logic
