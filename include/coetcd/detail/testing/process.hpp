// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>
#include <coetcd/detail/net/pool.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/error.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <type_traits>
#include <utility>

namespace coetcd::detail::testing {

using std::chrono::nanoseconds;

class world;
class process;

/// Runs handlers in one simulated process.
class process_executor {
public:
    explicit process_executor(process& in)
        : in_(&in) {}

    asio::execution_context& query(asio::execution::context_t) const noexcept;
    process_executor require(asio::execution::blocking_t::never_t) const {
        process_executor other = *this;
        other.may_block_ = false;
        return other;
    }
    process_executor require(asio::execution::blocking_t::possibly_t) const {
        process_executor other = *this;
        other.may_block_ = true;
        return other;
    }
    template<class F>
    void execute(F&& f) const;

    friend bool operator==(const process_executor& a, const process_executor& b) noexcept {
        return a.in_ == b.in_ && a.may_block_ == b.may_block_;
    }
    friend bool operator!=(const process_executor& a, const process_executor& b) noexcept {
        return !(a == b);
    }

private:
    process* in_;
    bool may_block_ = true;
};

/// A coroutine's wait. It is resumed once; the first reason counts.
class suspension : public std::enable_shared_from_this<suspension> {
public:
    explicit suspension(process& in)
        : in_(in) {}
    suspension(const suspension&) = delete;
    suspension& operator=(const suspension&) = delete;
    ~suspension();

    /// Waits for `resume`, or for a cancellation.
    static asio::awaitable<error_code> wait(std::shared_ptr<suspension> self);
    void resume(error_code ec = {});
    bool resumed() const { return resumed_; }

private:
    friend class process;
    struct continuation {
        virtual ~continuation() = default;
        virtual void post() = 0;
    };
    template<class Handler>
    struct handler_of;
    struct initiation;
    template<class Handler>
    void start(Handler handler);

    process& in_;
    std::unique_ptr<continuation> then_;
    std::list<suspension*>::iterator place_;
    bool resumed_ = false;
    error_code result_;
};

/// A client's process: its clock, its chance, its event loop, and its connection to the network. It
/// is the `env` of the library that runs in it.
class process final : public env, public std::enable_shared_from_this<process> {
public:
    /// @param where Runs the process; if null, only the world does.
    process(world& in, std::size_t number, std::uint64_t seed, asio::io_context* where = nullptr);
    ~process() override;

    asio::any_io_executor executor() const override;
    bool is_home() const override;
    time_point now() const override;
    std::uint64_t random() override { return chance_.next(); }
    std::unique_ptr<sleeper> make_sleeper() override;
    asio::awaitable<reply> call(call_request request) override;
    asio::awaitable<open_result> open(call_request request) override;

    /// A pause in the code of tests.
    asio::awaitable<error_code> sleep(nanoseconds time);

    /// Makes its clock run too fast or too slow by this much.
    void set_rate(std::int64_t ppm) { rate_ppm_ = ppm; }
    /// Lets nothing out, and nothing in by a stream, until then.
    void cut_off(nanoseconds until) { cut_until_ = until; }
    nanoseconds cut_off_until() const { return cut_until_; }
    bool is_cut_off() const;
    /// Lets nothing run until then.
    void pause(nanoseconds until);
    bool is_paused() const;
    /// Ends it where it stands: none of its code runs any more, and nothing is sent.
    void crash();
    /// Ends it as soon as it waits for something, or another of its handlers is about to run.
    void crash_soon() { crashing_ = true; }
    bool has_crashed() const { return crashed_; }
    /// Drops what its code holds. Called by `crash`.
    std::function<void()> on_crash;

    /// The world's time at which its own clock shows `when`.
    nanoseconds to_world(time_point when) const;

    /// Whether nothing but one line of a stream has happened to it at this moment.
    bool heard_one_line() const;

    std::size_t number() const { return number_; }
    std::size_t waiting() const { return waiting_.size(); }
    /// Calls that failed on the way, so far.
    std::uint64_t failed_calls = 0;
    /// Calls that were repeated on the way.
    std::uint64_t repeated_calls = 0;
    std::uint64_t pauses = 0; ///< So far.
    /// Its requests and its suspensions so far, and callbacks for each suspension.
    std::uint64_t calls = 0;
    std::uint64_t suspensions = 0;
    std::function<void()> on_suspension;
    std::function<void()> on_resumption; ///< Called at the end of each suspension.

    world& in;

    // For the executor.
    /// Nobody runs this: timers and sockets that are made on the executor stand still.
    class context final : public asio::io_context {
    public:
        ~context() { shutdown(); }
        using asio::execution_context::shutdown;
    };
    context loop;
    struct handler {
        virtual ~handler() = default;
        virtual void run() = 0;
    };
    void enqueue(std::unique_ptr<handler> t);
    bool is_running() const { return running_; }

private:
    friend class world;
    friend class suspension;
    friend class link;
    class sleeper_here;
    class client_stream;
    struct exchange;

    struct spare_connection {
        bool reusable() const { return true; }
        static bool is_alive(const spare_connection& /*it*/) { return true; }
    };

    std::shared_ptr<exchange> send(call_request request);
    asio::awaitable<reply> call_at_once(call_request request);
    bool run_ready();
    void shut_down();
    /// Something from outside has happened to it.
    void stir(bool by_line = false);

    const std::size_t number_;
    chance chance_;
    process_executor executor_;
    asio::io_context* context_;
    std::int64_t rate_ppm_ = 0;
    nanoseconds offset_;
    nanoseconds paused_until_{0};
    nanoseconds cut_until_{0};
    net::pool<spare_connection> pool_{*this};
    nanoseconds stirred_at_{-1};
    int stirs_ = 0; // at that time
    bool heard_a_line_ = false;
    std::deque<std::unique_ptr<handler>> ready_;
    std::list<suspension*> waiting_;
    bool running_ = false;
    bool crashing_ = false;
    bool crashed_ = false;
    bool gone_ = false; // with its context
};

template<class F>
void process_executor::execute(F&& f) const {
    using function = std::decay_t<F>;
    if (may_block_ && in_->is_running()) {
        function run(std::forward<F>(f));
        std::move(run)();
        return;
    }
    struct handler_of final : process::handler {
        explicit handler_of(function g)
            : held(std::move(g)) {}
        void run() override {
            function here(std::move(held));
            std::move(here)();
        }
        function held;
    };
    in_->enqueue(std::make_unique<handler_of>(std::forward<F>(f)));
}

} // namespace coetcd::detail::testing
