// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/router.hpp>
#include <coetcd/kv.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// A member has not got as far as some watch has told of. It may be behind the others, and catch
/// up; or the store is another one, restored from a snapshot, and a watch that goes on would be
/// silent until that one is as far again. Asks twice: a member that stood still may answer a read
/// with what it had then. A read that is refused tells nothing.
///
/// @param read Any read that is allowed.
/// @param wanted Whether to go on.
/// @returns The revision that the store is at, if it is not `told` yet.
inline asio::awaitable<std::optional<std::int64_t>> look_back(std::shared_ptr<router> by,
                                                              range_request read,
                                                              std::int64_t told,
                                                              std::function<bool()> wanted) {
    constexpr std::chrono::seconds patience(1);
    env& world = *by->world();
    std::optional<std::int64_t> older;
    for (int agreed = 0; agreed != 2 && wanted();) {
        const when how{after(world.now(), patience)};
        const outcome<range_response> seen = co_await call(by, read, how);
        const std::int64_t revision = seen.response.header.revision;
        if (seen.ec ? !logic::is_passing(seen.ec) : revision >= told) {
            co_return std::nullopt;
        }
        if (!seen.ec) {
            older = revision;
            ++agreed;
        }
        notifier pause(world);
        (void)co_await pause.wait(after(world.now(), patience));
    }
    co_return older;
}

} // namespace coetcd::detail
