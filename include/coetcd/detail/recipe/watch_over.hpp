// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/detail/recipe/missing_key.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
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

/// Watches the keys that a place is held by for as long as it is held, so that the end of one is
/// noticed at once and not with the next renewal.
inline asio::awaitable<void> watch_over(std::shared_ptr<place> held) {
    std::vector<logic::held_life> lives;
    // A change of the mode changes them.
    const auto as_before = [&] { return held->held() && held->held_by() == lives; };
    vigil watching(held->session, held->changed, as_before);
    const std::function<txn()> look = [&] { return logic::look_at(lives); };
    const std::function<bool(const txn_response&)> is_gone = [&](const txn_response& shown) {
        return !logic::missing(shown, lives).empty();
    };
    while (held->held()) {
        lives = held->held_by();
        watching.watch(lives, held->shown);
        auto wait = watching.until_moved(look, is_gone, time_point::max());
        (void)co_await std::move(wait);
        if (as_before()) {
            co_await lose_key(held);
        }
    }
}

/// Asks for as long as the place is held, until etcd has answered.
/// @returns Null if it was given back before, or if etcd refuses to answer.
inline asio::awaitable<std::shared_ptr<lane_part>>
ask_while_held(std::shared_ptr<place> held, txn what, lane_part::rank order) {
    const std::function<std::optional<time_point>()> while_held = [held] {
        return held->held() ? std::optional(held->session->certain_until()) : std::nullopt;
    };
    for (;;) {
        auto part = std::make_shared<lane_part>(what);
        part->order = order;
        part->likely = true;
        const bool over = co_await held->ask(part, while_held);
        if (!over) {
            co_return nullptr;
        }
        if (!part->ec) {
            co_return part;
        }
        if (!logic::is_transient(part->ec)) {
            co_return nullptr;
        }
    }
}

/// Looks at the keys after a grant that rests on ends that were told: our own may have been deleted
/// by hand since they were proved to be there, and a member may tell of ends that are none.
/// Whatever cannot be looked at is left to renewals.
/// @param ended Those that were before us.
inline asio::awaitable<void> look_behind(std::shared_ptr<place> held,
                                         std::vector<logic::held_life> ended) {
    const std::vector<logic::held_life> own = held->held_by();
    std::vector<logic::held_life> all = own;
    all.insert(all.end(), ended.begin(), ended.end());
    auto looks = ask_while_held(held, logic::look_at(all), lane_part::rank::patient);
    const std::shared_ptr<lane_part> look = co_await std::move(looks);
    if (!look || !held->held()) {
        co_return;
    }
    const std::vector<logic::held_life> still_own = held->held_by(); // it may only read by now
    for (const logic::held_life& gone : logic::missing(look->response, own)) {
        if (std::find(still_own.begin(), still_own.end(), gone) != still_own.end()) {
            co_await lose_key(held);
            co_return;
        }
    }
    if (!logic::shows_any(look->response, own.size(), ended)) {
        co_return;
    }
    // A member that has stalled may have shown the past; a request that writes cannot.
    txn proof = logic::look_at(ended);
    proof.success.push_back(op::erase(held->keys().by_name.front().void_key));
    auto asks = ask_while_held(held, std::move(proof), lane_part::rank::pressing);
    const std::shared_ptr<lane_part> proved = co_await std::move(asks);
    if (proved && held->held() && logic::shows_any(proved->response, 0, ended)) {
        held->on_not_ours();
    }
}

} // namespace coetcd::detail
