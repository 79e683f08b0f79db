// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/task_group.hpp>

#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using coetcd::task_group;
using support::world;

namespace {

struct group_of_tasks {
    group_of_tasks()
        : group(w.client()) {}
    world w;
    task_group group;

    asio::any_io_executor here() { return w.context->get_executor(); }
};

/// How a task of a test went.
struct story {
    bool began = false;
    bool finished = false;
    bool aborted = false;
};

asio::awaitable<void> rest(std::shared_ptr<support::scripted_env> env,
                           std::chrono::nanoseconds time) {
    coetcd::detail::notifier pause(*env);
    (void)co_await pause.wait(coetcd::detail::after(env->now(), time));
}

/// Takes some time; cancelled, it tidies up for some more.
asio::awaitable<void> work(std::shared_ptr<support::scripted_env> env,
                           std::chrono::nanoseconds time,
                           std::shared_ptr<story> told,
                           std::chrono::nanoseconds tidying = 0ns) {
    told->began = true;
    std::exception_ptr stopped;
    try {
        co_await rest(env, time);
        told->finished = true;
    } catch (const boost::system::system_error&) {
        stopped = std::current_exception();
    }
    if (stopped) {
        told->aborted = true;
        co_await asio::this_coro::throw_if_cancelled(false);
        co_await asio::this_coro::reset_cancellation_state();
        co_await rest(env, tidying);
        std::rethrow_exception(stopped);
    }
}

} // namespace

TEST_CASE("a task group counts what runs", "[task_group]") {
    group_of_tasks all;
    auto& [w, group] = all;
    const auto told = std::make_shared<story>();
    REQUIRE(group.size() == 0);
    REQUIRE(group.get_executor() == all.here());
    REQUIRE(group.spawn(all.here(), work(w.env, 1s, told)));
    REQUIRE(group.size() == 1);
    w.env->pass(0s);
    REQUIRE(told->began);
    REQUIRE(group.spawn(all.here(), work(w.env, 2s, told)));
    REQUIRE(group.size() == 2);
    w.env->pass(1s);
    REQUIRE(group.size() == 1);
    w.env->pass(1s);
    REQUIRE(group.size() == 0);
    REQUIRE(told->finished);
}

TEST_CASE("shutdown() takes no more, lets the others finish, and cancels the rest",
          "[task_group]") {
    group_of_tasks all;
    auto& [w, group] = all;
    const auto shorter = std::make_shared<story>();
    const auto longer = std::make_shared<story>();
    REQUIRE(group.spawn(all.here(), work(w.env, 3s, shorter)));
    REQUIRE(group.spawn(all.here(), work(w.env, 60s, longer, 500ms)));
    w.env->pass(1s);
    auto ending = w.start(group.shutdown(5s));
    const auto late = std::make_shared<story>();
    REQUIRE_FALSE(group.spawn(all.here(), work(w.env, 1s, late))); // from the call on
    w.env->pass(4999ms);
    REQUIRE(shorter->finished);
    REQUIRE_FALSE(longer->aborted);
    REQUIRE(group.size() == 1);
    w.env->pass(1ms);
    REQUIRE(longer->aborted);
    w.env->pass(499ms);
    REQUIRE_FALSE(ending.ended()); // it tidies up
    w.env->pass(1ms);
    REQUIRE(ending.get() == 1);
    REQUIRE(group.size() == 0);
    REQUIRE_FALSE(longer->finished);
    REQUIRE_FALSE(late->began);
    REQUIRE(w.await(group.shutdown(5s)) == 0); // nothing is left to do
}

TEST_CASE("shutdown() ends with the last task, not with its patience", "[task_group]") {
    group_of_tasks all;
    auto& [w, group] = all;
    const auto told = std::make_shared<story>();
    auto at_once = w.start(group.shutdown(60s));
    w.env->pass(0s);
    REQUIRE(at_once.get() == 0);

    task_group other(w.client());
    REQUIRE(other.spawn(all.here(), work(w.env, 1s, told)));
    auto ending = w.start(other.shutdown(std::chrono::nanoseconds::max()));
    w.env->pass(999ms);
    REQUIRE_FALSE(ending.ended());
    w.env->pass(1ms);
    REQUIRE(ending.get() == 0);
}

TEST_CASE("shutdown() without patience cancels at once", "[task_group]") {
    for (const auto patience : {0s, -1s}) {
        for (const bool begun : {false, true}) {
            group_of_tasks all;
            auto& [w, group] = all;
            const auto told = std::make_shared<story>();
            REQUIRE(group.spawn(all.here(), work(w.env, 60s, told)));
            if (begun) {
                w.env->pass(1s);
            }
            auto ending = w.start(group.shutdown(patience));
            w.env->pass(0s);
            REQUIRE(ending.get() == 1);
            REQUIRE_FALSE(told->finished);
        }
    }
}

TEST_CASE("of several shutdowns the least patient one cancels", "[task_group]") {
    group_of_tasks all;
    auto& [w, group] = all;
    const auto told = std::make_shared<story>();
    REQUIRE(group.spawn(all.here(), work(w.env, 60s, told)));
    auto patient = w.start(group.shutdown(30s));
    w.env->pass(1s);
    auto hurried = w.start(group.shutdown(0s)); // somebody has pressed Ctrl-C once more
    w.env->pass(0s);
    REQUIRE(hurried.get() == 1);
    REQUIRE(patient.get() == 0);
}

TEST_CASE("shutdown() that is cancelled leaves the tasks alone", "[task_group][cancellation]") {
    group_of_tasks all;
    auto& [w, group] = all;
    const auto told = std::make_shared<story>();
    REQUIRE(group.spawn(all.here(), work(w.env, 5s, told)));
    for (const auto when : {0ms, 1ms}) {
        auto ending = w.start(group.shutdown(1s));
        w.env->pass(when);
        ending.cancel();
        w.env->pass(0s);
        REQUIRE(ending.code() == asio::error::operation_aborted);
    }
    (void)group.shutdown(0s); // nor does one that is not awaited
    w.env->pass(2s);
    REQUIRE_FALSE(told->aborted);
    REQUIRE_FALSE(group.spawn(all.here(), work(w.env, 1s, told)));
    auto again = w.start(group.shutdown(10s));
    w.env->pass(3s);
    REQUIRE(again.get() == 0);
    REQUIRE(told->finished);
}

TEST_CASE("a task group that is destroyed cancels its tasks, and does not wait", "[task_group]") {
    world w;
    std::optional<task_group> group(w.client());
    const auto told = std::make_shared<story>();
    REQUIRE(group->spawn(w.context->get_executor(), work(w.env, 60s, told, 500ms)));
    auto ending = w.start(group->shutdown(30s));
    w.env->pass(1s);
    group.reset();
    REQUIRE_FALSE(told->aborted); // not here and now
    w.env->pass(0s);
    REQUIRE(told->aborted);
    REQUIRE_FALSE(ending.ended());
    w.env->pass(500ms);
    REQUIRE(ending.get() == 0);

    // So does one that another is assigned to.
    task_group one(w.client());
    const auto first = std::make_shared<story>();
    const auto second = std::make_shared<story>();
    REQUIRE(one.spawn(w.context->get_executor(), work(w.env, 60s, first)));
    task_group other(w.client());
    REQUIRE(other.spawn(w.context->get_executor(), work(w.env, 2s, second)));
    w.env->pass(1s);
    one = std::move(other);
    w.env->pass(0s);
    REQUIRE(first->aborted);
    REQUIRE_FALSE(second->aborted);
    REQUIRE(one.size() == 1);
    w.env->pass(1s);
    REQUIRE(second->finished);
    REQUIRE(one.size() == 0);

    const std::vector<std::pair<const char*, std::function<void()>>> uses = {
        {"get_executor", [&] { (void)other.get_executor(); }},
        {"spawn", [&] { (void)other.spawn(w.context->get_executor(), rest(w.env, 1s)); }},
        {"size", [&] { (void)other.size(); }},
        {"shutdown", [&] { (void)other.shutdown(1s); }},
    };
    for (const auto& [name, use] : uses) {
        INFO(name);
        CHECK_THROWS_AS(use(), std::logic_error);
    }
}

TEST_CASE("the failure of a task goes to what runs the executor, and ends the task",
          "[task_group]") {
    group_of_tasks all;
    auto& [w, group] = all;
    auto failing = []() -> asio::awaitable<void> {
        throw std::runtime_error("a defect");
        co_return;
    };
    REQUIRE(group.spawn(all.here(), failing()));
    REQUIRE_THROWS_WITH(w.env->pass(0s), "a defect");
    REQUIRE(group.size() == 0);
    auto aborted = []() -> asio::awaitable<void> {
        throw boost::system::system_error(asio::error::operation_aborted);
        co_return;
    };
    REQUIRE(group.spawn(all.here(), aborted()));
    REQUIRE_NOTHROW(w.env->pass(0s));
    REQUIRE(group.size() == 0);
}

TEST_CASE("a task may use its group", "[task_group]") {
    group_of_tasks all;
    auto& [w, group] = all;
    const auto child = std::make_shared<story>();
    std::size_t seen = 0;
    auto parent = [&]() -> asio::awaitable<void> {
        const bool taken = group.spawn(all.here(), work(w.env, 60s, child));
        seen = group.size();
        co_await rest(w.env, 1ms);
        (void)group.shutdown(0s); // without waiting for itself
        REQUIRE(taken);
    };
    REQUIRE(group.spawn(all.here(), parent()));
    w.env->pass(1s);
    REQUIRE(seen == 2);
    REQUIRE(group.size() == 1);
    REQUIRE_FALSE(group.spawn(all.here(), work(w.env, 1s, child)));
    REQUIRE(w.await(group.shutdown(0s)) == 1);
}

TEST_CASE("a task runs where no cancellation can run beside it", "[task_group]") {
    asio::thread_pool pool(1);
    asio::thread_pool other(1);
    group_of_tasks all;
    auto& [w, group] = all;
    std::vector<asio::any_io_executor> seen;
    auto look = [&]() -> asio::awaitable<void> {
        const auto executor = co_await asio::this_coro::executor;
        seen.push_back(executor);
    };
    const asio::any_io_executor bare = pool.get_executor();
    REQUIRE(group.spawn(bare, look()));
    pool.join();
    const asio::any_io_executor other_strand = asio::make_strand(other);
    REQUIRE(group.spawn(other_strand, look()));
    other.join();
    REQUIRE(seen.size() == 2);
    CHECK(seen[0] != bare);
    CHECK(seen[0].target<asio::strand<asio::any_io_executor>>() != nullptr);
    CHECK(seen[1] == other_strand);
    REQUIRE(group.size() == 0);
}

TEST_CASE("the whole world may end under a task group", "[task_group]") {
    for (const auto when : {0ms, 1ms, 2000ms}) {
        group_of_tasks all;
        auto& [w, group] = all;
        const auto told = std::make_shared<story>();
        REQUIRE(group.spawn(all.here(), work(w.env, 60s, told, 60s)));
        const auto ending = w.start(group.shutdown(1s));
        w.env->pass(when);
    }
    SUCCEED("no leak, no access to what is gone");
}
