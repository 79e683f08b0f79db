// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// Finds out why a member is behind a revision that some watch has told of. The member may be
/// behind the others, and catch up; or the store is another one, restored from a snapshot, and a
/// watch that goes on would be silent until that store catches up. One read is not enough: a member
/// that stood still may answer with what it had then. So several reads are made, a second apart. A
/// refused read tells nothing.
///
/// @param read Any read that is allowed.
/// @param reads How many reads have to agree.
/// @param told The revision that was told of, asked for before each read; 0 if nobody wants to know
///        any more.
/// @returns The latest revision that the reads gave, if the store is behind.
inline asio::awaitable<std::optional<std::int64_t>>
look_back(route by, range_request read, int reads, std::function<std::int64_t()> told) {
    constexpr std::chrono::seconds patience(1);
    env& world = *by->world();
    std::int64_t latest = 0;
    int agreed = 0;
    while (const std::int64_t known = told()) {
        const call_terms how = by->within_attempt(patience);
        const outcome<range_response> seen = co_await call(by, read, how);
        const std::int64_t revision = seen.response.header.revision;
        if (seen.ec ? !logic::is_transient(seen.ec) : revision >= known) {
            co_return std::nullopt;
        }
        latest = std::max(latest, revision);
        if (!seen.ec && ++agreed == reads) {
            co_return latest;
        }
        co_await sleep_until(world, after(world.now(), patience));
    }
    co_return std::nullopt;
}

} // namespace coetcd::detail
