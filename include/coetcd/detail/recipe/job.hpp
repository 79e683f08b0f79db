// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/home.hpp>
#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/logic/standing.hpp>
#include <coetcd/detail/logic/work.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/session_end.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// One attempt at an item, from the request that takes it to the one that ends it. Both requests
/// are made in the background, until etcd has answered or the session has ended, whatever becomes
/// of their callers.
class job_impl final : public held_keys,
                       private loss_listener,
                       public std::enable_shared_from_this<job_impl> {
public:
    enum class stage {
        wanted, ///< A request to take it is under way.
        missed, ///< It was not to be had.
        failed, ///< Nor will it be: see `failure`.
        held,
        ending, ///< A request to end it is under way.
        ended,  ///< By us.
        lost    ///< Somebody else may have it.
    };
    /// How a consumer ends an attempt.
    enum class verdict { none, ack, ack_with, retry, bury };

    job_impl(std::shared_ptr<const named_recipe> q, logic::work::item w, int most_attempts)
        : of(std::move(q))
        , what(std::move(w))
        , id(logic::work::split_id(what.id))
        , changed(of->session->world)
        , most_attempts_(most_attempts)
        , loss_of_session_(of->session->losses, static_cast<loss_listener&>(*this)) {}
    ~job_impl() { look_away(); }
    job_impl(const job_impl&) = delete;
    job_impl& operator=(const job_impl&) = delete;

    const std::shared_ptr<const named_recipe> of;
    const logic::work::item what;
    const logic::work::item_id id;
    notifier changed;           ///< When the stage has changed, or the session has ended.
    std::exception_ptr failure; ///< Of the last request.
    /// What the answer to `claim` tells of the item that is the first then.
    logic::work::next_item next;

    stage at() const { return stage_; }
    session_impl& session() const { return *of->session; }
    std::int64_t token() const { return token_; }
    std::string claim_key() const { return logic::work::claim_keys(of->name) + what.id; }
    bool owns() const { return stage_ == stage::held && session().alive(); }
    bool is_lost() const {
        const stage now = stage_;
        return now == stage::lost || (now == stage::held && !session().alive());
    }

    std::vector<logic::held_life> held_by() const override { return {{claim_key(), token_}}; }
    void on_key_gone() override {
        const auto self = shared_from_this();
        set(stage::lost);
    }

    /// Takes the item.
    static asio::awaitable<void> claim(std::shared_ptr<job_impl> self) {
        session_impl& s = self->session();
        stage now = stage::failed;
        try {
            txn request = logic::work::claim(self->of->name, self->what, s.lease(), s.label());
            once_writer writer(self->of->session, self->of->name, self->of->title);
            once_end end = co_await writer.apply(
                std::move(request), once_writer::form::plain, self->as_long_as_it_takes());
            if (end.answered) {
                self->next = logic::work::after_claim(self->of->name, self->what, *end.answered);
            }
            self->token_ = end.revision;
            now = end.applied ? stage::held : stage::missed;
        } catch (const boost::system::system_error& e) {
            self->failure = std::current_exception();
            self->fail_if(e.code() == errc::outcome_unknown);
        } catch (...) {
            self->failure = std::current_exception();
            self->fail_if(true);
        }
        self->set(now);
        if (self->is_dropped_) {
            co_await give_back(self);
        }
    }

    /// Ends it, if it is ours and nothing else ends it: at the call. May be called from anywhere.
    void begin_to_end(verdict how, txn with = {}) {
        at_home(session().world, [self = shared_from_this(), how, with = std::move(with)] {
            if (self->owns()) {
                self->by_ = how;
                self->run(end(self, self->request(how, with)), stage::ending);
            }
        });
    }
    /// Waits until that is over.
    /// @returns Whether it has ended in this way.
    static asio::awaitable<bool> until_ended(std::shared_ptr<job_impl> self, verdict how) {
        env& world = self->session().world;
        const time_point deadline = self->of->within().deadline;
        while (self->stage_ == stage::ending) {
            if (world.now() >= deadline) {
                throw error(errc::outcome_unknown,
                            self->of->title + ": no answer yet; the request goes on");
            }
            (void)co_await self->changed.wait(deadline);
        }
        if (self->by_ == how && self->failure) {
            std::rethrow_exception(self->failure);
        }
        co_return self->by_ == how && self->stage_ == stage::ended;
    }

    /// Nobody has it any more: the item is put back in the background. May be called from anywhere.
    void drop() noexcept {
        try {
            at_home(session().world, [self = shared_from_this()] {
                self->is_dropped_ = true;
                if (self->owns()) {
                    self->run(give_back(self), stage::held);
                }
            });
        } catch (const std::bad_alloc&) {
            session().lose(session_end::cleanup_failed);
        }
    }

private:
    void on_loss() override { changed.notify_all(); }
    void set(stage now) {
        if (now == stage::held) {
            session().look_after(*this);
        } else {
            look_away();
        }
        stage_ = now;
        changed.notify_all();
    }
    void look_away() {
        if (stage_ == stage::held) {
            session().look_away(*this);
        }
    }
    /// Begins to work on its end.
    void run(asio::awaitable<void> work, stage now) noexcept {
        try {
            if (stage_ != now) {
                set(now);
            }
            spawn(session().world, std::move(work));
        } catch (const std::bad_alloc&) {
            fail_if(true);
        }
    }
    /// If the item may stay ours though nobody has it, ends the session.
    void fail_if(bool in_doubt) noexcept {
        if (in_doubt && session().reason() == session_end::none) {
            session().fail(session_end::cleanup_failed);
        }
    }
    call_terms as_long_as_it_takes() const {
        call_terms how = of->within();
        how.deadline = time_point::max();
        return how;
    }

    txn request(verdict how, txn with) const {
        txn t = logic::work::finish(of->name, what.id, token_);
        if (how == verdict::retry) {
            t.then(logic::work::put_back(of->name, what, most_attempts_));
        } else if (how == verdict::bury) {
            t.then(logic::work::put_to_dead(of->name, what));
        }
        return std::move(t).when(std::move(with.compares)).then(std::move(with.success));
    }

    static asio::awaitable<void> end(std::shared_ptr<job_impl> self, txn what) {
        co_await try_to_end(self, std::move(what));
        if (self->is_dropped_) {
            co_await give_back(self);
        }
    }
    /// Call it where the stage is `ending`.
    static asio::awaitable<void> try_to_end(std::shared_ptr<job_impl> self, txn what) {
        self->failure = nullptr;
        stage now = stage::lost;
        try {
            once_writer writer(self->of->session, self->of->name, self->of->title);
            const once_end end = co_await writer.apply(
                std::move(what), once_writer::form::plain, self->as_long_as_it_takes());
            if (end.applied) {
                now = stage::ended;
            } else if (logic::work::still_claimed(
                           self->of->name, self->what.id, self->token_, *end.answered)) {
                now = stage::held;
            }
        } catch (...) {
            self->failure = std::current_exception();
            if (self->session().alive()) {
                now = stage::held; // if the claim has gone after all, the next request tells
            }
        }
        self->set(now);
    }
    /// Tries to put it back until that is done, or it is lost.
    static asio::awaitable<void> give_back(std::shared_ptr<job_impl> self) {
        constexpr std::chrono::milliseconds first_pause{50};
        constexpr std::chrono::seconds longest_pause{5};
        env& world = self->session().world;
        for (unsigned failures = 0; self->owns(); ++failures) {
            self->by_ = verdict::retry;
            self->set(stage::ending);
            txn request = self->request(verdict::retry, txn());
            co_await try_to_end(self, std::move(request));
            if (self->owns()) {
                const auto pause =
                    logic::backoff(failures, world.random(), first_pause, longest_pause);
                const time_point next = after(world.now(), pause);
                co_await sleep_until(world, next);
            }
        }
    }

    const int most_attempts_;
    std::atomic<stage> stage_ = stage::wanted;
    std::atomic<std::int64_t> token_ = 0;
    verdict by_ = verdict::none;
    bool is_dropped_ = false;
    const loss_source::subscription loss_of_session_;
};

} // namespace coetcd::detail
