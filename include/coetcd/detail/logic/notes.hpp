// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Notes that owners leave if their successors are to wait for a while after an owner has vanished.
///
/// A note is a key without a lease whose value is the key of the owner's place. The request that
/// proves ownership puts it, if there is none; the request that gives ownership back erases it. So
/// a note that is there although nobody is before us was left by an owner that has vanished. A
/// waiter that has waited long enough replaces it with its own, if nobody has changed it since.
///
/// The revision of a note tells whether it belongs to a place or was left by an earlier life of the
/// same key: a place's note was put with the place, or after it. Notes neither prove nor give
/// ownership: if one is lost, or deleted by hand, a delay is skipped.
namespace coetcd::detail::logic::notes {

inline std::string key_of(const std::string& name) {
    return name + ".own";
}

/// Puts a note if there is none, otherwise reads it. All conditions of a request, including those
/// of nested transactions, see the store as it was before.
/// @param first The condition that nobody is before us.
inline void
leave(const std::string& note_key, const std::string& key, compare first, std::vector<op>& out) {
    if (note_key.empty()) {
        return;
    }
    txn note;
    note.compares.push_back(std::move(first));
    note.compares.push_back(compare::create_revision(note_key) == 0);
    note.success.push_back(op::put(note_key, key));
    note.failure.push_back(op::range(note_key));
    out.push_back(op::nested(std::move(note)));
}

/// Erases a note, if it is that of this place.
/// @param create_revision That of our key; 0 if it is not known.
inline void drop(const std::string& note_key,
                 const std::string& key,
                 std::int64_t create_revision,
                 std::vector<op>& out) {
    if (note_key.empty()) {
        return;
    }
    txn note;
    note.compares.push_back(compare::value(note_key) == key);
    if (create_revision != 0) { // else an earlier life of the key may have left it
        note.compares.push_back(compare::mod_revision(note_key) > create_revision - 1);
    }
    note.success.push_back(op::erase(note_key));
    out.push_back(op::nested(std::move(note)));
}

/// The revision of a note that is not ours; 0 if ours is there, or we do not know.
/// @param index That of the answer to `leave`.
/// @param create_revision That of our key.
/// @returns Nothing if there is no note at all: somebody was before us, and the same request has
///   ended that place.
inline std::optional<std::int64_t> left_by_others(const txn_response& response,
                                                  std::size_t index,
                                                  const std::string& key,
                                                  std::int64_t create_revision) {
    const auto* note = index < response.responses.size()
                           ? std::get_if<txn_response>(&response.responses[index])
                           : nullptr;
    const range_response* read = nullptr;
    if (note && !note->succeeded && !note->responses.empty()) {
        read = std::get_if<range_response>(&note->responses.front());
    }
    if (!note || (!note->succeeded && !read)) {
        throw error(errc::protocol_error, "txn: the answer lacks a part that was asked for");
    }
    if (note->succeeded) {
        return 0;
    }
    if (read->kvs.empty()) {
        return std::nullopt;
    }
    const key_value& left = read->kvs.front();
    const bool ours = left.value == key && left.mod_revision >= create_revision;
    return ours ? 0 : std::max<std::int64_t>(left.mod_revision, 0);
}

} // namespace coetcd::detail::logic::notes
