// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace support {

namespace asio = boost::asio;
using asio::awaitable;
using clock = std::chrono::steady_clock;

/// `what`, made unlike any other name of this process.
std::string unique_name(const std::string& what);

awaitable<void> sleep_for(std::chrono::nanoseconds wait);

/// Lets other handlers run, so many rounds of them.
awaitable<void> yield(int rounds = 1);

/// Calls a function that blocks, without blocking this executor.
awaitable<void> in_thread(std::function<void()> blocking);

/// The body of the answer to a GET of this path.
awaitable<std::string> http_get(std::uint16_t port, std::string path);

/// The value of one of etcd's metrics; of one that has labels, the sum.
awaitable<double> metric(std::uint16_t port, std::string name);

/// Polls `condition`, which returns an `awaitable<bool>`, until it holds.
/// @throws std::runtime_error with `what` if it does not in time.
template<class Condition>
awaitable<void>
eventually(Condition condition, std::chrono::milliseconds within, std::string what) {
    const auto deadline = clock::now() + within;
    for (;;) {
        const bool holds = co_await condition();
        if (holds) {
            co_return;
        }
        if (clock::now() >= deadline) {
            throw std::runtime_error("not within " + std::to_string(within.count()) +
                                     " ms: " + what);
        }
        co_await sleep_for(std::chrono::milliseconds(5));
    }
}

/// How an operation ended: `code` is clear if it succeeded.
struct ending {
    boost::system::error_code code{};
    std::string text{};
    clock::time_point when{};
};

template<class T>
awaitable<ending> ending_of(awaitable<T> work) {
    ending result;
    try {
        (void)co_await std::move(work);
    } catch (const boost::system::system_error& e) {
        result.code = e.code();
        result.text = e.what();
    }
    result.when = clock::now();
    co_return result;
}

template<class T>
awaitable<void> discard(awaitable<T> work) {
    (void)co_await std::move(work);
}

/// An operation that runs by itself. A handle: destroying it neither stops nor awaits the
/// operation.
template<class T>
class task {
    using stored_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    struct state {
        explicit state(const asio::any_io_executor& executor)
            : changed(executor, clock::time_point::max()) {}
        asio::cancellation_signal stop;
        asio::steady_timer changed;
        bool done = false;
        std::exception_ptr failure;
        std::optional<stored_type> value;
        clock::time_point ended;
    };

public:
    task(const asio::any_io_executor& executor, awaitable<T> work)
        : state_(std::make_shared<state>(executor)) {
        auto at_end = [s = state_](std::exception_ptr failure) {
            s->failure = std::move(failure);
            s->ended = clock::now();
            s->done = true;
            s->changed.cancel();
        };
        asio::co_spawn(executor,
                       run(state_, std::move(work)),
                       asio::bind_cancellation_slot(state_->stop.slot(), std::move(at_end)));
    }

    void cancel(asio::cancellation_type how = asio::cancellation_type::terminal) {
        state_->stop.emit(how);
    }
    bool done() const { return state_->done; }
    clock::time_point ended() const { return state_->ended; }

    /// Waits for the end, and returns or throws what the operation did. Once.
    awaitable<T> result() { return result(state_); }

    awaitable<ending> how_it_ended() {
        auto s = state_;
        ending e = co_await ending_of(result(s));
        e.when = s->ended;
        co_return e;
    }

private:
    static awaitable<void> run(std::shared_ptr<state> s, awaitable<T> work) {
        if constexpr (std::is_void_v<T>) {
            co_await std::move(work);
            s->value.emplace();
        } else {
            s->value.emplace(co_await std::move(work));
        }
    }
    static awaitable<T> result(std::shared_ptr<state> s) {
        while (!s->done) {
            boost::system::error_code ignored;
            co_await s->changed.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
        }
        if (s->failure) {
            std::rethrow_exception(s->failure);
        }
        if constexpr (!std::is_void_v<T>) {
            co_return std::move(*s->value);
        }
    }

    std::shared_ptr<state> state_;
};

/// Runs all of them at once, and waits for all. Throws what the first of them threw.
awaitable<void> run_all(std::vector<awaitable<void>> works);

/// Milliseconds between two moments, for bounds and messages.
inline double ms_between(clock::time_point from, clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

} // namespace support
