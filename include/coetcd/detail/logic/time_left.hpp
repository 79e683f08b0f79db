// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <ratio>

namespace coetcd::detail::logic {

/// How long it is until `then`, as far as nanoseconds reach. A clock may tell times, as its first
/// and its last, whose distance they cannot.
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

/// Whether what is due `then`, and had to wait for others of ours since it was `asked` for, is not
/// to be sent any more: the answer would come too late, and be in the way of others.
template<class TimePoint>
bool is_nearly_due(TimePoint then, TimePoint asked, TimePoint now) {
    return now >= then || time_left(then, now) < time_left(then, asked) / 10;
}

/// What a wait comes to whose patience is over: that others have it, or that etcd does not answer.
/// @param told When etcd had last said how things are to anybody of ours who was before us.
/// @param answer How long one of its answers may take.
template<class TimePoint>
bool others_have_it(TimePoint began,
                    TimePoint told,
                    TimePoint now,
                    std::chrono::nanoseconds answer) {
    return told >= began && time_left(told, now) > -answer;
}

} // namespace coetcd::detail::logic
