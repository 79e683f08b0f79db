// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>

#include <boost/asio/experimental/awaitable_operators.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "support/catch.hpp"
#include "support/locks.hpp"
#include "support/race.hpp"
#include "support/world.hpp"

namespace asio = boost::asio;
using namespace std::chrono_literals;
using namespace boost::asio::experimental::awaitable_operators;
using support::background;
using support::hop;
using support::owner;
using support::world;

namespace {

coetcd::client_options seen_by(const std::shared_ptr<support::answers>& watching) {
    coetcd::client_options options;
    options.observer = watching;
    return options;
}

/// The ways to take a lock, each as something that can be awaited.
using way = std::function<asio::awaitable<void>(coetcd::mutex&)>;
const way ways[] = {
    [](coetcd::mutex& m) -> asio::awaitable<void> { co_await m.lock(); },
    [](coetcd::mutex& m) -> asio::awaitable<void> { (void)co_await m.try_lock(); },
    [](coetcd::mutex& m) -> asio::awaitable<void> { (void)co_await m.try_lock_for(5s); },
    [](coetcd::mutex& m) -> asio::awaitable<void> { (void)co_await m.scoped_lock(); },
};
constexpr int most_hops = 12; // by then all of them have ended

} // namespace

TEST_CASE("a lock that is granted in the moment of the cancellation is given back",
          "[place_wait][cancellation]") {
    for (std::size_t how = 0; how != std::size(ways); ++how) {
        int cancelled = 0;
        for (int hops = 0; hops != most_hops; ++hops) {
            const auto watching = std::make_shared<support::answers>("txn");
            owner all({}, seen_by(watching));
            auto& [w, client, session, mutex] = all;
            std::optional<background<void>> taking;
            bool in_time = false;
            watching->told = [&, at = hops] {
                hop(*w.context, at, [&] {
                    in_time = !taking->ended();
                    taking->cancel();
                });
            };
            taking.emplace(w.start(ways[how](mutex)));
            w.env->pass(50ms);
            INFO("way " << how << ", " << hops << " handlers later");
            REQUIRE(taking->ended());
            if (in_time) {
                ++cancelled;
                REQUIRE(taking->code() == asio::error::operation_aborted);
                REQUIRE_FALSE(mutex.owns_lock());
                REQUIRE(w.etcd->under("m/").empty());
            } else {
                taking->get();
            }
            REQUIRE(session.state() == coetcd::session_state::active);
        }
        REQUIRE(cancelled > 1);
        REQUIRE(cancelled < most_hops);
    }
}

TEST_CASE("lock() || timer holds nothing if the timer wins", "[place_wait][cancellation]") {
    for (const bool elsewhere : {false, true}) { // on another executor than the client's
        int won = 0;
        for (int hops = 0; hops != 2 * most_hops; ++hops) {
            const auto watching = std::make_shared<support::answers>("txn");
            owner all({}, seen_by(watching));
            world& w = all.w;
            coetcd::mutex& mutex = all.mutex;
            support::race<void> first(w, mutex.lock(), elsewhere);
            watching->told = [&, at = hops] { first.ring_after(at); };
            w.env->pass(100ms);
            INFO("elsewhere " << elsewhere << ", " << hops << " handlers later");
            const bool locked = first.result().has_value();
            REQUIRE(mutex.owns_lock() == locked);
            REQUIRE(w.etcd->under("m/").size() == (locked ? 1 : 0));
            won += locked ? 0 : 1;
        }
        REQUIRE(won > 0);
        REQUIRE(won < 2 * most_hops);
    }
}

TEST_CASE("open() || timer leaves no session if the timer wins", "[place_wait][cancellation]") {
    for (auto when = 0ms; when < 5ms; ++when) {
        world w;
        const coetcd::client client = w.client();
        coetcd::detail::notifier bell(*w.env);
        std::optional<std::size_t> first;
        auto race = [&]() -> asio::awaitable<void> {
            auto timer = [&]() -> asio::awaitable<void> {
                (void)co_await bell.wait(w.env->now() + when);
            };
            auto opening = coetcd::session::open(client);
            auto ringing = timer();
            auto both = co_await (std::move(opening) || std::move(ringing));
            first = both.index();
            // What was opened ends here, if anything was.
        };
        w.await(race());
        w.env->pass(50ms);
        INFO("after " << when.count() << " ms");
        REQUIRE(first);
        REQUIRE(w.etcd->leases() == 0);
    }
}
