// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/recipe/attempt.hpp>
#include <coetcd/detail/service/session.hpp>

#include <memory>
#include <utility>

namespace coetcd::detail {

/// Renews a session's lease, for an attempt whose key is not there.
inline asio::awaitable<void>
renew_for(std::shared_ptr<session_impl> s, std::weak_ptr<attempt> who, std::shared_ptr<bool> done) {
    struct renewing { // so that nobody waits for it for ever
        const std::weak_ptr<attempt>& who;
        bool& done;
        ~renewing() {
            done = true;
            if (const auto waiting = who.lock()) {
                waiting->changed.notify_all();
            }
        }
    };
    const renewing until_the_end{who, *done};
    (void)co_await session_impl::renew(std::move(s));
}

/// Finds out why a key of an attempt is not there: either the lease is gone, or somebody deleted
/// the key. A renewal tells which; it continues in the background if the deadline comes first.
/// @returns Whether the attempt's `loss` now knows.
inline asio::awaitable<bool> explain_missing_key(std::shared_ptr<attempt> who,
                                                 time_point deadline) {
    const std::shared_ptr<session_impl> s = who->session;
    const auto renewed = std::make_shared<bool>(false);
    spawn(s->world, renew_for(s, who, renewed));
    while (!*renewed && s->world.now() < deadline) {
        (void)co_await who->changed.wait(deadline);
    }
    co_return *renewed;
}

} // namespace coetcd::detail
