// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>

// A client's home is the executor of its `env`: all of its state is touched there, by one handler
// at a time. Users call from anywhere.
namespace coetcd::detail {

/// Calls `f` at home: at once if we are there, otherwise as soon as home gets to it.
template<class F>
void at_home(env& world, F f) {
    if (world.is_home()) {
        f();
    } else {
        post(world.executor(), std::move(f));
    }
}

/// Like `std::make_shared`, but the object is also destroyed at home, wherever its last owner is.
/// @param world The object's; it lives until then.
template<class T, class... Args>
std::shared_ptr<T> make_at_home(std::shared_ptr<env> world, Args&&... args) {
    auto made = std::make_unique<T>(std::forward<Args>(args)...);
    auto end = [world = std::move(world)](T* object) mutable {
        if (world->is_home()) {
            delete object;
            return;
        }
        // The object is destroyed whatever becomes of the handler. Nobody can get hold of it any
        // more, not even by `shared_from_this`: a pointer to `T` would renew that here, away from
        // home.
        try {
            std::shared_ptr<void> last(static_cast<void*>(object),
                                       [](void* o) { delete static_cast<T*>(o); });
            const asio::any_io_executor home = world->executor();
            post(home, [w = std::move(world), o = std::move(last)]() mutable { o.reset(); });
        } catch (const std::bad_alloc&) {
            // The object was destroyed here.
        }
    };
    return std::shared_ptr<T>(made.release(), std::move(end));
}

/// Awaits `work`. `kept` lives as long as `work` does.
inline asio::awaitable<void> keep_alive([[maybe_unused]] std::shared_ptr<void> kept,
                                        asio::awaitable<void> work) {
    co_await std::move(work);
}
/// Awaits `work`, and puts what it returned into `place`.
template<class T>
asio::awaitable<void> put_into(std::shared_ptr<std::optional<T>> place, asio::awaitable<T> work) {
    place->emplace(co_await std::move(work));
}

/// Awaits `work` on the executor `home`, and comes back with what it returned or threw. A
/// cancellation is passed on.
inline asio::awaitable<void> there_and_back(asio::any_io_executor home,
                                            asio::awaitable<void> work) {
    // Not the slot of this coroutine: Asio 1.26 would pass a cancellation on by an address that
    // may be gone when it gets there.
    const auto stop = std::make_shared<asio::cancellation_signal>();
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    asio::cancellation_slot slot = state.slot();
    if (slot.is_connected()) {
        auto pass_on = [home, stop](asio::cancellation_type how) {
            post(home, [stop, how] { stop->emit(how); });
        };
        slot.assign(std::move(pass_on));
    }
    auto token = asio::bind_cancellation_slot(stop->slot(), asio::use_awaitable);
    auto there = asio::co_spawn(home, keep_alive(stop, std::move(work)), std::move(token));
    co_await std::move(there);
}
template<class T>
asio::awaitable<T> there_and_back(asio::any_io_executor home, asio::awaitable<T> work) {
    const auto value = std::make_shared<std::optional<T>>();
    auto there = there_and_back(std::move(home), put_into(value, std::move(work)));
    co_await std::move(there);
    co_return std::move(**value);
}

/// Awaits `work` at home, for a coroutine on the executor `here`. If that is home, or there is no
/// home, the result is `work` itself: no frame, no turn of the loop.
template<class T>
asio::awaitable<T>
from_here(const asio::any_io_executor& here, asio::any_io_executor home, asio::awaitable<T> work) {
    if (here == home || !home) {
        return work;
    }
    return there_and_back(std::move(home), std::move(work));
}

/// Awaits `work` at home, wherever this is awaited.
template<class T>
asio::awaitable<T> go_home(asio::any_io_executor home, asio::awaitable<T> work) {
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    auto all = from_here(here, std::move(home), std::move(work));
    co_return co_await std::move(all);
}

/// Awaits `work` at home, and loses no result on its way back: a caller that composes operations,
/// such as `next() || timer`, drops a result that comes at the very moment of the cancellation.
/// @param put_back Gets such a result, at home. The call has then ended with `operation_aborted`.
template<class T>
asio::awaitable<T> go_home_and_back(asio::any_io_executor home,
                                    asio::awaitable<T> work,
                                    std::function<void(T)> put_back) {
    const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type before = stop.cancelled();
    const asio::any_io_executor here = co_await asio::this_coro::executor;
    auto all = from_here(here, home, std::move(work));
    T result = co_await std::move(all);
    if (stop.cancelled() == before) {
        co_return result;
    }
    if (here == home) {
        put_back(std::move(result));
    } else {
        post(home, [put_back, dropped = std::move(result)] { put_back(dropped); });
    }
    throw_aborted();
}

} // namespace coetcd::detail
