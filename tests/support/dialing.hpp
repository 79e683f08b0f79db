// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/dialer.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// A connection that leads nowhere.
class idle_connection final : public coetcd::detail::net::connection {
public:
    using reply = coetcd::detail::reply;
    boost::asio::awaitable<reply> exchange(std::string) override { co_return reply(); }
    bool reusable() const override { return true; }
    bool is_quiet() override { return true; }
    boost::asio::awaitable<coetcd::error_code> write(std::string) override {
        co_return coetcd::error_code();
    }
    boost::asio::awaitable<reply> read_line() override { co_return reply(); }
    std::uint64_t received() const override { return 0; }
    void close() override {}
};

/// Connects as it is told, in the time of an `env`.
class scripted_connector final : public coetcd::detail::net::connector {
public:
    struct fate {
        std::chrono::nanoseconds takes{0};
        coetcd::error_code ec;
        std::optional<std::chrono::nanoseconds> answered; ///< Before that, it is told so.
        bool dropped = false; ///< It never ends: Asio destroys it, as it does for lack of memory.
    };
    /// An attempt has begun.
    struct attempt {
        coetcd::detail::time_point when;
        boost::asio::ip::address to;
    };

    /// `world` outlives all that waits in it.
    scripted_connector(coetcd::detail::env& world,
                       std::function<fate(const boost::asio::ip::address&)> decide)
        : env_(world)
        , decide_(std::move(decide)) {}

    boost::asio::awaitable<coetcd::detail::net::connect_result>
    connect(coetcd::detail::net::tcp::endpoint address,
            coetcd::detail::logic::endpoint,
            coetcd::detail::time_point deadline,
            std::function<void()> answered) const override {
        using namespace coetcd::detail;
        struct counted {
            std::size_t& of;
            ~counted() { --of; }
        };
        const auto known = state_;
        known->begun.push_back({env_.now(), address.address()});
        ++known->under_way;
        const counted until_the_end{known->under_way};
        const fate how = decide_(address.address());
        const time_point end = after(env_.now(), how.takes);
        if (how.dropped) {
            co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(
                [](auto&&) {}, boost::asio::use_awaitable);
        }
        if (how.answered) {
            notifier half(env_);
            (void)co_await half.wait(after(env_.now(), *how.answered));
            answered();
        }
        notifier pause(env_);
        (void)co_await pause.wait(std::min(end, deadline));
        net::connect_result result;
        result.ec = end > deadline ? make_error_code(coetcd::errc::timed_out) : how.ec;
        if (!result.ec) {
            result.connected = std::make_unique<idle_connection>();
        }
        co_return result;
    }

    const std::vector<attempt>& begun() const { return state_->begun; }
    std::size_t under_way() const { return state_->under_way; }

private:
    struct state {
        std::vector<attempt> begun;
        std::size_t under_way = 0;
    };
    coetcd::detail::env& env_;
    const std::function<fate(const boost::asio::ip::address&)> decide_;
    const std::shared_ptr<state> state_ = std::make_shared<state>();
};

} // namespace support
