// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/awaitable.hpp>

#include <utility>

namespace coetcd::detail {

/// Lets the calls of one object take turns, in the order in which they come. At home.
class turns {
public:
    explicit turns(env& world)
        : free_(world) {}

    /// Until it is destroyed, no other call has its turn. Must not outlive `turns`.
    class turn {
    public:
        explicit turn(turns& of)
            : of_(&of) {}
        turn(turn&& other) noexcept
            : of_(std::exchange(other.of_, nullptr)) {}
        turn& operator=(turn&&) = delete;
        ~turn() {
            if (of_) {
                of_->busy_ = false;
                of_->free_.notify_one();
            }
        }

    private:
        turns* of_;
    };

    /// Waits for a turn. Must outlive the wait. Cancelled: throws `operation_aborted`.
    asio::awaitable<turn> take() {
        while (busy_) {
            (void)co_await free_.wait();
        }
        busy_ = true;
        co_return turn(*this);
    }

private:
    bool busy_ = false;
    notifier free_;
};

} // namespace coetcd::detail
