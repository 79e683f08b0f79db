// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Takes turns with others. Called at once, in the middle of what others do; must not wait.
class turn_taker {
public:
    /// Called when the turn has come, and, while it lasts, when there is a free slot again.
    virtual void on_turn() noexcept = 0;
    virtual time_point now() const = 0;
    /// Whether etcd has told it a place, so that those behind it know that something is there.
    virtual bool is_known() const { return false; }
    /// Called when one ahead of it has become known.
    virtual void on_known() {}

protected:
    ~turn_taker() = default;
};

class local_turn;

/// The coroutines of one session that want names, in order of arrival. The first of each line has,
/// or is to have, keys in etcd; the others wait here. A turn that shares its name with others
/// leaves the line as soon as etcd knows its place: from then on the order is etcd's.
class local_queues {
public:
    /// The turns that want one name.
    struct line {
        std::string name;
        std::list<local_turn*> queue;
        std::size_t turns = 0; ///< In the queue, or passed on and still lasting.
        logic::slot_table slots;
        bool was_free = false; ///< In etcd, when we last asked.
        bool was_far = false;  ///< In etcd, when we last asked: others had to be waited for first.
        bool was_full = false; ///< In etcd, when we last asked: the next one has to wait.
        /// When etcd had last told one of them the state of this name: in an answer, or when one
        /// with a place left.
        time_point told = time_point::min();
        bool idle = false;
        std::list<line*>::iterator place; ///< Among the idle ones, or the others.
    };

    /// Whether all turns in the line of this name share it with us.
    bool is_free_here(const std::string& name, bool shares = false) const;

    /// A slot of this name is free again.
    void slot_freed(const std::string& name);

private:
    friend class local_turn;

    /// How many names that nobody wants at the moment are remembered: the last ones.
    static constexpr std::size_t most_idle = 1024;

    line& join(const std::string& name);
    void let_go(line& l) noexcept;

    std::map<std::string, line, std::less<>> lines_;
    // Each line has its node from the beginning, so a destructor needs no memory.
    std::list<line*> busy_;
    std::list<line*> idle_; // the newest first
};

/// A place in the lines of some names, from its creation on. All lines are joined, and left, in one
/// step, so that turns that want several names cannot deadlock.
class local_turn {
public:
    /// @param shares For each name, whether it is wanted together with others: see `pass_on`. If
    ///   empty, none is.
    local_turn(local_queues& of,
               const std::vector<std::string>& names,
               turn_taker& taker,
               const std::vector<bool>& shares = {})
        : local_turn(of, taker) { // from here on the destructor undoes what is done
        joined_.reserve(names.size());
        for (const std::string& name : names) {
            std::list<local_turn*> own(1, this);
            const auto place = own.begin();
            local_queues::line& l = lines_.join(name);
            const bool shared = !shares.empty() && shares[joined_.size()];
            l.queue.splice(l.queue.end(), own);
            joined_.push_back({&l, place, shared});
            ++l.turns;
        }
    }
    ~local_turn() {
        leave([](const joined&) { return true; });
        for (const joined& j : joined_) {
            --j.of->turns;
            lines_.let_go(*j.of);
        }
    }
    local_turn(const local_turn&) = delete;
    local_turn& operator=(const local_turn&) = delete;

    /// Lets the next ones go on where the name is shared, since etcd knows our place.
    void pass_on() {
        leave([](const joined& j) { return j.shares; });
    }
    /// From now on all names are shared.
    void share() {
        for (joined& j : joined_) {
            j.shares = true;
        }
    }

    bool has_come() const {
        return std::all_of(joined_.begin(), joined_.end(), [&](const joined& j) {
            return !j.waits || j.of->queue.front() == this;
        });
    }
    /// Whether one that etcd knows is ahead of it.
    bool is_behind_known() const {
        return std::any_of(joined_.begin(), joined_.end(), [&](const joined& j) {
            const local_turn* first = j.waits ? j.of->queue.front() : this;
            return first != this && first->taker_.is_known();
        });
    }
    /// Call it when etcd has told the state of these names.
    void was_told() {
        for (joined& j : joined_) {
            j.of->told = taker_.now();
        }
    }
    /// When etcd had last told that to any turn ahead of it.
    time_point told() const { return has_come() ? told_ : told_in_lines(); }
    /// Tells those behind it that it is known.
    void tell_behind() const {
        for (const joined& j : joined_) {
            for (auto later = j.place; j.waits && ++later != j.of->queue.end();) {
                (*later)->taker_.on_known();
            }
        }
    }
    /// The line of a name, in the order of the names.
    local_queues::line& at(std::size_t index) const { return *joined_[index].of; }

private:
    friend class local_queues;

    local_turn(local_queues& of, turn_taker& taker)
        : lines_(of)
        , taker_(taker) {}

    struct joined {
        local_queues::line* of;
        std::list<local_turn*>::iterator place; ///< While it waits.
        bool shares;
        bool waits = true;      ///< It waits, or is the first.
        bool was_first = false; ///< When it left: the next one is to be told.
    };

    /// Leaves all lines at once, before any other turn goes on: one that wants several must not see
    /// half of it.
    template<class Which>
    void leave(Which which) {
        for (joined& j : joined_) {
            if (j.waits && which(j)) {
                j.waits = false;
                j.was_first = j.of->queue.front() == this;
                if (taker_.is_known()) {
                    j.of->told = taker_.now();
                }
                j.of->queue.erase(j.place);
            }
        }
        for (joined& j : joined_) {
            local_turn* const next = j.of->queue.empty() ? nullptr : j.of->queue.front();
            if (std::exchange(j.was_first, false) && next && next->has_come()) {
                next->told_ = next->told_in_lines();
                next->taker_.on_turn();
            }
        }
    }
    time_point told_in_lines() const {
        time_point last = is_behind_known() ? taker_.now() : time_point::min();
        for (const joined& j : joined_) {
            last = std::max(last, j.of->told);
        }
        return last;
    }
    bool shares(const local_queues::line& l) const {
        return std::any_of(joined_.begin(), joined_.end(), [&](const joined& j) {
            return j.of == &l && j.shares;
        });
    }

    local_queues& lines_;
    turn_taker& taker_;
    std::vector<joined> joined_;
    time_point told_ = time_point::min(); // to those ahead of it, when its turn came
};

inline bool local_queues::is_free_here(const std::string& name, bool shares) const {
    const auto found = lines_.find(name);
    if (found == lines_.end()) {
        return true;
    }
    const line& l = found->second;
    return std::all_of(l.queue.begin(), l.queue.end(), [&](const local_turn* t) {
        return shares && t->shares(l);
    });
}

inline void local_queues::slot_freed(const std::string& name) {
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

inline local_queues::line& local_queues::join(const std::string& name) {
    auto found = lines_.find(name);
    if (found == lines_.end()) {
        std::list<line*> own(1, nullptr);
        std::string copy = name;
        found = lines_.try_emplace(name).first;
        found->second.name = std::move(copy);
        found->second.place = own.begin();
        own.front() = &found->second;
        busy_.splice(busy_.end(), own);
    }
    line& l = found->second;
    if (std::exchange(l.idle, false)) {
        busy_.splice(busy_.end(), idle_, l.place);
    }
    return l;
}

inline void local_queues::let_go(line& l) noexcept {
    if (l.idle || l.turns != 0 || !l.slots.all_free()) {
        return;
    }
    l.idle = true;
    idle_.splice(idle_.begin(), busy_, l.place);
    if (idle_.size() > most_idle) {
        lines_.erase(lines_.find(idle_.back()->name)); // an attempt learns it again
        idle_.pop_back();
    }
}

} // namespace coetcd::detail
