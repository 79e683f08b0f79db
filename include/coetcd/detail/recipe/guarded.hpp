// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/home_executor.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/recipe/ownership.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace coetcd::detail {

/// What `body()`, or `body(held)` if that is what it takes, returns.
template<class Body, class Held>
auto start(Body& body, const Held& held) {
    if constexpr (std::is_invocable_v<Body&, const Held&>) {
        return body(held);
    } else {
        return body();
    }
}

/// Gives back what a body ran under, and waits until etcd knows.
template<class Held>
asio::awaitable<bool> give_back(Held& held) {
    if constexpr (requires { held.unlock(); }) {
        return held.unlock();
    } else if constexpr (requires { held.release(); }) {
        return held.release();
    } else {
        return held.resign();
    }
}

/// A body that runs under a lock, on the caller's executor, or on a strand there: what cancels it
/// must not run beside it. All else is done at home.
template<class Body, class Held>
struct guarded_body final : loss_listener, std::enable_shared_from_this<guarded_body<Body, Held>> {
    using value_type =
        typename decltype(start(std::declval<Body&>(), std::declval<const Held&>()))::value_type;
    using stored_type = std::conditional_t<std::is_void_v<value_type>, std::monostate, value_type>;

    guarded_body(Body b, Held l, env& home, asio::any_io_executor where)
        : body(std::move(b))
        , held(std::move(l))
        , world(home)
        , here(home_executor(std::move(where)).get()) {}

    void on_loss() override { cancel(); }
    void cancel() {
        if (here == world.executor()) {
            stop.emit(asio::cancellation_type::terminal);
        } else {
            asio::post(here, [self = this->shared_from_this()] {
                self->stop.emit(asio::cancellation_type::terminal);
            });
        }
    }

    Body body;
    Held held;
    env& world;
    const asio::any_io_executor here;
    asio::cancellation_signal stop;
    std::exception_ptr failure;
    std::optional<stored_type> value;
};

template<class Body, class Held>
asio::awaitable<void> run(std::shared_ptr<guarded_body<Body, Held>> guarded) {
    try {
        auto work = start(guarded->body, guarded->held);
        if constexpr (std::is_void_v<typename guarded_body<Body, Held>::value_type>) {
            co_await std::move(work);
        } else {
            guarded->value.emplace(co_await std::move(work));
        }
    } catch (...) {
        guarded->failure = std::current_exception();
    }
    // Asio 1.26 awaits once more behind a coroutine that never waited; cancelled by its own doing,
    // as one that closes its session is, that would throw into the event loop.
    co_await asio::this_coro::throw_if_cancelled(false);
}

/// Reports that the lock was lost under a body, and how the body ended.
[[noreturn]] inline void throw_loss(const error& loss, const std::exception_ptr& failure) {
    if (!failure) {
        throw loss;
    }
    try {
        std::rethrow_exception(failure);
    } catch (...) {
        std::throw_with_nested(loss);
    }
}

/// What may cancel a body besides a loss. It is made when the body begins, and lives until that
/// has ended. At home.
template<class Held>
using body_watch = std::function<std::shared_ptr<void>(const Held&, std::function<void()> cancel)>;

/// The part of `run_guarded` at home.
/// @param here The executor of the caller.
template<class Held, class Body>
asio::awaitable<typename guarded_body<Body, Held>::value_type>
guard_at_home(asio::any_io_executor here,
              asio::awaitable<Held> lock,
              std::shared_ptr<ownership> (*owned)(const Held&),
              Body body,
              body_watch<Held> watch) {
    Held taken = co_await std::move(lock);
    const std::shared_ptr<ownership> held = owned(taken);
    if (!held) {
        throw error(errc::not_owner, "with_lock");
    }
    if (!held->held()) {
        throw held->loss();
    }
    const auto guarded = std::make_shared<guarded_body<Body, Held>>(
        std::move(body), std::move(taken), held->world(), std::move(here));
    const loss_source::subscription listening(held->losses, *guarded);
    const auto cancel = [weak = std::weak_ptr(guarded)] {
        if (const auto still = weak.lock()) {
            still->cancel();
        }
    };
    std::shared_ptr<void> watching;
    if (watch) {
        watching = watch(guarded->held, cancel);
    }

    // Its end is awaited whatever happens; a cancellation of ours goes on to it. It ends before us
    // also when both are destroyed with their executor, since its handler owns us.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    const asio::cancellation_state before = co_await asio::this_coro::cancellation_state;
    const auto pass_on = [cancel, home = guarded->world.executor()](asio::cancellation_type) {
        asio::post(home, cancel);
    };
    asio::cancellation_slot slot = before.slot();
    if (slot.is_connected()) {
        slot.assign(pass_on);
    }
    if (before.cancelled() != asio::cancellation_type::none) {
        pass_on(before.cancelled()); // it came with the lock
    }
    auto token = asio::bind_cancellation_slot(guarded->stop.slot(), asio::use_awaitable);
    auto all = asio::co_spawn(guarded->here, run(guarded), std::move(token));
    try {
        co_await std::move(all);
    } catch (...) {
        guarded->failure = std::current_exception(); // a lack of memory
    }
    slot.clear();
    watching.reset();
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    co_await asio::this_coro::throw_if_cancelled(throws);

    if (!held->held()) {
        throw_loss(held->loss(), guarded->failure);
    }
    if (state.cancelled() == asio::cancellation_type::none) {
        bool was_ours = true;
        try {
            was_ours = co_await give_back(guarded->held);
        } catch (const boost::system::system_error&) {
            // It is being cleaned up; what `body` did stands.
        }
        if (!was_ours) {
            throw_loss(held->loss(), guarded->failure);
        }
    } else {
        const Held given_back(std::move(guarded->held)); // in the background
    }
    if (guarded->failure) {
        std::rethrow_exception(guarded->failure);
    }
    if constexpr (!std::is_void_v<typename guarded_body<Body, Held>::value_type>) {
        co_return std::move(*guarded->value);
    }
}

/// Runs `body` under what `lock` brings.
/// @param home Where the lock lives.
/// @param owned Tells what it stands for; null if nothing.
/// @param watch May cancel it, too.
/// @throws error with `errc::not_owner` if it was given back, or with that of its loss.
template<class Held, class Body>
asio::awaitable<typename guarded_body<Body, Held>::value_type>
run_guarded(asio::any_io_executor home,
            asio::awaitable<Held> lock,
            std::shared_ptr<ownership> (*owned)(const Held&),
            Body body,
            body_watch<Held> watch = {}) {
    asio::any_io_executor here = co_await asio::this_coro::executor;
    auto work =
        guard_at_home(std::move(here), std::move(lock), owned, std::move(body), std::move(watch));
    auto all = go_home(std::move(home), std::move(work));
    co_return co_await std::move(all);
}

/// What is held already, for `run_guarded`.
template<class Held>
asio::awaitable<Held> brought(Held held) {
    co_return std::move(held);
}

/// What `run_guarded_if` returns: an optional, or for a body that returns nothing whether it ran.
template<class T>
using if_run = std::conditional_t<std::is_void_v<T>, bool, std::optional<T>>;

/// As `run_guarded`, if `lock` brings anything.
template<class Held, class Body>
asio::awaitable<if_run<typename guarded_body<Body, Held>::value_type>>
run_guarded_if(asio::any_io_executor home,
               asio::awaitable<std::optional<Held>> lock,
               std::shared_ptr<ownership> (*owned)(const Held&),
               Body body) {
    using value_type = typename guarded_body<Body, Held>::value_type;
    std::optional<Held> taken = co_await std::move(lock);
    if_run<value_type> result{};
    if (taken) {
        auto work =
            run_guarded(std::move(home), brought(std::move(*taken)), owned, std::move(body));
        if constexpr (std::is_void_v<value_type>) {
            co_await std::move(work);
            result = true;
        } else {
            result.emplace(co_await std::move(work));
        }
    }
    co_return result;
}

} // namespace coetcd::detail
