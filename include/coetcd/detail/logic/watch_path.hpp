// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>

namespace coetcd::detail::logic {

/// How the watches of a client reach etcd: together, on one stream with messages in both
/// directions, unless something on the way buffers requests until they are complete. Then each
/// watch has a stream of its own, and a shared one is tried again from time to time.
template<class TimePoint>
class watch_path {
public:
    bool alone() const { return alone_; }

    /// When to try again.
    TimePoint retry_at() const { return retry_at_; }

    /// A shared stream was tried, and is not possible.
    void broken(TimePoint now) {
        wait_ = alone_ ? std::min(2 * wait_, longest) : shortest;
        alone_ = true;
        retry_at_ = now + wait_;
    }

    /// A shared stream was tried, and is possible.
    void mended() { alone_ = false; }

private:
    static constexpr std::chrono::minutes shortest{5};
    static constexpr std::chrono::minutes longest{60};

    bool alone_ = false;
    std::chrono::minutes wait_ = shortest;
    TimePoint retry_at_{};
};

} // namespace coetcd::detail::logic
