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

/// Each address once, IPv6 and IPv4 alternating: a family that does not work here delays one
/// attempt only (RFC 8305, 4). The order within a family stays.
inline addresses in_turns(const addresses& found) {
    addresses one; // the family of the first address
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

/// The addresses of a name, as far as they are known, and when to look them up.
template<class TimePoint>
class name_record {
public:
    /// In the order in which to try them: those that failed when last used come last.
    const addresses& known() const { return known_; }

    /// Whether to begin a lookup. Once all known addresses have failed, the name may have moved.
    bool is_due(TimePoint now) const {
        return !pending_ && (!began_ || now - *began_ >= (good_ != 0 ? fresh : shortest));
    }
    bool pending() const { return pending_; }
    /// Until when a call waits for the lookup under way. It then uses the known addresses, if there
    /// are any: a lookup that hangs is no reason not to connect.
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
    /// The lookup has failed: the known addresses stay.
    void failed() { pending_ = false; }
    /// The lookup has succeeded. Addresses that are known to work come first, in their old order;
    /// then new ones; then those that failed.
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
    /// An address does not work.
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
    std::size_t good_ = 0;           // this many, the first ones, did not fail when last used
    std::optional<TimePoint> began_; // the last lookup
    bool pending_ = false;
};

} // namespace coetcd::detail::logic
