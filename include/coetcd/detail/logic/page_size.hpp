// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace coetcd::detail::logic {

/// How many keys to ask for at once: as many as are wanted, unless their answer is too large.
class page_size {
public:
    /// @param room The largest answer, in bytes of JSON.
    /// @param first How many the first time; that many are wanted if it is left out.
    page_size(std::int64_t wanted, std::size_t room, std::optional<std::int64_t> first = {})
        : wanted_(wanted)
        , room_(room)
        , now_(first.value_or(wanted)) {}

    std::int64_t now() const { return now_; }
    /// The answer was too large: from now on half as many.
    /// @returns False if it was about one key.
    bool halve() {
        if (now_ == 1) {
            return false;
        }
        now_ /= 2;
        return true;
    }
    /// An answer of this size came: if it was small, twice as many from now on.
    void fitted(std::size_t bytes) {
        if (bytes <= room_ / 3) {
            now_ = now_ > wanted_ / 2 ? wanted_ : 2 * now_;
        }
    }

private:
    std::int64_t wanted_;
    std::size_t room_;
    std::int64_t now_;
};

/// About how many bytes of JSON tell these keys.
inline std::size_t json_size(const std::vector<key_value>& kvs) {
    std::size_t bytes = 0;
    for (const key_value& kv : kvs) {
        bytes += 100 + (kv.key.size() + kv.value.size()) / 3 * 4;
    }
    return bytes;
}

/// Whether an answer was too large for us, or for etcd.
inline bool is_too_large(const error_code& ec, std::string_view text) {
    return ec == errc::too_large ||
           (ec == server_errc::resource_exhausted && text.find("larger than max") != text.npos);
}

} // namespace coetcd::detail::logic
