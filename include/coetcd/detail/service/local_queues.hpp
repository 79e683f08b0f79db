// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/retention.hpp>
#include <coetcd/detail/logic/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
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
    /// Whether it is in etcd's queue, or asks for a place there.
    virtual bool is_queueing() const { return false; }
    /// Called when one ahead of it has become known.
    virtual void on_known() {}

protected:
    ~turn_taker() = default;
};

class local_turn;

/// The coroutines of one session that want names, in order of arrival. The first of each line has,
/// or is to have, keys in etcd; the others wait here. A turn that shares its name with others
/// leaves the line as soon as etcd knows its place: from then on the order is etcd's. Turns that go
/// abreast leave it as soon as they have asked, as long as they are not too many.
class local_queues {
public:
    /// How many of a session may wait in etcd's queue of one name abreast: those that etcd's queue
    /// lets count, so that more would wait there as they wait here.
    static constexpr std::size_t most_abreast = 16;

    /// The turns that want one name.
    struct line {
        std::string name;
        std::list<local_turn*> queue;
        std::list<local_turn*> abreast; ///< They have left the queue, and wait in etcd's.
        std::size_t turns = 0;          ///< In the queue, or passed on and still lasting.
        logic::slot_table slots;
        bool was_free = false; ///< In etcd, when we last asked.
        bool was_far = false;  ///< In etcd, when we last asked: others had to be waited for first.
        bool was_full = false; ///< In etcd, when we last asked: the next one has to wait.
        logic::retention_habit habit;
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
    /// Of a name that has a slot in use.
    logic::retention_habit& habit(const std::string& name) {
        return lines_.find(name)->second.habit;
    }

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
    /// @param abreast See `step_forward`.
    local_turn(local_queues& of,
               const std::vector<std::string>& names,
               turn_taker& taker,
               const std::vector<bool>& shares = {},
               bool abreast = false)
        : local_turn(of, taker, abreast) { // from here on the destructor undoes what is done
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
    /// It has asked; where turns go abreast, the next one may do so, too.
    void step_forward() {
        if (goes_abreast_) {
            for (joined& j : joined_) {
                if (std::exchange(j.waits, false)) {
                    j.is_abreast = true;
                    j.of->abreast.splice(j.of->abreast.end(), j.of->queue, j.place);
                    j.was_first = true;
                }
            }
            tell_next();
        }
    }
    /// It waits in etcd's queue no more.
    void step_aside() {
        leave([](const joined& j) { return j.is_abreast; });
    }
    /// From now on all names are shared.
    void share() {
        for (joined& j : joined_) {
            j.shares = true;
        }
    }

    bool has_come() const {
        return std::all_of(joined_.begin(), joined_.end(), [&](const joined& j) {
            return !j.waits || (j.of->queue.front() == this && !(goes_abreast_ && is_full(*j.of)));
        });
    }
    /// Whether one that etcd knows is ahead of it.
    bool is_behind_known() const {
        const auto is_known = [](const local_turn* t) { return t->taker_.is_known(); };
        return std::any_of(joined_.begin(), joined_.end(), [&](const joined& j) {
            const local_turn* first = j.waits ? j.of->queue.front() : this;
            const auto& abreast = j.of->abreast;
            return (first != this && is_known(first)) ||
                   (j.waits && std::any_of(abreast.begin(), abreast.end(), is_known));
        });
    }
    /// Whether one is that goes abreast: then etcd's queue is not empty.
    bool is_behind_queue() const {
        return std::any_of(joined_.begin(), joined_.end(), [](const joined& j) {
            return std::any_of(j.of->abreast.begin(), j.of->abreast.end(), [](const auto* t) {
                return t->taker_.is_queueing();
            });
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
            if (j.waits || j.is_abreast) {
                auto later = j.waits ? std::next(j.place) : j.of->queue.begin();
                std::for_each(
                    later, j.of->queue.end(), [](local_turn* t) { t->taker_.on_known(); });
            }
        }
    }
    /// The line of a name, in the order of the names.
    local_queues::line& at(std::size_t index) const { return *joined_[index].of; }

private:
    friend class local_queues;

    local_turn(local_queues& of, turn_taker& taker, bool abreast)
        : lines_(of)
        , taker_(taker)
        , goes_abreast_(abreast) {}
    static bool is_full(const local_queues::line& l) {
        return l.abreast.size() >= local_queues::most_abreast;
    }

    struct joined {
        local_queues::line* of;
        std::list<local_turn*>::iterator place; ///< While it waits, or is abreast.
        bool shares;
        bool waits = true;       ///< It waits, or is the first.
        bool is_abreast = false; ///< It was the first, and waits in etcd's queue.
        bool was_first = false;  ///< When it left: the next one is to be told.
    };

    /// Leaves all lines at once, before any other turn goes on: one that wants several must not see
    /// half of it.
    template<class Which>
    void leave(Which which) {
        for (joined& j : joined_) {
            if ((j.waits || j.is_abreast) && which(j)) {
                j.was_first = j.is_abreast || j.of->queue.front() == this;
                if (taker_.is_known()) {
                    j.of->told = taker_.now();
                }
                (j.is_abreast ? j.of->abreast : j.of->queue).erase(j.place);
                j.waits = false;
                j.is_abreast = false;
            }
        }
        tell_next();
    }
    void tell_next() {
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
    const bool goes_abreast_;
    std::vector<joined> joined_;
    time_point told_ = time_point::min(); // to those ahead of it, when its turn came
};

inline bool local_queues::is_free_here(const std::string& name, bool shares) const {
    const auto found = lines_.find(name);
    if (found == lines_.end()) {
        return true;
    }
    const line& l = found->second;
    return l.abreast.empty() && std::all_of(l.queue.begin(), l.queue.end(), [&](const auto* t) {
               return shares && t->shares(l);
           });
}

inline void local_queues::slot_freed(const std::string& name) {
    const auto found = lines_.find(name);
    if (found == lines_.end()) {
        return;
    }
    line& l = found->second;
    for (auto next = l.abreast.begin(); next != l.abreast.end();) {
        turn_taker& each = (*next++)->taker_;
        if (!each.is_queueing()) { // it may wait until its session has given back
            each.on_turn();
        }
    }
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
