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
/// An item is at one of four places: ready, ready again, busy or dead. Its key there ends in
/// `<order>.<attempt>`. Each attempt has keys of its own, which are never put again: a request of
/// an earlier attempt that comes late finds nothing that it could change. While an item is busy, a
/// *claim*, a key with the lease of its consumer, says whose it is.
///
/// What was taken before and is ready again comes before what never was. It has a place of its own
/// so that no request has to look at all that is ready: etcd walks over each key of a range that is
/// there, or was since the last compaction, whatever the limit.
namespace coetcd::detail::logic::work {

inline std::string ready_keys(const std::string& name) {
    return name + "/ready/";
}
inline std::string again_keys(const std::string& name) {
    return name + "/again/";
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
    bool again = false;               ///< It is ready, and was taken before.
};

inline item to_item(const std::string& prefix, const key_value& kv, bool again = false) {
    if (!kv.key.starts_with(prefix)) {
        throw error(errc::protocol_error, "range: the answer has a key that was not asked for");
    }
    return {kv.key.substr(prefix.size()),
            kv.value,
            answers::require_revision(kv.create_revision),
            again};
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

inline std::string key_of(const std::string& name, const item& ready) {
    return (ready.again ? again_keys(name) : ready_keys(name)) + ready.id;
}

/// Where to look for the first item that is ready.
struct scope {
    key_range range;
    bool complete = true; ///< If nothing is there, nothing is ready.
};
inline scope everything(const std::string& name) {
    return {key_range::prefix(ready_keys(name)), true};
}
/// Only what follows an item soon.
inline scope after_item(const std::string& name, const item& what) {
    constexpr std::uint64_t revisions = 32;
    constexpr std::size_t digits = 16;
    std::uint64_t revision = 0;
    const char* const end = what.id.data() + std::min(what.id.size(), digits);
    const auto [stop, failure] = std::from_chars(what.id.data(), end, revision, 16);
    if (what.again || failure != std::errc() || stop != what.id.data() + digits) {
        return everything(name);
    }
    const std::string last = sortable(revision + revisions);
    return {key_range(ready_keys(name) + what.id, ready_keys(name) + last), false};
}

/// Reads the first item that is ready again, and the first of the others.
inline std::vector<op> ask_first(const std::string& name, const scope& of) {
    range_options one;
    one.limit = 1;
    return {op::range(key_range::prefix(again_keys(name)), one), op::range(of.range, one)};
}
/// @param at The index of the first answer.
inline std::optional<item>
first_in(const std::string& name, const txn_response& read, std::size_t at) {
    std::optional<item> first;
    const range_response& again = answers::range_at(read, at);
    const range_response& others = answers::range_at(read, at + 1);
    if (!again.kvs.empty()) {
        first = to_item(again_keys(name), again.kvs.front(), true);
    } else if (!others.kvs.empty()) {
        first = to_item(ready_keys(name), others.kvs.front());
    }
    return first;
}

/// Takes an item that is ready, unless one is before it that was taken before. In either case,
/// reads which one is the first then.
inline txn
claim(const std::string& name, const item& what, lease_id lease, const std::string& label) {
    const std::string key = key_of(name, what);
    const key_range before =
        what.again ? key_range(again_keys(name), key) : key_range::prefix(again_keys(name));
    const scope next = after_item(name, what);
    put_options with_lease;
    with_lease.lease = lease;
    return txn()
        .when(compare::create_revision(key) == what.create_revision,
              compare::create_revision(before) == 0)
        .then(op::erase(key),
              op::put(busy_keys(name) + what.id, what.value),
              op::put(claim_keys(name) + what.id, label, with_lease),
              ask_first(name, next))
        .otherwise(ask_first(name, next));
}
/// Which item is the first, as the answer tells.
struct next_item {
    std::optional<item> first;
    bool is_known = false; ///< If there is none, nothing is ready.
};
inline next_item
after_claim(const std::string& name, const item& what, const txn_response& claimed) {
    next_item next;
    next.first = first_in(name, claimed, claimed.succeeded ? 3 : 0);
    next.is_known = next.first || after_item(name, what).complete;
    return next;
}

/// Where an item goes whose attempt has failed.
inline op put_back(const std::string& name, const item& what, int most_attempts) {
    item_id id = split_id(what.id);
    if (id.attempt >= most_attempts) {
        return op::put(dead_keys(name) + what.id, what.value);
    }
    ++id.attempt;
    return op::put(again_keys(name) + id.text(), what.value);
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
    return txn().then(ask_first(name, everything(name)),
                      op::range(key_range::prefix(busy_keys(name)), transactions::keys_only()),
                      op::range(key_range::prefix(claim_keys(name)), transactions::keys_only()));
}
/// Items that are busy without a claim: without their values.
inline std::vector<item> orphans_in(const std::string& name, const txn_response& looked) {
    std::set<std::string> claimed;
    for (const key_value& kv : answers::range_at(looked, 3).kvs) {
        claimed.insert(to_item(claim_keys(name), kv).id);
    }
    std::vector<item> orphans;
    for (const key_value& kv : answers::range_at(looked, 2).kvs) {
        item busy = to_item(busy_keys(name), kv);
        if (!claimed.contains(busy.id)) {
            orphans.push_back(std::move(busy));
        }
    }
    return orphans;
}
inline bool shows_work(const std::string& name, const txn_response& looked) {
    return first_in(name, looked, 0).has_value() || !orphans_in(name, looked).empty();
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
        , again_(again_keys(name))
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
            const bool again = e.kv.key.starts_with(again_);
            const bool appended =
                e.type == event_type::put && (again || e.kv.key.starts_with(ready_));
            // The end of an attempt erases both keys at once.
            const bool orphaned =
                e.type == event_type::erase && e.kv.key.starts_with(claims_) &&
                !finished.contains(std::string_view(e.kv.key).substr(claims_.size()));
            if (appended || orphaned) {
                any = true;
                newest_ = std::max(newest_, e.kv.mod_revision);
            }
            if (appended) {
                item one = to_item(again ? again_ : ready_, e.kv, again);
                if (!first_ || std::pair(!again, one.id) < std::pair(!first_->again, first_->id)) {
                    first_ = std::move(one);
                }
            }
        }
        return any;
    }
    /// The first of the items that events have told of since; perhaps it was taken meanwhile.
    std::optional<item> take_first() { return std::exchange(first_, std::nullopt); }
    /// Whether they have told of something after that revision.
    bool has_newer(std::int64_t revision) const { return newest_ > revision; }
    std::int64_t newest() const { return newest_; }
    void forget() {
        first_.reset();
        newest_ = 0;
    }

private:
    const std::string ready_;
    const std::string again_;
    const std::string busy_;
    const std::string claims_;
    std::optional<item> first_;
    std::int64_t newest_ = 0;
};

} // namespace coetcd::detail::logic::work
