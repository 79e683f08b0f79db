// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/mirror_map.hpp>
#include <coetcd/mirror_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

/// The bytes that a change takes in memory.
inline std::size_t footprint(const mirror_change& c) {
    const auto of = [](const mirror_entry& e) {
        return e ? sizeof *e + e->key.size() + e->value.size() : std::size_t{0};
    };
    return sizeof c + of(c.was) + of(c.is);
}

/// What one reader of a mirror has yet to be told: at first everything, then each change. If that
/// becomes too much, only what the changed keys were when it was told last: the rest follows from
/// what they are.
class mirror_backlog {
public:
    explicit mirror_backlog(std::size_t most)
        : most_(most) {}

    void add(const std::vector<mirror_change>& changes) {
        for (const mirror_change& c : changes) {
            if (owes_ == owed::each) {
                held_ += footprint(c);
                each_.push_back(c);
                if (held_ > most_) {
                    merge();
                }
            } else if (owes_ == owed::difference) {
                was_.try_emplace(c.key(), c.was);
            }
        }
    }

    /// From now on only the difference is owed.
    void merge() {
        if (owes_ == owed::each) {
            for (mirror_change& c : each_) {
                was_.try_emplace(c.key(), std::move(c.was));
            }
            owes_ = owed::difference;
            forget_each();
        }
    }

    bool any() const {
        return owes_ == owed::all || (owes_ == owed::difference ? !was_.empty() : !each_.empty());
    }
    /// The reader was told nothing yet.
    bool is_new() const { return owes_ == owed::all; }

    /// @returns What is owed. It may be empty, if what has changed is as it was before.
    mirror_batch take(const mirror_map& m) {
        mirror_batch batch;
        batch.revision = m.heard();
        took_all_ = owes_ == owed::all;
        if (owes_ == owed::all) {
            batch.changes = difference(mirror_entries(), m.told(), m.heard());
        } else if (owes_ == owed::difference) {
            for (auto& [key, was] : was_) {
                mirror_entry is = m.told(key);
                if (!is_same(was, is)) {
                    batch.changes.push_back({m.heard(), std::move(was), std::move(is), true});
                }
            }
            was_.clear();
        } else {
            batch.changes = std::move(each_);
        }
        owes_ = owed::each;
        forget_each();
        return batch;
    }

    /// What `take` has returned last was not told.
    void put_back(mirror_batch batch) {
        if (took_all_) {
            owes_ = owed::all;
            forget_each();
            was_.clear();
        } else if (owes_ == owed::difference) {
            for (auto c = batch.changes.rbegin(); c != batch.changes.rend(); ++c) {
                was_.insert_or_assign(c->key(), c->was);
            }
        } else {
            for (mirror_change& c : each_) {
                batch.changes.push_back(std::move(c));
            }
            forget_each();
            add(batch.changes);
        }
    }

private:
    enum class owed {
        all,        // it was told nothing yet
        each,       // these changes
        difference, // from what these keys were to what they are
    };

    void forget_each() {
        each_.clear();
        held_ = 0;
    }

    const std::size_t most_;
    owed owes_ = owed::all;
    std::vector<mirror_change> each_;
    std::size_t held_ = 0; // bytes in `each_`
    std::map<std::string, mirror_entry> was_;
    bool took_all_ = false;
};

} // namespace coetcd::detail::logic
