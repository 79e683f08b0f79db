// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/loss.hpp>
#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/retention.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/recipe/retained.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/until_over.hpp>
#include <coetcd/detail/service/watch_hub.hpp>
#include <coetcd/detail/service/watch_sink.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Keeps a lock in its session after it was given back. It looks whether anybody else wants the
/// lock, watches for that, and gives the lock back to etcd when somebody does, or when nobody has
/// used it for a while. Meanwhile the session's next holder has it without a request.
class retaining final : public retained_lock,
                        public std::enable_shared_from_this<retaining>,
                        private watch_sink,
                        private loss_listener {
    struct passkey {};

public:
    /// @param last The place that is given back. Its keys stay.
    /// @returns False if there is no memory for it.
    static bool keep(const std::shared_ptr<place>& last, std::chrono::nanoseconds most) noexcept {
        try {
            session_impl& s = *last->session;
            if (!s.retained) {
                s.retained = std::make_shared<retained_locks>();
            }
            auto until_the_end = std::make_unique<ending>(
                last->session, std::make_shared<retaining>(passkey(), last, most));
            s.retained->add(last->name(), *until_the_end->self, s.most_retained);
            last->is_deciding = true;
            spawn(s.world, run(std::move(until_the_end)));
        } catch (const std::bad_alloc&) {
            last->is_deciding = false;
            return false;
        }
        return true;
    }

    retaining(passkey, std::shared_ptr<place> last, std::chrono::nanoseconds most)
        : session_(*last->session)
        , hub_(session_.owner->hub)
        , name_(last->name())
        , keys_(last->keys().by_name.front())
        , token_(last->create_revision())
        , state_(most, session_.world.now())
        , idle_(std::move(last))
        , changed_(session_.world)
        , loss_of_session_(session_.losses, static_cast<loss_listener&>(*this)) {}
    ~retaining() { stop_watching(); }
    retaining(const retaining&) = delete;
    retaining& operator=(const retaining&) = delete;

    bool is_decided() const override { return state_.is_decided(); }
    bool give(attempt& to) override {
        if (!state_.is_idle() || state_.must_go(now()) || &to.how != &idle_->how) {
            recall();
            return false;
        }
        to.there = idle_->there;
        to.queues.front().slot = std::exchange(idle_->queues.front().slot, nullptr);
        to.kept = shared_from_this();
        idle_ = nullptr;
        state_.taken();
        session_.wanted.habit(name_).was_hit();
        session_.retained->is_used(name_, *this);
        return true;
    }
    bool take_back(std::shared_ptr<attempt> from, std::chrono::nanoseconds most) noexcept override {
        if (!state_.may_stay(now())) {
            return false;
        }
        idle_ = std::static_pointer_cast<place>(std::move(from));
        state_.given_back(most, now());
        session_.retained->is_idle(name_, *this, session_.most_retained);
        if (state_.due() < waits_until_) {
            changed_.notify_all();
        }
        return true;
    }
    void recall() noexcept override {
        state_.recall();
        if (state_.is_decided()) {
            go();
        }
        changed_.notify_all();
    }

private:
    /// Lasts from the start on, whether the coroutine ever begins or not.
    struct ending {
        ending(std::shared_ptr<session_impl> s, std::shared_ptr<retaining> r)
            : session(std::move(s))
            , self(std::move(r)) {}
        ~ending() {
            session->retained->remove(self->name_, *self);
            if (std::exchange(self->idle_, nullptr) && has_begun) { // for lack of memory
                session->fail(session_end::cleanup_failed);
            }
            self->state_.recall(); // at the end of a hold
            self->stop_watching();
        }
        ending(const ending&) = delete;
        ending& operator=(const ending&) = delete;
        const std::shared_ptr<session_impl> session;
        const std::shared_ptr<retaining> self;
        bool has_begun = false;
    };

    static asio::awaitable<void> run(std::unique_ptr<ending> until_the_end) {
        until_the_end->has_begun = true;
        const std::shared_ptr<retaining> self = until_the_end->self;
        co_await decide(self);
        time_point looks = self->next_look();
        while (!self->state_.must_go(self->now())) {
            self->waits_until_ = std::min(looks, self->state_.due());
            const bool has_news = co_await self->changed_.wait(self->waits_until_);
            if (!has_news && self->now() >= looks) {
                const std::shared_ptr<lane_part> told =
                    co_await look(self, lane_part::rank::patient);
                if (!told) {
                    self->state_.recall();
                }
                looks = self->next_look();
            }
        }
        self->go();
    }

    /// The first look.
    static asio::awaitable<void> decide(std::shared_ptr<retaining> self) {
        const std::shared_ptr<place> last = self->idle_;
        const std::shared_ptr<lane_part> told = co_await look(self, lane_part::rank::pressing);
        const bool is_watched = told && self->watch(told->response.header.revision);
        self->state_.looked(is_watched, self->now());
        if (!self->state_.may_stay(self->now())) {
            self->go();
        }
        last->is_deciding = false;
        last->changed.notify_all();
        self->session_.wanted.slot_freed(self->name_);
    }

    /// Looks whether the lock may stay.
    /// @returns Null if it may not, or if that is not known.
    static asio::awaitable<std::shared_ptr<lane_part>> look(std::shared_ptr<retaining> self,
                                                            lane_part::rank order) {
        auto part = std::make_shared<lane_part>(logic::look_for_others(self->keys_, self->token_));
        part->order = order;
        part->puts.push_back(self->name_); // what shares its request is not told by the watch
        part->patience = self->session_.request_timeout;
        const time_point deadline = after(self->now(), self->session_.request_timeout);
        const bool is_over =
            co_await until_over(self->session_.owner->transactions, part, deadline);
        if (!is_over || part->ec) {
            part = nullptr;
        } else if (!part->response.succeeded) {
            const logic::held_life own{self->keys_.keys.front(), self->token_};
            self->session_.tell_gone(logic::missing(part->response, {own}));
            part = nullptr;
        }
        co_return part;
    }
    /// Even if an event is lost, it is known by then. As with a wait.
    time_point next_look() const {
        const std::chrono::nanoseconds half = session_.ttl() / 2;
        return after(now(), std::min(half, std::chrono::nanoseconds(std::chrono::seconds(10))));
    }

    /// @param seen The look has told all up to this revision.
    /// @returns False if there is no memory for it.
    bool watch(std::int64_t seen) noexcept {
        try {
            wire::watch_create_request request(logic::keys_of_others(name_));
            request.start_revision = seen + 1;
            id_ = hub_->add(std::move(request), *this, seen);
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }
    void stop_watching() noexcept {
        if (const std::int64_t id = std::exchange(id_, 0); id != 0) {
            hub_->remove(id);
        }
    }

    /// If nobody holds it, gives it back to etcd.
    void go() noexcept {
        stop_watching();
        session_.retained->is_used(name_, *this);
        if (state_.was_missed()) {
            session_.wanted.habit(name_).was_missed();
        }
        if (const std::shared_ptr<place> last = std::exchange(idle_, nullptr)) {
            last->end_retention();
        }
    }

    void on_created(std::int64_t) override { state_.hears(); }
    void on_broken() override {
        state_.is_deaf(now());
        changed_.notify_all();
    }
    void on_events(std::vector<event>& events) override {
        const bool ends = std::any_of(events.begin(), events.end(), [this](const event& e) {
            return logic::ends_retention(e, name_, keys_.keys.front());
        });
        if (ends) {
            const auto self = shared_from_this();
            recall();
        }
    }
    void on_ended(error_code, std::string, std::int64_t) override {
        const auto self = shared_from_this();
        id_ = 0;
        recall();
    }
    void on_loss() override {
        const auto self = shared_from_this();
        recall();
    }

    time_point now() const { return session_.world.now(); }

    session_impl& session_; // what holds this holds the session, too
    const std::shared_ptr<watch_hub> hub_;
    const std::string name_;
    const logic::name_keys keys_;
    const std::int64_t token_;
    logic::retention<time_point> state_;
    std::shared_ptr<place> idle_; // its keys are those of the lock, while nobody holds it
    std::int64_t id_ = 0;         // of the watch; 0: none
    time_point waits_until_ = time_point::max();
    notifier changed_;
    const loss_source::subscription loss_of_session_;
};

inline bool retain(const std::shared_ptr<place>& last, std::chrono::nanoseconds most) noexcept {
    return retaining::keep(last, most);
}

} // namespace coetcd::detail
