// SPDX-License-Identifier: BSL-1.0
#include <coetcd/client.hpp>
#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/world.hpp>
#include <coetcd/election.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/session.hpp>
#include <coetcd/session_keeper.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "sim/stories.hpp"
#include "sim/story.hpp"

namespace sim {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
namespace asio = boost::asio;
namespace in_memory = coetcd::detail::testing;
using coetcd::detail::call_request;
using in_memory::chance;
using in_memory::process;

/// Sees requests that a client sends while another executor than its own runs the handler.
class watched_world final : public in_memory::world, public in_memory::wiretap {
public:
    watched_world(std::uint64_t seed, options o)
        : in_memory::world(seed, o) {
        listening = this;
    }
    ~watched_world() { shut_down(); }
    void require_home(const process& p) {
        if (!p.is_home()) {
            fail("a client is touched on an executor that is not its own");
        }
    }

private:
    void sent(const process& by, std::uint64_t, const call_request&) override { require_home(by); }
    void sent_on_stream(const process& by) override { require_home(by); }
};

/// A client at home on one executor, coroutines that use it on a second one, and coroutines on a
/// third one that take away what the second ones use. Each is a process of the world, so that their
/// handlers take turns in any order.
class company {
public:
    company(std::uint64_t seed, in_memory::world::options o)
        : members_(o.members)
        , w_(chance::derive(seed, 51), o)
        , luck_(chance::derive(seed, 52))
        , home_(w_.add_process())
        , here_(w_.add_process())
        , elsewhere_(w_.add_process()) {
        home_->on_suspension = [this] {
            w_.require_home(*home_);
            ++steps_;
            if (at_step_ && steps_ >= step_) {
                asio::post(elsewhere_->executor(), std::exchange(at_step_, nullptr));
            }
        };
        home_->on_resumption = [this] { w_.require_home(*home_); };
    }

    std::string run() {
        auto at_end = [this](std::exception_ptr failure) {
            finished_ = true;
            if (failure) {
                fail(failure);
            }
        };
        asio::co_spawn(here_->executor(), live(), std::move(at_end));
        while (w_.failure().empty() && !finished_ && w_.step()) {
            if (w_.now() > 600s) {
                w_.fail("what another executor uses does not end");
            }
        }
        // A lease that is not revoked lives for longer. That of a grant which was given up may come
        // behind what was to revoke it.
        const nanoseconds over = w_.now() + (home_->failed_calls == 0 ? 5s : 15s);
        const auto busy = [&] {
            return home_->waiting() != 0 || w_.store.streams() != 0 || w_.in_flight() != 0 ||
                   w_.store.leases() != 0;
        };
        while (w_.failure().empty() && busy() && w_.step()) {
            if (w_.now() > over) {
                w_.fail("something lives on that another executor has ended");
            }
        }
        std::string failure = w_.failure();
        things_ = nullptr;
        w_.shut_down();
        return failure;
    }

private:
    /// What is used here and taken away elsewhere.
    struct things {
        std::optional<coetcd::client> client;
        std::optional<coetcd::session> session;
        std::optional<coetcd::session_keeper> keeper;
    };

    void fail(const std::exception_ptr& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const std::exception& e) {
            w_.fail(std::string("an unexpected exception: ") + e.what());
        }
    }

    /// Awaits `work` here, whatever comes of it; some of it is cancelled.
    asio::awaitable<void> attempt(asio::awaitable<void> work) {
        std::optional<nanoseconds> cancelled;
        if (luck_.one_in(4)) {
            cancelled = luck_.skewed(0ms, 200ms);
        }
        std::function<void(std::exception_ptr)> told = [this](std::exception_ptr failure) {
            must_be_here();
            try {
                if (failure) {
                    std::rethrow_exception(failure);
                }
            } catch (const boost::system::system_error&) { // as documented
            } catch (...) {
                fail(std::current_exception());
            }
        };
        co_await await_any_end(here_, std::move(work), cancelled, std::move(told));
    }
    void must_be_here() {
        if (!here_->is_running()) {
            w_.fail("a call does not come back to the executor that made it");
        }
    }

    asio::awaitable<void> live() {
        for (int round = luck_.between(2, 6); round != 0; --round) {
            things_ = std::make_shared<things>();
            things_->client.emplace(client_of_all(home_, members_));
            steps_ = 0;
            step_ = 1 + luck_.below(luck_.one_in(2) ? 8 : 60);
            at_step_ = draw_end();
            auto work = luck_.one_in(3) ? keep(things_) : use(things_);
            co_await attempt(std::move(work));
            at_step_ = nullptr;
            // What was begun elsewhere ends there.
            (void)co_await here_->sleep(luck_.skewed(0ms, 50ms));
            end(luck_.one_in(2));
            (void)co_await here_->sleep(luck_.skewed(0ms, 2000ms));
        }
    }
    /// All that is left of a round, here or elsewhere.
    void end(bool by_us) {
        auto rest = [all = std::exchange(things_, nullptr)] { *all = things(); };
        if (by_us) {
            rest();
        } else {
            asio::post(elsewhere_->executor(), std::move(rest));
        }
    }

    std::function<void()> draw_end() {
        const std::shared_ptr<things> all = things_;
        switch (luck_.below(5)) {
        case 0:
            return [all] { all->client.reset(); };
        case 1:
            return [all] { all->session.reset(); };
        case 2:
            return [this, all] {
                if (all->session) {
                    asio::co_spawn(elsewhere_->executor(), close_session(all), ignored);
                }
            };
        case 3:
            return [this, all] {
                if (all->keeper) {
                    asio::co_spawn(elsewhere_->executor(), close_keeper(all), ignored);
                }
            };
        default:
            return nullptr;
        }
    }
    static void ignored(std::exception_ptr) {}
    static asio::awaitable<void> close_session(std::shared_ptr<things> all) {
        co_await all->session->close();
    }
    static asio::awaitable<void> close_keeper(std::shared_ptr<things> all) {
        co_await all->keeper->close();
    }

    asio::awaitable<void> use(std::shared_ptr<things> all) {
        const coetcd::session_options how(10s);
        coetcd::session made = co_await coetcd::session::open(*all->client, how);
        must_be_here();
        coetcd::mutex m(made, "lock/0");
        coetcd::election e(made, "lock/1");
        all->session.emplace(std::move(made));
        for (int n = luck_.between(1, 4); n != 0; --n) {
            if (luck_.one_in(3)) {
                const coetcd::leadership l = co_await e.campaign("here");
                must_be_here();
                co_await l.proclaim("still here");
                must_be_here();
                continue;
            }
            auto body = [this](const coetcd::held_lock& l) -> asio::awaitable<void> {
                must_be_here();
                (void)l.owns_lock();
                (void)co_await here_->sleep(luck_.skewed(0ms, 100ms));
            };
            co_await coetcd::with_lock(m, body);
            must_be_here();
        }
    }
    asio::awaitable<void> keep(std::shared_ptr<things> all) {
        coetcd::session_keeper_options how;
        how.ttl = 10s;
        all->keeper.emplace(*all->client, how);
        for (int n = luck_.between(1, 3); n != 0; --n) {
            auto body = [this](const coetcd::held_lock&) -> asio::awaitable<void> {
                must_be_here();
                (void)co_await here_->sleep(luck_.skewed(0ms, 100ms));
            };
            co_await coetcd::with_lock(*all->keeper, "lock/0", body);
            must_be_here();
        }
    }

    const int members_;
    watched_world w_;
    chance luck_;
    const std::shared_ptr<process> home_;
    const std::shared_ptr<process> here_;
    const std::shared_ptr<process> elsewhere_;
    std::shared_ptr<things> things_;
    std::uint64_t steps_ = 0; ///< Of the client, in this round.
    std::uint64_t step_ = 0;
    std::function<void()> at_step_;
    bool finished_ = false;
};

} // namespace

std::string cross_executors(std::uint64_t seed) {
    in_memory::world::options o;
    chance luck(chance::derive(seed, 53));
    o.members = luck.one_in(2) ? 1 : 3;
    o.speaks = luck.one_in(2) ? in_memory::dialect::v1 : in_memory::dialect::v2;
    company c(seed, o);
    return c.run();
}

} // namespace sim
