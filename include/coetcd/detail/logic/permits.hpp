// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/permit_entry.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Permits of a semaphore: where they are kept, and how they are counted. `permit_rule` tells how
/// to get them.
namespace coetcd::detail::logic {

inline constexpr std::size_t permit_bits = 16;
inline constexpr std::int64_t most_permits = (std::int64_t{1} << permit_bits) - 1; ///< At once.
inline constexpr std::int64_t most_limit = std::int64_t{1} << 40; ///< So that all sums fit.

namespace permits {

inline std::string limit_key(const std::string& name) {
    return name + ".limit";
}
inline key_range all_waiting(const std::string& name) {
    return key_range::prefix(name + "/wait/");
}
inline key_range all_held(const std::string& name) {
    return key_range::prefix(name + "/hold/");
}
/// All who wait, and all who hold.
inline key_range all_attempts(const std::string& name) {
    return {name + "/hold/", name + "/wait0"};
}
/// The prefix of the keys of all permits that have this bit.
inline std::string held_prefix(const std::string& name, std::size_t bit) {
    constexpr std::string_view digits = "0123456789abcdef";
    return name + "/hold/0" + digits[bit] + "/";
}

/// Whose key this is: its id, and the weight that it stands for; 0 for a place in the queue.
struct key_of {
    std::string id;
    std::int64_t weight = 0;
};
inline std::optional<key_of> read_key(const std::string& name, const std::string& key) {
    const std::string waiting = name + "/wait/";
    if (key.starts_with(waiting)) {
        return key_of{key.substr(waiting.size()), 0};
    }
    for (std::size_t bit = 0; bit != permit_bits; ++bit) {
        const std::string held = held_prefix(name, bit);
        if (key.starts_with(held)) {
            return key_of{key.substr(held.size()), std::int64_t{1} << bit};
        }
    }
    return std::nullopt;
}

/// A number as it is stored: decimal, nothing else.
inline std::optional<std::int64_t> parse(std::string_view text) {
    std::int64_t value = 0;
    if (text.empty() || text.size() > 13) {
        return std::nullopt;
    }
    for (const char c : text) {
        if (c < '0' || c > '9') {
            return std::nullopt;
        }
        value = value * 10 + (c - '0');
    }
    return value <= most_limit ? std::optional(value) : std::nullopt;
}

} // namespace permits

/// The keys of a place in the queue of a semaphore. The attempt adds those of its permit.
inline name_keys permit_keys(const std::string& name,
                             lease_id lease,
                             std::uint64_t nonce,
                             std::uint64_t slot,
                             std::int64_t epoch) {
    name_keys c = exclusive_keys(name, lease, nonce, slot, epoch);
    c.before = permits::all_waiting(name);
    c.keys.front().insert(name.size(), "/wait");
    return c;
}

/// How many permits are taken, of how many.
struct room {
    std::int64_t used = 0;
    std::int64_t limit = 0;
    std::int64_t limit_revision = 0; ///< 0: none is stored.
    bool has_limit = false;          ///< One is stored, or its user brings one.
};

namespace permits {

/// `ask_room` asks for `room`, by this many reads.
inline constexpr std::size_t room_reads = permit_bits + 1;
inline void ask_room(const std::string& name, std::vector<op>& out) {
    range_options how_many;
    how_many.count_only = true;
    for (std::size_t bit = 0; bit != permit_bits; ++bit) {
        out.push_back(op::range(key_range::prefix(held_prefix(name, bit)), how_many));
    }
    out.push_back(op::range(limit_key(name)));
}

/// The limit alone, as a read of its key tells it.
/// @param initial The limit where none is stored; if that is empty, there are no permits.
/// @throws error with `errc::wrong_kind` if what is stored is not a number.
inline room limit_in(const range_response& stored,
                     const std::string& name,
                     std::optional<std::int64_t> initial) {
    room result;
    result.limit = initial.value_or(0);
    result.has_limit = initial.has_value();
    if (!answers::holds(stored, limit_key(name), 0)) {
        return result;
    }
    const std::optional<std::int64_t> limit = parse(stored.kvs.front().value);
    if (!limit) {
        throw error(errc::wrong_kind,
                    "semaphore \"" + wire::printable(name) +
                        "\": its limit, as stored, is not a number from 0 to " +
                        std::to_string(most_limit));
    }
    result.limit = *limit;
    result.has_limit = true;
    result.limit_revision = answers::require_revision(stored.kvs.front().mod_revision);
    return result;
}

/// @param at Where the answers to `ask_room` begin.
/// @throws error with `errc::protocol_error` if they are no such answers; otherwise like
///   `limit_in`.
inline room room_in(const txn_response& response,
                    std::size_t at,
                    const std::string& name,
                    std::optional<std::int64_t> initial) {
    std::int64_t used = 0;
    for (std::size_t bit = 0; bit != permit_bits; ++bit) {
        const std::int64_t count = answers::range_at(response, at++).count;
        if (count < 0 || count > most_limit) {
            throw error(errc::protocol_error, "txn: the answer has a count that cannot be");
        }
        used += count << bit;
    }
    room all = limit_in(answers::range_at(response, at), name, initial);
    all.used = used;
    return all;
}

/// The life of keys that are put together, as reads of them tell it.
struct life {
    bool all = false;                 ///< All are there, as they were put.
    bool none = true;                 ///< None is.
    std::int64_t create_revision = 0; ///< If all are.
};
inline life
life_in(const txn_response& response, std::size_t at, const std::vector<std::string>& keys) {
    life result;
    result.all = true;
    for (const std::string& key : keys) {
        const range_response& read = answers::range_at(response, at++);
        if (!answers::holds(read, key, 0)) {
            result.all = false;
            continue;
        }
        result.none = false;
        const std::int64_t born = answers::require_revision(read.kvs.front().create_revision);
        result.all = result.all && (result.create_revision == 0 || result.create_revision == born);
        result.create_revision = born;
    }
    if (!result.all) {
        result.create_revision = 0;
    }
    return result;
}

inline void read_all(const std::vector<std::string>& keys, std::vector<op>& out) {
    for (const std::string& key : keys) {
        out.push_back(op::range(key, transactions::keys_only()));
    }
}
inline void
put_all(const std::vector<std::string>& keys, lease_id lease, const std::string& value, txn& t) {
    put_options with_lease;
    with_lease.lease = lease;
    for (const std::string& key : keys) {
        t.success.push_back(op::put(key, value, with_lease));
    }
}
inline void erase_all(const std::vector<std::string>& keys, txn& t) {
    for (const std::string& key : keys) {
        t.success.push_back(op::erase(key));
    }
}
inline void
require_life(const std::vector<std::string>& keys, std::int64_t create_revision, txn& t) {
    for (const std::string& key : keys) {
        t.compares.push_back(compare::create_revision(key) == create_revision);
    }
}

/// A change of the limit.
struct limit_change {
    bool relative = false;
    std::int64_t by = 0; ///< Or the limit itself, unless `relative`.
};

/// What a limit becomes; nothing if the result cannot be a limit, or if there is none to add to.
inline std::optional<std::int64_t> changed(const limit_change& how, const room& known) {
    if (!how.relative) {
        return how.by;
    }
    // Neither of these overflows: the limit is from 0 to `most_limit`.
    if (!known.has_limit || how.by > most_limit - known.limit || how.by < -known.limit) {
        return std::nullopt;
    }
    return known.limit + how.by;
}
inline constexpr const char* no_limit =
    "no limit is stored under this name; ensure_limit or set_limit stores one";
/// Why there is nothing that it becomes.
inline std::string why_not_changed(const room& known) {
    if (!known.has_limit) {
        return no_limit;
    }
    return "the limit is " + std::to_string(known.limit) + ", and can be from 0 to " +
           std::to_string(most_limit);
}

/// Stores a limit, if nobody has stored one since the one that is known.
inline txn store_limit(const std::string& name, const room& known, std::int64_t next) {
    const std::string key = limit_key(name);
    txn t;
    t.compares.push_back(compare::mod_revision(key) == known.limit_revision);
    t.success.push_back(op::put(key, std::to_string(next)));
    t.failure.push_back(op::range(key));
    return t;
}

/// Stores a limit if none is stored, and otherwise reads the one that is. A further copy reads what
/// the first has stored.
inline txn ensure_limit(const std::string& name, std::int64_t limit) {
    return store_limit(name, room(), limit);
}
/// The limit that is stored.
/// @param limit The one that was to be.
/// @throws error as `limit_in`.
inline std::int64_t
after_ensure(const txn_response& response, const std::string& name, std::int64_t limit) {
    if (response.succeeded) {
        return limit;
    }
    const room stored = limit_in(answers::range_at(response, 0), name, std::nullopt);
    if (!stored.has_limit) {
        throw error(errc::protocol_error, "txn: the answer contradicts itself");
    }
    return stored.limit;
}

/// Reads the state of a semaphore: its room, and how many wait.
inline txn ask_state(const std::string& name) {
    range_options how_many;
    how_many.count_only = true;
    txn t;
    ask_room(name, t.success);
    t.success.push_back(op::range(all_waiting(name), how_many));
    return t;
}
inline std::int64_t waiting_in(const txn_response& response) {
    return std::max<std::int64_t>(answers::range_at(response, room_reads).count, 0);
}

/// The owners of the permits that were read, oldest first.
inline std::vector<permit_entry> owners(std::vector<key_value> kvs, const std::string& name) {
    std::vector<permit_entry> all;
    std::map<std::string, std::size_t> known; // by id
    for (key_value& kv : kvs) {
        const std::optional<key_of> of = read_key(name, kv.key);
        if (!of || of->weight == 0) {
            continue;
        }
        const auto [found, added] = known.emplace(of->id, all.size());
        if (added) {
            all.push_back(
                {std::move(kv.key), std::move(kv.value), kv.lease, kv.create_revision, 0});
        }
        all[found->second].weight += of->weight;
    }
    std::stable_sort(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    return all;
}

/// What a place in the queue holds: the weight, a space, and the label.
inline std::string waiting_value(std::int64_t weight, const std::string& label) {
    return std::to_string(weight) + " " + label;
}
inline permit_entry waiter(key_value kv) {
    permit_entry w;
    const std::size_t space = kv.value.find(' ');
    w.weight = parse(std::string_view(kv.value).substr(0, space)).value_or(0);
    w.label = space == std::string::npos ? std::string() : kv.value.substr(space + 1);
    w.key = std::move(kv.key);
    w.lease = kv.lease;
    w.token = kv.create_revision;
    return w;
}

/// So many waiters at most count who is before them; those behind wait until one of them moves.
inline constexpr std::size_t most_counting = 16;
inline std::size_t counting(std::int64_t limit) {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(2 * limit - 1, 1, most_counting));
}

} // namespace permits

} // namespace coetcd::detail::logic
