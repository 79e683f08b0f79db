// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/question.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/detail/service/client.hpp>
#include <coetcd/detail/service/look_back.hpp>
#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/detail/service/watch_sink.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

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

/// Delivers the newest answer to a question: first the present one, then each newer one that
/// differs. It holds one answer, however slow its reader is, and never goes back to an older one.
///
/// No final answer is missed. While the watch is in force, it delivers each change; a look finds
/// what may have happened before that. Since servers have lost events, the feed also looks from
/// time to time. It begins with the first call of `next`, and looks only while somebody waits
/// there.
///
/// Lives and ends at home.
template<class T>
class feed final : private watch_sink {
public:
    /// @param timeout For one look.
    /// @param known A revision that etcd has had: an older answer is none.
    feed(std::shared_ptr<client_impl> c,
         std::chrono::nanoseconds timeout,
         logic::question<T> q,
         std::int64_t known = 0)
        : client_(std::move(c))
        , timeout_(timeout)
        , question_(std::move(q))
        , as_of_(known)
        , changed_(*client_->world) {}
    ~feed() { end(); }
    feed(const feed&) = delete;
    feed& operator=(const feed&) = delete;

    env& world() const { return *client_->world; }

    /// Waits until the answer differs from the last one that was returned.
    static asio::awaitable<T> next(std::shared_ptr<feed> self) {
        std::optional<T> told = co_await next_until(std::move(self), time_point::max());
        co_return std::move(*told);
    }
    /// The same, for no longer than until `deadline`; but it waits for one answer, if there was
    /// none before.
    /// @returns Nothing if the deadline came first. Throws `errc::timed_out` if etcd has not
    ///   answered by then.
    static asio::awaitable<std::optional<T>> next_until(std::shared_ptr<feed> self,
                                                        time_point deadline) {
        self->begin();
        for (bool asked = false;;) {
            if (self->over_) {
                throw_aborted();
            }
            if (self->failure_) {
                const error failure = *std::exchange(self->failure_, std::nullopt);
                throw failure;
            }
            // Returns the newest answer, but does not wait for ever where there is always a newer
            // one.
            if (self->is_news() && !self->looking_ && (asked || !self->is_due())) {
                self->told_before_ = std::exchange(self->told_, self->now_);
                co_return self->told_;
            }
            if (self->is_late(deadline)) {
                self->require_answer();
                co_return std::nullopt;
            }
            if (self->is_due()) {
                asked = true;
                asio::awaitable<void> looking = look(self);
                self->looking_ = true;
                spawn(self->world(), std::move(looking));
            }
            const time_point until = self->looking_ ? time_point::max() : self->due();
            const time_point soonest = std::min(until, deadline);
            (void)co_await self->changed_.wait(self->now_ ? soonest : until);
        }
    }

    /// What `next` has returned did not reach its caller: it was not told.
    void put_back() {
        told_ = told_before_;
        changed_.notify_all();
    }

    /// Ends the feed; a waiter is told that it was aborted.
    void end() {
        over_ = true;
        if (watching_) {
            watching_ = false;
            client_->hub->remove(id_);
        }
        changed_.notify_all();
    }

private:
    // How long the first answer waits for the watch, which makes a second look unnecessary.
    static constexpr std::chrono::milliseconds first_patience{250};
    static constexpr std::chrono::seconds pause_after_end{1}; // before a watch begins anew
    static constexpr std::chrono::seconds as_with_ttl{20};    // see `logic::recheck_interval`

    // How often it asks whether the store is really older: this takes seconds.
    static constexpr int doubts = 6;

    void begin() {
        if (!begun_ && !over_) {
            begun_ = true;
            recheck_ = after(world().now(), first_patience);
            watch();
        }
    }
    void watch() {
        watching_ = true;
        id_ = client_->hub->add(question_.signs, *this);
    }

    bool is_late(time_point deadline) const {
        return world().now() >= deadline && (now_ || failures_ != 0);
    }
    void require_answer() const {
        if (!now_) {
            throw error(errc::timed_out, question_.title + ": etcd has not answered");
        }
    }
    bool is_news() const { return now_ && (!told_ || !(*told_ == *now_)); }
    /// Something may have happened without an event.
    bool is_blind() const { return created_ != looked_; }
    /// Something has happened, but only a look can tell the answer; the event does not.
    bool is_behind() const { return happened_ != 0; }

    /// An answer that is older than this leaves out something: what was told, or what had happened
    /// before the watch came into force.
    std::int64_t known() const { return std::max({as_of_, happened_, tells_after_}); }

    /// When to look next.
    time_point due() const {
        return is_blind() || is_behind() ? not_before_ : std::max(recheck_, not_before_);
    }
    bool is_due() const { return !looking_ && world().now() >= due(); }

    /// Continues when nobody waits any more, so that no answer is lost.
    static asio::awaitable<void> look(std::shared_ptr<feed> self) {
        if (!self->watching_ && !self->over_) {
            self->watch();
        }
        const std::uint64_t created = self->created_;
        const std::int64_t known = self->known();
        const outcome<range_response> seen = co_await call(
            self->client_, self->question_.read, self->client_->within(self->timeout_));
        const bool older = !seen.ec && seen.response.header.revision < known;
        std::optional<std::int64_t> regressed;
        if (older) {
            std::function<std::int64_t()> told = [of = self.get(), known] {
                return of->over_ ? 0 : known;
            };
            regressed = co_await look_back(
                self->client_->cluster_router, self->question_.read, doubts, std::move(told));
        }
        self->looking_ = false;
        if (regressed) {
            self->forget(known, *regressed);
        } else if (older) {
            self->look_later();
        } else {
            self->take(seen, created);
        }
        self->changed_.notify_all();
    }

    /// Takes what a look has found.
    /// @param created How often the watch had come into force when the look was sent.
    void take(const outcome<range_response>& seen, std::uint64_t created) {
        error_code ec = seen.ec;
        std::string text = seen.text;
        std::optional<T> answer;
        try {
            if (!ec) {
                logic::answers::require_revision(seen.response.header.revision);
                answer.emplace(question_.from(seen.response));
            }
        } catch (const error& e) { // the answer is not etcd's
            ec = e.code();
            text = e.what();
        }
        if (ec) {
            look_later();
            if (!logic::is_transient(ec)) {
                failure_.emplace(ec, question_.title + ": " + text);
            }
            return;
        }
        failures_ = 0;
        recheck_ = after(world().now(), logic::recheck_interval(as_with_ttl, world().random()));
        const std::int64_t revision = seen.response.header.revision;
        if (revision >= as_of_) { // otherwise events have told more meanwhile
            now_ = std::move(answer);
            as_of_ = revision;
            looked_ = created;
            happened_ = happened_ > revision ? happened_ : 0;
        }
    }

    void look_later() {
        not_before_ = after(world().now(), logic::backoff(failures_++, world().random()));
        recheck_ = not_before_;
    }

    /// The store is another one. Everything begins anew with the next call.
    void forget(std::int64_t known, std::int64_t found) {
        now_.reset();
        told_.reset();
        told_before_.reset();
        as_of_ = 0;
        happened_ = 0;
        tells_after_ = 0;
        recheck_ = world().now();
        failure_.emplace(errc::revision_regressed,
                         question_.title + ": etcd is at revision " + std::to_string(found) +
                             ", and revision " + std::to_string(known) + " was told of");
    }

    void on_created(std::int64_t revision) override {
        ++created_;
        tells_after_ = revision;
        changed_.notify_all();
    }
    void on_events(std::vector<event>& events) override {
        for (auto e = events.cbegin(); e != events.cend();) {
            const std::int64_t revision = e->kv.mod_revision;
            const bool is_known = revision <= as_of_;
            std::optional<T> next;
            if (!is_known && !is_blind() && !is_behind()) {
                next = now_;
            }
            for (; e != events.cend() && e->kv.mod_revision == revision; ++e) {
                if (next) {
                    next = question_.follow(*next, *e);
                }
            }
            if (next) {
                now_ = std::move(next);
                as_of_ = revision;
            } else if (!is_known) {
                happened_ = revision;
            }
        }
        changed_.notify_all();
    }
    void on_ended(error_code, std::string, std::int64_t) override {
        watching_ = false;
        recheck_ = std::min(recheck_, after(world().now(), pause_after_end));
        changed_.notify_all();
    }

    const std::shared_ptr<client_impl> client_;
    const std::chrono::nanoseconds timeout_;
    const logic::question<T> question_;
    bool begun_ = false;
    bool over_ = false;
    bool watching_ = false;
    std::int64_t id_ = 0;          // of the watch
    std::uint64_t created_ = 0;    // how often it came into force
    std::uint64_t looked_ = 0;     // how often it had when the last answer was asked for
    std::int64_t tells_after_ = 0; // the last time that it came into force
    std::optional<T> now_;
    std::int64_t as_of_ = 0;    // the revision of `now_`
    std::int64_t happened_ = 0; // a change that `now_` does not know of
    std::optional<T> told_;
    std::optional<T> told_before_;
    bool looking_ = false;
    time_point recheck_{};
    time_point not_before_ = time_point::min();
    unsigned failures_ = 0; // of looks, in a row
    std::optional<error> failure_;
    notifier changed_;
};

} // namespace coetcd::detail
