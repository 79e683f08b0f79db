// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Somebody who takes turns. Called at once, in the middle of what others do; must not wait.
class turn_taker {
public:
    /// The turn has come; also, while it lasts, that there is a free slot again.
    virtual void on_turn() = 0;
    /// Whether etcd has told it a place, so that those behind it know that somebody is there.
    virtual bool is_known() const { return false; }

protected:
    ~turn_taker() = default;
};

/// Who of one session wants which names, in order of arrival. The first of each line has, or is to
/// have, keys in etcd; the others wait here.
class lines {
public:
    class turn;

    /// Those who want one name.
    struct line {
        std::string name;
        std::list<turn*> queue;
        logic::slot_table slots;
        bool was_free = false; ///< In etcd, when we last asked.
        bool idle = false;
        std::list<std::string>::iterator place; ///< Among the idle ones.
    };

    bool is_free_here(const std::string& name) const {
        const auto found = lines_.find(name);
        return found == lines_.end() || found->second.queue.empty();
    }

    /// A slot of this name is free again.
    void slot_freed(const std::string& name);

private:
    /// What is known of names that nobody wants at the moment: the last ones.
    static constexpr std::size_t most_idle = 1024;

    line& join(const std::string& name);
    void let_go(line& l);

    std::map<std::string, line, std::less<>> lines_;
    std::list<std::string> idle_; // the last one first
};

/// A place in the lines of some names, from its creation on.
class lines::turn {
public:
    turn(lines& of, const std::vector<std::string>& names, turn_taker& taker)
        : lines_(of)
        , taker_(taker) {
        for (const std::string& name : names) {
            line& l = lines_.join(name);
            joined_.push_back({&l, l.queue.insert(l.queue.end(), this)});
        }
    }
    ~turn() {
        std::vector<turn*> next;
        for (const auto& [l, place] : joined_) {
            const bool was_first = l->queue.front() == this;
            l->queue.erase(place);
            if (was_first && !l->queue.empty()) {
                next.push_back(l->queue.front());
            }
        }
        for (turn* t : next) {
            if (t->has_come()) {
                t->taker_.on_turn();
            }
        }
        for (const auto& [l, place] : joined_) {
            lines_.let_go(*l);
        }
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;

    bool has_come() const {
        return std::all_of(joined_.begin(), joined_.end(), [&](const auto& j) {
            return j.first->queue.front() == this;
        });
    }
    /// Whether somebody stands before it of whom etcd knows.
    bool is_behind_known() const {
        return std::any_of(joined_.begin(), joined_.end(), [&](const auto& j) {
            const turn* first = j.first->queue.front();
            return first != this && first->taker_.is_known();
        });
    }
    /// In order of the names.
    line& at(std::size_t index) const { return *joined_[index].first; }

private:
    friend class lines;
    lines& lines_;
    turn_taker& taker_;
    std::vector<std::pair<line*, std::list<turn*>::iterator>> joined_;
};

inline void lines::slot_freed(const std::string& name) {
    const auto found = lines_.find(name);
    if (found == lines_.end()) {
        return;
    }
    line& l = found->second;
    if (!l.queue.empty() && l.queue.front()->has_come()) {
        l.queue.front()->taker_.on_turn();
    }
    let_go(l);
}

inline lines::line& lines::join(const std::string& name) {
    const auto [found, added] = lines_.try_emplace(name);
    line& l = found->second;
    if (added) {
        l.name = name;
    }
    if (std::exchange(l.idle, false)) {
        idle_.erase(l.place);
    }
    return l;
}

inline void lines::let_go(line& l) {
    if (l.idle || !l.queue.empty() || !l.slots.all_free()) {
        return;
    }
    l.idle = true;
    l.place = idle_.insert(idle_.begin(), l.name);
    if (idle_.size() > most_idle) {
        lines_.erase(idle_.back()); // an attempt learns again what is forgotten here
        idle_.pop_back();
    }
}

} // namespace coetcd::detail
