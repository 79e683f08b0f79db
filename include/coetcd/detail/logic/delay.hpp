// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

/// Places whose owners leave notes, so that there is a delay after an owner that has vanished.
namespace coetcd::detail::logic {

/// Puts our note in place of another one that nobody has changed since it was read. That read
/// proved that nobody is before us, and that stays so.
inline txn replace_note(const attempt_keys& a, std::int64_t create_revision, std::int64_t seen) {
    txn t;
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            t.compares.push_back(compare::create_revision(key) == create_revision);
            t.failure.push_back(op::range(key, transactions::keys_only()));
        }
        if (!c.note_key.empty()) {
            t.compares.push_back(compare::mod_revision(c.note_key) == seen);
            t.success.push_back(op::put(c.note_key, c.keys.front()));
        }
    }
    return t;
}

/// Reads our key and the note, while waiting for the note's time to be over.
inline txn look_at_note(const attempt_keys& a) {
    const name_keys& c = a.by_name.front();
    return txn()
        .then(op::range(c.keys.front(), transactions::keys_only()))
        .then(op::range(c.note_key, transactions::keys_only()));
}

/// Whether the wait is over early: our key is gone, or the note has changed. An older answer says
/// nothing.
inline bool has_note_moved(const txn_response& response,
                           const attempt_keys& a,
                           std::int64_t create_revision,
                           std::int64_t seen) {
    const name_keys& c = a.by_name.front();
    if (is_gone(response.header, answers::range_at(response, 0), c.keys.front(), create_revision)) {
        return true;
    }
    const range_response& note = answers::range_at(response, 1);
    const bool same = !note.kvs.empty() && note.kvs.front().mod_revision == seen;
    return response.header.revision >= std::max(seen, create_revision) && !same;
}

/// What the answer to `replace_note` means: `owner`, `gone`, or `queued` if the note has changed.
inline standing after_replacing_note(const txn_response& response,
                                     const attempt_keys& a,
                                     std::int64_t create_revision) {
    standing result;
    result.create_revision = create_revision;
    result.at = response.succeeded ? standing::where::owner : standing::where::queued;
    std::size_t at = 0;
    for (const name_keys& c : a.by_name) {
        for (const std::string& key : c.keys) {
            if (!response.succeeded &&
                !answers::holds(answers::range_at(response, at++), key, create_revision)) {
                result.at = standing::where::gone;
            }
        }
    }
    return result;
}

} // namespace coetcd::detail::logic
