// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/spawn.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/slots.hpp>
#include <coetcd/detail/recipe/attempt.hpp>
#include <coetcd/detail/recipe/erasure.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// How an attempt is given up in etcd; continues in the background when nobody wants it any more.
/// If it cannot make sure that nothing stays, the session gives its lease up: a stray key would
/// block everybody else for as long as the session lives.
class departure {
public:
    explicit departure(attempt& of)
        : of_(of) {}
    departure(const departure&) = delete;
    departure& operator=(const departure&) = delete;

    bool has_begun() const { return !of_names_.empty(); }
    /// Closes the slots. Nothing is sent yet.
    /// @throws std::bad_alloc The departure has then not begun.
    void begin() {
        of_names_.reserve(of_.queues.size());
        for (std::size_t i = 0; i != of_.queues.size(); ++i) {
            of_names_.emplace_back(of_, i, *this);
            logic::slot_table::close(*of_.queues[i].slot);
        }
    }
    /// Submits what is not submitted yet, at once, so that the next attempt of the session can
    /// share the request.
    void send() {
        for (of_name& e : of_names_) {
            if (!e.over && !e.part) {
                e.send_what_is_left();
            }
        }
    }

    /// Does the rest, until it is over.
    static asio::awaitable<void> finish(std::shared_ptr<attempt> self, departure& d);

    /// No answer is wanted any more.
    void withdraw() {
        for (const of_name& e : of_names_) {
            if (e.part) {
                of_.session->owner->transactions->withdraw(e.part);
            }
        }
    }
    /// Nothing is left to do, since the session has ended. This frees no slot.
    void all_over() {
        for (of_name& e : of_names_) {
            e.over = true;
        }
    }

    bool is_over() const {
        return std::all_of(
            of_names_.begin(), of_names_.end(), [](const of_name& e) { return e.over; });
    }
    /// Waits until etcd knows.
    /// @param was_held If false, there is nothing to wait for.
    /// @returns Whether all keys that held it were there until then.
    /// @throws error if that has failed, perhaps not for good.
    static asio::awaitable<bool> until_over(std::shared_ptr<attempt> self,
                                            const departure& d,
                                            std::shared_ptr<const bool> was_held);

    /// Ends the session if it ends before the departure is over.
    struct guard {
        const departure& of;
        ~guard() {
            session_impl& s = *of.of_.session;
            if (!of.is_over() && !s.gives_lease_up()) {
                s.fail(session_end::cleanup_failed);
            }
        }
    };

private:
    class of_name final : public erasure {
    public:
        of_name(attempt& of, std::size_t index, departure& all)
            : erasure(of, index)
            , all_(all) {}

        void send_what_is_left() {
            const logic::presence& there = of().there;
            if (there.is_absent() && !there.was_refused()) {
                end(what().epoch);
                return;
            }
            just_in_case_ = there.is_absent();
            send(there.create_revision(), there.needs_epoch());
        }

    private:
        logic::name_keys what() const override { return of().keys().by_name[index()]; }
        bool is_just_in_case() const override { return just_in_case_; }
        void given_up(std::int64_t epoch) override {
            const attempt::queue& q = of().queues[index()];
            logic::slot_table::free(*q.slot, epoch);
            of().session->wanted.slot_freed(q.name);
        }
        void send_again() override { all_.send(); }

        departure& all_;
        bool just_in_case_ = false;
    };

    std::string title() const { return of_.title() + ", " + of_.how.giving_back + ": "; }
    void throw_trouble() const {
        for (const of_name& e : of_names_) {
            if (e.trouble) {
                throw error(e.trouble, title() + e.trouble_text + of_.if_denied(e.trouble));
            }
        }
    }

    attempt& of_;
    std::vector<of_name> of_names_; // once it has begun
};

inline asio::awaitable<void> departure::finish(std::shared_ptr<attempt> self, departure& d) {
    const guard until_the_end{d};
    session_impl& s = *self->session;
    if (!s.gives_lease_up()) {
        d.send(); // what was not sent yet
    }
    while (!d.is_over()) {
        if (s.gives_lease_up()) {
            self->leave_to_lease();
            break;
        }
        bool news = false;
        for (of_name& e : d.of_names_) {
            if (e.part && e.part->over) {
                news = true;
                co_await erasure::go_on(self, e);
            }
        }
        if (!news && !d.is_over()) {
            (void)co_await self->changed.wait();
        }
    }
    self->changed.notify_all();
}

inline asio::awaitable<bool> departure::until_over(std::shared_ptr<attempt> self,
                                                   const departure& d,
                                                   std::shared_ptr<const bool> was_held) {
    if (!*was_held) {
        co_return false;
    }
    session_impl& s = *self->session;
    const time_point deadline = after(s.world.now(), s.request_timeout + grace_for_requests);
    while (self->is_deciding || !d.is_over()) {
        d.throw_trouble();
        if (s.gives_lease_up()) {
            co_return false;
        }
        const bool in_time = co_await self->changed.wait(deadline);
        if (!in_time) {
            throw error(errc::outcome_unknown,
                        d.title() + "no answer in time; it goes on in the background");
        }
    }
    d.throw_trouble();
    co_return !self->there.is_deleted() &&
        std::all_of(
            d.of_names_.begin(), d.of_names_.end(), [](const of_name& e) { return e.was_there; });
}

} // namespace coetcd::detail
