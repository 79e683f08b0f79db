// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/item_order.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Queues of jobs: the keys, the transactions, and what their answers mean.
///
/// An item is at one of three places: ready, busy or dead. Its key there ends in
/// `<order>.<attempt>`. Each attempt has keys of its own, which are never put again: a request of
/// an earlier attempt that comes late finds nothing that it could change. While an item is busy, a
/// *claim*, a key with the lease of its consumer, says whose it is.
namespace coetcd::detail::logic::work {

inline std::string ready_keys(const std::string& name) {
    return name + "/ready/";
}
inline std::string busy_keys(const std::string& name) {
    return name + "/run/busy/";
}
inline std::string claim_keys(const std::string& name) {
    return name + "/run/claim/";
}
inline std::string dead_keys(const std::string& name) {
    return name + ".dead/";
}

/// What follows the prefix in a key of an item.
struct item_id {
    std::string order;
    int attempt = 1; ///< The first one is 1.

    std::string text() const { return order + "." + std::to_string(attempt); }
};

/// What somebody else has put is in its first attempt.
inline item_id split_id(const std::string& text) {
    const std::size_t dot = text.rfind('.');
    item_id id{text, 1};
    if (dot != std::string::npos && dot + 1 != text.size()) {
        const char* const end = text.data() + text.size();
        int attempt = 0;
        const auto [stop, failure] = std::from_chars(text.data() + dot + 1, end, attempt);
        if (failure == std::errc() && stop == end && attempt > 0) {
            id = {text.substr(0, dot), attempt};
        }
    }
    return id;
}

/// An item as it was read.
struct item {
    std::string id;
    std::string value;
    std::int64_t create_revision = 0; ///< Of its key there.
};

inline item to_item(const std::string& prefix, const key_value& kv) {
    if (!kv.key.starts_with(prefix)) {
        throw error(errc::protocol_error, "range: the answer has a key that was not asked for");
    }
    return {kv.key.substr(prefix.size()), kv.value, answers::require_revision(kv.create_revision)};
}

/// Appends items.
/// @param order See `order_of`.
/// @param if_last Only if no item is ordered after them, but for dead ones.
inline txn append(const std::string& name,
                  const std::string& order,
                  const std::vector<std::string>& values,
                  bool if_last) {
    txn t;
    if (if_last) {
        t.when(nothing_from(ready_keys(name), order), nothing_from(busy_keys(name), order));
    }
    for (std::size_t i = 0; i != values.size(); ++i) {
        const item_id id{order_of(order, i), 1};
        t.then(op::put(ready_keys(name) + id.text(), values[i]));
    }
    return t;
}

/// Reads the first item that is ready.
inline range_request ask_first(const std::string& name) {
    range_options one;
    one.limit = 1;
    return {key_range::prefix(ready_keys(name)), one};
}
inline std::optional<item> first_in(const std::string& name, const range_response& read) {
    std::optional<item> first;
    if (!read.kvs.empty()) {
        first = to_item(ready_keys(name), read.kvs.front());
    }
    return first;
}

/// Takes an item that is ready, if it is the first. In either case, reads which one is the first
/// then.
inline txn
claim(const std::string& name, const item& what, lease_id lease, const std::string& label) {
    const std::string key = ready_keys(name) + what.id;
    put_options with_lease;
    with_lease.lease = lease;
    return txn()
        .when(compare::create_revision(key) == what.create_revision,
              compare::create_revision(key_range(ready_keys(name), key)) == 0)
        .then(op::erase(key),
              op::put(busy_keys(name) + what.id, what.value),
              op::put(claim_keys(name) + what.id, label, with_lease),
              op(ask_first(name)))
        .otherwise(op(ask_first(name)));
}
/// Which item is the first, as the answer tells.
inline std::optional<item> first_after(const std::string& name, const txn_response& claimed) {
    return first_in(name, answers::range_at(claimed, claimed.succeeded ? 3 : 0));
}

/// Where an item goes whose attempt has failed.
inline op put_back(const std::string& name, const item& what, int most_attempts) {
    item_id id = split_id(what.id);
    if (id.attempt >= most_attempts) {
        return op::put(dead_keys(name) + what.id, what.value);
    }
    ++id.attempt;
    return op::put(ready_keys(name) + id.text(), what.value);
}
inline op put_to_dead(const std::string& name, const item& what) {
    return op::put(dead_keys(name) + what.id, what.value);
}

/// Ends an attempt, if its claim is there; otherwise reads the claim.
/// @param claimed The revision of the claim.
inline txn finish(const std::string& name, const std::string& id, std::int64_t claimed) {
    const std::string key = claim_keys(name) + id;
    return txn()
        .when(compare::create_revision(key) == claimed)
        .then(op::erase(key), op::erase(busy_keys(name) + id))
        .otherwise(op::range(key, transactions::keys_only()));
}
/// Whether a refused `finish` found the claim all the same: a condition of its user failed.
inline bool still_claimed(const std::string& name,
                          const std::string& id,
                          std::int64_t claimed,
                          const txn_response& refused) {
    return answers::holds(answers::range_at(refused, 0), claim_keys(name) + id, claimed);
}

/// @throws std::invalid_argument if it cannot be a part of `finish`.
inline void require_effect(const txn& with) {
    constexpr std::size_t most = 120;
    if (!with.failure.empty()) {
        throw std::invalid_argument("with: has operations for the case that its conditions fail");
    }
    if (with.compares.size() > most || with.success.size() > most) {
        throw std::invalid_argument("with: has more than 120 conditions or operations");
    }
}

/// Reads the first item, and what is busy with whom.
inline txn look(const std::string& name) {
    return txn().then(op(ask_first(name)),
                      op::range(key_range::prefix(busy_keys(name)), transactions::keys_only()),
                      op::range(key_range::prefix(claim_keys(name)), transactions::keys_only()));
}
/// Items that are busy without a claim: without their values.
inline std::vector<item> orphans_in(const std::string& name, const txn_response& looked) {
    std::set<std::string> claimed;
    for (const key_value& kv : answers::range_at(looked, 2).kvs) {
        claimed.insert(to_item(claim_keys(name), kv).id);
    }
    std::vector<item> orphans;
    for (const key_value& kv : answers::range_at(looked, 1).kvs) {
        item busy = to_item(busy_keys(name), kv);
        if (!claimed.contains(busy.id)) {
            orphans.push_back(std::move(busy));
        }
    }
    return orphans;
}
inline bool shows_work(const std::string& name, const txn_response& looked) {
    return !answers::range_at(looked, 0).kvs.empty() || !orphans_in(name, looked).empty();
}

/// Puts an orphan back. Sent twice, it changes nothing the second time.
inline txn reap(const std::string& name, const item& orphan, int most_attempts) {
    const std::string key = busy_keys(name) + orphan.id;
    return txn()
        .when(compare::create_revision(claim_keys(name) + orphan.id) == 0,
              compare::create_revision(key) == orphan.create_revision)
        .then(op::erase(key), put_back(name, orphan, most_attempts));
}

/// Erases a dead item.
inline txn erase_dead(const std::string& name, const std::string& id, std::int64_t revision) {
    const std::string key = dead_keys(name) + id;
    return txn().when(compare::create_revision(key) == revision).then(op::erase(key));
}

/// What events tell a consumer that waits for an item.
class signs {
public:
    explicit signs(const std::string& name)
        : ready_(ready_keys(name))
        , busy_(busy_keys(name))
        , claims_(claim_keys(name)) {}

    /// @returns Whether there may be something to do.
    bool heed(const std::vector<event>& events) {
        std::set<std::string_view> finished;
        for (const event& e : events) {
            if (e.type == event_type::erase && e.kv.key.starts_with(busy_)) {
                finished.insert(std::string_view(e.kv.key).substr(busy_.size()));
            }
        }
        bool any = false;
        for (const event& e : events) {
            const bool appended = e.type == event_type::put && e.kv.key.starts_with(ready_);
            // The end of an attempt erases both keys at once.
            const bool orphaned =
                e.type == event_type::erase && e.kv.key.starts_with(claims_) &&
                !finished.contains(std::string_view(e.kv.key).substr(claims_.size()));
            if (appended || orphaned) {
                any = true;
                newest_ = std::max(newest_, e.kv.mod_revision);
            }
            if (appended && (!first_ || e.kv.key < ready_ + first_->id)) {
                first_ = to_item(ready_, e.kv);
            }
        }
        return any;
    }
    /// The first of the items that events have told of since; perhaps it was taken meanwhile.
    std::optional<item> take_first() { return std::exchange(first_, std::nullopt); }
    /// Whether they have told of something after that revision.
    bool has_newer(std::int64_t revision) const { return newest_ > revision; }

private:
    const std::string ready_;
    const std::string busy_;
    const std::string claims_;
    std::optional<item> first_;
    std::int64_t newest_ = 0;
};

} // namespace coetcd::detail::logic::work
