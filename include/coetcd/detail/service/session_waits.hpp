// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a session in danger is waited for, and how for one that is well again.

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/session_options.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace coetcd::detail {

inline asio::awaitable<session_state> session_impl::until(std::shared_ptr<session_impl> self,
                                                          session_state wanted) {
    session_state now = self->state();
    while (now != wanted && now != session_state::lost) {
        (void)co_await self->turned_.wait(self->certain_until());
        now = self->state();
    }
    co_return now;
}

inline asio::awaitable<void> session_impl::wait_for(std::shared_ptr<session_impl> self,
                                                    session_state wanted) {
    const session_state now = co_await until(self, wanted);
    if (now != wanted) {
        throw self->loss("session");
    }
}

inline asio::awaitable<std::chrono::nanoseconds>
session_impl::wait_suspect(std::shared_ptr<session_impl> self) {
    co_await wait_for(self, session_state::suspect);
    co_return self->remaining();
}

} // namespace coetcd::detail
