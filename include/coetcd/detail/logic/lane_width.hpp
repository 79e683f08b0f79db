// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace coetcd::detail::logic {

/// Which requests of the lane may leave, beside those that are under way.
///
/// A request with room left waits for company while two are under way: it and the next one would
/// only be smaller. But it waits no longer than 5 ms after the last one left: where etcd is far,
/// the end of another one may be long in coming. A full one gains nothing by waiting: up to 32 are
/// under way, so that a crowd fills the way. If one is refused because there are too many, half as
/// many are, and one more for each full one that is served. A transaction that has to go alone
/// takes no place of the others'.
template<class TimePoint>
class lane_width {
public:
    enum class load {
        alone, ///< One transaction, which must not share its request.
        roomy, ///< Others would still fit.
        full,
    };

    /// The most that are ever under way.
    static constexpr int most = 32 + 2;

    bool may_leave(load what, TimePoint now) const {
        switch (what) {
        case load::alone:
            return alone_ < most_alone;
        case load::roomy:
            return shared_ < most_roomy || (shared_ < full_ && now >= turn());
        case load::full:
            return shared_ < full_;
        }
        return false;
    }
    /// When a roomy one may leave although two are under way; nothing if it may not before one of
    /// these has ended.
    std::optional<TimePoint> next_turn() const {
        return shared_ < full_ ? std::optional(turn()) : std::nullopt;
    }
    void has_left(load what, TimePoint now) {
        ++(what == load::alone ? alone_ : shared_);
        left_ = what == load::alone ? left_ : now;
    }
    /// Whatever became of it.
    void is_over(load what) { --(what == load::alone ? alone_ : shared_); }
    int under_way() const { return alone_ + shared_; }

    /// etcd did what a request asked for.
    void was_served(load what) {
        full_ = std::min(most_full, full_ + (what == load::full ? 1 : 0));
    }
    /// A request was refused, since there are too many.
    void was_too_many(TimePoint departed, TimePoint now) {
        if (departed >= narrowed_) { // else it was under way already when another one was refused
            full_ = std::max(most_roomy, full_ / 2);
            narrowed_ = now;
        }
    }

private:
    static constexpr std::chrono::milliseconds longest_wait{5};
    TimePoint turn() const { return left_ + longest_wait; }

    static constexpr int most_alone = 2;
    static constexpr int most_roomy = 2;
    static constexpr int most_full = most - most_alone;

    int alone_ = 0;
    int shared_ = 0; // all others
    int full_ = most_full;
    TimePoint left_{}; // the last one of the others
    TimePoint narrowed_ = TimePoint::min();
};

} // namespace coetcd::detail::logic
