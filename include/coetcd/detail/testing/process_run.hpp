// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/process.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <string>

namespace coetcd::detail::testing {

// Suspensions.

template<class Handler>
struct suspension::handler_of final : continuation {
    explicit handler_of(Handler h)
        : handler(std::move(h)) {}
    void post() override { asio::post(std::move(handler)); }
    Handler handler;
};

template<class Handler>
void suspension::start(Handler handler) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) {
        slot.assign([weak = weak_from_this()](asio::cancellation_type how) {
            const auto self = weak.lock();
            if (self &&
                (how & asio::cancellation_type::terminal) != asio::cancellation_type::none) {
                self->resume(asio::error::operation_aborted);
            }
        });
    }
    auto then = std::make_unique<handler_of<Handler>>(std::move(handler));
    place_ = in_.waiting_.insert(in_.waiting_.end(), this);
    then_ = std::move(then);
    ++in_.suspensions;
    if (in_.on_suspension) {
        in_.on_suspension();
    }
    if (resumed_) {
        resumed_ = false;
        resume(result_);
    }
}

COETCD_DECL suspension::~suspension() {
    if (then_) {
        in_.waiting_.erase(place_);
    }
}

COETCD_DECL void suspension::resume(error_code ec) {
    if (std::exchange(resumed_, true)) {
        return;
    }
    result_ = ec;
    if (in_.on_resumption) {
        in_.on_resumption();
    }
    const world::own_doing own(in_.in);
    if (then_) {
        in_.waiting_.erase(place_);
        const std::unique_ptr<continuation> then = std::move(then_);
        then->post();
    }
}

struct suspension::initiation {
    template<class Handler>
    void operator()(Handler handler) const {
        of->start(std::move(handler));
    }
    suspension* of;
};

COETCD_DECL asio::awaitable<error_code> suspension::wait(std::shared_ptr<suspension> self) {
    const initiation initiate{self.get()};
    co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(initiate,
                                                                          asio::use_awaitable);
    co_return self->result_;
}

// Processes.

COETCD_DECL asio::execution_context&
process_executor::query(asio::execution::context_t) const noexcept {
    return in_->loop;
}

COETCD_DECL
process::process(world& w, std::size_t number, std::uint64_t seed, asio::io_context* where)
    : in(w)
    , number_(number)
    , chance_(seed)
    , executor_(*this)
    , context_(where)
    , offset_(std::chrono::hours(1000) +
              nanoseconds(static_cast<std::int64_t>(chance_.below(1'000'000'000'000)))) {}

COETCD_DECL process::~process() {
    shut_down();
}

COETCD_DECL asio::any_io_executor process::executor() const {
    if (context_) {
        return context_->get_executor();
    }
    return executor_;
}

COETCD_DECL bool process::is_home() const {
    return in.running_ == nullptr || in.running_ == this;
}

COETCD_DECL time_point process::now() const {
    const nanoseconds t = in.now();
    return time_point(offset_ + t + nanoseconds(t.count() / 1000 * rate_ppm_ / 1000));
}

COETCD_DECL nanoseconds process::to_world(time_point when) const {
    constexpr std::int64_t million = 1'000'000;
    const std::int64_t d = (when.time_since_epoch() - offset_).count();
    const std::int64_t rate = million + rate_ppm_;
    std::int64_t t = d / rate * million + d % rate * million / rate;
    // It must not be a moment too early.
    while (t + t / 1000 * rate_ppm_ / 1000 < d) {
        t += 1000;
    }
    return nanoseconds(t);
}

COETCD_DECL void process::enqueue(std::unique_ptr<handler> t) {
    if (!gone_) {
        ready_.push_back(std::move(t));
    }
}

COETCD_DECL void process::pause(nanoseconds until) {
    paused_until_ = std::max(paused_until_, until);
    ++pauses;
    in.note("pause", number_);
    in.at(paused_until_, [] {}); // so that it goes on then
}

COETCD_DECL bool process::is_paused() const {
    return paused_until_ > in.now();
}

COETCD_DECL bool process::is_cut_off() const {
    return cut_until_ > in.now();
}

COETCD_DECL void process::stir(bool by_line) {
    if (stirred_at_ != in.now()) {
        stirred_at_ = in.now();
        stirs_ = 0;
    }
    ++stirs_;
    heard_a_line_ = by_line;
}

COETCD_DECL bool process::heard_one_line() const {
    return stirred_at_ == in.now() && stirs_ == 1 && heard_a_line_;
}

COETCD_DECL bool process::run_ready() {
    if (context_) {
        context_->restart();
        return context_->poll() != 0;
    }
    bool any = false;
    while (!ready_.empty() && !is_paused() && !crashed_ && in.failure_.empty()) {
        if (crashing_ || in.crashes(*this)) {
            crash();
            return true;
        }
        if (in.pauses(*this)) {
            break;
        }
        any = true;
        const std::unique_ptr<handler> next = std::move(ready_.front());
        ready_.pop_front();
        running_ = true;
        in.running_ = this;
        if (++in.handlers_now_ > in.most_handlers) {
            in.fail("handlers run for ever, and time stands still");
        }
        try {
            next->run();
        } catch (const std::exception& e) {
            in.fail(std::string("an exception escaped into the event loop: ") + e.what());
        }
        running_ = false;
        in.running_ = nullptr;
    }
    if (crashing_ && !crashed_) {
        crash();
    }
    return any;
}

COETCD_DECL void process::crash() {
    in.note("crash", number_);
    crashed_ = true;
    shut_down();
    // When what its code holds is destroyed, it may begin something; this comes to nothing.
    if (on_crash) {
        on_crash();
    }
    shut_down();
}

COETCD_DECL void process::shut_down() {
    gone_ = std::exchange(context_, nullptr) != nullptr || gone_;
    do {
        while (!ready_.empty() || !waiting_.empty()) {
            if (!ready_.empty()) {
                const std::unique_ptr<handler> dropped = std::move(ready_.front());
                ready_.pop_front();
            } else {
                suspension& s = *waiting_.front();
                waiting_.pop_front();
                const auto keep = s.weak_from_this().lock();
                const std::unique_ptr<suspension::continuation> dropped = std::move(s.then_);
            }
        }
        loop.shutdown(); // drops what strands have queued
    } while (!ready_.empty() || !waiting_.empty());
}

class process::sleeper_here final : public sleeper {
public:
    explicit sleeper_here(process& in)
        : in_(in)
        , nap_(std::make_shared<suspension>(in)) {}

    asio::awaitable<error_code> sleep_until(time_point when) override {
        if (when != time_point::max()) {
            in_.in.at(in_.to_world(when), [of = &in_, weak = std::weak_ptr(nap_)] {
                if (const auto nap = weak.lock(); nap && !nap->resumed()) {
                    of->stir();
                    nap->resume();
                }
            });
        }
        const error_code ec = co_await suspension::wait(nap_);
        co_return woken_ ? error_code() : ec;
    }
    void wake() override {
        woken_ = true;
        nap_->resume();
    }

private:
    process& in_;
    const std::shared_ptr<suspension> nap_;
    bool woken_ = false;
};

COETCD_DECL std::unique_ptr<sleeper> process::make_sleeper() {
    return std::make_unique<sleeper_here>(*this);
}

COETCD_DECL asio::awaitable<error_code> process::sleep(nanoseconds time) {
    sleeper_here nap(*this);
    const error_code ec = co_await nap.sleep_until(now() + time);
    co_return ec;
}

} // namespace coetcd::detail::testing
