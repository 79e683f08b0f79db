// SPDX-License-Identifier: BSL-1.0
#pragma once

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

/// The locks that a session retains.
class retained_locks {
public:
    /// Null if there is none of that name.
    retained_lock* find(const std::string& name) const {
        const auto found = all_.find(name);
        return found == all_.end() ? nullptr : found->second.lock;
    }
    /// @param most If there are more then, the one that was not used for the longest is recalled.
    void add(const std::string& name, retained_lock& lock, std::size_t most) {
        if (retained_lock* const before = find(name)) {
            before->recall();
        }
        std::list<std::string> own(1, name);
        entry& added = all_[name];
        if (!added.lock) {
            added.place = own.begin();
            order_.splice(order_.end(), own);
        }
        added.lock = &lock;
        if (all_.size() > most) {
            retained_lock* const oldest = find(order_.front());
            oldest->recall();
        }
    }
    void remove(const std::string& name, const retained_lock& lock) noexcept {
        const auto found = all_.find(name);
        if (found != all_.end() && found->second.lock == &lock) {
            order_.erase(found->second.place);
            all_.erase(found);
        }
    }
    void was_used(const std::string& name) noexcept {
        if (const auto found = all_.find(name); found != all_.end()) {
            order_.splice(order_.end(), order_, found->second.place);
        }
    }

private:
    struct entry {
        retained_lock* lock = nullptr;
        std::list<std::string>::iterator place{};
    };
    std::map<std::string, entry, std::less<>> all_;
    std::list<std::string> order_; // the newest last
};

} // namespace coetcd::detail
