// SPDX-License-Identifier: BSL-1.0
#include "support/scripted_env.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <stdexcept>

namespace support {

namespace asio = boost::asio;
using namespace coetcd::detail;
using coetcd::errc;
using coetcd::error_code;

/// A timer that never expires serves as the thing to wait for.
class scripted_env::virtual_sleeper final : public sleeper {
public:
    explicit virtual_sleeper(scripted_env& world)
        : world_(world)
        , until_(world.context, asio::steady_timer::time_point::max()) {}
    ~virtual_sleeper() override { world_.cancel(event_); }

    asio::awaitable<error_code> sleep_until(time_point when) override {
        if (when != time_point::max()) {
            event_ = world_.at(when, [this] { wake(); });
        }
        error_code ec;
        co_await until_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
        world_.cancel(event_);
        co_return woken_ ? error_code() : ec;
    }
    void wake() override {
        woken_ = true;
        until_.cancel();
    }

private:
    scripted_env& world_;
    asio::steady_timer until_;
    std::uint64_t event_ = 0;
    bool woken_ = false;
};

class scripted_env::client_stream final : public stream {
public:
    client_stream(std::shared_ptr<scripted_env> world, std::shared_ptr<server_stream> other)
        : world_(std::move(world))
        , other_(std::move(other)) {}
    ~client_stream() override { close(); }

    asio::awaitable<error_code> write(std::string json, time_point) override {
        if (other_->ended) {
            co_return error_code(asio::error::broken_pipe);
        }
        world_->at(world_->now() + world_->latency / 2, [w = world_.get(), to = other_, json] {
            if (!to->ended) {
                w->on_message(to, json);
            }
        });
        co_return error_code();
    }
    asio::awaitable<reply> read() override {
        reply result;
        while (other_->messages.empty() && !other_->ended) {
            (void)co_await other_->changed.wait();
        }
        if (other_->messages.empty()) {
            result.ec = asio::error::eof;
        } else {
            result = std::move(other_->messages.front());
            other_->messages.pop_front();
        }
        result.sent = true;
        co_return result;
    }
    std::uint64_t received() const override { return other_->received; }
    void close() override {
        if (!std::exchange(closed_, true)) {
            other_->ended = true;
            other_->changed.notify_all();
            if (other_->on_close) {
                other_->on_close();
            }
        }
    }

private:
    const std::shared_ptr<scripted_env> world_;
    const std::shared_ptr<server_stream> other_;
    bool closed_ = false;
};

std::unique_ptr<sleeper> scripted_env::make_sleeper() {
    return std::make_unique<virtual_sleeper>(*this);
}

asio::awaitable<reply> scripted_env::call(call_request request) {
    calls.push_back(request);
    const fate f = decide ? decide(request) : fate();
    const time_point deadline = request.deadline;
    const auto result = std::make_shared<reply>();
    if (f.refused) {
        result->ec = asio::error::connection_refused;
        co_return *result;
    }
    const auto answer = std::make_shared<reply>();
    if (f.arrives) {
        // By itself: that the caller is cancelled does not call a request back.
        at(now_ + latency / 2 + f.late, [w = this, request, answer] {
            answer->status = 200;
            w->on_call(request, *answer);
        });
    }
    const bool comes = f.arrives && f.answered && !f.breaks;
    const time_point ends =
        f.breaks ? now_ + latency : (comes ? now_ + latency + f.late : time_point::max());
    notifier never(*this);
    (void)co_await never.wait(std::min(ends, deadline));
    result->sent = true;
    if (ends > deadline) {
        result->ec = errc::timed_out;
    } else if (f.breaks) {
        result->ec = asio::error::eof;
    } else {
        result->status = answer->status;
        result->body = answer->body;
        result->ec = answer->ec;
        result->text = answer->text;
        result->crowded = answer->crowded;
    }
    co_return *result;
}

asio::awaitable<open_result> scripted_env::open(call_request request) {
    open_result result;
    const fate f = decide ? decide(request) : fate();
    notifier never(*this);
    (void)co_await never.wait(now_ + latency / 2);
    opened.push_back(request.how);
    if (f.refused) {
        result.ec = asio::error::connection_refused;
        co_return result;
    }
    const auto other = std::make_shared<server_stream>(*this);
    streams_.push_back(other);
    result.opened = std::make_unique<client_stream>(shared_from_this(), other);
    if (f.arrives && on_open) {
        on_open(request, other);
    }
    co_return result;
}

void scripted_env::push(const std::shared_ptr<server_stream>& to, std::string line) {
    reply message;
    message.status = 200;
    message.body = std::move(line);
    push(to, std::move(message));
}

void scripted_env::push(const std::shared_ptr<server_stream>& to, reply message) {
    at(now_ + latency / 2, [to, message = std::move(message)] {
        if (!to->ended) {
            to->messages.push_back(message);
            to->changed.notify_all();
        }
    });
}

void scripted_env::break_streams() {
    for (const auto& weak : std::exchange(streams_, {})) {
        if (const auto s = weak.lock()) {
            s->ended = true;
            s->messages.clear();
            s->changed.notify_all();
        }
    }
}

std::uint64_t scripted_env::at(time_point when, std::function<void()> fire) {
    const std::uint64_t number = ++last_event_;
    times_[number] = std::max(when, now_);
    events_.emplace(std::pair(times_[number], number), std::move(fire));
    return number;
}

void scripted_env::cancel(std::uint64_t event) {
    if (const auto found = times_.find(event); found != times_.end()) {
        events_.erase({found->second, event});
        times_.erase(found);
    }
}

void scripted_env::settle() {
    context.restart();
    context.poll();
}

bool scripted_env::next_event(time_point limit) {
    if (events_.empty() || events_.begin()->first.first > limit) {
        return false;
    }
    const auto next = events_.begin();
    now_ = std::max(now_, next->first.first);
    const std::function<void()> fire = std::move(next->second);
    times_.erase(next->first.second);
    events_.erase(next);
    fire();
    return true;
}

void scripted_env::run(asio::awaitable<void> body) {
    bool ended = false;
    std::exception_ptr failure;
    asio::co_spawn(context, std::move(body), [&](std::exception_ptr e) {
        failure = e;
        ended = true;
    });
    const time_point limit = now_ + std::chrono::hours(1);
    settle();
    while (!ended) {
        if (!next_event(limit)) {
            throw std::runtime_error("scripted_env: the body waits for what never comes");
        }
        settle();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
}

void scripted_env::pass(std::chrono::nanoseconds time) {
    const time_point limit = now_ + time;
    for (settle(); next_event(limit); settle()) {
    }
    now_ = std::max(now_, limit);
}

} // namespace support
