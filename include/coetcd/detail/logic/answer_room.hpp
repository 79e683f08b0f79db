// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace coetcd::detail::logic {

/// How many transactions may share a request, as far as the size of their answer tells. If one
/// answer was too large, others like it would be for some time: each costs a round trip, and all
/// the bytes up to the limit.
template<class TimePoint>
class answer_room {
public:
    std::size_t most(std::size_t usual, TimePoint now) const {
        return now < until_ ? std::min(usual, most_) : usual;
    }
    /// @param together How many had shared the answer.
    void was_too_large(std::size_t together, TimePoint now) {
        most_ = std::max<std::size_t>(1, together / 2);
        until_ = now + memory;
    }

private:
    static constexpr std::chrono::seconds memory{10};

    std::size_t most_ = 0;
    TimePoint until_ = TimePoint::min();
};

} // namespace coetcd::detail::logic
