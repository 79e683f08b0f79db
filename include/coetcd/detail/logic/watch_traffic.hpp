// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace coetcd::detail::logic {

/// How much a watch delivers. A watch that delivers much must not share its stream: the events of
/// others would come behind it.
template<class TimePoint>
class watch_traffic {
public:
    /// This many bytes have come for the watch.
    void add(std::uint64_t bytes, TimePoint now) {
        if (level_ == 0) {
            drained_ = now;
        }
        const auto gone = static_cast<std::uint64_t>((now - drained_) / for_a_byte);
        level_ -= std::min(level_, gone);
        drained_ += static_cast<std::int64_t>(gone) * for_a_byte;
        level_ += bytes;
    }
    /// The watch has delivered more than a line carries in a moment, or goes on delivering more
    /// than a little.
    bool is_much() const { return level_ > most_at_once; }

private:
    static constexpr std::uint64_t most_at_once = 256 * 1024; // bytes
    static constexpr std::chrono::microseconds for_a_byte{16};

    std::uint64_t level_ = 0;
    TimePoint drained_{};
};

} // namespace coetcd::detail::logic
