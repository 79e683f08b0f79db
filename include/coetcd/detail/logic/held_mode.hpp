// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace coetcd::detail::logic {

/// Whether a holder that may do either reads or writes, and the life of the write key that it
/// writes with. It is safe on any thread: a downgrade takes effect at once, wherever it is called.
class held_mode {
public:
    bool writes() const { return now_ > reads; }
    /// The life of the write key; 0 if the holder reads.
    std::int64_t write_life() const { return std::max(now_.load(), reads); }

    /// The holder is granted the lock as a writer.
    void begin_writing(std::int64_t life) { now_ = life; }

    /// A downgrade: the holder reads from now on. An upgrade that is under way will find that out.
    /// @returns The life of the write key if the holder wrote: `downgrade_known` is then due, at
    ///   home. Otherwise 0.
    std::int64_t downgrade() {
        std::int64_t before = now_;
        while (!now_.compare_exchange_weak(before,
                                           before > reads || before == lowers ? lowers : reads)) {
        }
        return std::max(before, reads);
    }
    void downgrade_known() { now_ = reads; }
    /// Whether home does not know of a downgrade yet.
    bool is_downgrade_unknown() const { return now_ == lowers; }

    /// @returns True if the holder only reads so far: one of the next two is then due.
    bool begin_upgrade() {
        std::int64_t before = reads;
        return now_.compare_exchange_strong(before, upgrades);
    }
    /// @param life The life of the write key that was put.
    /// @returns False if a downgrade came meanwhile: the holder goes on as a reader.
    bool upgraded(std::int64_t life) {
        std::int64_t before = upgrades;
        return now_.compare_exchange_strong(before, life);
    }
    void not_upgraded() {
        std::int64_t before = upgrades;
        now_.compare_exchange_strong(before, reads);
    }

private:
    // The life that it writes with, or:
    static constexpr std::int64_t reads = 0;
    static constexpr std::int64_t upgrades = -1; // it reads, and an upgrade is under way
    static constexpr std::int64_t lowers = -2;   // it reads, and home does not know yet
    std::atomic<std::int64_t> now_ = reads;
};

} // namespace coetcd::detail::logic
