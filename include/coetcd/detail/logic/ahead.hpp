// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/standing.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

/// Ownership that is proved ahead, and completed by the ends of those before us.
///
/// `enter` and `confirm` go through etcd's consensus and read the keys before ours, which are those
/// with a smaller create_revision. Whatever is put later has a greater one. So from that answer on,
/// a list that was complete only gets shorter: when etcd has told the end of each life on it,
/// nobody is before us, and nothing is asked any more. A list that was cut off is asked for again
/// while the last one on it still has its turn, and so before ours.
namespace coetcd::detail::logic {

/// Those before us whose ends etcd has told, or has not told.
inline std::vector<held_life> lives_ahead(const standing& now, bool ended) {
    std::vector<held_life> all;
    for (const keys_ahead& of : now.ahead) {
        for (const predecessor& p : of.newest) {
            if ((p.ended != 0) == ended) {
                all.push_back({p.key, p.create_revision});
            }
        }
    }
    return all;
}
inline std::vector<held_life> still_ahead(const standing& now) {
    return lives_ahead(now, false);
}
inline std::vector<held_life> told_ended(const standing& now) {
    return lives_ahead(now, true);
}
/// The revision of the last of those ends; 0: none.
inline std::int64_t last_end(const standing& now) {
    std::int64_t last = 0;
    for (const keys_ahead& of : now.ahead) {
        for (const predecessor& p : of.newest) {
            last = std::max(last, p.ended);
        }
    }
    return last;
}

/// Whether nothing more is to be waited for, of those before us in one queue: all have ended; or,
/// if there may be others, so many that the rest fits into one answer.
inline bool is_over(const keys_ahead& of) {
    std::set<std::int64_t> places; // the keys of one place are of one age
    for (const predecessor& p : of.newest) {
        if (p.ended == 0) {
            places.insert(p.create_revision);
        }
    }
    const bool any_ended =
        std::any_of(of.newest.begin(), of.newest.end(), [](const auto& p) { return p.ended != 0; });
    return places.empty() || (!of.complete && any_ended && places.size() == 1);
}

/// Where we stand when etcd has told ends: the owner, or to ask again, or still behind others.
inline standing::where after_ends(const std::vector<keys_ahead>& ahead) {
    bool all_over = true;
    bool all_complete = true;
    bool cut_off = false; // some list was
    bool cut_over = true; // and of each such list, enough have ended
    for (const keys_ahead& of : ahead) {
        const bool over = is_over(of);
        all_over = all_over && over;
        all_complete = all_complete && of.complete;
        cut_off = cut_off || (!of.complete && !of.newest.empty());
        cut_over = cut_over && (of.complete || over);
    }
    if (all_over && all_complete) {
        return standing::where::owner;
    }
    return all_over || (cut_off && cut_over) ? standing::where::queued : standing::where::behind;
}

/// etcd has told ends of those that we wait for.
/// @param ends For each of `still_ahead`: the revision at which it has ended; 0 if it has not.
inline void heed_ends(standing& now, const std::vector<std::int64_t>& ends) {
    auto next = ends.begin();
    for (keys_ahead& of : now.ahead) {
        for (predecessor& p : of.newest) {
            if (p.ended == 0 && next != ends.end()) {
                p.ended = *next++;
            }
        }
    }
    now.at = after_ends(now.ahead);
}

} // namespace coetcd::detail::logic
