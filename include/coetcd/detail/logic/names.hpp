// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace coetcd::detail::logic {

/// @throws std::invalid_argument if it cannot be a name.
inline void require_name(const std::string& name) {
    if (name.empty()) {
        throw std::invalid_argument("name: is empty");
    }
    if (name.size() > 512) {
        throw std::invalid_argument("name: is longer than 512 bytes");
    }
}

/// What a user who was denied the lock of a name needs: no more than the keys of its queue, and the
/// epochs.
inline std::string needed_permission(const std::string& name) {
    return "its user needs to read and write the keys from \"" + name +
           ".\" up to, but not including, \"" + name + "0\"";
}

/// What to add to an error about a lock.
/// @param name In its printable form.
/// @param first_of_many The lock is the first of several.
inline std::string
if_denied(const error_code& ec, const std::string& name, bool first_of_many = false) {
    if (ec != server_errc::permission_denied) {
        return {};
    }
    return "; " + needed_permission(name) + (first_of_many ? ", and so on for each name" : "");
}

/// A key of a queue: `<name>/<line><id>`.
struct queue_key {
    std::string_view line; ///< Empty, or `read/` and the like.
    std::string_view id;
};

/// The lines of a lock that is held shared or exclusively: the keys of a slot are one place
/// together.
inline constexpr std::string_view lines_of_a_slot[] = {"read/", "write/", "keep/"};

/// What stands before the id; empty if nothing does.
inline std::string_view line_of(std::string_view key) {
    for (const std::string_view line : lines_of_a_slot) {
        if (key.starts_with(line)) {
            return line;
        }
    }
    constexpr std::string_view wait = "wait/"; // of a semaphore, as is `hold/<bit>/`
    constexpr std::string_view hold = "hold/";
    if (key.starts_with(hold) && key.size() > hold.size() + 2 && key[hold.size() + 2] == '/') {
        return key.substr(0, hold.size() + 3);
    }
    return key.starts_with(wait) ? wait : std::string_view();
}

/// Nothing for a key of another lock below this one.
inline std::optional<queue_key> split_key(std::string_view name, std::string_view key) {
    if (!key.starts_with(name) || key.size() <= name.size() || key[name.size()] != '/') {
        return std::nullopt;
    }
    queue_key found;
    found.id = key.substr(name.size() + 1);
    found.line = line_of(found.id);
    found.id.remove_prefix(found.line.size());
    if (found.id.empty() || found.id.find('/') != found.id.npos) {
        return std::nullopt;
    }
    return found;
}

} // namespace coetcd::detail::logic
