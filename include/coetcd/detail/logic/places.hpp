// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/notes.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Places in queues that etcd keeps: the transactions, and what their answers mean. The owner is
/// the oldest key, by create_revision, as in the Go client and in `etcdctl lock`.
///
/// A key is used again, one life after the other: etcd's index keeps every key that ever existed.
/// Requests of an earlier life that may still be under way are made void by the *epoch*: the
/// mod_revision of a key that is put when the outcome of a request was in doubt, and 0 before that.
/// Each request that puts a key compares the epoch.
namespace coetcd::detail::logic {

namespace transactions {

inline range_options keys_only() {
    range_options how;
    how.keys_only = true;
    return how;
}

inline range_options newest(std::size_t most = 1) {
    range_options how = keys_only();
    how.limit = static_cast<std::int64_t>(most);
    how.order = sort_order::descend;
    how.target = sort_target::create;
    return how;
}

/// Whether the ends of all keys before ours prove that we own. Where an owner leaves a note, it has
/// to ask once more.
inline bool ends_are_enough(const name_keys& c) {
    return c.note_key.empty();
}
/// How many of the keys before ours are waited for: as many as two places like ours have, if they
/// are not too many for one `look`.
inline std::size_t most_ahead(const name_keys& c, const attempt_keys& a) {
    if (!ends_are_enough(c)) {
        return 1;
    }
    return a.by_name.size() == 1 ? 2 * c.keys.size() : 2;
}
/// Reads them, and whether there are more.
inline range_options ahead(const name_keys& c, const attempt_keys& a) {
    return newest(most_ahead(c, a) + (ends_are_enough(c) ? 1 : 0));
}

inline compare epoch_holds(const name_keys& c) {
    return compare::mod_revision(c.epoch_key) == c.epoch;
}

inline void put_all(const attempt_keys& a, const std::string& label, std::vector<op>& out) {
    put_options with_lease;
    with_lease.lease = a.lease;
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            out.push_back(op::put(key, label, with_lease));
        }
    }
}

/// Reads what explains why a request was refused: our keys, and the epochs.
inline void ask_all(const attempt_keys& a, std::vector<op>& out) {
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            out.push_back(op::range(key, keys_only()));
        }
        out.push_back(op::range(c.epoch_key, keys_only()));
    }
}

/// All keys that may be there: those that the attempt began with, and later ones.
inline std::vector<held_life> all_keys(const name_keys& c, std::int64_t create_revision) {
    std::vector<held_life> all;
    for (const std::string& key : c.keys) {
        all.push_back({key, create_revision});
    }
    all.insert(all.end(), c.later.begin(), c.later.end());
    return all;
}

inline void erase_keys(const name_keys& c, erase_options how, std::vector<op>& out) {
    for (const held_life& k : all_keys(c, 0)) {
        out.push_back(op::erase(k.key, how));
    }
}

inline void ask_end(const name_keys& c, std::vector<op>& out) {
    out.push_back(op::range(c.epoch_key, keys_only()));
    for (const held_life& k : all_keys(c, 0)) {
        out.push_back(op::range(k.key, keys_only()));
    }
}

inline bool covers(const key_range& prefix, const std::string& key) {
    return prefix.key <= key && key < prefix.range_end;
}

} // namespace transactions

/// Takes a place, and tells who is before us. The read comes first, and so sees only others.
inline txn enter(const attempt_keys& a, const std::string& label) {
    txn t;
    for (const name_keys& c : a.by_name) {
        t.compares.push_back(transactions::epoch_holds(c));
        for (const std::string& key : c.keys) {
            t.compares.push_back(compare::create_revision(key) == 0);
        }
        t.success.push_back(op::range(c.before, transactions::ahead(c, a)));
    }
    transactions::put_all(a, label, t.success);
    for (const name_keys& c : a.by_name) {
        notes::leave(
            c.note_key, c.keys.front(), compare::create_revision(c.before) == 0, t.success);
    }
    transactions::ask_all(a, t.failure);
    return t;
}

/// Takes a place if nobody is before it, and no vanished owner has left a note.
inline txn take(const attempt_keys& a, const std::string& label) {
    txn t;
    for (const name_keys& c : a.by_name) {
        t.compares.push_back(transactions::epoch_holds(c));
        t.compares.push_back(compare::create_revision(c.before) == 0);
        for (const std::string& key : c.keys) {
            if (!transactions::covers(c.before, key)) { // an earlier copy may have put it
                t.compares.push_back(compare::create_revision(key) == 0);
            }
        }
        if (!c.note_key.empty()) {
            t.compares.push_back(compare::create_revision(c.note_key) == 0);
        }
    }
    transactions::put_all(a, label, t.success);
    for (const name_keys& c : a.by_name) {
        if (!c.note_key.empty()) {
            t.success.push_back(op::put(c.note_key, c.keys.front()));
        }
    }
    transactions::ask_all(a, t.failure);
    return t;
}

/// Tells who is still before us. It changes nothing, but erases a key that does not
/// exist, and so goes through consensus like a write: a member that has stalled cannot answer from
/// memory.
inline txn confirm(const attempt_keys& a, std::int64_t create_revision) {
    txn t;
    t.success.push_back(op::erase(a.by_name.front().void_key));
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            t.compares.push_back(compare::create_revision(key) == create_revision);
        }
        range_options older = transactions::ahead(c, a);
        older.max_create_revision = create_revision - 1;
        t.success.push_back(op::range(c.before, older));
    }
    for (const name_keys& c : a.by_name) {
        compare nobody_older = compare::create_revision(c.before) > create_revision - 1;
        notes::leave(c.note_key, c.keys.front(), std::move(nobody_older), t.success);
    }
    return t;
}

/// Gives up a place. We know its life, and no request that could put it is under way. While the
/// keys that it began with live, the attempt lives, and everything else in its slot is its own.
inline txn release(const name_keys& c, std::int64_t create_revision) {
    txn t;
    for (const std::string& key : c.keys) {
        t.compares.push_back(compare::create_revision(key) == create_revision);
    }
    transactions::erase_keys(c, {}, t.success);
    notes::drop(c.note_key, c.keys.front(), create_revision, t.success);
    transactions::ask_end(c, t.failure);
    return t;
}

/// Gives up a place, and makes void what may still be under way, by another epoch.
/// @param create_revision The life that we know of; 0 for none.
inline txn end(const name_keys& c, lease_id lease, std::int64_t create_revision = 0) {
    put_options with_lease;
    with_lease.lease = lease;
    erase_options what_was;
    what_was.prev_kv = true; // it erases any life
    txn t;
    t.compares.push_back(transactions::epoch_holds(c));
    transactions::erase_keys(c, what_was, t.success);
    t.success.push_back(op::put(c.epoch_key, "", with_lease));
    notes::drop(c.note_key, c.keys.front(), create_revision, t.success);
    transactions::ask_end(c, t.failure);
    return t;
}

/// Gives up a place when nothing can be put for lack of space. What is under way is not void.
inline txn erase_only(const name_keys& c, std::int64_t create_revision = 0) {
    txn t;
    t.compares.push_back(transactions::epoch_holds(c));
    transactions::erase_keys(c, {}, t.success);
    notes::drop(c.note_key, c.keys.front(), create_revision, t.success);
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

/// The answer to one erase.
inline const erase_response& erase_at(const txn_response& response, std::size_t index) {
    const auto* found = index < response.responses.size()
                            ? std::get_if<erase_response>(&response.responses[index])
                            : nullptr;
    if (!found) {
        throw error(errc::protocol_error, "txn: the answer lacks an erase that was asked for");
    }
    return *found;
}

inline bool holds(const range_response& r, const std::string& key, std::int64_t create_revision) {
    return !r.kvs.empty() && r.kvs.front().key == key &&
           (create_revision == 0 || r.kvs.front().create_revision == create_revision);
}

/// Whether an erase ended our life of a key.
inline bool erased_life(const erase_response& r, std::int64_t create_revision, bool told) {
    return told ? std::any_of(
                      r.prev_kvs.begin(),
                      r.prev_kvs.end(),
                      [&](const key_value& kv) { return kv.create_revision == create_revision; })
                : r.deleted > 0;
}

/// The epoch that a read of its key tells: 0 if there is none.
inline std::int64_t epoch_of(const range_response& r, const std::string& key) {
    return holds(r, key, 0) ? require_revision(r.kvs.front().mod_revision) : 0;
}

/// Why a request to enter or to take was refused.
inline standing why_refused(const txn_response& response, const attempt_keys& a) {
    standing result;
    std::size_t at = 0;
    bool all = true;
    bool any = false;
    bool moved = false;
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            const range_response& own = range_at(response, at++);
            any = any || holds(own, key, 0);
            if (!holds(own, key, 0)) {
                all = false;
            } else if (result.create_revision == 0) {
                result.create_revision = require_revision(own.kvs.front().create_revision);
            } else if (result.create_revision != own.kvs.front().create_revision) {
                all = false; // one was deleted by hand, and put again by somebody else
            }
        }
        const std::int64_t now = epoch_of(range_at(response, at++), c.epoch_key);
        moved = moved || (now != c.epoch && now != 0);
        result.epochs.push_back(now == 0 ? c.epoch : now);
    }
    if (all) {
        result.at = standing::where::queued; // by an earlier copy of the same request
        result.epochs.clear();
        return result;
    }
    result.at = moved ? standing::where::ended : standing::where::gone;
    result.create_revision = 0;
    result.partly = any;
    return result;
}

/// Who is before us.
/// @param index That of the answer for the first name.
inline void
tell_ahead(standing& now, const txn_response& response, const attempt_keys& a, std::size_t index) {
    for (const name_keys& c : a.by_name) {
        const range_response& told = range_at(response, index++);
        const std::size_t most = transactions::most_ahead(c, a);
        keys_ahead all;
        for (const key_value& kv : told.kvs) {
            now.at = standing::where::behind;
            if (all.newest.size() != most) {
                all.newest.push_back({kv.key, require_revision(kv.create_revision)});
            }
        }
        all.complete = transactions::ends_are_enough(c) && told.kvs.size() <= most && !told.more;
        now.ahead.push_back(std::move(all));
    }
}

/// Makes an attempt that would own wait, if a note is not its own, or prove ownership once more, if
/// it has left no note.
/// @param index That of the first answer about notes.
inline void
heed_notes(standing& now, const txn_response& response, const attempt_keys& a, std::size_t index) {
    for (const name_keys& c : a.by_name) {
        if (!c.note_key.empty()) {
            const std::optional<std::int64_t> left =
                notes::left_by_others(response, index++, c.keys.front(), now.create_revision);
            if (now.at == standing::where::owner && !left) {
                now.at = standing::where::queued;
            } else if (now.at == standing::where::owner && *left != 0) {
                now.at = standing::where::delayed;
                now.note = *left;
            }
        }
    }
}

} // namespace answers

/// Whether a key by which we hold something is certainly gone. A member that has stalled may show
/// the store as it was before the key was put, which says nothing.
inline bool is_gone(const response_header& header,
                    const range_response& read,
                    const std::string& key,
                    std::int64_t create_revision) {
    return header.revision >= create_revision && !answers::holds(read, key, create_revision);
}

/// What the answer to `enter` means. If the request was refused, the answer tells why.
inline standing after_enter(const txn_response& response, const attempt_keys& a) {
    if (!response.succeeded) {
        return answers::why_refused(response, a);
    }
    standing result;
    result.at = standing::where::owner;
    result.create_revision = answers::require_revision(response.header.revision);
    std::size_t at = a.by_name.size();
    answers::tell_ahead(result, response, a, 0);
    for (const name_keys& c : a.by_name) {
        at += c.keys.size();
    }
    answers::heed_notes(result, response, a, at);
    return result;
}

/// What the answer to `take` means: `owner`, `taken`, `ended`, or `gone` if only some of our keys
/// are there.
inline standing after_take(const txn_response& response, const attempt_keys& a) {
    if (response.succeeded) {
        standing result;
        result.at = standing::where::owner;
        result.create_revision = answers::require_revision(response.header.revision);
        return result;
    }
    if (response.responses.empty()) { // the request did not ask why
        standing result;
        result.at = standing::where::taken;
        return result;
    }
    standing result = answers::why_refused(response, a);
    if (result.at == standing::where::queued) {
        result.at = standing::where::owner; // it was put by an earlier copy: nobody was before it
    } else if (result.at == standing::where::gone && !result.partly) {
        result.at = standing::where::taken;
    }
    return result;
}

/// What the answer to `confirm` means.
inline standing
after_confirm(const txn_response& response, const attempt_keys& a, std::int64_t create_revision) {
    standing result;
    if (!response.succeeded) {
        return result;
    }
    result.at = standing::where::owner;
    result.create_revision = create_revision;
    answers::tell_ahead(result, response, a, 1);
    answers::heed_notes(result, response, a, a.by_name.size() + 1);
    return result;
}

/// How far a place is given up.
struct left_place {
    bool over = false;      ///< None of our keys is there, and none can come.
    bool was_there = false; ///< All keys that we counted on were deleted now.
    std::int64_t epoch = 0; ///< The one that counts now.
};

/// What the answer to `release` or `end` means.
/// @param create_revision That of our keys; 0 if we do not know them.
/// @param bumps The request was `end`.
inline left_place after_leaving(const txn_response& response,
                                const name_keys& c,
                                std::int64_t create_revision,
                                bool bumps) {
    left_place result;
    const std::vector<held_life> all = transactions::all_keys(c, create_revision);
    if (response.succeeded) {
        result.over = true;
        result.was_there = true;
        for (std::size_t i = 0; i != all.size(); ++i) {
            const bool counted_on = i < c.keys.size() || all[i].create_revision != 0;
            const erase_response& erased = answers::erase_at(response, i);
            result.was_there =
                result.was_there &&
                (!counted_on || answers::erased_life(erased, all[i].create_revision, bumps));
        }
        result.epoch = bumps ? answers::require_revision(response.header.revision) : c.epoch;
        return result;
    }
    result.epoch = answers::epoch_of(answers::range_at(response, 0), c.epoch_key);
    // An epoch that is gone was deleted by hand, and is put anew.
    result.over = result.epoch != 0 || (!bumps && c.epoch == 0);
    for (std::size_t i = 0; i != all.size(); ++i) {
        if (answers::holds(answers::range_at(response, i + 1), all[i].key, 0)) {
            result.over = false;
        }
    }
    return result;
}

} // namespace coetcd::detail::logic
