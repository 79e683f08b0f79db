// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

/// A fence in etcd: a key whose value is the greatest token that came through.
namespace coetcd::detail::logic {

/// A fencing token is the revision at which a place was put.
/// @throws std::invalid_argument if `token` cannot be one.
inline void require_token(std::int64_t token) {
    if (token <= 0) {
        throw std::invalid_argument("token: must be positive");
    }
}

/// Sixteen digits, so that the order of the texts is that of the numbers.
inline std::string hex16(std::uint64_t value) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text(16, '0');
    for (std::size_t i = text.size(); value != 0; value >>= 4) {
        text[--i] = digits[value & 15];
    }
    return text;
}

/// Whether a text is what a gate keeps.
inline bool is_hex16(std::string_view text) {
    return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// Lets a token through that is not below the greatest one so far, and then does `work`. Otherwise
/// reads what is there.
inline txn pass(const std::string& key, std::int64_t token, const std::optional<txn>& work) {
    const auto number = static_cast<std::uint64_t>(token);
    txn t;
    txn first; // etcd compares no value of a key that does not exist
    const auto let_through = [&](txn& in) {
        in.success.push_back(op::put(key, hex16(number)));
        if (work) {
            in.success.push_back(op::nested(*work));
        }
    };
    t.compares.push_back(compare::value(key) < hex16(number + 1));
    t.compares.push_back(compare::value(key) > hex16(0)); // most texts that are no token fail this
    let_through(t);
    first.compares.push_back(compare::create_revision(key) == 0);
    let_through(first);
    first.failure.push_back(op::range(key));
    t.failure.push_back(op::nested(std::move(first)));
    return t;
}

struct passage {
    bool through = false;
    bool is_gate = true; ///< False: the key is not a gate, and nothing was done.
    txn_response did{};  ///< The answer to `work`, if there was any.
};

/// What the answer to `pass` means.
inline passage after_pass(const txn_response& response, bool works) {
    const auto require = [](bool holds) {
        if (!holds) {
            throw error(errc::protocol_error, "txn: the answer is not one to this request");
        }
    };
    const txn_response* taken = &response;
    if (!response.succeeded) {
        require(response.responses.size() == 1 &&
                std::holds_alternative<txn_response>(response.responses.front()));
        taken = &std::get<txn_response>(response.responses.front());
    }
    passage result;
    result.through = taken->succeeded;
    if (!result.through) {
        require(taken->responses.size() == 1);
        const range_response& there = answers::range_at(*taken, 0);
        require(there.kvs.size() == 1);
        result.is_gate = is_hex16(there.kvs.front().value);
    } else {
        require(taken->responses.size() == (works ? 2U : 1U));
        if (works) {
            require(std::holds_alternative<txn_response>(taken->responses.back()));
            result.did = std::get<txn_response>(taken->responses.back());
            result.did.header = response.header; // that of a nested one is empty
        }
    }
    return result;
}

} // namespace coetcd::detail::logic
