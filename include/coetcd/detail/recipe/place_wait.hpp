// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/logic/ahead.hpp>
#include <coetcd/detail/logic/delay.hpp>
#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/next_step.hpp>
#include <coetcd/detail/logic/time_left.hpp>
#include <coetcd/detail/recipe/missing_key.hpp>
#include <coetcd/detail/recipe/observed.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/vigil.hpp>
#include <coetcd/detail/recipe/watch_over.hpp>

#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// The wait for one place. `lock` and `try_lock` show the protocol; the functions below are its
/// steps.
class place_wait final {
    using result = asio::awaitable<std::shared_ptr<place>>;

    /// What `place::open` takes. A waiter keeps it only until that call.
    struct wish {
        std::shared_ptr<session_impl> session;
        const recipe& how;
        std::vector<wanted_name> wanted;
        std::optional<std::string> value;
        std::shared_ptr<logic::rule> by;
    };

public:
    place_wait(std::unique_ptr<wish> w, time_point deadline, asio::cancellation_state stop)
        : session_(std::move(w->session))
        , began_(session_->world.now())
        , stop_(stop)
        , cancelled_before_(stop.cancelled())
        , attempt_(place::open(
              session_, w->how, std::move(w->wanted), std::move(w->value), std::move(w->by))) {
        attempt_->not_after = deadline;
    }

    /// Waits until the place is ours.
    /// @param value See `place::open`, also for `by`.
    /// @returns Nothing if the deadline came first, because others have it: etcd has told us a
    ///   place, or has meanwhile told one to a coroutine of this session that is ahead of us.
    /// @throws error with `errc::timed_out` if the deadline came first and etcd does not answer.
    static result lock(std::shared_ptr<session_impl> s,
                       const recipe& how,
                       std::vector<wanted_name> wanted,
                       time_point deadline,
                       std::optional<std::string> value = {},
                       std::shared_ptr<logic::rule> by = nullptr) {
        std::string name = wanted.front().name;
        std::unique_ptr<wish> w(
            new wish{s, how, std::move(wanted), std::move(value), std::move(by)});
        auto work = follow_protocol(std::move(w), deadline);
        return observed(std::move(s), how, std::move(name), std::move(work));
    }

    /// Takes the place if it is free.
    /// @returns Nothing if it is not.
    static result try_lock(std::shared_ptr<session_impl> s,
                           const recipe& how,
                           std::vector<wanted_name> wanted,
                           std::optional<std::string> value = {},
                           std::shared_ptr<logic::rule> by = nullptr) {
        std::string name = wanted.front().name;
        std::unique_ptr<wish> w(
            new wish{s, how, std::move(wanted), std::move(value), std::move(by)});
        auto work = take_if_free(std::move(w));
        return observed(std::move(s), how, std::move(name), std::move(work));
    }

private:
    using at = logic::standing::where;
    using step = logic::step;
    using try_step = logic::try_step;

    static result follow_protocol(std::unique_ptr<wish> w, time_point deadline) {
        const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
        const recipe& how = w->how;
        place_wait wait(std::move(w), deadline, stop);
        std::shared_ptr<place> taken;
        wait.attempt_->require_session();
        wait.attempt_->entering.begin(entrance::beginning::enter);
        co_await wait.enter();
        while (wait.now_) {
            switch (logic::next_step(wait.now_->at)) {
            case step::own:
                taken = wait.grant();
                co_return taken;
            case step::enter:
                wait.ask(logic::asking::enter);
                co_await wait.enter();
                break;
            case step::admit:
                wait.ask(logic::asking::admit);
                co_await wait.enter();
                break;
            case step::wait:
                co_await wait.until_moved();
                break;
            case step::wait_room:
                co_await wait.until_room();
                break;
            case step::delay:
                co_await wait.until_delay_is_over();
                break;
            case step::confirm:
                co_await wait.confirm();
                break;
            case step::explain:
                co_await wait.throw_loss_if_known();
                co_return taken;
            case step::refuse:
                wait.throw_exceeds();
            }
        }
        if (!wait.refused_ && !wait.others_have_it()) {
            wait.throw_timed_out(how.patiently);
        }
        co_return taken;
    }

    static result take_if_free(std::unique_ptr<wish> w) {
        std::shared_ptr<place> taken;
        const recipe& how = w->how;
        const session_impl& s = *w->session;
        const time_point deadline = after(s.world.now(), s.request_timeout);
        const bool free_here = std::all_of(w->wanted.begin(), w->wanted.end(), [&](const auto& n) {
            return s.wanted.is_free_here(n.name, n.how->shares);
        });
        const asio::cancellation_state stop = co_await asio::this_coro::cancellation_state;
        place_wait wait(std::move(w), deadline, stop);
        wait.attempt_->require_session();
        const bool admits = wait.attempt_->entering.rule().admits();
        if (!free_here && !admits) {
            co_return taken;
        }
        wait.attempt_->entering.begin(entrance::beginning::take_or_leave);
        if (!free_here) {
            const bool behind_waiter = co_await wait.until_sent_or_behind();
            if (behind_waiter) {
                co_return taken;
            }
        }
        co_await wait.enter();
        while (wait.now_) {
            switch (logic::next_try_step(wait.now_->at, wait.own_may_be_there())) {
            case try_step::own:
                taken = wait.grant();
                co_return taken;
            case try_step::leave:
                co_return taken;
            case try_step::take:
                wait.ask(logic::asking::take);
                co_await wait.enter();
                break;
            case try_step::wait_own:
                co_await wait.until_own_are_over();
                wait.ask(logic::asking::take);
                co_await wait.enter();
                break;
            case try_step::confirm:
                co_await wait.confirm();
                break;
            case try_step::explain:
                if (admits) {
                    co_await wait.throw_loss_if_known();
                }
                co_return taken;
            case try_step::refuse:
                wait.throw_exceeds();
            }
        }
        wait.throw_timed_out(how.at_once);
    }

    /// Waits before the first request, while other coroutines of this session are asking.
    /// @returns Whether one of them has to wait, or they take up all the time.
    asio::awaitable<bool> until_sent_or_behind() {
        while (!attempt_->entering.request() && is_in_time()) {
            if (attempt_->entering.is_behind_own()) {
                co_return true;
            }
            (void)co_await attempt_->changed.wait(attempt_->not_after);
        }
        co_return !attempt_->entering.request() && others_have_it();
    }

    /// Whether perhaps only what this session was giving up was in the way.
    bool own_may_be_there() const {
        return !own_are_over_ && !attempt_->entering.earlier().empty();
    }
    /// Waits until that is over, at most until the deadline.
    asio::awaitable<void> until_own_are_over() {
        own_are_over_ = true;
        trouble_ = "what this session had before is not given back yet";
        while (!logic::slot_table::are_over(attempt_->entering.earlier()) && is_in_time()) {
            (void)co_await attempt_->changed.wait(attempt_->not_after);
        }
    }

    /// Asks again to enter; if we wait from now on, it is with another life of our key.
    void ask(logic::asking what) {
        vigil_.reset();
        attempt_->entering.send(what);
    }

    /// 1 and 2. The coroutines of one session queue up here; only the first of them, or the first
    /// few where several may hold, go to etcd, put their keys, and learn who is ahead: `now_`.
    asio::awaitable<void> enter() {
        now_.reset();
        while (is_in_time()) {
            if (attempt_->entering.has_retained()) {
                const time_point at_once = session_->world.now();
                if (session_->retained->lets_others_run(at_once)) {
                    (void)co_await attempt_->changed.wait(at_once);
                }
                now_.emplace().at = at::owner;
                break;
            }
            const auto& entry = attempt_->entering.request();
            if (!entry || !entry->over) {
                if (attempt_->entering.may_have_to_count()) {
                    watch_ahead();
                }
                (void)co_await attempt_->changed.wait(attempt_->not_after);
                continue;
            }
            if (!entry->ec) {
                told_ = entry->sent;
                now_ = attempt_->entering.answered();
                learn();
                break;
            }
            const error_code ec = entry->ec;
            trouble_ = entry->text;
            attempt_->entering.failed();
            co_await check(ec);
            if (is_in_time()) {
                attempt_->entering.send_again();
            }
        }
    }

    /// 3. Waits until keys ahead of us are gone, or one of our own keys, or until the deadline.
    /// Ends that are certain tell where we stand now.
    asio::awaitable<void> until_moved() {
        begin_vigil();
        std::vector<logic::held_life> lives = logic::still_ahead(*now_);
        if (logic::told_ended(*now_).empty()) {
            vigil_->watch(lives, told_);
        }
        const std::vector<logic::held_life> own = attempt_->held_by();
        lives.insert(lives.end(), own.begin(), own.end());
        std::function<txn()> look = [&lives] { return logic::look_at(lives); };
        std::function<bool(const txn_response&)> moved = [&lives](const txn_response& r) {
            return !logic::shows_all(r, lives);
        };
        auto wait = vigil_->until_moved(std::move(look), std::move(moved), attempt_->not_after);
        const vigil::end how = co_await std::move(wait);
        waited(*vigil_, how == vigil::end::moved || how == vigil::end::told, how);
        if (how == vigil::end::told) {
            logic::heed_ends(*now_, vigil_->take_ends());
        }
    }

    /// 3, where a rule asks for room: waits until there is some, or somebody has to ask.
    asio::awaitable<void> until_room() {
        logic::rule& by = attempt_->entering.rule();
        const std::int64_t seen = now_->seen;
        watch_ahead();
        begin_vigil();
        vigil_->wait_for_signs(seen + 1, told_);
        if (by.is_in_doubt()) {
            now_->at = at::queued;
            co_return;
        }
        std::function<txn()> look = [this, &by] {
            return by.look(attempt_->keys(), attempt_->create_revision());
        };
        std::function<bool(const txn_response&)> moved = [this, &by, seen](const txn_response& r) {
            const bool is_older = r.header.revision < seen; // of a member that has stalled
            return !is_older && by.has_moved(r, attempt_->keys(), attempt_->create_revision());
        };
        auto wait = vigil_->until_moved(std::move(look), std::move(moved), attempt_->not_after);
        const vigil::end how = co_await std::move(wait);
        waited(*vigil_, how == vigil::end::moved || how == vigil::end::told, how);
        if (how == vigil::end::told && by.has_room()) {
            now_->at = at::room;
        }
    }

    /// So that what the answer to a request tells can be kept up to date from then on.
    void watch_ahead() {
        logic::rule& by = attempt_->entering.rule();
        if (!by.admits() || (vigil_ && vigil_->watches_signs())) {
            return;
        }
        if (!vigil_) {
            vigil_ = std::make_unique<vigil>(session_, attempt_->changed);
        }
        vigil_->watch_ahead(by.signs_of_room(), [&by](const std::vector<event>& changes) {
            by.heed(changes);
            return by.is_in_doubt() || by.has_room();
        });
    }
    void begin_vigil() {
        if (!vigil_) {
            vigil_ = std::make_unique<vigil>(session_, attempt_->changed);
        }
        if (!vigil_->knows_own()) {
            vigil_->watch_later(attempt_->held_by(), told_);
        }
    }
    /// After a wait, it is not known what is ahead of us; if the deadline came first, nothing is
    /// known.
    /// @throws error if the session has ended, or a look failed for good.
    void waited(const vigil& with, bool is_over, vigil::end how) {
        attempt_->require_session();
        if (how == vigil::end::failed) {
            trouble_ = with.failure_text;
            fail(with.failure);
        }
        if (is_over) {
            now_->at = at::queued;
        } else {
            now_.reset();
        }
    }

    /// An owner ahead of us has vanished: gives it the time that our user wants it to have, unless
    /// it is there after all and takes its note away.
    asio::awaitable<void> until_delay_is_over() {
        refused_ = true; // the lock is not to be had
        const time_point due = after(session_->world.now(), attempt_->queues.front().delay);
        const std::int64_t revision = attempt_->create_revision();
        const std::int64_t note = now_->note;
        // Meanwhile the owner may take its note away, and somebody may delete our key.
        if (!own_vigil_) {
            own_vigil_ = std::make_unique<vigil>(session_, attempt_->changed);
            own_vigil_->watch_later(attempt_->held_by(), told_);
        }
        vigil& both = *own_vigil_;
        both.watch({{attempt_->keys().by_name.front().note_key, note}}, told_);
        std::function<txn()> look = [this] { return logic::look_at_note(attempt_->keys()); };
        std::function<bool(const txn_response&)> moved =
            [this, revision, note](const txn_response& r) {
                return logic::has_note_moved(r, attempt_->keys(), revision, note);
            };
        auto wait =
            both.until_moved(std::move(look), std::move(moved), std::min(due, attempt_->not_after));
        const vigil::end how = co_await std::move(wait);
        const bool has_moved = how == vigil::end::moved || how == vigil::end::told;
        waited(both, has_moved || session_->world.now() >= due, how);
    }

    /// 4. Proves that nobody is ahead of us, or learns who is: `now_`. After a delay our note
    /// replaces the one that an owner has left.
    asio::awaitable<void> confirm() {
        const std::int64_t revision = attempt_->create_revision();
        const std::int64_t note = now_->note;
        now_.reset();
        watch_ahead();
        if (attempt_->entering.rule().admits()) {
            vigil_->drop_own();
        }
        while (is_in_time() && !now_) {
            attempt_->entering.rule().asking();
            auto part = std::make_shared<lane_part>(
                note != 0 ? logic::replace_note(attempt_->keys(), revision, note)
                          : attempt_->entering.rule().confirm(attempt_->keys(), revision));
            part->likely = true;
            part->turn = attempt_->entering.rule().turn(logic::asking::enter);
            attempt_->keep_apart(*part);
            std::function<std::optional<time_point>()> in_time = [this] {
                return is_in_time() ? std::optional(attempt_->not_after) : std::nullopt;
            };
            const bool is_over = co_await attempt_->ask(part, std::move(in_time));
            if (!is_over) {
                break;
            }
            trouble_ = part->text;
            co_await check(part->ec);
            if (!part->ec) {
                told_ = part->sent;
                now_ = note != 0
                           ? logic::after_replacing_note(part->response, attempt_->keys(), revision)
                           : attempt_->confirmed(part->response);
                learn();
            }
        }
    }

    /// The place is ours, unless we were cancelled at that very moment: a composition such as
    /// `lock() || timer` then drops the result, and nobody would give the lock back.
    std::shared_ptr<place> grant() {
        if (stop_.cancelled() != cancelled_before_) {
            throw_aborted();
        }
        attempt_->there.told(logic::last_end(*now_));
        attempt_->shown = told_;
        attempt_->grant();
        if (std::vector<logic::held_life> ended = logic::told_ended(*now_); !ended.empty()) {
            spawn(session_->world, look_behind(attempt_->shared_from_this(), std::move(ended)));
        }
        return attempt_;
    }

    /// Whether coroutines of this session ahead of us kept us waiting, and not etcd.
    bool others_have_it() const {
        return logic::others_have_it(began_,
                                     attempt_->entering.told(),
                                     session_->world.now(),
                                     session_->owner->options.attempt_timeout);
    }

    bool is(at where) const { return now_ && now_->at == where; }
    void learn() {
        refused_ =
            refused_ || is(at::behind) || is(at::taken) || is(at::no_room) || is(at::too_many);
    }

    /// @throws error if it can be found out why our keys are gone.
    asio::awaitable<void> throw_loss_if_known() {
        const bool known = co_await explain_missing_key(attempt_, attempt_->not_after);
        if (known) {
            throw attempt_->loss();
        }
    }
    [[noreturn]] void throw_exceeds() const {
        throw error(errc::exceeds_limit,
                    attempt_->title() + ": " + attempt_->entering.rule().why_not());
    }
    [[noreturn]] void throw_timed_out(const char* call) const {
        throw error(errc::timed_out, attempt_->title() + ", " + call + ": " + trouble_);
    }

    /// @throws error if the session has ended.
    bool is_in_time() const {
        attempt_->require_session();
        attempt_->entering.require_begun();
        return session_->world.now() < attempt_->not_after;
    }

    /// @throws error if a request failed for good.
    asio::awaitable<void> check(error_code ec) {
        if (logic::is_lease_gone(ec, trouble_)) { // the lease that we put with
            call_terms how = session_->owner->within(session_->request_timeout);
            how.deadline = std::min(how.deadline, attempt_->not_after);
            const std::optional<bool> gone = co_await session_impl::look_for_lease(session_, how);
            lease_refusals_.add(gone);
            if (!is_in_time() || !lease_refusals_.are_final()) {
                co_return; // it is asked again
            }
        } else {
            lease_refusals_.end_row();
        }
        if (ec && !logic::is_transient(ec)) {
            fail(ec);
        }
    }
    [[noreturn]] void fail(const error_code& ec) const {
        throw error(ec, attempt_->title() + ": " + trouble_ + attempt_->if_denied(ec));
    }

    const std::shared_ptr<session_impl> session_;
    const time_point began_;
    const asio::cancellation_state stop_; // of the coroutine that waits
    const asio::cancellation_type cancelled_before_;
    const std::shared_ptr<place> attempt_;
    std::optional<logic::standing> now_; // as etcd told it last; nothing if the deadline came first
    std::unique_ptr<vigil> vigil_;       // most attempts wait in the session's line, without one
    std::unique_ptr<vigil> own_vigil_;   // while it delays
    time_point told_{};                  // when the request was sent that told what is ahead
    bool own_are_over_ = false;
    bool refused_ = false; // etcd has told us that others are ahead of us
    logic::lease_refusals lease_refusals_;
    std::string trouble_ = "no answer";
};

} // namespace coetcd::detail
