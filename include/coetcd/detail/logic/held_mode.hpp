// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace coetcd::detail::logic {

/// Whether a holder reads or writes, where it may do either; and the life of the write key that it
/// writes with. From any thread: a downgrade holds at once, wherever it is called.
class held_mode {
public:
    bool writes() const { return now_ > reads; }
    /// Of the write key; 0 if it reads.
    std::int64_t write_life() const { return std::max(now_.load(), reads); }

    /// It is granted as a writer.
    void begin_writing(std::int64_t life) { now_ = life; }

    /// A downgrade: it reads from now on. An upgrade that is under way will find that out.
    /// @returns The life of the write key, if it wrote: then `downgrade_known` is due, at home. Or
    ///   0.
    std::int64_t downgrade() {
        std::int64_t before = now_;
        while (!now_.compare_exchange_weak(before,
                                           before > reads || before == lowers ? lowers : reads)) {
        }
        return std::max(before, reads);
    }
    void downgrade_known() { now_ = reads; }
    /// Home does not know of a downgrade yet.
    bool is_downgrade_unknown() const { return now_ == lowers; }

    /// @returns False if it writes. If not, one of the next two is due.
    bool begin_upgrade() {
        std::int64_t before = reads;
        return now_.compare_exchange_strong(before, upgrades);
    }
    /// @param life Of the write key that was put.
    /// @returns False if a downgrade came meanwhile: it goes on as a reader.
    bool upgraded(std::int64_t life) {
        std::int64_t before = upgrades;
        return now_.compare_exchange_strong(before, life);
    }
    void not_upgraded() {
        std::int64_t before = upgrades;
        now_.compare_exchange_strong(before, reads);
    }

private:
    // It writes with the life of this number, or:
    static constexpr std::int64_t reads = 0;
    static constexpr std::int64_t upgrades = -1; // it reads, and an upgrade is under way
    static constexpr std::int64_t lowers = -2;   // it reads, and home does not know yet
    std::atomic<std::int64_t> now_ = reads;
};

} // namespace coetcd::detail::logic
