// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/mirror_map.hpp>
#include <coetcd/detail/logic/page_size.hpp>
#include <coetcd/detail/logic/ranges.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace coetcd::detail::logic {

/// Where to divide a range, so that etcd does not go through all of it at once.
/// @param known The keys that there are, as far as is known.
/// @returns The one that `n` others follow from `first` on, these included; nothing if there is
/// none.
inline std::optional<std::string>
key_after(const mirror_entries& known, std::string_view first, std::size_t n) {
    auto at = known.lower_bound(first);
    for (std::size_t i = 0; i != n && at != known.end(); ++i) {
        ++at;
    }
    return at == known.end() ? std::nullopt : std::optional((*at)->key);
}

/// A read of all keys of a range at one revision, page by page.
class paged_read {
public:
    /// @param size Must outlive this, as must `known`.
    /// @param known What was read before. An entry that is still the same takes no memory again.
    paged_read(key_range keys, page_size& size, const mirror_entries& known)
        : keys_(std::move(keys))
        , size_(size)
        , known_(known)
        , next_(keys_.key) {
        find_bound();
    }

    range_request request() const {
        range_options how;
        how.limit = size_.now();
        how.revision = revision_;
        key_range rest = keys_;
        rest.key = next_;
        if (bound_) {
            rest.range_end = *bound_;
        }
        return {std::move(rest), how};
    }

    bool is_complete() const { return is_complete_; }
    std::int64_t revision() const { return revision_; }
    std::uint64_t cluster() const { return cluster_; }
    found_entries& found() { return found_; }

    /// @throws error with `errc::protocol_error` if the answer is none to this request.
    void came(range_response page) {
        require(page.header.revision > 0 && page.header.revision >= revision_);
        require(!page.more || !page.kvs.empty());
        if (revision_ == 0) {
            revision_ = page.header.revision;
            cluster_ = page.header.cluster_id;
        }
        const std::size_t bytes = json_size(page.kvs);
        for (key_value& kv : page.kvs) {
            require(kv.key >= next_ && ends_after(keys_, kv.key));
            require(!bound_ || kv.key < *bound_);
            require(kv.mod_revision > 0 && kv.mod_revision <= revision_);
            next_ = kv.key;
            next_.push_back('\0');
            mirror_entry same = find_entry(known_, kv.key);
            if (!same || *same != kv) {
                same = std::make_shared<const key_value>(std::move(kv));
            }
            found_.push_back(std::move(same));
        }
        is_complete_ = !page.more && !bound_;
        if (page.more) {
            size_.fitted(bytes);
        } else if (bound_) {
            next_ = *std::exchange(bound_, std::nullopt);
            find_bound();
        }
    }

    /// There was no answer, or it was a refusal.
    /// @returns Whether to go on nevertheless, with another request.
    bool failed(const error_code& ec, std::string_view text) {
        if (is_too_large(ec, text)) {
            return size_.halve();
        }
        if (ec == errc::timed_out) {
            (void)size_.halve(); // for the next read
        }
        // That revision is no longer there, or the store was restored.
        const bool overtaken = ec == server_errc::out_of_range && revision_ != 0;
        if (overtaken && ++restarts_ <= most_restarts) {
            revision_ = 0;
            next_ = keys_.key;
            find_bound();
            found_.clear();
            return true;
        }
        return false;
    }

    // The keys of a page.
    static constexpr std::int64_t first = 512;
    static constexpr std::int64_t most = 8192;
    /// Of what is known so many are asked for, page by page, before the rest: etcd counts all that
    /// it is asked for, for each page.
    static constexpr std::size_t part = 4 * static_cast<std::size_t>(most);

private:
    static constexpr int most_restarts = 5;

    static void require(bool holds) {
        if (!holds) {
            throw error(errc::protocol_error, "the answer to a read is not etcd's");
        }
    }

    void find_bound() { bound_ = key_after(known_, next_, part); }

    const key_range keys_;
    page_size& size_;
    const mirror_entries& known_;
    std::string next_;                 // where the next page begins
    std::optional<std::string> bound_; // where a part ends
    std::int64_t revision_ = 0;
    std::uint64_t cluster_ = 0;
    bool is_complete_ = false;
    int restarts_ = 0;
    found_entries found_;
};

/// How a mirror goes on after its watch has ended.
enum class mirror_step {
    watch_again, ///< After what was told.
    read_again,  ///< What has changed is found by comparison.
};

inline mirror_step after_watch(const error_code& ec) {
    const bool is_history_lost =
        ec == errc::watch_compacted || ec == errc::too_large || ec == errc::revision_regressed;
    return is_history_lost ? mirror_step::read_again : mirror_step::watch_again;
}

/// What a mirror has when it looks whether it is right.
struct mirror_mark {
    std::int64_t revision = 0;
    std::size_t size = 0;     ///< How many keys there are.
    std::int64_t checked = 0; ///< Up to which revision it was found right before.
};

/// How many keys etcd is to go through at once. Others wait meanwhile.
inline constexpr std::size_t most_looked_at = 20'000;

/// A look at what has changed since a mark: the first read. If it is a check, the second one tells
/// whether the mark is right: what etcd had then. The answers are small, but etcd goes through all
/// keys for each.
/// @param revision Which keys to look at; 0: the newest.
inline txn
look_since(const key_range& keys, const mirror_mark& m, bool is_check, std::int64_t revision) {
    range_options since;
    since.limit = 1;
    since.keys_only = true;
    since.revision = revision;
    since.min_mod_revision = m.revision + 1;
    txn look = txn().then(op::range(keys, since));
    if (is_check) {
        constexpr std::int64_t many = 10'000;
        range_options then;
        then.limit = many;
        then.keys_only = true;
        then.revision = m.revision;
        then.min_mod_revision = m.checked + 1;
        look.then(op::range(keys, then));
    }
    return look;
}

/// What the first answer means.
enum class since {
    nothing, ///< The keys are the same.
    changes, ///< Events are under way, or were lost.
    older    ///< What answers is behind.
};

inline since changed_since(const range_response& seen, std::int64_t now, const mirror_mark& m) {
    if (now < m.revision) {
        return since::older;
    }
    // A key that was put shows; if none was, each that has gone is missing.
    const bool same = seen.kvs.empty() && seen.count == static_cast<std::int64_t>(m.size);
    return same ? since::nothing : since::changes;
}

/// What the second answer means.
enum class verdict_of_check {
    right,
    wrong, ///< Events were lost.
    open   ///< It was right, but for keys that may have been erased since.
};

/// @param now The keys of the mirror, which may have gone on since.
/// @param has_moved Whether it has.
inline verdict_of_check check_mark(const range_response& then,
                                   const mirror_mark& m,
                                   const mirror_entries& now,
                                   bool has_moved) {
    if (then.count != static_cast<std::int64_t>(m.size)) {
        return verdict_of_check::wrong;
    }
    bool is_open = false;
    for (const key_value& kv : then.kvs) {
        const mirror_entry own = find_entry(now, kv.key);
        if (own ? own->mod_revision < kv.mod_revision : !has_moved) {
            return verdict_of_check::wrong;
        }
        is_open = is_open || !own;
    }
    return is_open ? verdict_of_check::open : verdict_of_check::right;
}

/// How long to trust events alone. etcd goes through all keys to answer: the more there are, the
/// rarer.
inline std::chrono::nanoseconds look_interval(std::size_t keys, std::uint64_t random) {
    constexpr std::size_t many = 1U << 30;
    const std::chrono::nanoseconds full =
        std::chrono::seconds(10) +
        std::chrono::milliseconds(10) * static_cast<std::int64_t>(std::min(keys, many));
    const auto half = full / 2;
    return half + std::chrono::nanoseconds(static_cast<std::int64_t>(
                      random % static_cast<std::uint64_t>(half.count() + 1)));
}

} // namespace coetcd::detail::logic
