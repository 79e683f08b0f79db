// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/member_entry.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

/// Lists of what there is below a name, kept current by events.
namespace coetcd::detail::logic {

inline key_range below(const std::string& name) {
    return key_range::prefix(name + "/");
}

inline member_entry member_by(const key_value& kv) {
    member_entry m;
    m.key = kv.key;
    m.value = kv.value;
    m.joined = answers::require_revision(kv.create_revision);
    m.revision = answers::require_revision(kv.mod_revision);
    m.lease = kv.lease;
    return m;
}

using member_list = std::vector<member_entry>;

inline bool is_older(const member_entry& a, const member_entry& b) {
    return std::tie(a.joined, a.key) < std::tie(b.joined, b.key);
}

/// What the answer means: the oldest member first.
inline member_list members_in(const range_response& read) {
    member_list all;
    all.reserve(read.kvs.size());
    for (const key_value& kv : read.kvs) {
        all.push_back(member_by(kv));
    }
    std::sort(all.begin(), all.end(), &is_older);
    return all;
}

/// The members after a change; nothing if only a look can tell.
inline std::optional<member_list> members_after(const member_list& now, const event& e) {
    member_list next = now;
    const auto known = std::find_if(
        next.begin(), next.end(), [&](const member_entry& m) { return m.key == e.kv.key; });
    const bool is_known = known != next.end();
    if (e.type == event_type::erase) {
        if (!is_known) {
            return std::nullopt;
        }
        next.erase(known);
        return next;
    }
    const bool is_new = e.kv.create_revision == e.kv.mod_revision;
    if (is_known == is_new || (is_known && known->joined != e.kv.create_revision)) {
        return std::nullopt;
    }
    member_entry changed = member_by(e.kv);
    if (is_known) {
        *known = std::move(changed);
    } else {
        const auto place = std::upper_bound(next.begin(), next.end(), changed, &is_older);
        next.insert(place, std::move(changed));
    }
    return next;
}

/// Who is in a group, and each change.
inline question<member_list> who_is_in(const std::string& title, const std::string& name) {
    wire::watch_create_request signs(below(name));
    return {title + ", changes",
            range_request(below(name)),
            std::move(signs),
            &members_in,
            &members_after};
}

} // namespace coetcd::detail::logic
