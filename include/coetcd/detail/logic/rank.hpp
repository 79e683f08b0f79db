// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/permits.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// How many permits come before those of a waiter: how that is proved, and how it shrinks.
///
/// An answer that went through etcd's consensus tells, at one revision, the permits that are held
/// and all who wait and are older. The sum of their weights is what comes before us. From then on
/// it only gets smaller. An older one that is admitted moves from one part of the sum to the other,
/// in one transaction. Whoever ends makes it smaller. Nobody can take a permit without waiting, as
/// long as our key waits. And those who came later and are admitted nevertheless have counted us:
/// where they fit, we do. So as soon as our weight fits besides, we may be admitted, without
/// asking, and beside those before us:
/// - There are never too many. Of all who hold at some moment, look at the one that came last. At
///   its proof each other one held, or waited and was older, so it was counted.
/// - A younger one fits only if all who are older do.
/// - Nobody waits for ever: when all older ones are gone, nothing comes before us.
///
/// An event that is missed makes the sum larger than it is, never smaller.
namespace coetcd::detail::logic {

/// A waiter that came before us, or one that was admitted.
struct older_waiter {
    std::string id;
    std::int64_t weight;
};

class rank {
public:
    explicit rank(std::string name)
        : name_(std::move(name)) {}

    /// A proof is about to be asked for. What etcd has told before is in it.
    void asking() {
        meanwhile_.clear();
        asks_ = true;
    }
    /// The proof has come.
    /// @param held The permits that are held.
    /// @param older All who wait and are older.
    /// @param revision That of the answer. It tells of all that has this revision, too: what shares
    ///   our request goes before us.
    void proved(std::int64_t held, std::vector<older_waiter> older, std::int64_t revision) {
        before_ = held;
        for (const older_waiter& w : older) {
            before_ += w.weight;
        }
        older_ = std::move(older);
        revision_ = revision;
        in_doubt_ = false;
        asks_ = false;
        for (const told& t : std::exchange(meanwhile_, {})) {
            count(t);
        }
    }

    /// etcd has told of changes. Those of one revision come together.
    void heed(const std::vector<event>& events) {
        for (auto first = events.begin(); first != events.end();) {
            const auto end = std::find_if(first, events.end(), [&](const event& e) {
                return e.kv.mod_revision != first->kv.mod_revision;
            });
            told t{first->kv.mod_revision, read(first, end)};
            count(t);
            if (asks_) {
                meanwhile_.push_back(std::move(t));
            }
            first = end;
        }
    }

    /// What comes before us, at most, once that is proved.
    std::int64_t before() const { return before_; }
    /// Whether our weight is known to fit besides.
    bool fits(std::int64_t weight, std::int64_t limit) const {
        return revision_ != 0 && !in_doubt_ && before_ + weight <= limit;
    }
    /// Nothing is known: a proof has to be asked for, once more.
    bool is_in_doubt() const { return in_doubt_; }

private:
    /// What happened at one revision.
    struct change {
        std::vector<older_waiter> given_back; ///< Who holds no more.
        std::vector<std::string> left;        ///< Who waits no more.
        std::vector<std::string> got_in;      ///< Who holds since.
        bool limit = false;                   ///< It was changed.
    };
    struct told {
        std::int64_t revision;
        change what;
    };

    template<class Iterator>
    change read(Iterator first, Iterator end) const {
        change all;
        for (; first != end; ++first) {
            const std::string& key = first->kv.key;
            const bool put = first->type == event_type::put;
            if (key == permits::limit_key(name_)) {
                all.limit = true;
            } else if (const auto of = permits::read_key(name_, key)) {
                if (of->weight == 0 && !put) {
                    all.left.push_back(of->id);
                } else if (of->weight != 0 && put) {
                    all.got_in.push_back(of->id);
                } else if (of->weight != 0) {
                    all.given_back.push_back({of->id, of->weight});
                }
            }
        }
        return all;
    }

    void count(const told& t) {
        if (revision_ == 0 || t.revision <= revision_) {
            return;
        }
        const change& c = t.what;
        for (const older_waiter& w : c.given_back) {
            before_ -= w.weight;
            // If we have missed that it was admitted, it does not leave our list a second time: the
            // same id may wait again.
            if (const auto known = find(w.id); known != older_.end()) {
                older_.erase(known);
            }
        }
        in_doubt_ = in_doubt_ || c.limit;
        for (const std::string& id : c.left) {
            const auto w = find(id);
            if (w != older_.end()) {
                const bool moved =
                    std::find(c.got_in.begin(), c.got_in.end(), id) != c.got_in.end();
                before_ -= moved ? 0 : w->weight;
                older_.erase(w);
            }
        }
    }

    std::vector<older_waiter>::iterator find(const std::string& id) {
        return std::find_if(
            older_.begin(), older_.end(), [&](const older_waiter& o) { return o.id == id; });
    }

    const std::string name_;
    std::int64_t before_ = 0;
    std::vector<older_waiter> older_;
    std::int64_t revision_ = 0; // of the proof; 0: there is none
    bool in_doubt_ = false;
    bool asks_ = false;
    std::vector<told> meanwhile_; // since the next proof was asked for
};

} // namespace coetcd::detail::logic
