// SPDX-License-Identifier: BSL-1.0
// What producers and consumers of a work queue do.
#include <coetcd/work_queue.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/jobs.hpp"
#include "sim/users.hpp"

namespace sim {

using namespace std::chrono_literals;
using coetcd::errc;
using verdict = job_rules::verdict;

/// Its consumers and producers share a session.
void actor::start_working(std::uint64_t seed) {
    chance taste(seed);
    const int consumers = taste.one_in(3) ? 2 : taste.one_in(4) ? 0 : 1;
    for (int i = 0; i != consumers; ++i) {
        start_besides("a consumer", consume(taste.next()));
    }
    if (consumers == 0 || taste.one_in(2)) {
        start_besides("a producer", produce(taste.next()));
    }
    s_.judge.rates.expect(*p_, 3);
}

/// @returns Null if all ends, or there is no session yet.
asio::awaitable<std::shared_ptr<coetcd::work_queue>> actor::have_jobs() {
    if (work_session_ && work_session_->state() == coetcd::session_state::lost) {
        jobs_queue_.reset();
        work_session_.reset();
    }
    if (client_ && !work_session_ && !opening_work_) {
        opening_work_ = true;
        const coetcd::client by = *client_;
        const coetcd::session_options how(s_.ttl);
        try {
            coetcd::session made = co_await coetcd::session::open(by, how);
            if (client_) {
                work_session_.emplace(std::move(made));
                s_.judge.opened(
                    coetcd::detail::access::impl(*work_session_), *p_, sound_clock_, true);
                coetcd::work_options options;
                options.max_attempts = job_rules::most_attempts;
                jobs_queue_ = std::make_shared<coetcd::work_queue>(
                    *work_session_, std::string(jobs_name), options);
            }
        } catch (const boost::system::system_error&) {
            judge(std::current_exception());
        }
        opening_work_ = false;
    }
    co_return jobs_queue_;
}

asio::awaitable<void> actor::produce(std::uint64_t seed) {
    chance taste(seed);
    for (int calls = taste.between(2, 10); client_ && calls != 0;) {
        (void)co_await p_->sleep(taste.skewed(0ms, taste.one_in(4) ? 3000ms : 300ms));
        std::shared_ptr<coetcd::work_queue> q = co_await have_jobs();
        if (!q) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        --calls;
        const auto o = std::make_shared<operation>(*p_);
        asio::awaitable<void> all = append_jobs(std::move(q), taste.between(1, 3));
        co_await perform(o, std::move(all));
    }
}

asio::awaitable<void> actor::append_jobs(std::shared_ptr<coetcd::work_queue> q, int n) {
    job_rules& rules = s_.judge.jobs;
    job_rules::values all;
    for (int i = 0; i != n; ++i) {
        all.push_back(std::to_string(++s_.writes));
    }
    rules.appends(all);
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        asio::awaitable<void> appending = q->enqueue(all);
        co_await std::move(appending);
        rules.appended(all);
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated)) {
            rules.not_appended(all);
        }
        throw;
    }
}

asio::awaitable<void> actor::consume(std::uint64_t seed) {
    chance taste(seed);
    while (client_) {
        std::shared_ptr<coetcd::work_queue> q = co_await have_jobs();
        if (!q) {
            (void)co_await p_->sleep(200ms);
            continue;
        }
        const auto o = std::make_shared<operation>(*p_);
        asio::awaitable<void> all = taste.one_in(12) && !s_.w.healed()
                                        ? look_at_dead(std::move(q), taste.next())
                                        : work_once(std::move(q), taste.next());
        co_await perform(o, std::move(all));
        if (client_) {
            (void)co_await p_->sleep(taste.skewed(0ms, 100ms));
        }
        if (work_session_ && taste.one_in(20) && !s_.w.healed()) { // others lose what they have
            jobs_queue_.reset();
            coetcd::session last = std::move(*work_session_);
            work_session_.reset();
            if (taste.one_in(2)) {
                const auto closing = std::make_shared<operation>(*p_);
                asio::awaitable<void> work = close_work(std::move(last));
                co_await perform(closing, std::move(work));
            }
        }
    }
}

asio::awaitable<void> actor::close_work(coetcd::session last) {
    asio::awaitable<void> closing = last.close();
    co_await std::move(closing);
}

asio::awaitable<void> actor::work_once(std::shared_ptr<coetcd::work_queue> q, std::uint64_t seed) {
    chance taste(seed);
    job_rules& rules = s_.judge.jobs;
    std::optional<coetcd::job> j;
    const bool is_calm = s_.w.healed();
    const std::uint64_t how = is_calm ? 3 : taste.below(4);
    if (how == 0) {
        asio::awaitable<std::optional<coetcd::job>> taking = q->try_take();
        j = co_await std::move(taking);
    } else if (how == 1) {
        asio::awaitable<std::optional<coetcd::job>> taking = q->take_for(taste.skewed(0ms, 3000ms));
        j = co_await std::move(taking);
    } else {
        const job_rules::seat waits(rules);
        asio::awaitable<coetcd::job> taking = q->take();
        coetcd::job one = co_await std::move(taking);
        j.emplace(std::move(one));
    }
    q.reset();
    if (!j) {
        (void)co_await p_->sleep(taste.skewed(0ms, 500ms));
        co_return;
    }
    const job_rules::hold held(rules, j->token());
    const job_rules::attempt a{j->id(), j->attempt(), j->token(), j->value()};
    rules.taken(a);
    const bool is_long = !is_calm && taste.one_in(8);
    (void)co_await p_->sleep(taste.skewed(0ms, is_long ? 8s : 100ms));
    (void)co_await asio::this_coro::throw_if_cancelled(true);
    const std::uint64_t end = s_.w.healed() ? 9 : taste.below(10);
    if (end == 0) {
        co_return; // it is put back in the background
    }
    if (end < 3) {
        co_await end_job(*j, a, end == 1 ? verdict::retry : verdict::bury);
    } else if (end < 6) {
        co_await end_job(*j, a, verdict::ack);
    } else {
        if (end == 6) {
            coetcd::txn never = coetcd::txn().when(coetcd::compare::version("nothing") > 0);
            asio::awaitable<bool> ending = j->ack(std::move(never));
            const bool done = co_await std::move(ending);
            rules.ended(a, verdict::ack, done);
            if (done) {
                s_.w.fail("work is done although its condition does not hold: " + a.value);
            }
        }
        co_await end_job(*j, a, verdict::ack_with_effect);
    }
}

asio::awaitable<void> actor::end_job(coetcd::job& j, job_rules::attempt a, job_rules::verdict how) {
    job_rules& rules = s_.judge.jobs;
    const bool was_ours = j.owns();
    const std::uint64_t repeated = p_->repeated_calls;
    try {
        asio::awaitable<bool> ending;
        if (how == verdict::retry) {
            ending = j.retry();
        } else if (how == verdict::bury) {
            rules.buries(a.token);
            ending = j.bury();
        } else if (how == verdict::ack) {
            ending = j.ack();
        } else {
            ending = j.ack(
                coetcd::txn().then(coetcd::op::put(std::string(effect_prefix) + a.order, a.value)));
        }
        const bool done = co_await std::move(ending);
        rules.ended(a, how, done);
        if (done && !was_ours) {
            s_.w.fail("an item has ended that was not its consumer's any more: " + a.value);
        }
    } catch (const boost::system::system_error& e) {
        if (was_not_made(e.code(), repeated)) {
            rules.ended(a, how, false);
        }
        throw;
    }
}

asio::awaitable<void> actor::look_at_dead(std::shared_ptr<coetcd::work_queue> q,
                                          std::uint64_t seed) {
    chance taste(seed);
    job_rules& rules = s_.judge.jobs;
    asio::awaitable<std::vector<coetcd::dead_item>> listing = q->dead();
    const std::vector<coetcd::dead_item> all = co_await std::move(listing);
    if (all.empty()) {
        co_return;
    }
    coetcd::dead_item one = all[taste.below(all.size())];
    const std::string id = one.key.substr(one.key.rfind('/') + 1);
    if (taste.one_in(2)) {
        rules.erases_dead(id);
        asio::awaitable<bool> erasing = q->erase_dead(std::move(one));
        (void)co_await std::move(erasing);
        co_return;
    }
    const job_rules::values values(1, one.value);
    rules.revives(id, one.value);
    asio::awaitable<bool> reviving = q->revive(std::move(one));
    const bool revived = co_await std::move(reviving);
    if (revived) {
        rules.appended(values);
    }
}

} // namespace sim
