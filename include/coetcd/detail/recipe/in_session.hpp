// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/service/session_keeper.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// Whether a call that failed with `ec` in one session may succeed in the next one: what ended was
/// its session, not what it wanted.
inline bool is_over_with_session(const error_code& ec) {
    return ec == errc::session_lost || ec == errc::not_owner;
}

/// Takes something in whichever session lives, until it is held or `deadline` comes.
/// @param take `take(session, patience)` is an `awaitable<std::optional<Held>>`, and empty if
///   others had it for so long.
template<class Held, class Take>
asio::awaitable<std::optional<Held>>
in_session(std::shared_ptr<session_keeper_impl> keeper, Take take, time_point deadline) {
    std::optional<Held> taken;
    for (bool over = false; !over;) {
        const std::shared_ptr<const session> now =
            co_await session_keeper_impl::wait_live(keeper, deadline);
        try {
            const time_point at = keeper->world.now();
            const auto left = deadline > at ? deadline - at : std::chrono::nanoseconds(0);
            auto taking = take(*now, left);
            taken = co_await std::move(taking);
            over = !taken || taken->owns_lock();
        } catch (const error& e) {
            if (!is_over_with_session(e.code())) {
                throw;
            }
        }
    }
    co_return taken;
}

} // namespace coetcd::detail
