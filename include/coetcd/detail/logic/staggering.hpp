// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

namespace coetcd::detail::logic {

/// When each of several addresses is tried (RFC 8305, 5): each a little later than the one before
/// it, whose attempt goes on, and at once when an attempt fails. The first to succeed counts.
template<class TimePoint>
class staggering {
public:
    /// @param count How many addresses there are: one or more.
    staggering(std::size_t count, TimePoint now, TimePoint deadline)
        : count_(count)
        , deadline_(deadline)
        , delay_(std::min<std::chrono::nanoseconds>(
              longest_delay, (deadline - now) / static_cast<std::chrono::nanoseconds::rep>(count)))
        , next_(now) {}

    /// @returns The address to be tried now, if one is.
    std::optional<std::size_t> begin(TimePoint now) {
        if (begun_ == count_ || now >= deadline_ || now < next_) {
            return std::nullopt;
        }
        next_ = now + delay_;
        ++under_way_;
        return begun_++;
    }
    /// An address has answered, but its attempt is not done: it is likely to succeed.
    void answered(TimePoint now) { next_ = std::max(next_, now + delay_); }
    void failed(TimePoint now) {
        --under_way_;
        next_ = now;
    }

    /// Whether no attempt can succeed any more.
    bool is_over(TimePoint now) const {
        return under_way_ == 0 && (begun_ == count_ || now >= deadline_);
    }
    /// When to look again, unless something happens before.
    TimePoint until() const {
        return begun_ == count_ || next_ >= deadline_ ? TimePoint::max() : next_;
    }

private:
    static constexpr std::chrono::milliseconds longest_delay{250};

    const std::size_t count_;
    const TimePoint deadline_;             // for all of them
    const std::chrono::nanoseconds delay_; // so short that each has its turn in time
    TimePoint next_;
    std::size_t begun_ = 0;
    std::size_t under_way_ = 0;
};

} // namespace coetcd::detail::logic
