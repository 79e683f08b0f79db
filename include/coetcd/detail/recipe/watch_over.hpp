// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/recipe/missing_key.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/service/session.hpp>

#include <chrono>
#include <memory>
#include <utility>

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

/// Watches the lasting key of a place while the place is held, so that its end is noticed at once
/// and not with the next renewal.
inline asio::awaitable<void> watch_over(std::shared_ptr<place> held) {
    const logic::held_life life = held->lasting();
    vigil watching(held->session, held->changed, [held] { return held->held(); });
    auto wait =
        watching.until_gone(life.key, life.create_revision, time_point::min(), time_point::max());
    const vigil::end ended = co_await std::move(wait);
    if (ended == vigil::end::moved && held->held()) {
        co_await lose_key(held);
    }
}

} // namespace coetcd::detail
