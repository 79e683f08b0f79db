// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail::logic {

/// Whether a member's gateway gives up calls that etcd has never begun. All clients of a gateway
/// share one connection to its etcd: if `--max-concurrent-streams` is set, that many watches use it
/// up. To tell this from a slow etcd, the member is asked for its status, which it can tell by
/// itself: if the gateway gives that up, too, nothing gets through it.
template<class TimePoint>
class jam {
public:
    /// A gateway gave up a call.
    /// @returns Whether to ask its member for its status.
    bool suspects(TimePoint now) {
        if (asks_ || (asked_ && now - *asked_ < interval)) {
            return false;
        }
        asks_ = true;
        asked_ = now;
        return true;
    }
    /// @param given_up True: the gateway gave up that question. False: it was answered, or nobody
    ///   was there.
    void heard(const endpoint& of, bool given_up, TimePoint now) {
        asks_ = false;
        if (given_up) {
            where_ = of.text();
            until_ = now + lasts;
        } else if (where_ == of.text()) {
            where_.clear();
        }
    }
    /// What to add to the error of a call that was given up. Usually empty.
    std::string hint(TimePoint now) const {
        if (where_.empty() || now >= until_) {
            return {};
        }
        return "; the gateway of " + where_ + " gets nothing through, not even a question how it " +
               "is: raise etcd's --max-concurrent-streams if it is set";
    }

private:
    static constexpr std::chrono::seconds interval{5}; // between two questions
    static constexpr std::chrono::seconds lasts{15};   // for which the answer counts

    bool asks_ = false;
    std::optional<TimePoint> asked_;
    std::string where_; // whose gateway is jammed; empty: none that is known
    TimePoint until_{};
};

} // namespace coetcd::detail::logic
