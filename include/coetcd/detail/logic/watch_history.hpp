// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

/// The bytes that a change takes in memory.
inline std::size_t footprint(const event& e) {
    const std::size_t before =
        e.prev_kv ? e.prev_kv->key.size() + e.prev_kv->value.size() : std::size_t{0};
    return sizeof e + e.kv.key.size() + e.kv.value.size() + before;
}

/// What a watch has delivered, so that it goes on without gap or duplicate after its stream broke.
///
/// Only events count, and the progress notifications that etcd sends by itself. The revision in the
/// header of any other message may be ahead of events that are still to come.
class watch_history {
public:
    /// @param next The first revision to deliver; 0 for whatever comes, which is not recorded.
    /// @param told The first value of `told()`.
    explicit watch_history(std::int64_t next, std::int64_t told = 0)
        : next_(next)
        , told_(told) {}

    /// The first revision that is not delivered yet, or not completely: where to resume.
    std::int64_t next() const { return next_; }

    /// Takes the events of one message.
    /// @param more Whether the message is a piece: its last revision may go on in the next message.
    /// @param bytes The size of the message.
    /// @returns The events of complete revisions that were not delivered before.
    std::vector<event> take(std::vector<event>& events, bool more, std::size_t bytes) {
        const bool goes_on = !incomplete_.empty();
        for (event& e : events) {
            if (e.kv.mod_revision >= next_) {
                incomplete_.push_back(std::move(e));
            }
        }
        std::vector<event> complete;
        if (!more) {
            complete.swap(incomplete_);
        } else if (!incomplete_.empty()) {
            const auto last = std::lower_bound(
                incomplete_.begin(),
                incomplete_.end(),
                incomplete_.back().kv.mod_revision,
                [](const event& e, std::int64_t r) { return e.kv.mod_revision < r; });
            complete.assign(std::make_move_iterator(incomplete_.begin()),
                            std::make_move_iterator(last));
            incomplete_.erase(incomplete_.begin(), last);
        }
        held_ = goes_on && complete.empty() ? held_ + bytes : 0;
        if (!complete.empty()) {
            reached(complete.back().kv.mod_revision);
        }
        return complete;
    }

    /// The revision that waits for its rest; 0 if none does.
    std::int64_t unfinished() const {
        return incomplete_.empty() ? 0 : incomplete_.front().kv.mod_revision;
    }
    /// The bytes of the pieces that hold nothing but this revision: at most its own size.
    std::size_t held() const { return held_; }

    /// Everything up to `revision` was delivered.
    void reached(std::int64_t revision) {
        if (next_ != 0) {
            next_ = std::max(next_, revision + 1);
            told_ = std::max(told_, revision);
        }
    }

    /// The last revision that etcd is known to have had; 0 if none is known.
    std::int64_t told() const { return told_; }

    /// The watch begins anew at `next`: what was incomplete comes again.
    void restart() {
        incomplete_.clear();
        held_ = 0;
    }

private:
    std::int64_t next_;
    std::int64_t told_;
    std::vector<event> incomplete_; // of one revision
    std::size_t held_ = 0;
};

} // namespace coetcd::detail::logic
