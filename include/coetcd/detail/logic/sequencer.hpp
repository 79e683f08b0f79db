// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/wire/base64.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

/// Sequencers: one ownership of a lock as a text, to be passed on and read by others.
///
///     coetcd1:<exclusive or shared>:<fencing token>:<key, in base64url without padding>
///
/// A sequencer comes from somebody else: only exactly what `write_sequencer` writes is accepted.
namespace coetcd::detail::logic {

struct sequencer {
    bool shared = false; ///< Others may hold the lock as well.
    std::int64_t token = 0;
    std::string key;
};

namespace sequencers {

inline constexpr std::string_view begin = "coetcd1:";
inline constexpr std::string_view exclusive = "exclusive";
inline constexpr std::string_view shared = "shared";
inline constexpr std::size_t longest = 1024;

inline std::string base64url(std::string_view bytes) {
    std::string text;
    wire::append_base64(text, bytes);
    while (text.ends_with('=')) {
        text.pop_back();
    }
    std::replace(text.begin(), text.end(), '+', '-');
    std::replace(text.begin(), text.end(), '/', '_');
    return text;
}

/// The text before the next colon. Both are removed from `text`. Nothing if there is no colon.
inline std::optional<std::string_view> field(std::string_view& text) {
    const std::size_t colon = text.find(':');
    if (colon == text.npos) {
        return std::nullopt;
    }
    const std::string_view found = text.substr(0, colon);
    text.remove_prefix(colon + 1);
    return found;
}

/// Whether a key has a name, a slash, and something after that.
inline bool is_in_a_queue(std::string_view key) {
    const std::size_t slash = key.rfind('/');
    return slash != key.npos && slash != 0 && slash + 1 != key.size();
}

} // namespace sequencers

inline std::string write_sequencer(const sequencer& s) {
    std::string text(sequencers::begin);
    text += s.shared ? sequencers::shared : sequencers::exclusive;
    text += ':' + std::to_string(s.token) + ':' + sequencers::base64url(s.key);
    return text;
}

/// @returns Nothing if `text` is no sequencer.
inline std::optional<sequencer> read_sequencer(std::string_view text) {
    const std::string_view all = text;
    if (text.size() > sequencers::longest || !text.starts_with(sequencers::begin)) {
        return std::nullopt;
    }
    text.remove_prefix(sequencers::begin.size());
    const auto mode = sequencers::field(text);
    const auto digits = sequencers::field(text);
    sequencer found;
    if (!mode || !digits || !wire::decode_base64(text, found.key)) {
        return std::nullopt;
    }
    found.shared = *mode == sequencers::shared;
    const char* const end = digits->data() + digits->size();
    const auto read = std::from_chars(digits->data(), end, found.token);
    if (read.ec != std::errc() || read.ptr != end || found.token <= 0 ||
        !sequencers::is_in_a_queue(found.key)) {
        return std::nullopt;
    }
    // There is one way to write it: no other word, no leading zero, no other alphabet, no padding.
    if (write_sequencer(found) != all) {
        return std::nullopt;
    }
    return found;
}

/// Whether it is one of the lock of this name, not of a lock below it.
inline bool is_of(const sequencer& s, std::string_view name) {
    return split_key(name, s.key).has_value();
}

inline compare still_holds(const sequencer& s) {
    return compare::create_revision(s.key) == s.token;
}

/// Asks whether the ownership still holds. The request goes through consensus like a write, so that
/// no member answers from memory. But it can change nothing, even if somebody has made up the key:
/// the inner condition contradicts the outer one.
inline txn prove(const sequencer& s) {
    txn never;
    never.compares.push_back(compare::create_revision(s.key) == 0);
    never.success.push_back(op::erase(s.key));
    txn t;
    t.compares.push_back(still_holds(s));
    t.success.push_back(op::nested(std::move(never)));
    return t;
}

} // namespace coetcd::detail::logic
