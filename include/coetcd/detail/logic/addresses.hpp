// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace coetcd::detail::logic {

using addresses = std::vector<boost::asio::ip::address>;

/// Each address once, IPv6 and IPv4 in turns: a family that leads nowhere here holds up one attempt
/// and no more (RFC 8305, 4). Within a family the order stays.
inline addresses in_turns(const addresses& found) {
    addresses one; // of the family of the first
    addresses other;
    for (const auto& a : found) {
        addresses& kin = a.is_v6() == found.front().is_v6() ? one : other;
        if (std::find(kin.begin(), kin.end(), a) == kin.end()) {
            kin.push_back(a);
        }
    }
    addresses out;
    for (std::size_t i = 0; i != std::max(one.size(), other.size()); ++i) {
        for (const addresses* kin : {&one, &other}) {
            if (i < kin->size()) {
                out.push_back((*kin)[i]);
            }
        }
    }
    return out;
}

/// Where a name leads, as far as it is known, and when that is to be looked up.
template<class TimePoint>
class name_record {
public:
    /// In the order in which they are to be tried: those that failed when last used come last.
    const addresses& known() const { return known_; }

    /// Whether a lookup is to begin. Once all known addresses have failed, the name may have moved.
    bool is_due(TimePoint now) const {
        return !pending_ && (!began_ || now - *began_ >= (good_ != 0 ? fresh : shortest));
    }
    bool pending() const { return pending_; }
    /// Until when a call waits for the lookup that is under way. What is known serves then, if
    /// anything is: a lookup that hangs is no reason not to connect.
    TimePoint patience(TimePoint now, TimePoint deadline) const {
        if (known_.empty()) {
            return deadline;
        }
        return pending_ ? std::min(*began_ + longest_wait, now + (deadline - now) / 2) : now;
    }

    void begin(TimePoint now) {
        pending_ = true;
        began_ = now;
    }
    /// The lookup that was begun has failed: what is known stays.
    void failed() { pending_ = false; }
    /// It has succeeded. Those that are known to work come first, as before; then those that are
    /// new, and then those that failed.
    void found(const addresses& all) {
        pending_ = false;
        addresses now = in_turns(all);
        const auto rank = [this](const auto& a) {
            const std::size_t i = index(a);
            return i == known_.size() ? good_ : i < good_ ? i : i + 1;
        };
        std::stable_sort(now.begin(), now.end(), [&](const auto& a, const auto& b) {
            return rank(a) < rank(b);
        });
        const auto good =
            std::count_if(now.begin(), now.end(), [&](const auto& a) { return rank(a) <= good_; });
        known_ = std::move(now);
        good_ = static_cast<std::size_t>(good);
    }

    /// An address works.
    void prefer(const boost::asio::ip::address& one) {
        const std::size_t i = index(one);
        if (i == known_.size()) {
            return;
        }
        good_ += i < good_ ? 0 : 1;
        move(i, 0);
    }
    /// It does not.
    void avoid(const boost::asio::ip::address& one) {
        const std::size_t i = index(one);
        if (i == known_.size()) {
            return;
        }
        good_ -= i < good_ ? 1 : 0;
        move(i, known_.size() - 1);
    }

private:
    static constexpr std::chrono::nanoseconds fresh = std::chrono::seconds(10);
    static constexpr std::chrono::nanoseconds shortest = std::chrono::milliseconds(500);
    static constexpr std::chrono::nanoseconds longest_wait = std::chrono::milliseconds(500);

    std::size_t index(const boost::asio::ip::address& one) const {
        return static_cast<std::size_t>(std::find(known_.begin(), known_.end(), one) -
                                        known_.begin());
    }
    void move(std::size_t from, std::size_t to) {
        const auto at = [this](std::size_t i) {
            return known_.begin() + static_cast<std::ptrdiff_t>(i);
        };
        if (from < to) {
            std::rotate(at(from), at(from + 1), at(to + 1));
        } else {
            std::rotate(at(to), at(from), at(from + 1));
        }
    }

    addresses known_;
    std::size_t good_ = 0;           // so many of them, the first ones, did not fail when last used
    std::optional<TimePoint> began_; // the last lookup
    bool pending_ = false;
};

} // namespace coetcd::detail::logic
