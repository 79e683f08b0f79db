// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/service/lane.hpp>

#include <memory>

namespace coetcd::detail {

/// Withdraws a part that nobody wants any more; nobody is told what happens to it.
struct withdrawn_at_end {
    transaction_lane& lane;
    std::shared_ptr<lane_part> part;
    ~withdrawn_at_end() {
        part->on_end = nullptr;
        lane.withdraw(part);
    }
};

/// Sends a transaction, and waits until it is over, or for as long as the caller has time. Then, or
/// if cancelled, it is withdrawn.
/// @returns Whether it was over in time.
inline asio::awaitable<bool> until_over(std::shared_ptr<transaction_lane> lane,
                                        std::shared_ptr<lane_part> part,
                                        time_point deadline = time_point::max()) {
    notifier answered(lane->world());
    part->on_end = [&answered] { answered.notify_all(); };
    const withdrawn_at_end unless_over{*lane, part};
    lane->submit(part);
    while (!part->over) {
        const bool in_time = co_await answered.wait(deadline);
        if (!in_time) {
            break;
        }
    }
    co_return part->over;
}

} // namespace coetcd::detail
