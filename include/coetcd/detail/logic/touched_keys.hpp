// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/ranges.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <set>
#include <string_view>
#include <variant>
#include <vector>

namespace coetcd::detail::logic {

/// Keys and ranges of keys, which must outlive this.
class key_set {
public:
    void add(const key_range& r) {
        if (r.range_end.empty()) {
            keys_.insert(r.key);
        } else {
            ranges_.push_back(&r);
        }
    }
    void add(std::string_view key) { keys_.insert(key); }
    bool meets(std::string_view key) const {
        return keys_.contains(key) ||
               std::any_of(ranges_.begin(), ranges_.end(), [&](const key_range* r) { //
                   return contains(*r, key);
               });
    }
    bool meets(const key_range& r) const {
        const auto first = keys_.lower_bound(r.key);
        return (first != keys_.end() && contains(r, *first)) ||
               std::any_of(ranges_.begin(), ranges_.end(), [&](const key_range* other) { //
                   return overlap(*other, r);
               });
    }

private:
    std::set<std::string_view> keys_;
    std::vector<const key_range*> ranges_;
};

/// The keys that the transactions of one request may change or look at. None of them may touch what
/// another one may change, for then it would not do what it does by itself:
/// - etcd evaluates all conditions before it does anything, and refuses all of them if a key might
///   be changed twice;
/// - all their answers tell of the same revision. Whoever looks at a key, and then watches it from
///   the next revision on, would miss what another one of the same request has done to it.
///
/// Nor do those that put share a request with those that do not: etcd refuses only puts when it has
/// no space left.
class touched_keys {
public:
    /// @returns Whether this one may join those that were added; the first one always may. If so,
    ///   it does; it must outlive this.
    bool add(const txn& what) {
        const bool puts = may_put(what);
        if (!is_empty_) {
            bool may = puts == puts_;
            for_each(
                what,
                [&](const auto& changed) {
                    may = may && !changes_.meets(changed) && !looks_at_.meets(changed);
                },
                [&](const key_range& seen) { may = may && !changes_.meets(seen); });
            if (!may) {
                return false;
            }
        }
        is_empty_ = false;
        puts_ = puts;
        for_each(
            what,
            [this](const auto& changed) { changes_.add(changed); },
            [this](const key_range& seen) { looks_at_.add(seen); });
        return true;
    }

private:
    static bool may_put(const txn& what) {
        const auto puts = [](const op& o) {
            const auto* inner = std::get_if<txn>(&o);
            return inner ? may_put(*inner) : std::holds_alternative<put_request>(o);
        };
        return std::any_of(what.success.begin(), what.success.end(), puts) ||
               std::any_of(what.failure.begin(), what.failure.end(), puts);
    }
    /// @param change Called for each key or range that it may change.
    /// @param look Called for each key or range that it looks at.
    template<class Change, class Look>
    static void for_each(const txn& what, const Change& change, const Look& look) {
        for (const compare& c : what.compares) {
            look(c.range);
        }
        for (const std::vector<op>* branch : {&what.success, &what.failure}) {
            for (const op& o : *branch) {
                if (const auto* put = std::get_if<put_request>(&o)) {
                    change(std::string_view(put->key));
                } else if (const auto* erase = std::get_if<erase_request>(&o)) {
                    change(erase->range);
                } else if (const auto* read = std::get_if<range_request>(&o)) {
                    look(read->range);
                } else {
                    for_each(std::get<txn>(o), change, look);
                }
            }
        }
    }

    key_set changes_;
    key_set looks_at_;
    bool is_empty_ = true;
    bool puts_ = false;
};

} // namespace coetcd::detail::logic
