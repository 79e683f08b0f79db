// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/mirror_map.hpp>
#include <coetcd/detail/logic/mirror_read.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/mirror_reading.hpp>
#include <coetcd/detail/recipe/mirror_state.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/look_back.hpp>
#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/detail/wire/printable.hpp>
#include <coetcd/detail/wire/watch.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>
#include <coetcd/mirror_batch.hpp>

#include <boost/system/errc.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// The keys of a range, kept current: a read, then a watch from there on. When the watch has lost
/// history, another read is compared with what there was.
///
/// Lives and ends at home.
class mirror_impl final : private watch_sink {
public:
    mirror_impl(std::shared_ptr<client_impl> c,
                std::chrono::nanoseconds timeout,
                key_range keys,
                mirror_options o)
        : options(o)
        , client_(std::move(c))
        , timeout_(timeout)
        , keys_(std::move(keys))
        , title_("mirror of \"" + wire::printable(keys_.key) + "\"")
        , state_(*client_->world, title_)
        , size_(logic::paged_read::most, client_->options.max_answer, logic::paged_read::first)
        , news_(*client_->world)
        , work_(*client_->world) {}
    ~mirror_impl() { end(); }
    mirror_impl(const mirror_impl&) = delete;
    mirror_impl& operator=(const mirror_impl&) = delete;

    const mirror_options options;

    const std::shared_ptr<env>& world() const { return client_->world; }
    const mirror_state& state() const { return state_; } // callable from anywhere

    // At home:

    /// Reads what there is, and follows it from then on.
    static asio::awaitable<void> open(std::shared_ptr<mirror_impl> self) {
        mirror_reading first = co_await read(self);
        if (first.ec) {
            throw error(first.ec, self->title_ + ": " + first.text);
        }
        self->state_.become(std::move(first.found), first.revision);
        self->cluster_ = first.cluster;
        self->was_read();
        self->watch();
        spawn(*self->world(), tend(self));
    }

    /// Waits until the keys are those of `revision`, or later ones.
    /// @returns False if the deadline came first.
    static asio::awaitable<bool>
    wait(std::shared_ptr<mirror_impl> self, std::int64_t revision, time_point deadline) {
        env& world = *self->world();
        const std::uint64_t epoch = self->regressions_;
        time_point patience = after(world.now(), mirror_times::patience_with_events);
        for (;;) {
            self->check_over();
            if (self->regressed_ && self->regressions_ != epoch) {
                const error why = *self->regressed_;
                throw why;
            }
            if (self->map().revision() >= revision) {
                co_return true;
            }
            self->check_failure();
            const time_point now = world.now();
            if (now >= deadline) {
                co_return false;
            }
            if (now >= patience) { // nothing that is mirrored has changed then, perhaps
                patience = time_point::max();
                ++self->asked_;
                self->look_at_ = std::min(self->look_at_, now);
                self->work_.notify_all();
            }
            (void)co_await self->news_.wait(std::min(patience, deadline));
        }
    }

    /// Waits until there is something to tell.
    static asio::awaitable<mirror_batch> next(std::shared_ptr<mirror_impl> self,
                                              std::shared_ptr<mirror_reader> by) {
        if (!self->over_) {
            self->readers_.add(*by);
        }
        for (;;) {
            self->check_over();
            if (by->is_over) {
                throw_aborted();
            }
            if (by->regressed) {
                const error why = *std::exchange(by->regressed, std::nullopt);
                throw why;
            }
            if (by->owed.any()) {
                const bool is_first = by->owed.is_new();
                mirror_batch batch = by->owed.take(self->map());
                if (is_first || !batch.changes.empty()) {
                    co_return batch;
                }
            }
            self->check_failure();
            (void)co_await self->news_.wait();
        }
    }
    /// What `next` has returned did not reach its caller.
    void put_back(mirror_reader& by, mirror_batch batch) {
        by.owed.put_back(std::move(batch));
        news_.notify_all();
    }
    void remove(mirror_reader& gone) {
        gone.is_over = true;
        readers_.remove(gone);
        news_.notify_all();
    }

    /// Ends it; waiters are told that they were aborted.
    void end() {
        over_ = true;
        stop();
        readers_.clear();
    }

private:
    const logic::mirror_map& map() const { return state_.map(); }
    void check_over() const {
        if (over_) {
            throw_aborted();
        }
    }
    void check_failure() const {
        if (failed_) {
            throw state_.failure();
        }
    }
    /// Reads all keys at one revision.
    static asio::awaitable<mirror_reading> read(const std::shared_ptr<mirror_impl>& self) {
        std::function<bool()> wanted = [self] { return !self->over_; };
        mirror_impl& m = *self;
        const logic::mirror_entries& known = m.map().now();
        return read_pages(m.client_, m.timeout_, m.keys_, &m.size_, &known, std::move(wanted));
    }

    void watch() {
        wire::watch_create_request request(keys_);
        request.start_revision = map().heard() + 1;
        watching_ = true;
        step_ = logic::mirror_step::watch_again;
        id_ = client_->users_hub->add(std::move(request), *this, map().heard(), cluster_);
    }
    void stop_watching() {
        if (watching_) {
            watching_ = false;
            in_force_ = false;
            client_->users_hub->remove(id_);
        }
    }

    void stop() {
        stop_watching();
        news_.notify_all();
        work_.notify_all();
    }

    /// Does what is to be done beside the watch, as long as the mirror lasts.
    static asio::awaitable<void> tend(std::shared_ptr<mirror_impl> self) {
        try {
            while (!self->over_ && !self->failed_) {
                const time_point now = self->world()->now();
                const bool is_looking = self->watching_;
                const time_point when = is_looking ? self->look_at_ : self->again_at_;
                if (now < when) {
                    (void)co_await self->work_.wait(when);
                } else if (is_looking) {
                    co_await look(self);
                } else if (self->step_ == logic::mirror_step::watch_again) {
                    self->watch();
                } else {
                    co_await read_again(self);
                }
            }
        } catch (const std::bad_alloc&) {
            self->fail_for_want_of_memory();
        }
    }

    /// Finds what has changed by comparison.
    static asio::awaitable<void> read_again(std::shared_ptr<mirror_impl> self) {
        const std::int64_t known = self->map().revision();
        mirror_reading now = co_await read(self);
        if (self->over_) {
            co_return;
        }
        if (now.ec) {
            self->again_later();
            self->note(now.ec, std::move(now.text));
            co_return;
        }
        if (now.revision < known && !self->is_restored_) {
            std::function<std::int64_t()> told = [of = self.get(), known] {
                return of->over_ ? 0 : known;
            };
            const std::optional<std::int64_t> latest =
                co_await look_back(self->client_->cluster_router,
                                   self->least(),
                                   mirror_times::doubts,
                                   std::move(told));
            if (!latest) {
                self->again_later();
                co_return;
            }
            self->is_restored_ = true;
            co_return; // what was read may be older than what is there now
        }
        self->become(std::move(now));
    }
    void was_read() {
        checked_ = map().revision();
        check_later();
        looked(true);
    }
    range_request least() const { return wire::least_of(wire::watch_create_request(keys_)); }

    void become(mirror_reading now) {
        const bool regressed = std::exchange(is_restored_, false);
        if (regressed) {
            ++regressions_;
            regressed_ = is_older(title_, now.revision, map().revision());
        }
        const std::vector<mirror_change> changes = map().changes_to(now.found, now.revision);
        if (regressed) {
            readers_.regress(*regressed_);
        }
        readers_.tell(changes);
        state_.become(std::move(now.found), now.revision);
        cluster_ = now.cluster;
        was_read();
        watch();
        news_.notify_all();
    }

    /// Asks whether the keys are still the same: that no event was lost, and the cluster is there.
    static asio::awaitable<void> look(std::shared_ptr<mirror_impl> self) {
        const logic::mirror_mark mark{
            self->map().revision(), self->map().now().size(), self->checked_};
        const std::uint64_t created = self->created_;
        const std::uint64_t asked = self->asked_;
        const time_point sent = self->world()->now();
        const bool is_check = sent >= self->check_at_;
        std::function<bool()> wanted = [self] { return !self->over_; };
        const logic::mirror_entries* const known = &self->map().now();
        auto looking = look_at_mirror(
            self->client_, self->timeout_, self->keys_, known, mark, is_check, std::move(wanted));
        const mirror_look seen = co_await std::move(looking);
        if (self->over_ || !self->watching_) {
            co_return;
        }
        const bool was_compacted = seen.ec == server_errc::out_of_range;
        if (is_check && (was_compacted || !seen.ec)) {
            self->check_later();
        }
        if (was_compacted) { // what is checked, or, more rarely, what is looked at
            self->look_at_ = is_check ? sent : after(sent, mirror_times::patience_with_lost);
            co_return;
        }
        if (seen.ec) {
            self->is_in_doubt_ = true;
            // Where there are many keys, the look may be what keeps etcd busy.
            const auto pause = std::max<std::chrono::nanoseconds>(
                self->pause(), std::chrono::milliseconds(mark.size));
            self->look_at_ = after(self->world()->now(), pause);
            self->note(seen.ec, seen.text, sent);
            co_return;
        }
        const bool has_moved = self->map().revision() != mark.revision;
        const bool is_current = self->take(seen, mark, created, has_moved);
        if (is_check && seen.revision >= mark.revision) {
            self->check(seen.then, mark, has_moved);
        }
        if (is_current) {
            self->state_.was_current(sent);
        }
        self->looked(is_current);
        if (self->asked_ != asked) { // for what it may have missed
            self->look_at_ = self->world()->now();
        }
        self->news_.notify_all();
    }
    /// @returns Whether the look has proved that the keys are current.
    bool take(const mirror_look& seen,
              const logic::mirror_mark& mark,
              std::uint64_t created_then,
              bool has_moved) {
        const logic::since changed = logic::changed_since(seen.now, seen.revision, mark);
        if (changed == logic::since::older) {
            return false;
        }
        if (changed == logic::since::nothing && !has_moved) {
            state_.prove(seen.revision);
        }
        if (changed == logic::since::nothing || has_moved || created_then != created_) {
            return true; // events come
        }
        if (suspected_ == mark.revision) { // for long
            distrust();
        }
        suspected_ = mark.revision;
        return false;
    }
    void check(const range_response& then, const logic::mirror_mark& mark, bool has_moved) {
        const auto verdict = logic::check_mark(then, mark, map().now(), has_moved);
        if (verdict == logic::verdict_of_check::wrong) {
            distrust();
        } else if (verdict == logic::verdict_of_check::right) {
            checked_ = mark.revision;
        }
    }
    /// Events were lost.
    void distrust() {
        stop_watching();
        step_ = logic::mirror_step::read_again;
        state_.note(world()->now());
    }
    void check_later() {
        env& w = *world();
        check_at_ = after(w.now(), logic::look_interval(map().now().size(), w.random()));
    }

    /// etcd has answered a read.
    void looked(bool is_current) {
        look_at_ = is_current ? check_at_ : after(world()->now(), mirror_times::patience_with_lost);
        if (is_current) {
            is_in_doubt_ = false;
            suspected_ = 0;
            due_ = 0;
        }
        settle();
    }
    /// There is no trouble once the watch is in force, and has told what there was then.
    void settle() {
        if (state_.in_trouble() && in_force_ && !is_in_doubt_ && map().revision() >= due_) {
            failures_ = 0;
            refusals_ = 0;
            state_.is_current();
        }
    }

    std::chrono::nanoseconds pause() {
        return logic::backoff(
            failures_++, world()->random(), mirror_times::first_pause, mirror_times::longest_pause);
    }
    void again_later() { again_at_ = after(world()->now(), pause()); }

    /// The keys may not be current any more.
    /// @param since From when on, if they are not so already.
    void note(error_code ec, std::string text, std::optional<time_point> since = {}) noexcept {
        const bool is_final = logic::is_forbidden(ec) && ++refusals_ >= logic::refusals_for_good;
        state_.note(ec, std::move(text), since ? *since : world()->now());
        if (is_final) {
            failed_ = true;
            stop();
        }
    }
    /// It follows the keys no longer.
    void fail_for_want_of_memory() noexcept {
        failed_ = true;
        note(make_error_code(boost::system::errc::not_enough_memory), {});
        stop();
    }

    void on_created(std::int64_t revision) override {
        ++created_;
        in_force_ = true;
        due_ = revision;
        settle();
        if (state_.in_trouble()) { // does anything come?
            look_at_ =
                std::min(look_at_, after(world()->now(), mirror_times::patience_with_history));
            work_.notify_all();
        }
    }
    void on_broken() override {
        in_force_ = false;
        state_.note(world()->now());
    }
    void on_events(std::vector<event>& events) override {
        try {
            const std::vector<mirror_change> changes = state_.apply(events);
            readers_.tell(changes);
        } catch (const std::bad_alloc&) { // some readers may have missed it
            fail_for_want_of_memory();
        }
        settle();
        news_.notify_all();
    }
    void on_progress(std::int64_t revision) override {
        state_.reached(revision);
        settle();
        news_.notify_all();
    }
    void on_ended(error_code ec, std::string text, std::int64_t) override {
        watching_ = false;
        in_force_ = false;
        step_ = logic::after_watch(ec);
        is_restored_ = ec == errc::revision_regressed;
        // History that is lost is no reason to wait, except if it is lost again and again.
        if (step_ == logic::mirror_step::read_again && failures_ == 0) {
            again_at_ = world()->now();
            ++failures_;
        } else {
            again_later();
        }
        note(ec, std::move(text));
        work_.notify_all();
    }

    const std::shared_ptr<client_impl> client_;
    const std::chrono::nanoseconds timeout_;
    const key_range keys_;
    const std::string title_;

    mirror_state state_;
    logic::page_size size_;
    bool over_ = false;
    bool failed_ = false; // for good
    bool watching_ = false;
    bool in_force_ = false;
    bool is_in_doubt_ = false;  // the last look had no answer
    std::int64_t id_ = 0;       // of the watch
    std::uint64_t created_ = 0; // how often it came into force
    std::int64_t due_ = 0;      // the revision that it has to tell before it is current
    std::uint64_t cluster_ = 0;
    logic::mirror_step step_ = logic::mirror_step::watch_again; // when the watch has ended
    bool is_restored_ = false;                                  // the store is known to be older
    std::uint64_t regressions_ = 0;
    std::optional<error> regressed_; // the last one
    std::int64_t suspected_ = 0;     // the revision after which events may be lost
    std::int64_t checked_ = 0;       // up to here it was right
    time_point check_at_ = time_point::max();
    time_point look_at_ = time_point::max();
    std::uint64_t asked_ = 0; // how often users have asked for a look
    time_point again_at_ = time_point::min();
    unsigned failures_ = 0;
    int refusals_ = 0;
    mirror_readers readers_;
    notifier news_; // for users
    notifier work_; // for `tend`
};

inline asio::awaitable<std::shared_ptr<mirror_impl>> open_mirror(std::shared_ptr<client_impl> owner,
                                                                 std::chrono::nanoseconds timeout,
                                                                 key_range keys,
                                                                 mirror_options options) {
    auto made = make_at_home<mirror_impl>(owner->world, owner, timeout, std::move(keys), options);
    auto opening = mirror_impl::open(made);
    co_await std::move(opening);
    co_return made;
}

/// Waits for as long as it takes.
inline asio::awaitable<void> wait_for_revision(std::shared_ptr<mirror_impl> m,
                                               std::int64_t revision) {
    require_revision(revision);
    return discard_result(mirror_impl::wait(std::move(m), revision, time_point::max()));
}

} // namespace coetcd::detail
