// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>
#include <coetcd/mirror_batch.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

struct by_key {
    using is_transparent = void;
    bool operator()(const mirror_entry& a, const mirror_entry& b) const { return a->key < b->key; }
    bool operator()(const mirror_entry& a, std::string_view b) const { return a->key < b; }
    bool operator()(std::string_view a, const mirror_entry& b) const { return a < b->key; }
};
using mirror_entries = std::set<mirror_entry, by_key>;
/// What a read has found, in the order of the keys: a quarter of what `mirror_entries` take.
using found_entries = std::deque<mirror_entry>;

inline mirror_entry find_entry(const mirror_entries& in, std::string_view key) {
    const auto found = in.find(key);
    return found == in.end() ? nullptr : *found;
}

inline bool is_same(const mirror_entry& a, const mirror_entry& b) {
    return a == b || (a && b && *a == *b);
}

/// Puts `is` in the place of `was`. Either may be null.
inline void replace_entry(mirror_entries& in, const mirror_entry& was, const mirror_entry& is) {
    mirror_entries::node_type node;
    if (was) {
        if (const auto found = in.find(was); found != in.end()) {
            node = in.extract(found);
        }
    }
    if (!is) {
        return;
    }
    if (node) {
        node.value() = is;
        in.insert(std::move(node));
    } else {
        in.insert(is);
    }
}

/// What becomes of `from` to be `to`, in the order of the keys.
template<class From, class To>
std::vector<mirror_change> difference(const From& from, const To& to, std::int64_t revision) {
    std::vector<mirror_change> result;
    const auto add = [&](mirror_entry was, mirror_entry is) {
        result.push_back({revision, std::move(was), std::move(is), true});
    };
    auto a = from.begin();
    for (const mirror_entry& b : to) {
        for (; a != from.end() && (*a)->key < b->key; ++a) {
            add(*a, nullptr);
        }
        if (a == from.end() || b->key < (*a)->key) {
            add(nullptr, b);
        } else {
            if (!is_same(*a, b)) {
                add(*a, b);
            }
            ++a;
        }
    }
    for (; a != from.end(); ++a) {
        add(*a, nullptr);
    }
    return result;
}

/// The keys as they were at one revision, and what has been told of them.
///
/// Events tell each change. A look may prove more: that at a later revision the keys are still the
/// same. Events from before that revision may come nevertheless, of keys that came and went again
/// meanwhile. They are told, but do not bring back the past.
class mirror_map {
public:
    /// The keys at `revision()`.
    const mirror_entries& now() const { return now_; }
    std::int64_t revision() const { return std::max(heard_, proved_); }

    /// All changes up to this revision were told.
    std::int64_t heard() const { return heard_; }
    /// A key after all changes that were told.
    mirror_entry told(const std::string& key) const {
        const auto passing = passing_.find(key);
        return passing == passing_.end() ? find_entry(now_, key) : passing->second;
    }
    /// All keys after all changes that were told.
    mirror_entries told() const {
        mirror_entries all = now_;
        for (const auto& [key, as_told] : passing_) {
            replace_entry(all, find_entry(now_, key), as_told);
        }
        return all;
    }

    /// Takes events of whole revisions.
    /// @returns What they change.
    std::vector<mirror_change> apply(std::vector<event>& events) {
        std::vector<mirror_change> changes;
        const std::int64_t known = heard_;
        for (event& e : events) {
            const std::int64_t at = e.kv.mod_revision;
            if (at <= known) {
                continue;
            }
            mirror_entry was = told(e.kv.key);
            mirror_entry is;
            if (e.type == event_type::put) {
                is = std::make_shared<const key_value>(std::move(e.kv));
            }
            if (was || is) {
                mirror_change c{at, std::move(was), std::move(is), false};
                take(c, at <= proved_);
                changes.push_back(std::move(c));
            }
            heard_ = at;
        }
        return changes;
    }

    /// All changes up to `revision` were told.
    void reached(std::int64_t revision) { heard_ = std::max(heard_, revision); }

    /// The keys at `revision` are still those of `revision()`.
    void prove(std::int64_t revision) { proved_ = std::max(proved_, revision); }

    /// What is to be told so that it becomes `found`, which was read at `revision`.
    std::vector<mirror_change> changes_to(const found_entries& found, std::int64_t revision) const {
        return passing_.empty() ? difference(now_, found, revision)
                                : difference(told(), found, revision);
    }
    /// Becomes what a read has found. What `changes_to` returns was told before. If memory lacks,
    /// it stays what it is.
    void become(found_entries found, std::int64_t revision) {
        if (now_.empty()) {
            fill(std::move(found));
        } else {
            make(difference(now_, found, revision));
        }
        passing_.clear();
        heard_ = revision;
        proved_ = revision;
    }

private:
    /// Takes no more memory than what it keeps.
    void fill(found_entries found) {
        mirror_entries all;
        for (; !found.empty(); found.pop_front()) {
            all.insert(all.end(), std::move(found.front()));
        }
        now_ = std::move(all);
    }
    void make(const std::vector<mirror_change>& changes) {
        mirror_entries added; // as the only step that may fail
        for (const mirror_change& c : changes) {
            if (!c.was) {
                added.insert(added.end(), c.is);
            }
        }
        for (const mirror_change& c : changes) {
            if (c.was) {
                replace_entry(now_, c.was, c.is);
            }
        }
        now_.merge(added);
    }
    void take(const mirror_change& c, bool is_past) {
        if (!is_past) {
            passing_.erase(c.key());
            replace_entry(now_, find_entry(now_, c.key()), c.is);
        } else if (is_same(c.is, find_entry(now_, c.key()))) {
            passing_.erase(c.key());
        } else {
            passing_.insert_or_assign(c.key(), c.is);
        }
    }

    mirror_entries now_;
    std::int64_t heard_ = 0;
    std::int64_t proved_ = 0;
    std::map<std::string, mirror_entry> passing_; // told, but no longer so at `proved_`
};

} // namespace coetcd::detail::logic
