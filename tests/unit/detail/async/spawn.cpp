// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/spawn.hpp>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"

using namespace coetcd::detail;
using support::scripted_env;

namespace {

/// Its own executor, and nothing else that can happen.
struct world {
    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    void run() {
        context.restart();
        context.run();
    }
};

asio::awaitable<void> set(std::shared_ptr<bool> done) {
    *done = true;
    co_return;
}

asio::awaitable<void> fail(boost::system::error_code ec) {
    throw boost::system::system_error(ec);
    co_return;
}

asio::awaitable<void> wait_for_a_turn(bool* waits) {
    const auto where = co_await asio::this_coro::executor;
    *waits = true;
    co_await asio::post(where, asio::use_awaitable);
}

asio::awaitable<void> fail_otherwise() {
    throw std::logic_error("defect");
    co_return;
}

} // namespace

TEST_CASE("background work runs by itself", "[spawn]") {
    world w;
    auto done = std::make_shared<bool>(false);
    spawn(*w.env, set(done));
    w.run();
    CHECK(*done);
}

TEST_CASE("background work owns what it needs, and lets it go", "[spawn]") {
    world w;
    auto done = std::make_shared<bool>(false);
    const std::weak_ptr<bool> alive = done;
    spawn(*w.env, set(std::move(done)));
    CHECK_FALSE(alive.expired());
    w.run();
    CHECK(alive.expired());
}

TEST_CASE("background work that is cancelled has ended regularly", "[spawn][cancellation]") {
    world w;
    spawn(*w.env, fail(asio::error::operation_aborted));
    CHECK_NOTHROW(w.run());
}

TEST_CASE("background work that is about to end may destroy the signal that cancels it",
          "[spawn][cancellation]") {
    asio::io_context context;
    auto stop = std::make_unique<asio::cancellation_signal>();
    bool waits = false;
    const auto at_end = [&](std::exception_ptr) { stop.reset(); };
    spawn(context.get_executor(), wait_for_a_turn(&waits), stop->slot(), at_end);
    while (!waits) {
        context.run_one();
    }
    stop->emit(asio::cancellation_type::terminal); // not by the thread that runs the work
    context.run();
    CHECK_FALSE(stop);
}

TEST_CASE("a defect of background work is thrown to what runs the executor", "[spawn]") {
    world w;
    spawn(*w.env, fail_otherwise());
    CHECK_THROWS_AS(w.run(), std::logic_error);
    spawn(*w.env, fail(asio::error::eof));
    CHECK_THROWS_AS(w.run(), boost::system::system_error);
}
