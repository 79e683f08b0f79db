// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What the stories of clients have in common.
namespace sim {

/// A client in a process, of all members.
inline coetcd::client client_of_all(const std::shared_ptr<coetcd::detail::testing::process>& in,
                                    int members,
                                    const coetcd::client_options& options = {}) {
    std::vector<std::string> urls;
    for (int m = 0; m != members; ++m) {
        urls.push_back("http://m" + std::to_string(m));
    }
    return coetcd::detail::access::make<coetcd::client>(
        in, coetcd::endpoints(std::move(urls)), options);
}

/// Awaits `work` in a process, whatever comes of it.
/// @param cancelled_after Then it is cancelled, unless it has ended; nothing: it is not.
/// @param told Called at its end, with what it threw.
inline boost::asio::awaitable<void>
await_any_end(std::shared_ptr<coetcd::detail::testing::process> in,
              boost::asio::awaitable<void> work,
              std::optional<std::chrono::nanoseconds> cancelled_after,
              std::function<void(std::exception_ptr)> told) {
    using coetcd::detail::testing::suspension;
    namespace asio = boost::asio;
    const auto done = std::make_shared<suspension>(*in);
    const auto stop = std::make_shared<asio::cancellation_signal>();
    auto at_end = [done, told = std::move(told)](std::exception_ptr failure) {
        done->resume();
        told(failure);
    };
    asio::co_spawn(in->executor(),
                   std::move(work),
                   asio::bind_cancellation_slot(stop->slot(), std::move(at_end)));
    if (cancelled_after) {
        in->in.after(*cancelled_after, [in, stop, done] {
            asio::post(in->executor(), [stop, done] {
                if (!done->resumed()) {
                    stop->emit(asio::cancellation_type::terminal);
                }
            });
        });
    }
    (void)co_await suspension::wait(done);
}

} // namespace sim
