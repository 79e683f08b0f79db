// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/bulk_options.hpp>
#include <coetcd/detail/logic/once.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Many writes in transactions of the right size.
namespace coetcd::detail::logic {

inline constexpr std::size_t most_operations = 128; // etcd's, by default

/// @throws std::invalid_argument
inline void require_bulk(const bulk_options& how) {
    if (how.keys == 0 || how.keys > most_operations) {
        throw std::invalid_argument("bulk_options::keys: must be from 1 to 128");
    }
    if (how.bytes == 0) {
        throw std::invalid_argument("bulk_options::bytes: must be positive");
    }
}

/// About how many bytes an operation takes in etcd's own form of a request.
inline std::size_t weight(const op& o) {
    constexpr std::size_t around = 48; // lengths, kinds, the lease
    if (const auto* put = std::get_if<put_request>(&o)) {
        return around + put->key.size() + put->value.size();
    }
    const key_range& erased = std::get<erase_request>(o).range;
    return around + erased.key.size() + erased.range_end.size();
}

/// The end of the operations that the transaction which begins with `first` has. It has at least
/// one, and puts no key twice, which etcd refuses.
inline std::size_t
end_of_batch(const std::vector<op>& all, std::size_t first, const bulk_options& most) {
    std::set<std::string_view> puts;
    std::size_t bytes = 0;
    std::size_t end = first;
    for (; end != all.size() && end - first != most.keys; ++end) {
        bytes += weight(all[end]);
        if (end != first && bytes > most.bytes) {
            break;
        }
        const auto* put = std::get_if<put_request>(&all[end]);
        if (put && !puts.insert(put->key).second) {
            break;
        }
    }
    return end;
}

/// How many keys a transaction of such operations has changed; nothing if this is no answer to it.
inline std::optional<std::size_t> keys_changed(const txn& asked, const txn_response& said) {
    if (!said.succeeded || said.header.revision <= 0 || !fits(asked, said)) {
        return std::nullopt;
    }
    std::size_t changed = 0;
    for (const op_response& r : said.responses) {
        const auto* erased = std::get_if<erase_response>(&r);
        changed += erased ? static_cast<std::size_t>(erased->deleted) : 1;
    }
    return changed;
}

} // namespace coetcd::detail::logic
