// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/system/system_error.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

namespace coetcd::detail::testing {

/// A handle to an operation that runs by itself, to be observed and cancelled from outside. The
/// operation goes on without the handle.
template<class T>
class task {
public:
    task(boost::asio::any_io_executor where, boost::asio::awaitable<T> work)
        : state_(std::make_shared<state>()) {
        auto at_end = [s = state_](std::exception_ptr failure) {
            s->failure = failure;
            ++s->completions;
        };
        boost::asio::co_spawn(
            std::move(where),
            keep(state_, std::move(work)),
            boost::asio::bind_cancellation_slot(state_->stop.slot(), std::move(at_end)));
    }

    bool ended() const { return state_->completions != 0; }
    /// Whether it has ended, and not by an exception.
    bool succeeded() const { return ended() && !state_->failure; }
    /// How often it has ended.
    int completions() const { return state_->completions; }
    void cancel(boost::asio::cancellation_type how = boost::asio::cancellation_type::terminal) {
        state_->stop.emit(how);
    }

    /// What it returned, once.
    /// @throws What it threw; `std::logic_error` if it has not ended.
    T get() {
        if (!ended()) {
            throw std::logic_error("task: has not ended");
        }
        if (state_->failure) {
            std::rethrow_exception(state_->failure);
        }
        if constexpr (!std::is_void_v<T>) {
            return std::move(*state_->value);
        }
    }
    /// The code of the error that it threw; clear if it returned.
    error_code code() {
        try {
            static_cast<void>(get());
        } catch (const boost::system::system_error& e) {
            return e.code();
        }
        return {};
    }

private:
    struct state {
        boost::asio::cancellation_signal stop;
        std::exception_ptr failure;
        std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>> value;
        int completions = 0;
    };
    static boost::asio::awaitable<void> keep(std::shared_ptr<state> s,
                                             boost::asio::awaitable<T> work) {
        if constexpr (std::is_void_v<T>) {
            co_await std::move(work);
        } else {
            s->value.emplace(co_await std::move(work));
        }
    }
    std::shared_ptr<state> state_;
};

} // namespace coetcd::detail::testing
