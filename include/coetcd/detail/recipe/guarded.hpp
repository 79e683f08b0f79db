// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

namespace coetcd::detail {

namespace asio = boost::asio;

class ownership;

/// A lock and a body that is to run under it, of any types.
class guarded_job {
public:
    virtual ~guarded_job() = default;

    /// Awaits the lock.
    /// @returns False if it cannot be had.
    virtual asio::awaitable<bool> take() = 0;
    /// What was taken; null if it holds nothing.
    virtual std::shared_ptr<ownership> owned() const = 0;
    /// What may cancel the body besides a loss. It is made when the body begins, and lives until
    /// the body has ended.
    virtual std::shared_ptr<void> watch(std::function<void()> cancel) const = 0;
    virtual asio::awaitable<void> run() = 0;
    /// Gives the lock back, in the background: the body has ended, and has nothing under way.
    virtual void give_back() = 0;
    /// Gives it back in the background, however the body has ended.
    virtual void let_go() = 0;

    bool ran = false; ///< False if the lock could not be had.
};

/// Runs a job on the caller's executor, or on a strand there: what cancels the job must not run
/// beside it. Everything else is done at home.
/// @param home Where the lock lives.
/// @throws error with `errc::not_owner` if it was given back, or with the code of its loss.
asio::awaitable<void> run_guarded(asio::any_io_executor home, std::shared_ptr<guarded_job> job);

template<class T>
inline constexpr bool is_awaitable = false;
template<class T, class Executor>
inline constexpr bool is_awaitable<asio::awaitable<T, Executor>> = true;

/// Whether `Body` can run under `Held`.
template<class Body, class Held>
constexpr bool is_body() {
    if constexpr (std::is_invocable_v<Body&, const Held&>) {
        return is_awaitable<std::invoke_result_t<Body&, const Held&>>;
    } else if constexpr (std::is_invocable_v<Body&>) {
        return is_awaitable<std::invoke_result_t<Body&>>;
    } else {
        return false;
    }
}
/// Reports once, at compile time, if it cannot.
template<class Body, class Held>
constexpr bool require_body() {
    static_assert(is_body<Body, Held>(),
                  "the body is to be a coroutine, body() or body(const Held&), that returns a "
                  "boost::asio::awaitable; Held is what the call takes, as coetcd::held_lock");
    return is_body<Body, Held>();
}

/// What `body()` returns, or `body(held)` if it takes that.
template<class Body, class Held>
auto start(Body& body, const Held& held) {
    if constexpr (std::is_invocable_v<Body&, const Held&>) {
        return body(held);
    } else {
        return body();
    }
}

template<class Held>
using body_watch = std::function<std::shared_ptr<void>(const Held&, std::function<void()> cancel)>;

/// The part of a job that is known as soon as its lock is.
/// @tparam Taken `Held`, or an optional of it.
template<class Held, class Taken>
class guarded_hold : public guarded_job {
public:
    guarded_hold(asio::awaitable<Taken> lock,
                 std::shared_ptr<ownership> (*owner_of)(const Held&),
                 body_watch<Held> watch)
        : lock_(std::move(lock))
        , owner_of_(owner_of)
        , watch_(std::move(watch)) {}

    asio::awaitable<bool> take() override {
        Taken taken = co_await std::move(lock_);
        if constexpr (std::is_same_v<Taken, Held>) {
            held_.emplace(std::move(taken));
        } else if (taken) {
            held_.emplace(std::move(*taken));
        }
        co_return held_.has_value();
    }
    std::shared_ptr<ownership> owned() const override { return owner_of_(*held_); }
    std::shared_ptr<void> watch(std::function<void()> cancel) const override {
        return watch_ ? watch_(*held_, std::move(cancel)) : nullptr;
    }
    void give_back() override {
        if constexpr (requires(Held & h) { h.unlock(); }) {
            (void)held_->unlock();
        }
    }
    void let_go() override { held_.reset(); }

protected:
    const Held& held() const { return *held_; }

private:
    asio::awaitable<Taken> lock_;
    std::shared_ptr<ownership> (*owner_of_)(const Held&);
    body_watch<Held> watch_;
    std::optional<Held> held_;
};

template<class Held, class Taken, class Body>
class guarded_body final : public guarded_hold<Held, Taken> {
public:
    using value_type =
        typename decltype(start(std::declval<Body&>(), std::declval<const Held&>()))::value_type;
    static constexpr bool is_nothing = std::is_void_v<value_type>;

    guarded_body(asio::awaitable<Taken> lock,
                 std::shared_ptr<ownership> (*owner_of)(const Held&),
                 body_watch<Held> watch,
                 Body body)
        : guarded_hold<Held, Taken>(std::move(lock), owner_of, std::move(watch))
        , body_(std::move(body)) {}

    asio::awaitable<void> run() override {
        if constexpr (is_nothing) {
            return start(body_, this->held());
        } else {
            return keep();
        }
    }

    /// What the body has returned.
    std::optional<std::conditional_t<is_nothing, std::monostate, value_type>> value;

private:
    asio::awaitable<void> keep() {
        auto work = start(body_, this->held());
        value.emplace(co_await std::move(work));
    }

    Body body_;
};

/// Awaits a job, and returns what its body did.
template<class Job>
asio::awaitable<typename Job::value_type> value_of(asio::awaitable<void> running,
                                                   std::shared_ptr<Job> job) {
    co_await std::move(running);
    co_return std::move(*job->value);
}

/// Runs `body` under what `lock` brings.
/// @param owner_of Returns the ownership that `Held` stands for; null if it holds nothing.
/// @param watch May cancel the body, too.
/// @throws error As the other overload.
template<class Held, class Body>
auto run_guarded(asio::any_io_executor home,
                 asio::awaitable<Held> lock,
                 std::shared_ptr<ownership> (*owner_of)(const Held&),
                 Body body,
                 body_watch<Held> watch = {}) {
    if constexpr (require_body<Body, Held>()) {
        using job_type = guarded_body<Held, Held, Body>;
        auto job = std::make_shared<job_type>(
            std::move(lock), owner_of, std::move(watch), std::move(body));
        auto running = run_guarded(std::move(home), std::shared_ptr<guarded_job>(job));
        if constexpr (job_type::is_nothing) {
            return running;
        } else {
            return value_of(std::move(running), std::move(job));
        }
    } else {
        return asio::awaitable<void>(); // so that the compiler reports nothing else
    }
}

/// Brings what is held already to `run_guarded`.
template<class Held>
asio::awaitable<Held> brought(Held held) {
    co_return std::move(held);
}

/// Unwraps what is never empty, since it is waited for without a limit.
template<class Held>
asio::awaitable<Held> the_one(asio::awaitable<std::optional<Held>> taking) {
    std::optional<Held> taken = co_await std::move(taking);
    co_return std::move(*taken);
}

/// Awaits a job, and returns whether it ran, or what its body returned, if anything.
inline asio::awaitable<bool> value_if_run(asio::awaitable<void> running,
                                          std::shared_ptr<guarded_job> job) {
    co_await std::move(running);
    co_return job->ran;
}
template<class Job>
asio::awaitable<std::optional<typename Job::value_type>> value_if_any(asio::awaitable<void> running,
                                                                      std::shared_ptr<Job> job) {
    co_await std::move(running);
    co_return std::move(job->value);
}

/// As `run_guarded`, if `lock` brings anything. The result is an optional of what the body returns,
/// or, if it returns nothing, whether it ran.
template<class Held, class Body>
auto run_guarded_if(asio::any_io_executor home,
                    asio::awaitable<std::optional<Held>> lock,
                    std::shared_ptr<ownership> (*owner_of)(const Held&),
                    Body body) {
    if constexpr (require_body<Body, Held>()) {
        using job_type = guarded_body<Held, std::optional<Held>, Body>;
        auto job = std::make_shared<job_type>(
            std::move(lock), owner_of, body_watch<Held>(), std::move(body));
        auto running = run_guarded(std::move(home), std::shared_ptr<guarded_job>(job));
        if constexpr (job_type::is_nothing) {
            return value_if_run(std::move(running), std::move(job));
        } else {
            return value_if_any(std::move(running), std::move(job));
        }
    } else {
        return asio::awaitable<bool>(); // so that the compiler reports nothing else
    }
}

} // namespace coetcd::detail

#ifndef COETCD_SEPARATE_COMPILATION
#include <coetcd/impl/guarded.hpp>
#endif
