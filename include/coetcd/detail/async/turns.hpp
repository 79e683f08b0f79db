// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/awaitable.hpp>

#include <optional>
#include <utility>

namespace coetcd::detail {

/// Lets the calls of one object take turns, in the order in which they come: a turn that ends is
/// handed over to the call that has waited longest. At home.
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
                of_->busy_ = of_->free_.notify_one();
            }
        }

    private:
        turns* of_;
    };

    /// Waits for a turn. Must outlive the wait. Cancelled: throws `operation_aborted`.
    asio::awaitable<turn> take() {
        if (busy_) {
            (void)co_await free_.wait(); // it stays busy: the turn is ours
        }
        busy_ = true;
        co_return turn(*this);
    }
    /// As `take`; nothing if `deadline` came first.
    asio::awaitable<std::optional<turn>> take_until(time_point deadline) {
        if (busy_) {
            const bool came = co_await free_.wait(deadline);
            if (!came) {
                co_return std::nullopt;
            }
        }
        busy_ = true;
        co_return turn(*this);
    }
    /// A turn, if nobody has one.
    std::optional<turn> try_take() {
        std::optional<turn> mine;
        if (!busy_) {
            busy_ = true;
            mine.emplace(*this);
        }
        return mine;
    }

private:
    bool busy_ = false;
    notifier free_;
};

} // namespace coetcd::detail
