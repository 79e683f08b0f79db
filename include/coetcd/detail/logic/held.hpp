// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

/// What a round of renewal asks about the keys by which something is held.
namespace coetcd::detail::logic {

/// The keys that a place is held by.
/// @param create_revision That of the keys that the place began with.
inline std::vector<held_life> counted_on(const attempt_keys& a, std::int64_t create_revision) {
    std::vector<held_life> all;
    for (const name_keys& c : a.by_name) {
        for (held_life& life : transactions::all_keys(c, create_revision)) {
            if (life.create_revision != 0) {
                all.push_back(std::move(life));
            }
        }
    }
    return all;
}

/// Splits them into groups of as many as one request may ask for.
inline std::vector<std::vector<held_life>> rounds(std::vector<held_life> all) {
    constexpr std::size_t at_once = 60;
    std::vector<std::vector<held_life>> result;
    for (std::size_t i = 0; i != all.size(); ++i) {
        if (i % at_once == 0) {
            result.emplace_back();
        }
        result.back().push_back(std::move(all[i]));
    }
    return result;
}

inline txn look_at(const std::vector<held_life>& some) {
    txn t;
    for (const held_life& h : some) {
        t.success.push_back(op::range(h.key, transactions::keys_only()));
    }
    return t;
}

/// Those that are gone for certain.
inline std::vector<held_life> missing(const txn_response& response,
                                      const std::vector<held_life>& some) {
    std::vector<held_life> gone;
    for (std::size_t i = 0; i != std::min(some.size(), response.responses.size()); ++i) {
        const auto* read = std::get_if<range_response>(&response.responses[i]);
        if (read && is_gone(response.header, *read, some[i].key, some[i].create_revision)) {
            gone.push_back(some[i]);
        }
    }
    return gone;
}

/// Whether the answer to `look_at` shows all of these lives. That it lacks one may be old news.
inline bool shows_all(const txn_response& response, const std::vector<held_life>& some) {
    std::size_t index = 0;
    return std::all_of(some.begin(), some.end(), [&](const held_life& h) {
        return answers::holds(answers::range_at(response, index++), h.key, h.create_revision);
    });
}
/// Whether it shows any of these.
/// @param index That of the read of the first of them.
inline bool
shows_any(const txn_response& response, std::size_t index, const std::vector<held_life>& some) {
    return std::any_of(some.begin(), some.end(), [&](const held_life& h) {
        return answers::holds(answers::range_at(response, index++), h.key, h.create_revision);
    });
}

} // namespace coetcd::detail::logic
