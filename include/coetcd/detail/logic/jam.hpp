// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail::logic {

/// Whether a member's gateway gives calls up that etcd has never begun. All clients of a gateway
/// share one connection to its etcd: with `--max-concurrent-streams`, as many watches take it all.
/// To tell that from an etcd that is slow, the member is asked how it is, for which it needs
/// nobody: if the gateway gives that up, too, it has no way through.
template<class TimePoint>
class jam {
public:
    /// A gateway gave a call up.
    /// @returns Whether its member is to be asked how it is.
    bool suspects(TimePoint now) {
        if (asks_ || (asked_ && now - *asked_ < interval)) {
            return false;
        }
        asks_ = true;
        asked_ = now;
        return true;
    }
    /// @param given_up By the gateway; not: it was answered, or nobody was there.
    void heard(const endpoint& of, bool given_up, TimePoint now) {
        asks_ = false;
        if (given_up) {
            where_ = of.text();
            until_ = now + lasts;
        } else if (where_ == of.text()) {
            where_.clear();
        }
    }
    /// What to add to the error of a call that was given up. Empty as a rule.
    std::string hint(TimePoint now) const {
        if (where_.empty() || now >= until_) {
            return {};
        }
        return "; the gateway of " + where_ + " gets nothing through, not even a question how it " +
               "is: raise etcd's --max-concurrent-streams if it is set";
    }

private:
    static constexpr std::chrono::seconds interval{5}; // between two questions
    static constexpr std::chrono::seconds lasts{15};   // what was learnt

    bool asks_ = false;
    std::optional<TimePoint> asked_;
    std::string where_; // it is so; empty: nowhere that is known
    TimePoint until_{};
};

} // namespace coetcd::detail::logic
