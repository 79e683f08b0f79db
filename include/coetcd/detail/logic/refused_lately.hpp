// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace coetcd::detail::logic {

inline std::string_view first_key_of(const txn& what) {
    std::string_view key;
    if (!what.compares.empty()) {
        key = what.compares.front().range.key;
    } else if (!what.success.empty()) {
        const op& first = what.success.front();
        if (const auto* read = std::get_if<range_request>(&first)) {
            key = read->range.key;
        } else if (const auto* put = std::get_if<put_request>(&first)) {
            key = put->key;
        } else if (const auto* erase = std::get_if<erase_request>(&first)) {
            key = erase->range.key;
        }
    }
    return key;
}

/// What a transaction of the engine is about, as far as its first key tells: the name of a lock,
/// without the id of a slot.
inline std::string_view subject_of(const txn& what) {
    const std::string_view key = first_key_of(what);
    return key.substr(0, key.find_last_of("./"));
}

/// Whether a refusal is about the keys of a transaction, so that it will be refused again. The lack
/// of a lease, or of space, is not about keys.
inline bool is_about_keys(const error_code& ec) {
    return ec == server_errc::permission_denied || ec == server_errc::invalid_argument ||
           ec == server_errc::out_of_range || ec == errc::protocol_error;
}

/// The subjects of transactions that were lately refused for good, although each was alone in its
/// request. Such a transaction would have those refused that share a request with it.
template<class TimePoint>
class refused_lately {
public:
    void add(std::string_view subject, TimePoint now) {
        std::erase_if(until_, [&](const auto& one) { return one.second <= now; });
        const auto known = until_.find(subject);
        if (known != until_.end()) {
            known->second = now + memory;
            return;
        }
        if (until_.size() == most) {
            until_.erase(
                std::min_element(until_.begin(), until_.end(), [](const auto& a, const auto& b) { //
                    return a.second < b.second;
                }));
        }
        until_.emplace(subject, now + memory);
    }
    /// A transaction about this subject was not refused this time.
    void remove(std::string_view subject) {
        if (const auto known = until_.find(subject); known != until_.end()) {
            until_.erase(known);
        }
    }
    bool empty() const { return until_.empty(); }
    bool contains(std::string_view subject, TimePoint now) const {
        const auto known = until_.find(subject);
        return known != until_.end() && known->second > now;
    }

private:
    static constexpr std::size_t most = 64;
    static constexpr std::chrono::seconds memory{10};

    std::map<std::string, TimePoint, std::less<>> until_;
};

} // namespace coetcd::detail::logic
