// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/home_executor.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/recipe/guarded.hpp>
#include <coetcd/detail/recipe/ownership.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <utility>

namespace coetcd::detail {

/// A job that runs.
class guarding final : public loss_listener, public std::enable_shared_from_this<guarding> {
public:
    guarding(std::shared_ptr<guarded_job> what,
             std::shared_ptr<const ownership> h,
             asio::any_io_executor where)
        : job(std::move(what))
        , held(std::move(h))
        , world(held->world())
        , here(home_executor(std::move(where)).get())
        , ended_(world) {}

    void on_loss() override {
        const auto self = shared_from_this(); // the body may end of it, and let go of it
        cancel();
        try {
            const auto most = held->overrun_to_report();
            if (most && !std::exchange(watches_overrun_, true)) {
                spawn(world, watch_overrun(self, *most));
            }
        } catch (const std::bad_alloc&) { // no report, then
        }
    }
    void cancel() {
        if (here == world.executor()) {
            stop.emit(asio::cancellation_type::terminal);
        } else {
            post(here, [self = shared_from_this()] {
                self->stop.emit(asio::cancellation_type::terminal);
            });
        }
    }

    /// The part on the executor `here`.
    static asio::awaitable<void> run(std::shared_ptr<guarding> self) {
        try {
            auto work = self->job->run();
            co_await std::move(work);
        } catch (...) {
            self->failure = std::current_exception();
        }
        // Asio 1.26 awaits once more after a coroutine that never waited. If that coroutine caused
        // its own cancellation, as by closing its session, this would throw into the event loop.
        co_await asio::this_coro::throw_if_cancelled(false);
    }

    /// The body has ended. Call it at home.
    void has_ended() {
        ended_at_all_ = true;
        ended_.notify_all();
    }

    const std::shared_ptr<guarded_job> job;
    const std::shared_ptr<const ownership> held;
    env& world;
    const asio::any_io_executor here;
    asio::cancellation_signal stop;
    std::exception_ptr failure;

private:
    /// @param most How long the body may go on after the loss before that is reported.
    static asio::awaitable<void> watch_overrun(std::shared_ptr<guarding> self,
                                               std::chrono::nanoseconds most) {
        const time_point lost = self->world.now();
        if (!self->ended_at_all_) {
            const bool ends = co_await self->ended_.wait(after(lost, most));
            if (!ends) {
                self->held->report_overrun(self->world.now() - lost);
            }
        }
    }

    notifier ended_;
    bool ended_at_all_ = false;
    bool watches_overrun_ = false;
};

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

/// What was taken does not outlive this object: it ends at home, and is given back in the
/// background. So the release travels with the next transaction, and nobody waits for it.
struct taken_for_now {
    explicit taken_for_now(guarded_job& j)
        : job(j) {}
    ~taken_for_now() { job.let_go(); }
    taken_for_now(const taken_for_now&) = delete;
    taken_for_now& operator=(const taken_for_now&) = delete;
    guarded_job& job;
};

/// The part of `run_guarded` at home.
/// @param here The executor of the caller.
inline asio::awaitable<void> guard_at_home(asio::any_io_executor here,
                                           std::shared_ptr<guarded_job> job) {
    const asio::cancellation_state caller = co_await asio::this_coro::cancellation_state;
    const asio::cancellation_type earlier = caller.cancelled(); // not meant for us
    const taken_for_now taken(*job);
    auto taking = job->take();
    const bool is_taken = co_await std::move(taking);
    if (!is_taken) {
        co_return;
    }
    const std::shared_ptr<ownership> held = job->owned();
    if (!held || held->is_given_up()) {
        throw error(errc::not_owner, held ? held->title() + ", with_lock" : "with_lock");
    }
    if (!held->held()) {
        throw held->loss();
    }
    const auto guarded = std::make_shared<guarding>(job, held, std::move(here));
    const loss_source::subscription listening(held->losses, *guarded);
    const auto cancel = [weak = std::weak_ptr(guarded)] {
        if (const auto still = weak.lock()) {
            still->cancel();
        }
    };
    std::shared_ptr<void> watching = job->watch(cancel);

    // The body's end is awaited whatever happens; a cancellation of ours is passed on to it. It
    // also ends before us when both are destroyed with their executor, since its handler owns us.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto pass_on = [cancel, home = guarded->world.executor()](asio::cancellation_type) {
        post(home, cancel);
    };
    asio::cancellation_slot slot = caller.slot();
    if (slot.is_connected()) {
        slot.assign(pass_on);
    }
    if (caller.cancelled() != earlier) {
        pass_on(caller.cancelled()); // it came with the lock
    }
    job->ran = true;
    auto token = asio::bind_cancellation_slot(guarded->stop.slot(), asio::use_awaitable);
    auto all = asio::co_spawn(guarded->here, guarding::run(guarded), std::move(token));
    try {
        co_await std::move(all);
    } catch (...) {
        guarded->failure = std::current_exception(); // a lack of memory
    }
    guarded->has_ended();
    slot.clear();
    watching.reset();
    co_await asio::this_coro::throw_if_cancelled(throws);

    if (!held->held()) {
        throw_loss(held->loss(), guarded->failure);
    }
    if (guarded->failure) {
        std::rethrow_exception(guarded->failure);
    }
    if (caller.cancelled() == earlier) {
        job->give_back();
    }
}

} // namespace coetcd::detail
