// SPDX-License-Identifier: BSL-1.0
#include "bench/worker.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <fcntl.h>
#include <future>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace bench {

task::task(const json& object)
    : kind(object.at("case"))
    , subject(object.at("subject"))
    , url(object.value("url", ""))
    , direct(object.value("direct", url))
    , name(object.value("name", ""))
    , gate(object.value("gate", ""))
    , server(object.value("server", 0))
    , count(object.value("count", std::size_t(1)))
    , slice(object.value("slice", std::size_t(0)))
    , seconds(object.value("seconds", 1.0))
    , limit(object.value("limit", 60.0))
    , ttl(object.value("ttl", 10L))
    , hold(object.value("hold", 0.0))
    , stall(object.value("stall", 0.0)) {}

std::vector<std::string> urls_of(const task& t) {
    std::vector<std::string> all;
    std::istringstream list(t.url);
    for (std::string url; std::getline(list, url, ',');) {
        all.push_back(url);
    }
    return all;
}

void tell(const json& line) {
    std::cout << line.dump() << std::endl;
}

awaitable<void> pass_gate(std::string gate) {
    if (gate.empty()) {
        co_return;
    }
    const int opened = ::open(gate.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0) {
        throw std::system_error(errno, std::generic_category(), gate);
    }
    asio::posix::stream_descriptor end(co_await asio::this_coro::executor, opened);
    json ready;
    ready["ready"] = true;
    tell(ready);
    boost::system::error_code ec;
    char byte = 0;
    (void)co_await end.async_read_some(asio::buffer(&byte, 1),
                                       asio::redirect_error(asio::use_awaitable, ec));
}

awaitable<void> let_pass(double seconds) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_after(
        std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds)));
    co_await timer.async_wait(asio::use_awaitable);
}

struct crew::state {
    explicit state(const asio::any_io_executor& executor)
        : changed(executor) {}
    asio::steady_timer changed;
    std::size_t running = 0;
    std::exception_ptr failure;
};

crew::crew(const asio::any_io_executor& executor)
    : state_(std::make_shared<state>(executor)) {}

void crew::start(awaitable<void> member) {
    ++state_->running;
    const auto executor = state_->changed.get_executor();
    asio::co_spawn(executor, std::move(member), [s = state_](std::exception_ptr failure) {
        if (failure && !s->failure) {
            s->failure = failure;
        }
        --s->running;
        if (s->running == 0 || failure) {
            s->changed.cancel();
        }
    });
}

awaitable<bool> crew::joined(clock::time_point until) {
    const auto s = state_;
    s->changed.expires_at(until);
    while (s->running != 0 && !s->failure && clock::now() < until) {
        boost::system::error_code ignored;
        co_await s->changed.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    if (s->failure) {
        std::rethrow_exception(s->failure);
    }
    co_return s->running == 0;
}

namespace {

awaitable<void> repeat(const lock_and_unlock& pair,
                       std::size_t contender,
                       clock::time_point until,
                       durations& all) {
    for (auto began = clock::now(); began < until;) {
        co_await pair(contender);
        const auto ended = clock::now();
        all.add(ended - began);
        began = ended;
    }
}

} // namespace

awaitable<json>
measure_pairs(lock_and_unlock pair, std::size_t contenders, double seconds, pid_t server) {
    crew all(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < contenders; ++i) {
        all.start(pair(i));
    }
    (void)co_await all.joined();

    durations each;
    const stretch measured(server);
    const auto length =
        std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
    const auto until = clock::now() + length;
    for (std::size_t i = 0; i < contenders; ++i) {
        all.start(repeat(pair, i, until, each));
    }
    (void)co_await all.joined();

    const auto n = static_cast<double>(each.count());
    json result;
    result["operations"] = n;
    result["rate"] = n / measured.seconds();
    result["client_us"] = measured.client_cpu() * 1e6 / n;
    result["server_us"] = measured.server_cpu() * 1e6 / n;
    result["p50_ms"] = each.milliseconds_at(0.5);
    result["p99_ms"] = each.milliseconds_at(0.99);
    co_return result;
}

void ownerships::leaving() {
    json::array_t one;
    one.emplace_back(taken_);
    one.emplace_back(microseconds(clock::now()));
    list_.emplace_back(std::move(one));
}

awaitable<void> consumption::pause_once(const task& t, std::size_t events) {
    constexpr std::size_t some = 3000;
    if (!paused_ && events > some) {
        paused_ = true;
        co_await let_pass(t.stall);
    }
}

long_run::long_run(const task& t)
    : count_(t.count)
    , slice_(t.slice)
    , measured_(t.server)
    , until_(began_ + std::chrono::milliseconds(static_cast<long>(t.seconds * 1000))) {}

void long_run::add(clock::time_point began) {
    ends_.push_back(clock::now());
    each_.add(ends_.back() - began);
}

json long_run::to_json() const {
    const std::size_t n = ends_.size();
    const std::size_t slice = std::min(slice_, n / 2);
    const auto rate = [&](std::size_t first, std::size_t last) {
        const auto from = first == 0 ? began_ : ends_[first - 1];
        const std::chrono::duration<double> length = ends_[last - 1] - from;
        return static_cast<double>(last - first) / length.count();
    };
    json result;
    result["operations"] = n;
    result["rate"] = rate(0, n);
    result["first_rate"] = rate(0, slice);
    result["last_rate"] = rate(n - slice, n);
    result["last_to_first"] = rate(n - slice, n) / rate(0, slice);
    result["p50_ms"] = each_.milliseconds_at(0.5);
    result["p99_ms"] = each_.milliseconds_at(0.99);
    result["client_us"] = measured_.client_cpu() * 1e6 / static_cast<double>(n);
    result["server_us"] = measured_.server_cpu() * 1e6 / static_cast<double>(n);
    return result;
}

json consumption::to_json(std::size_t events) const {
    const auto more = static_cast<double>(most_resident()) - static_cast<double>(before_);
    json result;
    result["ended"] = microseconds(clock::now());
    result["cpu"] = own_cpu() - cpu_;
    result["more_mib"] = more / 1024 / 1024;
    result["events"] = events;
    return result;
}

namespace {

awaitable<json> start(task t) {
    if (t.subject == "flood") {
        return run_flood(std::move(t));
    }
    if (t.subject == "raw") {
        return t.kind == "flood" ? run_raw_watch(std::move(t)) : run_raw(std::move(t));
    }
#ifdef COETCD_BENCH_REDIS
    if (t.subject == "redis") {
        return run_redis(std::move(t));
    }
#endif
    if (t.subject == "writer") {
        return run_writer(std::move(t));
    }
    if (t.subject == "delay") {
        return run_delay(std::move(t));
    }
    if (t.kind == "queue" || t.kind == "work-queue") {
        return run_queue(std::move(t));
    }
    for (const char* locks : {"uncontended",
                              "one-name",
                              "hand-over",
                              "several",
                              "million",
                              "with-lock",
                              "in-turn",
                              "permits",
                              "puts",
                              "guarded"}) {
        if (t.kind.starts_with(locks)) {
            return run_coetcd(std::move(t));
        }
    }
    for (const char* watches : {"flood", "beside", "watches"}) {
        if (t.kind == watches) {
            return run_watches(std::move(t));
        }
    }
    return run_scale(std::move(t));
}

} // namespace

int work(const std::string& text) {
    raise_file_limit();
    try {
        asio::io_context context(1);
        auto done = asio::co_spawn(context, start(task(json::parse(text))), asio::use_future);
        while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
            context.run_one();
        }
        tell(done.get());
        std::cout.flush();
        std::_Exit(0); // what is left of a failed crew refers to what is gone
    } catch (const std::exception& e) {
        json failure;
        failure["error"] = e.what();
        tell(failure);
        std::_Exit(1);
    }
}

} // namespace bench
