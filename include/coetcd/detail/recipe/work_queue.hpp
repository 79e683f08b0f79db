// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/async/turns.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/work.hpp>
#include <coetcd/detail/recipe/ask_anew.hpp>
#include <coetcd/detail/recipe/job.hpp>
#include <coetcd/detail/recipe/null_if_late.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/place_wait.hpp>
#include <coetcd/detail/recipe/recipe.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// The line of consumers that found nothing: only the first of them watches the queue.
inline constexpr recipe consumers_line{"work_queue", &logic::exclusive_keys, "take_for"};

/// The state that a public work_queue shares with the operations under way on it.
class work_queue_impl {
public:
    work_queue_impl(std::shared_ptr<session_impl> s, std::string n, int most_attempts)
        : about(std::make_shared<named_recipe>("work_queue", std::move(s), std::move(n)))
        , most_attempts_(most_attempts)
        , turns_(about->session->world)
        , line_name_(about->name + ".line") {}

    const std::shared_ptr<const named_recipe> about;

    static asio::awaitable<void> enqueue(std::shared_ptr<work_queue_impl> self,
                                         std::vector<std::string> values) {
        auto appending = self->append(std::move(values), txn());
        (void)co_await std::move(appending);
    }

    using taken = std::shared_ptr<job_impl>; ///< Null: nothing was to be had.

    static asio::awaitable<taken> try_take(std::shared_ptr<work_queue_impl> self) {
        const time_point deadline = self->about->within().deadline;
        self->session().require_alive(self->about->title);
        auto taking = take_if_any(self, std::nullopt, deadline);
        taken job = co_await std::move(taking);
        if (!job && self->is_reap_due()) {
            auto reaping = self->look_and_reap(deadline);
            const bool any = co_await std::move(reaping);
            if (any) {
                auto again = take_if_any(self, std::nullopt, deadline);
                job = co_await std::move(again);
            }
        }
        co_return job;
    }
    /// @returns Null if the deadline came first, and etcd has answered something before.
    static asio::awaitable<taken> take(std::shared_ptr<work_queue_impl> self, time_point deadline) {
        auto taking = take_or_wait(self, deadline);
        auto in_time =
            null_if_late(self->session().world, std::move(taking), deadline, self->answers_);
        const taken job = co_await std::move(in_time);
        co_return job;
    }

    /// @tparam State How many items are ready, busy and dead.
    template<class State>
    static asio::awaitable<State> state(std::shared_ptr<work_queue_impl> self) {
        range_options count;
        count.count_only = true;
        const std::string& name = self->about->name;
        const txn question =
            txn().then(op::range(key_range::prefix(logic::work::ready_keys(name)), count),
                       op::range(key_range::prefix(logic::work::again_keys(name)), count),
                       op::range(key_range::prefix(logic::work::busy_keys(name)), count),
                       op::range(key_range::prefix(logic::work::dead_keys(name)), count));
        const call_terms in_time = self->about->within().as(impact::none);
        const outcome<txn_response> a =
            co_await call(self->about->session->owner, question, in_time);
        a.check();
        State result;
        result.ready = logic::answers::range_at(a.response, 0).count +
                       logic::answers::range_at(a.response, 1).count;
        result.busy = logic::answers::range_at(a.response, 2).count;
        result.dead = logic::answers::range_at(a.response, 3).count;
        co_return result;
    }

    /// @tparam Dead Id, value, attempts, key and revision of an item.
    /// @param most 0 for all.
    template<class Dead>
    static asio::awaitable<std::vector<Dead>> dead(std::shared_ptr<work_queue_impl> self,
                                                   std::size_t most) {
        constexpr std::size_t enough = 1'000'000'000;
        range_options how;
        how.limit = static_cast<std::int64_t>(std::min(most, enough));
        const std::string prefix = logic::work::dead_keys(self->about->name);
        const range_request question(key_range::prefix(prefix), how);
        const outcome<range_response> a =
            co_await call(self->about->session->owner, question, self->about->within());
        a.check();
        std::vector<Dead> all;
        for (const key_value& kv : a.response.kvs) {
            logic::work::item found = logic::work::to_item(prefix, kv);
            logic::work::item_id id = logic::work::split_id(found.id);
            Dead& d = all.emplace_back();
            d.attempts = id.attempt;
            d.id = std::move(id.order);
            d.key = kv.key;
            d.value = std::move(found.value);
            d.revision = found.create_revision;
        }
        co_return all;
    }
    /// Appends a dead item as a new one.
    static asio::awaitable<bool> revive(std::shared_ptr<work_queue_impl> self,
                                        logic::work::item dead) {
        txn from = logic::work::erase_dead(self->about->name, dead.id, dead.create_revision);
        std::vector<std::string> one(1, std::move(dead.value));
        auto appending = self->append(std::move(one), std::move(from));
        co_return co_await std::move(appending);
    }
    static asio::awaitable<bool> erase_dead(std::shared_ptr<work_queue_impl> self,
                                            logic::work::item dead) {
        txn what = logic::work::erase_dead(self->about->name, dead.id, dead.create_revision);
        once_writer writer(self->about->session, self->about->name, self->about->title);
        const once_end end =
            co_await writer.apply(std::move(what), once_writer::form::plain, self->about->within());
        co_return end.applied;
    }

private:
    /// How often a consumer that does not stand in line is beaten by others before it does.
    static constexpr unsigned most_races = 3;
    static constexpr unsigned no_limit = ~0U;

    session_impl& session() const { return *about->session; }
    call_terms until(time_point deadline) const {
        call_terms how = about->within();
        how.deadline = deadline;
        how.wanted = &alive_;
        return how.as(impact::none);
    }
    /// @throws error if a request failed.
    void check(const answer& a) {
        session().require_alive(about->title);
        if (a.ec) {
            throw error(
                a.ec,
                about->title + ": " + a.text +
                    logic::if_denied(a.ec, wire::printable(session().owner->in_etcd(about->name))));
        }
        ++answers_;
    }

    static asio::awaitable<taken> take_or_wait(std::shared_ptr<work_queue_impl> self,
                                               time_point deadline) {
        self->session().require_alive(self->about->title);
        auto taking = take_if_any(self, std::nullopt, deadline, most_races);
        taken job = co_await std::move(taking);
        if (!job) {
            auto waiting = wait_in_line(self, deadline);
            job = co_await std::move(waiting);
        } else if (self->next_reap_ == time_point::min()) {
            self->schedule_reap();
        } else if (self->is_reap_due()) {
            spawn(self->session().world, reap_in_background(self));
        }
        co_return job;
    }

    /// Appends items, if the conditions of `with` hold, and carries it out.
    /// @returns Whether they do.
    asio::awaitable<bool> append(std::vector<std::string> values, txn with) {
        const call_terms in_time = about->within();
        once_writer writer(about->session, about->name, about->title);
        std::int64_t revision = newest_;
        for (bool if_last = true;; if_last = false) {
            const std::string order = logic::order_of(revision, session().world.random());
            txn what = logic::work::append(about->name, order, values, if_last);
            what.when(with.compares).then(with.success);
            const once_end end =
                co_await writer.apply(std::move(what), once_writer::form::plain, in_time);
            newest_ = std::max(newest_, end.revision);
            if (end.applied || !if_last) {
                co_return end.applied;
            }
            revision = end.revision; // all items that were there are from before
        }
    }

    /// Takes the first item.
    /// @param first The item that may be it.
    /// @param races How often to try.
    /// @returns Null if there is none, or others were faster each time.
    static asio::awaitable<taken> take_if_any(std::shared_ptr<work_queue_impl> self,
                                              std::optional<logic::work::item> first,
                                              time_point deadline,
                                              unsigned races = no_limit) {
        const auto until_the_end = co_await self->turns_.take_until(deadline);
        if (!until_the_end) {
            throw error(errc::timed_out, self->about->title + ": behind other calls");
        }
        if (!first) {
            first = std::exchange(self->next_, std::nullopt);
        }
        for (unsigned tries = 0; tries != races; ++tries) {
            if (!first) {
                const std::string& name = self->about->name;
                txn question =
                    txn().then(logic::work::ask_first(name, logic::work::everything(name)));
                const outcome<txn_response> a = co_await ask_anew(
                    self->session().owner, std::move(question), self->until(deadline), self->told_);
                self->check(a);
                first = logic::work::first_in(name, a.response, 0);
            }
            if (!first) {
                break;
            }
            auto claiming = self->claim(std::move(*first), deadline);
            taken job = co_await std::move(claiming);
            if (job->at() != job_impl::stage::missed) {
                self->next_ = job->next.first;
                co_return job;
            }
            if (job->next.is_known && !job->next.first) {
                break;
            }
            first = job->next.first;
        }
        co_return nullptr;
    }

    /// A request to take an item. Unless it becomes a job, whatever it has taken is put back.
    struct claiming {
        std::shared_ptr<job_impl> job;
        bool is_wanted = false;
        ~claiming() {
            if (!is_wanted) {
                job->drop();
            }
        }
    };
    /// Waits for the answer beyond the deadline of a call: an attempt that was begun counts.
    asio::awaitable<taken> claim(logic::work::item what, time_point of_call) {
        env& world = session().world;
        const time_point deadline = std::max(of_call, about->within().deadline);
        auto made =
            make_at_home<job_impl>(session().owner->world, about, std::move(what), most_attempts_);
        claiming now{std::move(made)};
        spawn(world, job_impl::claim(now.job));
        while (now.job->at() == job_impl::stage::wanted) {
            session().require_alive(about->title);
            if (world.now() >= deadline) {
                throw error(errc::timed_out, about->title + ": no answer");
            }
            const time_point next = std::min(deadline, session().certain_until());
            (void)co_await now.job->changed.wait(next);
        }
        if (now.job->at() == job_impl::stage::failed) {
            session().require_alive(about->title);
            std::rethrow_exception(now.job->failure);
        }
        ++answers_;
        told_.heed(now.job->token());
        now.is_wanted = true;
        co_return now.job;
    }

    /// What the first in the line has looked at.
    struct looked {
        std::optional<logic::work::item> first;
        std::vector<logic::work::item> orphans;
        std::int64_t revision = 0;
        time_point sent{};
    };
    asio::awaitable<looked> look(time_point deadline) {
        schedule_reap();
        txn question = logic::work::look(about->name);
        const outcome<txn_response> a =
            co_await ask_anew(session().owner, std::move(question), until(deadline), told_);
        check(a);
        looked now;
        now.first = logic::work::first_in(about->name, a.response, 0);
        now.orphans = logic::work::orphans_in(about->name, a.response);
        now.revision = a.response.header.revision;
        now.sent = a.sent;
        co_return now;
    }

    void schedule_reap() {
        env& world = session().world;
        next_reap_ = after(world.now(), logic::recheck_interval(session().ttl(), world.random()));
    }
    bool is_reap_due() const { return session().world.now() >= next_reap_; }
    /// @returns Whether anything was put back.
    asio::awaitable<bool> look_and_reap(time_point deadline) {
        const looked now = co_await look(deadline);
        bool any = false;
        for (logic::work::item orphan : now.orphans) {
            const range_request question(logic::work::busy_keys(about->name) + orphan.id);
            const outcome<range_response> busy =
                co_await call(session().owner, question, until(deadline));
            check(busy);
            if (busy.response.kvs.empty()) {
                continue; // somebody else did it
            }
            orphan.value = busy.response.kvs.front().value;
            txn request = logic::work::reap(about->name, orphan, most_attempts_);
            const outcome<txn_response> a = co_await ask_alone(
                session().owner, std::move(request), until(deadline).as(impact::idempotent));
            if (a.ec == errc::outcome_unknown) { // of what nobody has asked for
                throw error(errc::timed_out, about->title + ": " + a.text);
            }
            check(a);
            any = any || a.response.succeeded;
        }
        co_return any;
    }
    static asio::awaitable<void> reap_in_background(std::shared_ptr<work_queue_impl> self) {
        try {
            auto reaping = self->look_and_reap(self->about->within().deadline);
            (void)co_await std::move(reaping);
        } catch (const boost::system::system_error&) {
            // The next one tries again.
        }
    }

    /// Waits behind other consumers, and then for an item.
    static asio::awaitable<taken> wait_in_line(std::shared_ptr<work_queue_impl> self,
                                               time_point deadline) {
        const std::string& name = self->about->name;
        session_impl& s = self->session();
        auto waiting = place_wait::lock(self->about->session,
                                        consumers_line,
                                        one_name(self->line_name_, consumers_line),
                                        deadline);
        const std::shared_ptr<place> line = co_await std::move(waiting);
        if (!line) {
            co_return nullptr;
        }
        logic::work::signs told(name);
        vigil watching(self->about->session, line->changed);
        std::vector<key_range> all;
        all.push_back(key_range::prefix(name + "/"));
        watching.watch_ahead(
            all, [&told](const std::vector<event>& changes) { return told.heed(changes); });
        const std::function<txn()> ask = [&name] { return logic::work::look(name); };
        const std::function<bool(const txn_response&)> has_work =
            [&name](const txn_response& shown) { return logic::work::shows_work(name, shown); };
        for (;;) {
            const std::int64_t known = told.newest();
            self->told_.heed(known);
            auto looking = self->look(deadline);
            looked now = co_await std::move(looking);
            if (now.revision < known) {
                told.forget(); // etcd was restored from a snapshot
            }
            if (!now.orphans.empty()) {
                auto reaping = self->look_and_reap(deadline);
                (void)co_await std::move(reaping);
            }
            const bool waits = !now.first && now.orphans.empty() && !told.has_newer(now.revision);
            if (waits) {
                (void)told.take_first(); // it was taken meanwhile
                watching.wait_for_signs(now.revision + 1, now.sent);
                auto wait = watching.until_moved(ask, has_work, deadline);
                const vigil::end how = co_await std::move(wait);
                s.require_alive(self->about->title);
                if (how == vigil::end::failed) {
                    throw error(watching.failure,
                                self->about->title + ": " + watching.failure_text);
                }
                if (how == vigil::end::late) {
                    co_return nullptr;
                }
            }
            std::optional<logic::work::item> first = told.take_first();
            if (now.first) {
                first = std::move(now.first);
            }
            if (first) {
                auto taking = take_if_any(self, std::move(first), deadline);
                taken job = co_await std::move(taking);
                if (job) {
                    co_return job;
                }
            }
        }
    }

    const int most_attempts_;
    const std::function<bool()> alive_ = [s = about->session] { return s->alive(); };
    turns turns_; // to ask for the first item: several at once would only beat each other
    std::optional<logic::work::item> next_; // the first item, as we were told last
    std::int64_t newest_ = 0;               // a revision after which we have appended nothing
    newest_told told_;                      // by reads of the items, and by requests to take one
    std::uint64_t answers_ = 0;             // that we have had
    time_point next_reap_ = time_point::min();
    const std::string line_name_;
};

} // namespace coetcd::detail
