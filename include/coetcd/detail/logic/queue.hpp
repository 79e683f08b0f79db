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
#include <string>
#include <utility>
#include <vector>

/// Queues of values: the keys, the transactions, and what their answers mean. The first item is the
/// first key of a range.
///
/// All keys that begin with the name are items, since Go's `Queue` takes them for that. So the keys
/// that are none are *beside* it: they do not begin with the name.
namespace coetcd::detail::logic::queue {

/// What the keys of a queue begin with that are no items: the name, with one more character before
/// its last part. Whoever may use the keys below a folder may use both.
inline std::string beside(std::string name) {
    const std::size_t slash = name.size() < 2 ? name.npos : name.rfind('/', name.size() - 2);
    const std::size_t at = slash == name.npos ? 0 : slash + 1;
    name.insert(at, 1, name[at] == '.' ? '_' : '.');
    return name;
}

enum class order { arrival, priority };

/// The keys of a queue.
struct layout {
    std::string name;
    order by;

    std::string items() const { return name + "/"; }
    /// Where an item is put back that was taken for a caller that had gone: before all others.
    std::string returned() const { return items() + "!"; }
    std::string of_priority(std::uint16_t p) const { return items() + sortable(p, 4) + "/"; }
};

/// An item as it was read.
struct item {
    std::string key;
    std::string value;
    std::int64_t mod_revision = 0;
    std::int64_t as_of = 0; ///< The revision at which it was the first, if it was.
};

inline item to_item(const layout& of, const key_value& kv) {
    if (!kv.key.starts_with(of.items())) {
        throw error(errc::protocol_error, "range: the answer has a key that was not asked for");
    }
    return {kv.key, kv.value, answers::require_revision(kv.mod_revision), 0};
}

/// How many revisions an item may be ordered before another one that came earlier.
inline constexpr std::int64_t nearby = 32;

/// True if no item with that prefix is ordered far after what is appended at that revision. A
/// request to append may arrive late. Items of Go's are later in any case.
inline compare nothing_far_after(const std::string& prefix, std::int64_t revision) {
    const auto far = static_cast<std::uint64_t>(revision + nearby);
    return compare::create_revision(key_range(prefix + sortable(far), prefix + "1")) == 0;
}

/// Appends items.
/// @param prefix What their keys begin with.
/// @param all See `order_of`.
/// @param only_if `nothing_from`, `nothing_far_after`, or nothing.
inline txn append(const std::string& prefix,
                  const std::string& all,
                  const std::vector<std::string>& values,
                  const std::optional<compare>& only_if) {
    txn t;
    if (only_if) {
        t.when(*only_if);
    }
    for (std::size_t i = 0; i != values.size(); ++i) {
        t.then(op::put(prefix + order_of(all, i), values[i]));
    }
    return t;
}

/// Where to look for the first item, besides those that were put back.
struct scope {
    key_range range;
    bool complete = true; ///< If nothing is there, the queue is empty.
};
inline scope everything(const layout& of) {
    return {key_range::prefix(of.items()), true};
}
/// Only what is near an item that was there, before it or after it. etcd walks over each key of a
/// range that is there, or was since the last compaction, whatever the limit.
inline scope after_item(const layout& of, const item& what) {
    constexpr std::size_t digits = 16;
    constexpr auto revisions = static_cast<std::uint64_t>(nearby);
    const std::string id = what.key.substr(of.items().size());
    std::uint64_t revision = 0;
    const char* const end = id.data() + std::min(id.size(), digits);
    const auto [stop, failure] = std::from_chars(id.data(), end, revision, 16);
    if (of.by == order::priority || failure != std::errc() || stop != id.data() + digits) {
        return everything(of); // one of higher priority, or one that was put back, or Go's
    }
    const std::uint64_t from = revision - std::min(revision, revisions);
    return {key_range(of.items() + sortable(from), of.items() + sortable(revision + revisions)),
            false};
}

/// Reads the first item.
inline std::vector<op> ask_first(const layout& of, const scope& where) {
    range_options one;
    one.limit = 1;
    return {op::range(key_range::prefix(of.returned()), one), op::range(where.range, one)};
}
/// Which item is the first, as an answer tells.
struct next_item {
    std::optional<item> first;
    bool is_known = false; ///< If there is none, the queue is empty.
};
/// @param at The index of the first answer.
inline next_item
first_in(const layout& of, const scope& where, const txn_response& read, std::size_t at) {
    next_item next;
    for (const std::size_t i : {at, at + 1}) {
        const range_response& found = answers::range_at(read, i);
        if (!next.first && !found.kvs.empty()) {
            next.first = to_item(of, found.kvs.front());
            next.first->as_of = read.header.revision;
        }
    }
    next.is_known = next.first || where.complete;
    return next;
}

/// Takes an item, if it is still there; to be written once. In either case, reads what is near it
/// then.
inline txn take(const layout& of, const item& what) {
    const scope next = after_item(of, what);
    return txn()
        .when(compare::mod_revision(what.key) == what.mod_revision)
        .then(op::erase(what.key), ask_first(of, next))
        .otherwise(ask_first(of, next));
}
/// Which item is the first after `take`. If its item had gone, the queue may have been empty since,
/// and an item of any order may have come: only one that was there already is known to be the
/// first.
inline next_item after_take(const layout& of, const item& what, const txn_response& said) {
    const scope where = after_item(of, what);
    next_item next = first_in(of, where, said, said.succeeded ? 1 : 0);
    if (!said.succeeded && !where.complete && next.first &&
        !next.first->key.starts_with(of.returned()) && next.first->mod_revision > what.as_of) {
        next = {};
    }
    return next;
}

/// Puts an item back that was taken; to be written once.
inline txn put_back(const layout& of, const item& what) {
    std::string key = what.key;
    if (of.by == order::arrival && !key.starts_with(of.returned())) {
        key.insert(of.items().size(), 1, '!');
    }
    return txn().when(compare::create_revision(key) == 0).then(op::put(key, what.value));
}

/// What events tell a consumer that waits for an item.
class signs {
public:
    explicit signs(layout of)
        : of_(std::move(of)) {}

    /// @returns Whether there may be an item.
    bool heed(const std::vector<event>& events) {
        bool any = false;
        for (const event& e : events) {
            if (e.type == event_type::put) {
                any = true;
                newest_ = std::max(newest_, e.kv.mod_revision);
                item one = to_item(of_, e.kv);
                one.as_of = one.mod_revision;
                if (!first_ || one.key < first_->key) {
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
    const layout of_;
    std::optional<item> first_;
    std::int64_t newest_ = 0;
};

} // namespace coetcd::detail::logic::queue
