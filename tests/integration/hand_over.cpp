// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/async.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/etcd_server.hpp"
#include "support/etcd_tools.hpp"
#include "support/process.hpp"
#include "support/run_test.hpp"

using namespace std::chrono_literals;
using namespace support;
namespace asio = boost::asio;
using coetcd::client;
using coetcd::session;

namespace {

double median(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
}

std::ptrdiff_t in(const std::vector<double>& samples, double from, double to) {
    return std::count_if(
        samples.begin(), samples.end(), [=](double x) { return x >= from && x < to; });
}

void print(const std::string& title, const std::vector<double>& samples) {
    std::ostringstream out;
    out << title << ": " << samples.size() << " hand-overs, median " << std::fixed
        << std::setprecision(2) << median(samples) << " ms\n";
    constexpr std::array<double, 13> bounds{0, 0.5, 1, 1.5, 2, 3, 4, 5, 10, 20, 50, 80, 120};
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        const bool last = i + 1 == bounds.size();
        const auto n = in(samples, bounds[i], last ? 1e9 : bounds[i + 1]);
        out << "    from " << std::setw(6) << bounds[i] << " ms " << std::setw(5) << n << ' '
            << std::string(static_cast<std::size_t>(n) * 60 / samples.size(), '#') << '\n';
    }
    std::cout << out.str() << std::flush;
}

/// From the start of unlock() on one side to the end of lock() on the other, in milliseconds.
awaitable<std::vector<double>> hand_overs(client one, client other, std::size_t n) {
    const auto executor = co_await asio::this_coro::executor;
    session s1 = co_await open_session(one, 30s);
    session s2 = co_await open_session(other, 30s);
    const std::string name = unique_name("hand-over");
    coetcd::mutex m1(s1, name);
    coetcd::mutex m2(s2, name);
    coetcd::mutex* holder = &m1;
    coetcd::mutex* waiter = &m2;
    co_await holder->lock();
    std::vector<double> samples;
    for (std::size_t i = 0; i < n; ++i) {
        task<void> lock(executor, waiter->lock());
        auto waits = [&]() -> awaitable<bool> {
            const auto queue = co_await holder->waiters();
            co_return queue.size() == 1;
        };
        co_await eventually(waits, 5s, "the other one waits");
        // What the holder does meanwhile. Of differing length, so as not to fall in step with etcd.
        co_await sleep_for(std::chrono::milliseconds(5 + i % 11));
        const auto start = clock::now();
        const bool ours = co_await holder->unlock();
        CHECK(ours);
        co_await lock.result();
        samples.push_back(ms_between(start, lock.ended()));
        std::swap(holder, waiter);
    }
    co_await s1.close();
    co_await s2.close();
    co_return samples;
}

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||     \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr double most_ms = 25; // this program itself takes the time: two requests and an event
#else
constexpr double most_ms = 5;
#endif

void check(const std::vector<double>& samples) {
    CHECK(median(samples) < most_ms);
    // What etcd would cause if a watch began in the past.
    CHECK(in(samples, 80, 120) < static_cast<std::ptrdiff_t>(samples.size() / 20));
}

} // namespace

TEST_CASE("Write five hundred times a second until killed", "[.process]") {
    const std::string url = environment("COETCD_TEST_URL");
    if (url.empty()) {
        return; // not started by another test
    }
    run_test([&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client c(executor, url);
        const auto start = clock::now();
        constexpr int writers = 16; // so many that the time a single write takes is no limit
        const auto write = [&](int w) -> awaitable<void> {
            for (int i = 0;; ++i) {
                const auto at = start + (i * writers + w) * 2ms;
                co_await sleep_for(at - clock::now());
                (void)co_await c.put("unrelated-" + std::to_string(w), std::to_string(i));
            }
        };
        std::vector<awaitable<void>> all;
        for (int w = 0; w < writers; ++w) {
            all.push_back(write(w));
        }
        co_await run_all(std::move(all));
    });
}

TEST_CASE("A lock is handed over within milliseconds on an idle etcd", "[hand_over]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client one(executor, etcd.url());
        const client other(executor, etcd.url());
        const auto samples = co_await hand_overs(one, other, 300);
        print("idle", samples);
        check(samples);
    };
    run_test(body);
}

TEST_CASE("A lock is handed over within milliseconds on a busy etcd", "[hand_over]") {
    etcd_server etcd;
    const auto body = [&]() -> awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        const client one(executor, etcd.url());
        const client other(executor, etcd.url());
        process_options options;
        options.environment = {"COETCD_TEST_URL=" + etcd.url(), "COETCD_TALLY="};
        options.output_file = "/dev/null";
        background_process load(
            {"/proc/self/exe", "Write five hundred times a second until killed"},
            std::move(options));
        auto writes = [&]() -> awaitable<bool> {
            const auto n = co_await count(one, "unrelated-");
            co_return n > 0;
        };
        co_await eventually(writes, 20s, "the other process writes");

        const auto written = [&]() -> awaitable<double> {
            double sum = 0;
            const auto all = co_await one.range(coetcd::key_range::prefix("unrelated-"));
            for (const auto& kv : all.kvs) {
                sum += static_cast<double>(kv.version);
            }
            co_return sum;
        };
        const auto start = clock::now();
        const double before = co_await written();
        const auto samples = co_await hand_overs(one, other, 300);
        const double after = co_await written();
        const double rate = (after - before) * 1000 / ms_between(start, clock::now());
        CHECK(load.running());
        print(std::to_string(static_cast<int>(rate)) + " unrelated writes a second", samples);
        CHECK(rate > 400);
        check(samples);
    };
    run_test(body);
}
