// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/watch_over.hpp>
#include <coetcd/lock_options.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

// What is done while a place is held, besides what the session does for all places. Each of these
// ends with the hold.
namespace coetcd::detail {

/// Refuses a time that is there and not positive; bounds it.
inline void check(std::optional<std::chrono::milliseconds>& time, const char* field) {
    // Looked at in one piece: g++ would look at the value of a time that is not there, which is
    // harmless, and which valgrind takes for a defect.
    if (time.value_or(std::chrono::milliseconds(1)).count() <= 0) {
        throw std::invalid_argument(std::string(field) + ": must be positive");
    }
    if (time) {
        time = bounded(*time);
    }
}

inline lock_options checked(lock_options o) {
    check(o.delay, "delay");
    check(o.max_hold, "max_hold");
    check(o.retain, "retain");
    if (o.retain && o.delay) {
        throw std::invalid_argument("retain: not together with delay");
    }
    return o;
}

inline lock_options as_lock_options(const shared_mutex_options& o) {
    lock_options all;
    all.max_hold = o.max_hold;
    all.watch_while_held = o.watch_while_held;
    return all;
}
inline lock_options as_lock_options(const multi_lock_options& o) {
    lock_options all;
    all.max_hold = o.max_hold;
    return all;
}

inline std::chrono::nanoseconds delay_of(const lock_options& o) {
    return checked(o).delay.value_or(std::chrono::milliseconds(0));
}

/// Gives the place back when its time is over.
inline asio::awaitable<void> end_in_time(std::shared_ptr<place> self) {
    while (self->is_kept()) {
        const time_point until = self->held_until();
        if (self->session->world.now() >= until) {
            self->on_expired();
            break;
        }
        (void)co_await self->changed.wait(until);
    }
}

/// Whether these options ask for anything while a place is held.
inline bool asks_for_care(const lock_options& o) {
    return o.max_hold || o.watch_while_held || o.retain;
}

/// Has the place held as its owner wants. Call it at home, at the moment of the grant.
inline void keep_to(const lock_options& options, const std::shared_ptr<place>& taken) {
    // Not by a handle, since a handle would answer for it.
    const std::shared_ptr<place> self = taken->shared_from_this();
    if (options.max_hold) {
        self->end_after(*options.max_hold);
        spawn(self->session->world, end_in_time(self));
    }
    if (options.retain) {
        self->retain_for(*options.retain);
    }
    if (options.watch_while_held) {
        spawn(self->session->world, watch_over(self));
    }
}

} // namespace coetcd::detail
