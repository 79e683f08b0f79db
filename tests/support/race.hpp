// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace support {

/// Calls `f` after so many handlers.
inline void hop(boost::asio::io_context& context, int handlers, std::function<void()> f) {
    if (handlers == 0) {
        f();
        return;
    }
    boost::asio::post(context, [&context, handlers, f = std::move(f)]() mutable {
        hop(context, handlers - 1, std::move(f));
    });
}

/// Tells once when a request was answered: some handlers later the waiter for it goes on.
struct answers final : coetcd::observer {
    explicit answers(std::string what)
        : rpc(std::move(what)) {}
    void on_request(const coetcd::request_report& r) override {
        if (told && r.rpc == rpc && !r.outcome) {
            std::exchange(told, nullptr)();
        }
    }
    const std::string rpc;
    std::function<void()> told;
};

/// `work || bell`, as a user composes them.
template<class T>
class race {
    using kept = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

public:
    /// @param elsewhere On another executor than the client's.
    race(world& w, boost::asio::awaitable<T> work, bool elsewhere)
        : world_(w)
        , bell_(*w.env) {
        boost::asio::any_io_executor where = w.context->get_executor();
        if (elsewhere) {
            where = boost::asio::make_strand(*w.context);
        }
        boost::asio::co_spawn(where, run(std::move(work)), [this](std::exception_ptr failure) {
            over_ = true;
            failure_ = std::move(failure);
        });
    }

    void ring_after(int handlers) {
        hop(*world_.context, handlers, [this] { bell_.notify_all(); });
    }

    /// What `work` has returned; nothing if the bell came first.
    const std::optional<kept>& result() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
        REQUIRE(over_);
        return result_;
    }

private:
    boost::asio::awaitable<void> ring() { (void)co_await bell_.wait(); }
    boost::asio::awaitable<void> run(boost::asio::awaitable<T> work) {
        using namespace boost::asio::experimental::awaitable_operators;
        auto ringing = ring();
        auto both = std::move(work) || std::move(ringing);
        auto first = co_await std::move(both);
        if (first.index() == 0) {
            result_.emplace(std::get<0>(std::move(first)));
        }
    }

    world& world_;
    coetcd::detail::notifier bell_;
    bool over_ = false;
    std::exception_ptr failure_;
    std::optional<kept> result_;
};

} // namespace support
