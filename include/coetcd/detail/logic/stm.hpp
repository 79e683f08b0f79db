// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/ranges.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/stm_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

/// What one run of a transaction's body has seen of the store, and wants to write.
class stm_view {
public:
    explicit stm_view(isolation level = isolation::serializable_snapshot)
        : level_(level) {}

    // Reads.

    /// At which revision to read; 0 for the newest.
    std::int64_t read_at() const { return pinned_; }
    /// Whether the first answer decides at which revision all reads are made.
    bool pins() const {
        return level_ == isolation::serializable_snapshot || level_ == isolation::serializable;
    }

    /// What is known of a key, without our own writes; from now on it counts as read.
    struct known {
        std::optional<key_value> kv; ///< Empty: it does not exist.
    };
    std::optional<known> find(const std::string& key) {
        if (const auto found = keys_.find(key); found != keys_.end()) {
            found->second.used = true;
            return known{found->second.kv};
        }
        for (const range_seen& r : ranges_) {
            if (!contains(r.keys, key)) {
                continue;
            }
            const auto kv = std::lower_bound(
                r.kvs.begin(), r.kvs.end(), key, [](const key_value& a, const std::string& k) {
                    return a.key < k;
                });
            const bool exists = kv != r.kvs.end() && kv->key == key;
            known result{exists ? std::optional(*kv) : std::nullopt};
            if (!r.used) { // else the compares of the range cover it
                keys_.emplace(key, key_seen{result.kv, true});
            }
            return result;
        }
        return std::nullopt;
    }
    /// The same for a range, with our own writes, in order of the keys.
    std::optional<std::vector<key_value>> find_range(const key_range& keys) {
        std::map<std::string, key_value> all;
        if (keys.range_end.empty()) {
            const std::optional<known> one = find(keys.key);
            if (!one) {
                return std::nullopt;
            }
            if (one->kv) {
                all.emplace(keys.key, *one->kv);
            }
        } else {
            const auto found =
                std::find_if(ranges_.begin(), ranges_.end(), [&](const range_seen& r) {
                    return r.keys.key == keys.key && r.keys.range_end == keys.range_end;
                });
            if (found == ranges_.end()) {
                return std::nullopt;
            }
            found->used = true;
            for (const key_value& kv : found->kvs) {
                all.emplace(kv.key, kv);
            }
        }
        add_writes(keys, all);
        std::vector<key_value> result;
        for (auto& [key, kv] : all) {
            result.push_back(std::move(kv));
        }
        return result;
    }

    /// Stores what a read of a key or a range said. What is known already stays.
    void learn(const key_range& keys, const range_response& read, std::int64_t revision) {
        if (pins() && pinned_ == 0) {
            pinned_ = revision;
        }
        if (keys.range_end.empty()) {
            key_seen seen;
            if (answers::holds(read, keys.key, 0)) {
                seen.kv = read.kvs.front();
            }
            keys_.emplace(keys.key, std::move(seen));
            return;
        }
        range_seen seen{keys, read.kvs, pins() ? pinned_ : revision};
        std::sort(seen.kvs.begin(), seen.kvs.end(), [](const key_value& a, const key_value& b) {
            return a.key < b.key;
        });
        ranges_.push_back(std::move(seen));
    }

    // Writes.

    struct write {
        std::optional<std::string> value; ///< Empty: the key is to be erased.
        put_options how{};
    };
    void put(std::string key, std::string value, put_options how) {
        writes_.insert_or_assign(std::move(key), write{std::move(value), how});
    }
    void erase(std::string key) { writes_.insert_or_assign(std::move(key), write()); }
    /// Null if this run has not written the key.
    const write* own(const std::string& key) const {
        const auto found = writes_.find(key);
        return found == writes_.end() ? nullptr : &found->second;
    }

    // The commit.

    bool writes() const { return !writes_.empty(); }
    /// Whether etcd has to confirm the run. A run that only reads, and reads all at one revision,
    /// has seen the store as it was.
    bool needs_commit() const {
        return writes() || (level_ == isolation::repeatable_reads && used() > 1);
    }

    /// The transaction. If it is refused, its reads are for the next run.
    txn commit() const {
        txn t;
        if (level_ != isolation::read_committed) {
            compare_reads(t);
        }
        if (level_ == isolation::serializable_snapshot && used() != 0) {
            for (const auto& [key, w] : writes_) {
                if (!is_compared(key)) {
                    t.compares.push_back(compare::mod_revision(key) < pinned_ + 1);
                }
            }
        }
        for (const auto& [key, w] : writes_) {
            t.success.push_back(w.value ? op::put(key, *w.value, w.how) : op::erase(key));
        }
        return t;
    }

    /// The view of the next run: what the refusal tells.
    stm_view after(const txn_response& refused) const {
        stm_view next(level_);
        if (level_ == isolation::read_committed) {
            return next; // it has asked for nothing
        }
        std::size_t at = 0;
        const std::int64_t now = refused.header.revision;
        for (const auto& [key, seen] : keys_) {
            if (seen.used) {
                next.learn(key, answers::range_at(refused, at++), now);
            }
        }
        for (const range_seen& r : ranges_) {
            if (r.used) {
                next.learn(r.keys, answers::range_at(refused, at++), now);
            }
        }
        return next;
    }

private:
    struct key_seen {
        std::optional<key_value> kv;
        bool used = false; // by the body; else it is only at hand
    };
    struct range_seen {
        key_range keys;
        std::vector<key_value> kvs; // in order of the keys
        std::int64_t at;            // the revision
        bool used = false;
    };

    void add_writes(const key_range& keys, std::map<std::string, key_value>& to) const {
        for (const auto& [key, w] : writes_) {
            if (!contains(keys, key)) {
                continue;
            }
            if (!w.value) {
                to.erase(key);
                continue;
            }
            key_value& kv = to[key];
            kv.key = key;
            kv.value = *w.value;
            kv.lease = w.how.ignore_lease ? kv.lease : w.how.lease;
        }
    }

    std::size_t used() const {
        const auto counts = [](const auto& each) { return each.used; };
        const auto keys = std::count_if(
            keys_.begin(), keys_.end(), [](const auto& each) { return each.second.used; });
        return static_cast<std::size_t>(keys +
                                        std::count_if(ranges_.begin(), ranges_.end(), counts));
    }
    bool is_compared(const std::string& key) const {
        const auto found = keys_.find(key);
        return (found != keys_.end() && found->second.used) ||
               std::any_of(ranges_.begin(), ranges_.end(), [&](const range_seen& r) {
                   return r.used && contains(r.keys, key);
               });
    }

    /// A key that was changed in a range, or added to it, raises the newest revision there. A key
    /// that was erased does not: the comparison of each key shows that.
    void compare_reads(txn& t) const {
        std::set<std::pair<std::string, std::int64_t>> seen;
        for (const auto& [key, s] : keys_) {
            if (s.used) {
                seen.emplace(key, s.kv ? s.kv->mod_revision : 0);
                t.failure.push_back(op::range(key));
            }
        }
        for (const range_seen& r : ranges_) {
            if (r.used) {
                t.compares.push_back(compare::mod_revision(r.keys) < r.at + 1);
                t.failure.push_back(op::range(r.keys));
                for (const key_value& kv : r.kvs) {
                    seen.emplace(kv.key, kv.mod_revision);
                }
            }
        }
        for (const auto& [key, mod_revision] : seen) {
            t.compares.push_back(compare::mod_revision(key) == mod_revision);
        }
    }

    isolation level_;
    std::int64_t pinned_ = 0;
    std::map<std::string, key_seen> keys_;
    std::vector<range_seen> ranges_;
    std::map<std::string, write> writes_;
};

/// etcd's default limit for each list of a transaction.
inline constexpr std::size_t most_in_txn = 128;

/// @param besides How much is added to each list.
/// @throws std::invalid_argument if etcd would not accept it.
inline void require_fit(const txn& t, std::size_t besides, const std::string& who) {
    const std::size_t longest =
        std::max({t.compares.size(), t.success.size(), t.failure.size()}) + besides;
    if (longest > most_in_txn) {
        throw std::invalid_argument(who + ": " + std::to_string(longest) +
                                    " conditions or operations, of " + std::to_string(most_in_txn) +
                                    " that etcd accepts");
    }
}

} // namespace coetcd::detail::logic
