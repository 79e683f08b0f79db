// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/endpoint.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

/// What an endpoint was used for.
enum class endpoint_use { call, stream };

/// Chooses the endpoint to try next, from those that were named and those learned since. It stays
/// with one that works. An endpoint that failed is shunned for a while that doubles with each
/// failure in a row, and is tried earlier only if all are shunned. The choice moves to an endpoint
/// that is much nearer, and from one that failed to the nearest.
template<class TimePoint>
class endpoint_choice {
public:
    /// @param named One or more.
    /// @param start Spreads clients over the endpoints.
    endpoint_choice(const std::vector<endpoint>& named, std::uint64_t start)
        : named_(named)
        , preferred_(static_cast<std::size_t>(start % named.size())) {
        for (const endpoint& e : named) {
            states_.emplace_back(e);
        }
    }

    /// The endpoints that the user gave.
    const std::vector<endpoint>& named() const { return named_; }

    std::size_t size() const { return states_.size(); }
    std::vector<endpoint> all() const {
        std::vector<endpoint> out;
        for (const state& s : states_) {
            out.push_back(s.where);
        }
        return out;
    }

    /// @param not_there Endpoints to avoid, if there is another one.
    const endpoint& pick(TimePoint now, std::span<const endpoint> not_there = {}) const {
        const state* best = nullptr;
        for (std::size_t i = 0; i != states_.size(); ++i) {
            const state& s = states_[(preferred_ + i) % states_.size()];
            if (std::find(not_there.begin(), not_there.end(), s.where) != not_there.end()) {
                continue;
            }
            if (i == 0 && s.shunned_until <= now) {
                return s.where;
            }
            if (!best) {
                best = &s;
                continue;
            }
            const bool better = s.shunned_until <= now
                                    ? best->shunned_until > now || s.distance < best->distance
                                    : s.shunned_until < best->shunned_until;
            if (better) {
                best = &s;
            }
        }
        return best ? best->where : pick(now); // all are to be avoided: any
    }

    // An endpoint that is no longer in the list is ignored.

    /// @returns Whether it counts: that a stream works says nothing of calls, if these have failed.
    bool succeeded(const endpoint& where, endpoint_use with) {
        state* s = find(where);
        if (!s || (s->calls_fail && with == endpoint_use::stream)) {
            return false;
        }
        s->forgive();
        if (states_[preferred_].failures != 0) {
            preferred_ = index(*s);
        }
        return true;
    }

    void failed(const endpoint& where, TimePoint now, endpoint_use with) {
        state* s = find(where);
        if (!s) {
            return;
        }
        s->calls_fail = s->calls_fail || with == endpoint_use::call;
        const auto wait = std::min(shortest * (1 << std::min(s->failures, 6)), longest);
        s->failures = std::min(s->failures + 1, 6);
        s->shunned_until = now + wait;
        if (preferred_ == index(*s)) {
            const state* next = find(pick(now));
            preferred_ = next->shunned_until <= now ? index(*next) : (preferred_ + 1) % size();
        }
    }

    /// An endpoint works, and answered in this time. Unlike `succeeded`, this alone does not make
    /// it the preferred one; but an endpoint that is much nearer than the preferred one takes its
    /// place.
    void measured(const endpoint& where, std::chrono::nanoseconds round_trip) {
        state* s = find(where);
        if (!s) {
            return;
        }
        s->forgive();
        // No answer is faster than the network; a slow one may have had to wait somewhere.
        s->distance = round_trip < s->distance ? round_trip : (s->distance + round_trip) / 2;
        // How far away the preferred one is may be known only now.
        for (const state& other : states_) {
            const auto distance = states_[preferred_].distance;
            if (other.failures == 0 && other.distance != unknown && distance != unknown &&
                other.distance * 2 + noise < distance) {
                preferred_ = index(other);
            }
        }
    }

    /// Replaces the endpoints that the user gave, and forgets those that were learned. What is
    /// known of those that stay is kept.
    /// @param named One or more.
    void name(const std::vector<endpoint>& named) {
        named_ = named;
        learn({});
    }

    /// Replaces the endpoints that were learned before with these, which are distinct. What is
    /// known of those that stay is kept. Named endpoints stay, whatever a list says.
    void learn(const std::vector<endpoint>& others) {
        std::vector<state> next;
        const endpoint preferred = states_[preferred_].where;
        const auto add = [&](const endpoint& e) {
            const state* known = find(e);
            next.push_back(known ? *known : state(e));
        };
        for (const endpoint& e : named_) {
            add(e);
        }
        for (const endpoint& e : others) {
            if (std::find(named_.begin(), named_.end(), e) == named_.end()) {
                add(e);
            }
        }
        states_ = std::move(next);
        const state* still = find(preferred);
        preferred_ = still ? index(*still) : preferred_ % states_.size();
    }

private:
    static constexpr std::chrono::milliseconds shortest{100};
    static constexpr std::chrono::milliseconds longest{5000};
    static constexpr std::chrono::nanoseconds unknown = std::chrono::nanoseconds::max();
    static constexpr std::chrono::milliseconds noise{1}; // a difference that does not matter

    struct state {
        explicit state(endpoint e)
            : where(std::move(e)) {}
        void forgive() {
            failures = 0;
            calls_fail = false;
            shunned_until = TimePoint::min();
        }
        endpoint where;
        int failures = 0;        // in a row
        bool calls_fail = false; // one of these was that of a call
        TimePoint shunned_until = TimePoint::min();
        std::chrono::nanoseconds distance = unknown; // a round trip
    };

    state* find(const endpoint& where) {
        const auto found = std::find_if(
            states_.begin(), states_.end(), [&](const state& s) { return s.where == where; });
        return found == states_.end() ? nullptr : &*found;
    }
    std::size_t index(const state& s) const {
        return static_cast<std::size_t>(&s - states_.data());
    }

    std::vector<endpoint> named_;
    std::vector<state> states_; // the named ones first
    std::size_t preferred_;
};

} // namespace coetcd::detail::logic
