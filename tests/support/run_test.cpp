// SPDX-License-Identifier: BSL-1.0
#include "support/run_test.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <thread>

#include "support/catch.hpp"

namespace support {
namespace {

// Ends the process if run_test has not returned in time: a blocked io_context cannot do so itself.
class watchdog {
public:
    explicit watchdog(std::chrono::seconds timeout)
        : thread_([this, timeout] {
            std::unique_lock alone(access_);
            if (!over_.wait_for(alone, timeout, [this] { return is_over_; })) {
                std::cerr << "\nrun_test: the test blocks the thread of its io_context"
                          << std::endl;
                std::abort(); // Catch2 catches it and names the test
            }
        }) {}
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;
    ~watchdog() {
        {
            const std::lock_guard alone(access_);
            is_over_ = true;
        }
        over_.notify_one();
        thread_.join();
    }

private:
    std::mutex access_;
    std::condition_variable over_;
    bool is_over_ = false;
    std::thread thread_;
};

} // namespace

void run_test(std::function<boost::asio::awaitable<void>()> body, run_options options) {
    watchdog guard(std::chrono::ceil<std::chrono::seconds>(options.timeout + options.drain) +
                   std::chrono::seconds(20));
    bool completed = false;
    std::exception_ptr failure;
    boost::asio::io_context context{1};
    boost::asio::co_spawn(context, body(), [&](std::exception_ptr error) {
        completed = true;
        failure = error;
    });

    const auto deadline = std::chrono::steady_clock::now() + options.timeout;
    while (!completed && context.run_one_until(deadline) != 0) {
    }
    if (!completed && context.stopped()) {
        FAIL("run_test: the test waits for something that can no longer happen");
    }
    if (!completed) {
        FAIL("run_test: the test has not completed within " << options.timeout.count() << " ms");
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    context.run_for(options.drain);
    if (!context.stopped()) {
        FAIL("run_test: work remains " << options.drain.count() << " ms after the test completed");
    }
}

} // namespace support
