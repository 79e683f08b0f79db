// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace coetcd::detail::logic {

/// Which endpoint to try next. It stays with one that works; one that failed is shunned for a
/// while that doubles with each failure in a row, and is tried again before that only if all are.
template<class TimePoint>
class endpoint_choice {
public:
    /// `start` spreads clients over the endpoints.
    endpoint_choice(std::size_t count, std::uint64_t start)
        : states_(count)
        , preferred_(static_cast<std::size_t>(start % count)) {}

    std::size_t size() const { return states_.size(); }

    std::size_t pick(TimePoint now) const {
        std::size_t best = preferred_;
        for (std::size_t i = 0; i < states_.size(); ++i) {
            const std::size_t candidate = (preferred_ + i) % states_.size();
            if (states_[candidate].shunned_until <= now) {
                return candidate;
            }
            if (states_[candidate].shunned_until < states_[best].shunned_until) {
                best = candidate;
            }
        }
        return best;
    }

    void succeeded(std::size_t index) {
        states_[index] = {};
        preferred_ = index;
    }

    void failed(std::size_t index, TimePoint now) {
        state& s = states_[index];
        const auto wait = std::min(shortest * (1 << std::min(s.failures, 6)), longest);
        s.failures = std::min(s.failures + 1, 6);
        s.shunned_until = now + wait;
        if (preferred_ == index) {
            preferred_ = (index + 1) % states_.size();
        }
    }

private:
    static constexpr std::chrono::milliseconds shortest{100};
    static constexpr std::chrono::milliseconds longest{5000};

    struct state {
        int failures = 0; // in a row
        TimePoint shunned_until = TimePoint::min();
    };
    std::vector<state> states_;
    std::size_t preferred_;
};

} // namespace coetcd::detail::logic
