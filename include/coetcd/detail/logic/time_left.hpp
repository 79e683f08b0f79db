// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <ratio>

namespace coetcd::detail::logic {

/// The time from `now` to `then`, clamped to what nanoseconds can express. Two times of a clock,
/// such as its first and its last, may be further apart.
template<class Clock, class Duration>
std::chrono::nanoseconds time_left(std::chrono::time_point<Clock, Duration> then,
                                   typename Clock::time_point now) {
    using std::chrono::nanoseconds;
    using wide = std::chrono::duration<long double, std::nano>;
    const wide left = wide(then.time_since_epoch()) - wide(now.time_since_epoch());
    if (left >= wide(nanoseconds::max())) {
        return nanoseconds::max();
    }
    if (left <= wide(nanoseconds::min())) {
        return nanoseconds::min();
    }
    return std::chrono::duration_cast<nanoseconds>(left);
}

/// True if less than a tenth of the time between `asked` and the deadline `then` is left. A request
/// that had to wait so long for others of ours is not sent any more: the answer would come too
/// late, and be in the way of others.
template<class TimePoint>
bool is_nearly_due(TimePoint then, TimePoint asked, TimePoint now) {
    return now >= then || time_left(then, now) < time_left(then, asked) / 10;
}

/// What it means that a wait has reached its deadline. True: others have it. False: etcd does not
/// answer.
/// @param told When etcd last told how things are to any attempt of ours that was before us.
/// @param answer How long one of etcd's answers may take.
template<class TimePoint>
bool others_have_it(TimePoint began,
                    TimePoint told,
                    TimePoint now,
                    std::chrono::nanoseconds answer) {
    return told >= began && time_left(told, now) > -answer;
}

} // namespace coetcd::detail::logic
