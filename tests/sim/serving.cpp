// SPDX-License-Identifier: BSL-1.0
// What a server does that shares its locks with others: it listens for their requests to give a
// lock back, and ends its own work in good order.
#include <coetcd/detail/recipe/place.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>

#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;

namespace {

/// The longest that a task goes on after it was cancelled.
constexpr nanoseconds tidying = 400ms;
constexpr int most_tasks = 5;

} // namespace

asio::awaitable<void>
actor::listen(const coetcd::held_lock& l, const std::string& name, chance& taste) {
    const auto o = std::make_shared<operation>(*p_);
    const auto place = coetcd::detail::access::held(l);
    auto owns = [place] {
        // This first: a look at a lock may end a session, and this is only a look.
        const session_impl& session = *place->session;
        return session.is_certain() && place->held();
    };
    listening_holder who{name, l.fencing_token(), std::move(owns)};
    auto at_end = [this, o](std::exception_ptr failure) {
        ++o->completions;
        if (failure) {
            fail("who listens for requests", failure);
        }
        o->done->resume();
    };
    asio::co_spawn(p_->executor(),
                   hear(l.release_requested(), std::move(who)),
                   asio::bind_cancellation_slot(o->stop.slot(), std::move(at_end)));
    // A lost watch is made up for within 40 s.
    const nanoseconds patience = taste.one_in(4) ? nanoseconds(90s) : taste.skewed(1ms, 4s);
    s_.w.after(patience, [this, o] { emit(o); });
    const std::uint64_t pauses = p_->pauses;
    const error_code ec = co_await suspension::wait(o->done);
    if (ec) { // the body was cancelled
        emit(o);
    } else if (o->cancelled_at && p_->pauses == pauses && s_.w.now() > *o->cancelled_at + 1ms) {
        s_.w.fail("who listens for requests goes on after its cancellation");
    }
}

asio::awaitable<void> actor::hear(asio::awaitable<void> listening, listening_holder who) {
    tenure_rules& rules = s_.judge.tenure;
    struct until_the_end {
        tenure_rules& rules;
        std::list<listening_holder>::iterator entry;
        ~until_the_end() { rules.listens_no_more(entry); }
    };
    const until_the_end listens{rules, rules.listens(std::move(who))};
    try {
        co_await std::move(listening);
        rules.heard(*listens.entry);
    } catch (const boost::system::system_error&) {
        judge(std::current_exception());
    }
}

void actor::start_asking(std::uint64_t seed) {
    start_besides("who asks for locks", ask_again(seed));
}

asio::awaitable<void> actor::ask_again(std::uint64_t seed) {
    chance taste(seed);
    while (client_) {
        (void)co_await p_->sleep(taste.skewed(10ms, 20s));
        if (!session_) {
            continue;
        }
        try {
            co_await ask_for_release(
                name_of(static_cast<int>(taste.below(static_cast<std::uint64_t>(s_.locks)))));
        } catch (const boost::system::system_error&) {
            judge(std::current_exception());
        }
    }
}

void actor::start_serving(std::uint64_t seed) {
    s_.judge.rates.expect(*p_, most_tasks);
    start_besides("who runs groups of tasks", run_groups(seed));
}

/// The tasks of one group.
class actor::tally {
public:
    std::size_t begun = 0;
    std::size_t running = 0;
    std::size_t cancelled = 0;
};

asio::awaitable<void> actor::run_groups(std::uint64_t seed) {
    chance taste(seed);
    for (int rounds = taste.between(1, 4); client_ && rounds != 0; --rounds) {
        group_.emplace(*client_);
        const auto all = std::make_shared<tally>();
        co_await run_group(all, taste);
        group_.reset();
        // If it was destroyed before its end, they take their time.
        for (int naps = 0; all->running != 0 && naps != 1000; ++naps) {
            (void)co_await p_->sleep(10ms);
        }
        if (all->running != 0) {
            s_.w.fail("the tasks of a group that was destroyed go on");
        }
    }
}

asio::awaitable<void> actor::run_group(std::shared_ptr<tally> all, chance& taste) {
    const auto tasks = static_cast<std::size_t>(taste.between(0, most_tasks));
    for (std::size_t i = 0; i != tasks; ++i) {
        if (!group_->spawn(p_->executor(), serve_one(all, taste.next()))) {
            s_.w.fail("a group takes no tasks before its end");
        }
        if (all->begun > i) {
            s_.w.fail("a task has begun before spawn() has returned");
        }
    }
    s_.tasks += tasks;
    (void)co_await p_->sleep(taste.skewed(0ms, 300ms));
    if (!group_ || taste.one_in(4)) {
        co_return; // it is destroyed as it is
    }
    const nanoseconds patience = taste.skewed(0ms, 3s);
    const auto began = p_->now();
    const std::uint64_t pauses = p_->pauses;
    asio::awaitable<std::size_t> ending = group_->shutdown(patience);
    if (group_->spawn(p_->executor(), serve_one(all, 0))) {
        s_.w.fail("a group takes tasks after shutdown()");
    }
    const std::size_t cancelled = co_await std::move(ending);
    if (!group_) {
        co_return; // it was destroyed meanwhile
    }
    const nanoseconds took = p_->now() - began;
    if (all->running != 0 || group_->size() != 0 || all->begun != tasks) {
        s_.w.fail("shutdown() has returned, and not all tasks have ended");
    }
    if (all->cancelled > cancelled) {
        s_.w.fail("shutdown() does not know how many tasks it has cancelled");
    }
    if (cancelled != 0 && took + 1ms < patience) {
        s_.w.fail("shutdown() has cancelled tasks before their time was up");
    }
    // They rest by the world's clock.
    if (took > patience + tidying * 3 / 2 && p_->pauses == pauses) {
        s_.w.fail("shutdown() takes longer than the tasks that it has cancelled");
    }
}

asio::awaitable<void> actor::serve_one(std::shared_ptr<tally> all, std::uint64_t seed) {
    struct until_the_end {
        explicit until_the_end(tally& t)
            : in(t) {
            ++in.begun;
            ++in.running;
        }
        ~until_the_end() { --in.running; }
        tally& in;
    };
    const until_the_end counted(*all);
    chance taste(seed);
    const error_code ec = co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 4000ms : 60ms));
    bool stopped = ec.failed();
    if (!stopped && client_) {
        try {
            asio::awaitable<coetcd::txn_response> writing = client_->txn(draw_data(taste));
            (void)co_await std::move(writing);
        } catch (const boost::system::system_error& e) {
            stopped = e.code() == asio::error::operation_aborted;
            judge(std::current_exception());
        }
    }
    if (stopped) {
        ++all->cancelled;
        (void)co_await asio::this_coro::throw_if_cancelled(false);
        (void)co_await p_->sleep(taste.skewed(0ms, tidying));
    }
}

} // namespace sim
