// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/home_executor.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace coetcd::detail {

/// Work that runs by itself, counted, so that its end can be awaited and brought about.
class tasks : public std::enable_shared_from_this<tasks> {
public:
    explicit tasks(env& w)
        : world(w)
        , changed_(world) {}

    env& world;

    // Callable from anywhere:

    /// @returns False if no more tasks are taken: `work` does not begin then.
    bool start(asio::any_io_executor where, asio::awaitable<void> work) {
        const auto t = std::make_shared<task>(std::move(where));
        const auto w = std::make_shared<asio::awaitable<void>>(std::move(work));
        // The task counts until whatever has this pointer is gone.
        auto counted = std::shared_ptr<task>(
            t.get(), [self = shared_from_this(), t](task*) { self->ended(*t); });
        auto begin = [t = counted, w] {
            auto at_end = [t](std::exception_ptr failure) { rethrow_defect()(std::move(failure)); };
            spawn(t->where, std::move(*w), t->stop.slot(), std::move(at_end));
        };
        const std::lock_guard alone(access_);
        if (stopped_) {
            return false;
        }
        std::list<std::shared_ptr<task>> own(1, t);
        post(t->where, std::move(begin)); // before whatever cancels it
        t->place = own.begin();
        t->counts = true;
        all_.splice(all_.end(), own);
        return true;
    }

    std::size_t size() const {
        const std::lock_guard alone(access_);
        return all_.size();
    }

    /// Takes no more tasks from now on.
    void stop() {
        const std::lock_guard alone(access_);
        stopped_ = true;
    }

    /// @returns How many tasks there are.
    std::size_t cancel() {
        const std::lock_guard alone(access_);
        for (const std::shared_ptr<task>& each : all_) {
            post(each->where, [t = each] { t->stop.emit(asio::cancellation_type::terminal); });
        }
        return all_.size();
    }

    /// Waits at home until all tasks have ended; at the deadline it cancels those that have not.
    /// @returns How many it has cancelled.
    static asio::awaitable<std::size_t> until_over(std::shared_ptr<tasks> self,
                                                   time_point deadline) {
        std::size_t cancelled = 0;
        while (self->size() != 0) {
            const bool in_time = co_await self->changed_.wait(deadline);
            if (!in_time) {
                deadline = time_point::max();
                cancelled = self->cancel();
            }
        }
        co_return cancelled;
    }

private:
    struct task {
        explicit task(asio::any_io_executor given)
            : where(home_executor(std::move(given)).get()) {}
        const asio::any_io_executor where; // its cancellation must not run concurrently with it
        asio::cancellation_signal stop;
        std::list<std::shared_ptr<task>>::iterator place;
        bool counts = false; // it is in its place
    };

    void ended(const task& t) noexcept {
        bool last = false;
        {
            const std::lock_guard alone(access_);
            if (!t.counts) {
                return;
            }
            all_.erase(t.place); // the caller has it, too
            last = all_.empty();
        }
        if (last) {
            try {
                at_home(world, [self = shared_from_this()] { self->changed_.notify_all(); });
            } catch (const std::bad_alloc&) {
                // The waiter looks again at its deadline.
            }
        }
    }

    mutable std::mutex access_;
    std::list<std::shared_ptr<task>> all_;
    bool stopped_ = false;

    notifier changed_; // at home
};

} // namespace coetcd::detail
