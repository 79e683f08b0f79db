// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>

namespace coetcd::detail::logic {

/// Which requests of the lane may leave, beside those that are under way.
///
/// A request with room left waits for company while two are under way: it and the next one would
/// only be smaller. A full one gains nothing by waiting: up to 16 are under way, so that a crowd
/// fills the way to an etcd that is far. If one is refused because there are too many, half as many
/// are, and one more for each full one that is served. A transaction that has to go alone takes no
/// place of the others'.
template<class TimePoint>
class lane_width {
public:
    enum class load {
        alone, ///< One transaction, which must not share its request.
        roomy, ///< Others would still fit.
        full,
    };

    /// The most that are ever under way.
    static constexpr int most = 16 + 2;

    bool may_leave(load what) const {
        switch (what) {
        case load::alone:
            return alone_ < most_alone;
        case load::roomy:
            return shared_ < most_roomy;
        case load::full:
            return shared_ < full_;
        }
        return false;
    }
    void has_left(load what) { ++(what == load::alone ? alone_ : shared_); }
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
    static constexpr int most_alone = 2;
    static constexpr int most_roomy = 2;
    static constexpr int most_full = most - most_alone;

    int alone_ = 0;
    int shared_ = 0; // all others
    int full_ = most_full;
    TimePoint narrowed_ = TimePoint::min();
};

} // namespace coetcd::detail::logic
