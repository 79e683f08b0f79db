// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/client.hpp>
#include <coetcd/detail/access.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include "support/fake_etcd.hpp"
#include "support/scripted_env.hpp"

namespace support {

/// An operation that runs by itself, to be looked at and cancelled from outside.
template<class T>
class background {
public:
    background(boost::asio::io_context& context, boost::asio::awaitable<T> work)
        : state_(std::make_shared<state>()) {
        auto at_end = [s = state_](std::exception_ptr failure) {
            s->failure = failure;
            s->ended = true;
            ++s->completions;
        };
        boost::asio::co_spawn(
            context,
            keep(state_, std::move(work)),
            boost::asio::bind_cancellation_slot(state_->stop.slot(), std::move(at_end)));
    }

    bool ended() const { return state_->ended; }
    bool succeeded() const { return state_->ended && !state_->failure; }
    int completions() const { return state_->completions; }
    void cancel(boost::asio::cancellation_type how = boost::asio::cancellation_type::terminal) {
        state_->stop.emit(how);
    }

    /// What it returned; throws what it threw.
    T get() {
        if (!state_->ended) {
            throw std::logic_error("background: has not ended");
        }
        if (state_->failure) {
            std::rethrow_exception(state_->failure);
        }
        if constexpr (!std::is_void_v<T>) {
            return std::move(*state_->value);
        }
    }
    /// The code of what it threw; clear if it returned.
    coetcd::error_code code() {
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
        bool ended = false;
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

/// An etcd, a network and a clock, all of them at the test's command.
struct world {
    world()
        : context(std::make_unique<boost::asio::io_context>(1))
        , env(std::make_shared<scripted_env>(*context))
        , etcd(std::make_unique<fake_etcd>(env)) {}
    ~world() { context.reset(); } // what is under way goes before what it uses
    world(const world&) = delete;
    world& operator=(const world&) = delete;

    coetcd::client client(coetcd::client_options options = {}) {
        return client("http://etcd:2379", options);
    }
    coetcd::client client(coetcd::endpoints cluster, coetcd::client_options options = {}) {
        return coetcd::detail::access::make<coetcd::client>(env, std::move(cluster), options);
    }

    /// Starts an operation.
    template<class T>
    background<T> start(boost::asio::awaitable<T> work) {
        return background<T>(*context, std::move(work));
    }

    /// Lets time pass until an operation has ended; ten minutes at the most.
    template<class T>
    T await(boost::asio::awaitable<T> work) {
        background<T> b = start(std::move(work));
        const auto limit = env->now() + std::chrono::minutes(10);
        for (env->pass(std::chrono::nanoseconds(0)); !b.ended() && env->now() < limit;) {
            env->pass(std::chrono::milliseconds(1));
        }
        return b.get();
    }

    std::unique_ptr<boost::asio::io_context> context;
    std::shared_ptr<scripted_env> env;
    std::unique_ptr<fake_etcd> etcd;
};

} // namespace support
