// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/recipe/attempt.hpp>

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A lock that stays with its session although nobody holds it: see `retaining`.
class retained_lock {
public:
    /// Whether it is known that it may stay. Until then nobody can have it.
    virtual bool is_decided() const = 0;
    /// Gives its keys to the session's next attempt, which then holds it.
    /// @returns False if it has to go.
    virtual bool give(attempt& to) = 0;
    /// Takes them back, if the hold has ended cleanly.
    /// @param most For how long.
    /// @returns False if it has to go.
    virtual bool take_back(std::shared_ptr<attempt> from,
                           std::chrono::nanoseconds most) noexcept = 0;
    /// Gives it back to etcd: at once, or, if somebody holds it, at the end of that.
    virtual void recall() noexcept = 0;

protected:
    ~retained_lock() = default;
};

/// The locks that a session retains, whether somebody holds them now or not.
class retained_locks {
public:
    /// Null if there is none of that name.
    retained_lock* find(const std::string& name) const {
        const auto found = all_.find(name);
        return found == all_.end() ? nullptr : found->second.lock;
    }
    /// One that was given back. If a session has more than `most` that nobody holds, those go that
    /// were not used for the longest time.
    void add(const std::string& name, retained_lock& lock, std::size_t most) {
        if (retained_lock* const before = find(name)) {
            before->recall();
        }
        std::list<std::string> own(1, name);
        entry& added = all_[name];
        if (!added.lock) {
            added.place = own.begin();
            others_.splice(others_.end(), own);
        }
        added.lock = &lock;
        is_idle(name, lock, most);
    }
    void remove(const std::string& name, const retained_lock& lock) noexcept {
        is_used(name, lock);
        const auto found = all_.find(name);
        if (found != all_.end() && found->second.lock == &lock) {
            others_.erase(found->second.place);
            all_.erase(found);
        }
    }
    /// It was given back again.
    void is_idle(const std::string& name, const retained_lock& lock, std::size_t most) noexcept {
        move(name, lock, idle_);
        while (idle_.size() > most) {
            retained_lock* const oldest = find(idle_.front());
            is_used(idle_.front(), *oldest);
            oldest->recall();
        }
    }
    /// Somebody holds it, or it is recalled.
    void is_used(const std::string& name, const retained_lock& lock) noexcept {
        move(name, lock, others_);
    }

    /// A coroutine that takes locks at home again and again never waits for anything.
    /// @returns Whether one that takes a lock now is to let other handlers run first.
    bool lets_others_run(time_point now) {
        const bool is_due = now - let_others_run_ >= std::chrono::milliseconds(1);
        if (is_due) {
            let_others_run_ = now;
        }
        return is_due;
    }

private:
    struct entry {
        retained_lock* lock = nullptr;
        std::list<std::string>::iterator place{};
        bool is_idle = false;
    };
    void
    move(const std::string& name, const retained_lock& lock, std::list<std::string>& to) noexcept {
        const auto found = all_.find(name);
        if (found != all_.end() && found->second.lock == &lock) {
            std::list<std::string>& from = found->second.is_idle ? idle_ : others_;
            to.splice(to.end(), from, found->second.place);
            found->second.is_idle = &to == &idle_;
        }
    }

    std::map<std::string, entry, std::less<>> all_;
    // A name has its node from the beginning, so moving one needs no memory.
    std::list<std::string> idle_; // the newest last
    std::list<std::string> others_;
    time_point let_others_run_{};
};

} // namespace coetcd::detail
