// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/mirror_backlog.hpp>
#include <coetcd/detail/logic/mirror_map.hpp>
#include <coetcd/detail/logic/ranges.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/mirror_batch.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coetcd::detail {

struct mirror_times {
    // How long an event of the caller's own write may take.
    static constexpr std::chrono::milliseconds patience_with_events{100};
    // How long events that a look knows of may take before they are taken for lost.
    static constexpr std::chrono::seconds patience_with_lost{5};
    // How long what happened meanwhile may take to come, after the watch has resumed.
    static constexpr std::chrono::milliseconds patience_with_history{250};
    static constexpr std::chrono::milliseconds first_pause{25};
    static constexpr std::chrono::milliseconds longest_pause{10'000};
    static constexpr int doubts = 6; // as a feed
};

/// What everybody is told when etcd was restored.
inline error is_older(const std::string& title, std::int64_t now, std::int64_t told) {
    return {errc::revision_regressed,
            title + ": etcd is at revision " + std::to_string(now) + ", and revision " +
                std::to_string(told) + " was told of"};
}

/// One reader of the changes of a mirror. Lives at home.
struct mirror_reader {
    explicit mirror_reader(std::size_t buffer)
        : owed(buffer) {}
    logic::mirror_backlog owed;
    std::optional<error> regressed; ///< To be told first.
    bool is_over = false;           ///< Its handle was destroyed.
};

class mirror_readers {
public:
    /// No effect if it is among them.
    void add(mirror_reader& r) {
        if (std::find(all_.begin(), all_.end(), &r) == all_.end()) {
            all_.push_back(&r);
        }
    }
    void remove(mirror_reader& gone) noexcept { std::erase(all_, &gone); }
    void clear() noexcept { all_.clear(); }

    void tell(const std::vector<mirror_change>& changes) {
        for (mirror_reader* const r : all_) {
            r->owed.add(changes);
        }
    }
    /// The store is an older one: what they are told next is a difference.
    void regress(const error& why) {
        for (mirror_reader* const r : all_) {
            if (!r->owed.is_new()) {
                r->owed.merge();
                r->regressed = why;
            }
        }
    }

private:
    std::vector<mirror_reader*> all_;
};

/// What a mirror tells: its keys, and whether they are current. It changes at home alone, so that
/// the lock is only for those that look from elsewhere, and for changes.
class mirror_state {
public:
    /// @param title Of the mirror, for messages. Must outlive this, as must `world`.
    mirror_state(const env& world, const std::string& title)
        : env_(world)
        , title_(title) {}
    mirror_state(const mirror_state&) = delete;
    mirror_state& operator=(const mirror_state&) = delete;

    // Callable from anywhere:

    mirror_entry get(std::string_view key) const {
        const std::lock_guard alone(access_);
        return logic::find_entry(map_.now(), key);
    }
    std::size_t size() const {
        const std::lock_guard alone(access_);
        return map_.now().size();
    }
    std::int64_t revision() const {
        const std::lock_guard alone(access_);
        return map_.revision();
    }
    mirror_snapshot snapshot(const key_range& part) const {
        const std::lock_guard alone(access_);
        mirror_snapshot all;
        all.revision = map_.revision();
        const logic::mirror_entries& now = map_.now();
        auto e = now.lower_bound(std::string_view(part.key));
        for (; e != now.end() && logic::ends_after(part, (*e)->key); ++e) {
            all.entries.push_back(*e);
        }
        return all;
    }
    std::optional<error> trouble() const {
        const std::lock_guard alone(access_);
        return since_ ? std::optional(told()) : std::nullopt;
    }
    std::chrono::nanoseconds age() const {
        const std::lock_guard alone(access_);
        return since_ ? env_.now() - *since_ : std::chrono::nanoseconds(0);
    }

    // At home:

    const logic::mirror_map& map() const { return map_; }
    bool in_trouble() const { return since_.has_value(); }
    /// The trouble that has ended it.
    error failure() const { return told(); }

    std::vector<mirror_change> apply(std::vector<event>& events) {
        const std::lock_guard alone(access_);
        return map_.apply(events);
    }
    void reached(std::int64_t revision) {
        const std::lock_guard alone(access_);
        map_.reached(revision);
    }
    void prove(std::int64_t revision) {
        const std::lock_guard alone(access_);
        map_.prove(revision);
    }
    void become(logic::found_entries found, std::int64_t revision) {
        const std::lock_guard alone(access_);
        map_.become(std::move(found), revision);
    }

    /// The watch is broken. Takes no memory, as no `note` does.
    /// @param since From when on the keys may be out of date, if they are not so already.
    void note(time_point since) noexcept {
        const std::lock_guard alone(access_);
        since_ = since_ ? since_ : since;
    }
    /// The same, and why.
    void note(error_code ec, std::string text, time_point since) noexcept {
        const std::lock_guard alone(access_);
        since_ = since_ ? since_ : since;
        ec_ = ec;
        text_ = std::move(text);
    }
    /// There is trouble, but at that time they were current.
    void was_current(time_point then) noexcept {
        const std::lock_guard alone(access_);
        since_ = since_ ? then : since_;
    }
    /// There is no trouble any more.
    void is_current() noexcept {
        const std::lock_guard alone(access_);
        since_.reset();
        ec_ = {};
        text_.clear();
    }

private:
    error told() const {
        if (!ec_) {
            return {errc::unavailable, title_ + ": its watch is broken, and resumes soon"};
        }
        return {ec_, text_.empty() ? title_ : title_ + ": " + text_};
    }

    const env& env_;
    const std::string& title_;
    mutable std::mutex access_;
    logic::mirror_map map_;
    std::optional<time_point> since_; // when it was last known to be current; nothing: it is
    error_code ec_;
    std::string text_;
};

} // namespace coetcd::detail
