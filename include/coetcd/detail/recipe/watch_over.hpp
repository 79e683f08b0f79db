// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/recipe/missing_key.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/service/key_watch.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/until_over.hpp>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// How long a holder waits for a renewal that tells why its key has gone.
inline constexpr std::chrono::seconds patience_with_lease{1};

/// Ends a hold whose key has gone; a renewal tells the reason, if it is answered soon.
inline asio::awaitable<void> lose_key(std::shared_ptr<place> held) {
    const time_point soon = after(held->session->world.now(), patience_with_lease);
    (void)co_await explain_missing_key(held, soon);
    if (held->held()) {
        held->on_key_gone();
    }
}

/// Whether the lasting key of a place is gone for certain.
inline asio::awaitable<bool> is_key_gone(std::shared_ptr<place> held) {
    session_impl& s = *held->session;
    const std::vector<logic::held_life> lives{held->lasting()};
    const auto part = std::make_shared<lane_part>(logic::look_at(lives));
    part->order = lane_part::rank::patient;
    part->likely = true;
    part->not_after = after(s.world.now(), logic::renewal_timeout(s.ttl()));
    co_await until_over(s.owner->transactions, part);
    // If there is no answer, the next renewal looks again.
    co_return !part->ec && !logic::missing(part->response, lives).empty();
}

/// Watches the lasting key of a place while the place is held, so that its end is noticed at once
/// and not with the next renewal.
inline asio::awaitable<void> watch_over(std::shared_ptr<place> held) {
    struct own_watch {
        session_impl& of;
        std::unique_ptr<key_watch> watch;
        ~own_watch() { of.watches.keep(std::move(watch)); }
    };
    session_impl& s = *held->session;
    const logic::held_life life = held->lasting();
    const own_watch own{s, s.watches.take(life.key)};
    own.watch->attach(held->changed, life.create_revision, time_point::min());
    bool gone = false;
    while (held->held() && !gone) {
        gone = own.watch->erased();
        if (!gone && own.watch->blind()) {
            own.watch->look_taken();
            gone = co_await is_key_gone(held);
        } else if (!gone) {
            own.watch->restart_if_ended();
            const auto pause = logic::recheck_interval(s.ttl(), s.world.random());
            (void)co_await held->changed.wait(after(s.world.now(), pause));
        }
    }
    if (gone && held->held()) {
        co_await lose_key(held);
    }
}

} // namespace coetcd::detail
