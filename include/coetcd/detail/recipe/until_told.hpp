// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/recipe/feed.hpp>
#include <coetcd/detail/service/client.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace coetcd::detail {

/// Waits until the answer to a question is one that was waited for: the first one, or a later one.
/// @param known A revision that etcd has had: an older answer is none.
/// @returns False if `deadline` came first. Throws as `feed::next_until`.
template<class T>
asio::awaitable<bool> until_told(std::shared_ptr<client_impl> by,
                                 std::chrono::nanoseconds timeout,
                                 logic::question<T> what,
                                 std::function<bool(const T&)> decided,
                                 time_point deadline,
                                 std::int64_t known = 0) {
    struct ended_at_end {
        std::shared_ptr<feed<T>> news;
        ~ended_at_end() { news->end(); }
    };
    const ended_at_end of{
        std::make_shared<feed<T>>(std::move(by), timeout, std::move(what), known)};
    for (;;) {
        const std::optional<T> now = co_await feed<T>::next_until(of.news, deadline);
        if (!now) {
            co_return false;
        }
        if (decided(*now)) {
            co_return true;
        }
    }
}

} // namespace coetcd::detail
