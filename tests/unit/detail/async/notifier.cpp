// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/scripted_env.hpp"

using namespace coetcd::detail;
using namespace std::chrono_literals;
using support::scripted_env;

namespace {

/// Waiters, and how each of them ended.
class notifier_fixture {
public:
    ~notifier_fixture() {
        changed.notify_all(); // so that none waits for what is no more
        idle();
    }

    asio::io_context context;
    std::shared_ptr<scripted_env> env = std::make_shared<scripted_env>(context);
    notifier changed{*env};
    std::vector<std::string> log;

    /// A waiter that goes by `name`; it waits as soon as time passes.
    asio::cancellation_signal& start(std::string name, time_point deadline = time_point::max()) {
        stops_.push_back(std::make_unique<asio::cancellation_signal>());
        asio::co_spawn(context,
                       wait(std::move(name), deadline),
                       // Newer Asio does not begin what was cancelled before, and tells that here.
                       asio::bind_cancellation_slot(stops_.back()->slot(), rethrow_defect()));
        return *stops_.back();
    }
    void idle() { env->pass(0s); }

private:
    asio::awaitable<void> wait(std::string name, time_point deadline) {
        std::string end;
        try {
            const bool told = co_await changed.wait(deadline);
            end = told ? "told" : "late";
        } catch (const boost::system::system_error& e) {
            end = e.code() == asio::error::operation_aborted ? "aborted" : "failed";
        }
        log.push_back(name + " " + end);
    }

    std::vector<std::unique_ptr<asio::cancellation_signal>> stops_;
};

using entries = std::vector<std::string>;

} // namespace

TEST_CASE("a notification wakes all waiters", "[notifier]") {
    notifier_fixture f;
    f.start("a");
    f.start("b");
    f.idle();
    CHECK(f.log.empty());
    f.changed.notify_all();
    CHECK(f.log.empty()); // no waiter runs inside of notify_all
    f.idle();
    CHECK(f.log == entries{"a told", "b told"});
}

TEST_CASE("notifications wake the waiters in order, the one that has waited longest first",
          "[notifier]") {
    notifier_fixture f;
    f.start("a");
    f.start("b");
    f.start("c");
    f.idle();
    f.changed.notify_one();
    f.idle();
    CHECK(f.log == entries{"a told"});
    f.changed.notify_one();
    f.changed.notify_one();
    f.changed.notify_one();
    f.idle();
    CHECK(f.log == entries{"a told", "b told", "c told"});
}

TEST_CASE("a notification is for the coroutines that wait now", "[notifier]") {
    notifier_fixture f;
    f.changed.notify_one();
    f.changed.notify_all();
    f.start("a", f.env->now() + 1s);
    f.idle();
    CHECK(f.log.empty());
    f.env->pass(2s);
    CHECK(f.log == entries{"a late"});
}

TEST_CASE("a wait ends at its deadline, and not before", "[notifier]") {
    notifier_fixture f;
    f.start("a", f.env->now() + 1s);
    f.start("b", f.env->now() + 2s);
    f.start("past", f.env->now() - 1s);
    f.env->pass(1s - 1ns);
    CHECK(f.log == entries{"past late"});
    f.env->pass(1ns);
    CHECK(f.log == entries{"past late", "a late"});
    f.changed.notify_all();
    f.idle();
    CHECK(f.log == entries{"past late", "a late", "b told"});
}

TEST_CASE("a notification is not lost to a waiter that is late already", "[notifier]") {
    notifier_fixture f;
    f.start("a", f.env->now() + 1s);
    f.start("b");
    f.env->at(f.env->now() + 500ms, [&] { f.env->stall(1s); }); // both are due
    f.env->at(f.env->now() + 1s, [&] { f.changed.notify_one(); });
    f.env->pass(3s);
    // Whichever waiter was told first, no notification was in vain.
    CHECK(f.log.size() == (f.log.front() == "a told" ? 1 : 2));
    f.changed.notify_all();
    f.idle();
    CHECK(f.log.size() == 2);
}

TEST_CASE("a wait that is cancelled throws", "[notifier][cancellation]") {
    notifier_fixture f;
    auto& stop = f.start("a");
    f.start("b");
    f.idle();
    stop.emit(asio::cancellation_type::partial);
    stop.emit(asio::cancellation_type::total);
    f.idle();
    CHECK(f.log.empty()); // as documented, only terminal counts
    stop.emit(asio::cancellation_type::terminal);
    f.idle();
    CHECK(f.log == entries{"a aborted"});
    f.changed.notify_one(); // for the next one
    f.idle();
    CHECK(f.log == entries{"a aborted", "b told"});
}

TEST_CASE("a waiter that was told and then cancelled knows that it was told",
          "[notifier][cancellation]") {
    notifier_fixture f;
    auto& stop = f.start("a");
    f.start("b");
    f.idle();
    f.changed.notify_one();
    stop.emit(asio::cancellation_type::terminal);
    f.idle();
    CHECK(f.log == entries{"a told"});
}

TEST_CASE("a waiter that is cancelled before it waits takes no notification",
          "[notifier][cancellation]") {
    notifier_fixture f;
    auto& stop = f.start("a");
    f.start("b");
    stop.emit(asio::cancellation_type::terminal);
    f.idle();
    f.changed.notify_one();
    f.idle();
    CHECK(f.log.size() >= 1);
    CHECK(f.log.back() == "b told");
}

TEST_CASE("an abort is an exception with the code of Asio", "[notifier]") {
    try {
        throw_aborted();
    } catch (const boost::system::system_error& e) {
        CHECK(e.code() == asio::error::operation_aborted);
    }
}
