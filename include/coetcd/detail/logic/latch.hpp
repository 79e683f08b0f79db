// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/names.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

/// A latch: the number that it begins with, and a key for each count. Keys are put only if they are
/// not there, so a copy of a request changes nothing.
namespace coetcd::detail::logic {

/// @throws std::invalid_argument
inline void require_count(std::int64_t count) {
    if (count <= 0) {
        throw std::invalid_argument("count: must be positive");
    }
}

inline std::string latch_total(const std::string& name) {
    return name + ".total";
}
inline key_range latch_counts(const std::string& name) {
    return key_range::prefix(name + "/");
}
inline range_options only_count() {
    range_options how;
    how.count_only = true;
    return how;
}

/// Counts once, under this id, and reads how many have been counted.
inline txn count_down(const std::string& name, const std::string& id) {
    const std::string key = name + "/" + id;
    const key_range all = latch_counts(name);
    return txn()
        .when(compare::create_revision(key) == 0)
        .then(op::put(key, std::string()), op::range(all, only_count()))
        .otherwise(op::range(all, only_count()));
}
inline std::int64_t counted_after(const txn_response& said) {
    return answers::range_at(said, said.succeeded ? 1 : 0).count;
}

inline std::int64_t remaining(std::int64_t total, std::int64_t counted) {
    return std::max<std::int64_t>(0, total - counted);
}

/// How many have been counted now. An event says it without a read.
inline question<std::int64_t> counted_now(const std::string& title, const std::string& name) {
    const auto from = [](const range_response& read) { return read.count; };
    const auto follow = [](const std::int64_t& now, const event& e) {
        const bool put = e.type == event_type::put;
        const std::int64_t more = put && e.kv.version == 1 ? 1 : 0;
        return std::optional<std::int64_t>(now + (put ? more : -1));
    };
    return {title + ", wait",
            range_request(latch_counts(name), only_count()),
            wire::watch_create_request(latch_counts(name)),
            from,
            follow};
}

} // namespace coetcd::detail::logic
