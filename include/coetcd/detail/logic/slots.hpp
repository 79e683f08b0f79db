// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

/// The slots of one session under one name: one number for each set of keys in use at the same
/// time.
class slot_table {
public:
    struct slot {
        enum class use {
            free,
            used,
            closing, ///< Being given up: etcd has not confirmed yet that its keys are gone.
        };
        std::uint64_t number = 0;
        std::int64_t epoch = 0; ///< The last one that we know.
        use state = use::free;
        std::uint64_t freed = 0; ///< How often it was freed.
    };

    /// The free slot with the lowest number, otherwise a new one. Null if none is free while two
    /// are closing, or as many as are used if that is more: these become free as soon as etcd
    /// answers, and so what faults leave in etcd stays bounded.
    slot* take() {
        std::size_t closing = 0;
        std::size_t used = 0;
        for (slot& s : slots_) {
            if (s.state == slot::use::free) {
                s.state = slot::use::used;
                return &s;
            }
            (s.state == slot::use::closing ? closing : used) += 1;
        }
        if (closing >= std::max(most_closing, used)) {
            return nullptr;
        }
        slot& added = slots_.emplace_back();
        added.number = slots_.size() - 1;
        added.state = slot::use::used;
        return &added;
    }
    /// The slot is being given up.
    static void close(slot& s) { s.state = slot::use::closing; }
    /// None of its keys is there, and none can come under `epoch`.
    static void free(slot& s, std::int64_t epoch) {
        s.epoch = epoch;
        s.state = slot::use::free;
        ++s.freed;
    }

    /// A request to end its keys was refused, but a copy of it may still be applied, and end a
    /// later life. So once the slot is free, it goes on with other keys, and their first epoch.
    static void renew(slot& s) { s.number += std::uint64_t{1} << 32; }

    /// Slots that were being given up, and how often each had been freed before.
    using giving_up = std::vector<std::pair<const slot*, std::uint64_t>>;
    void add_closing(giving_up& to) const {
        for (const slot& s : slots_) {
            if (s.state == slot::use::closing) {
                to.emplace_back(&s, s.freed);
            }
        }
    }
    static bool are_over(const giving_up& some) {
        return std::all_of(some.begin(), some.end(), [](const auto& one) {
            return one.first->freed != one.second;
        });
    }

    /// Whether a slot is in use, or being given up, besides the one that was just taken.
    bool any_other() const {
        return std::count_if(slots_.begin(), slots_.end(), [](const slot& s) {
                   return s.state != slot::use::free;
               }) > 1;
    }
    bool all_free() const {
        return std::all_of(
            slots_.begin(), slots_.end(), [](const slot& s) { return s.state == slot::use::free; });
    }

private:
    static constexpr std::size_t most_closing = 2;
    std::deque<slot> slots_; // in order of their numbers; a slot stays where it is
};

} // namespace coetcd::detail::logic
