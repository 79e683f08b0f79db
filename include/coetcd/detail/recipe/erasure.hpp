// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/notifier.hpp>
#include <coetcd/detail/logic/leaving.hpp>
#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/resumable.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/recipe/attempt.hpp>
#include <coetcd/detail/recipe/leftover.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace coetcd::detail {

/// Gives up what an attempt may have in etcd under one name, until nothing of it is there and
/// nothing can come.
class erasure {
public:
    erasure(attempt& of, std::size_t index)
        : of_(of)
        , index_(index) {}

    bool over = false;
    bool was_there = false;          ///< This erasure erased them, and nobody else.
    std::shared_ptr<lane_part> part; ///< The request that is under way.
    error_code trouble{};            ///< Of the last request.
    std::string trouble_text{};

    /// Submits the request.
    /// @param life The life of what is to be erased; 0 if it is not known.
    /// @param bumps Whether to erase by putting another epoch.
    void send(std::int64_t life, bool bumps) {
        life_ = life;
        bumps_ = bumps;
        auto p = std::make_shared<lane_part>(request());
        p->likely = true;
        of_.keep_apart(*p);
        part = of_.submit(std::move(p));
    }

    /// Reads the answer to it, and asks again if that is necessary.
    static asio::awaitable<void> go_on(std::shared_ptr<attempt> self, erasure& e);

protected:
    ~erasure() = default;
    erasure(const erasure&) = default;
    erasure(erasure&&) = default;

    /// What is given up.
    virtual logic::name_keys what() const = 0;
    /// It is not worth much trouble: by all that etcd has said, nothing is there.
    virtual bool is_just_in_case() const { return false; }
    /// Nothing of it is there, and nothing will be.
    virtual void given_up(std::int64_t epoch) = 0;
    virtual void send_again() = 0;

    attempt& of() const { return of_; }
    std::size_t index() const { return index_; }
    std::int64_t life() const { return life_; }
    bool bumps() const { return bumps_; }
    void end(std::int64_t epoch) {
        over = true;
        trouble = {}; // of an earlier request
        given_up(epoch);
    }

private:
    txn request() const {
        const logic::name_keys c = what();
        const lease_id lease = of_.keys().lease;
        if (of_.resumed) {
            return logic::end_resumed(c, lease, life_, bumps_);
        }
        return bumps_ ? logic::end(c, lease, life_) : logic::release(c, life_);
    }
    logic::left_place after(const txn_response& response) const {
        return of_.resumed ? logic::after_ending_resumed(response)
                           : logic::after_leaving(response, what(), life_, bumps_);
    }
    bool may_go_on(logic::remedy next);
    asio::awaitable<void> erase_meanwhile();

    attempt& of_;
    const std::size_t index_; // of the name
    std::int64_t life_ = 0;
    bool bumps_ = false;
    unsigned pauses_ = 0;
    int refusals_ = 0;                          // in a row
    logic::failing_time<time_point> failing_{}; // with answers that say nothing
};

inline asio::awaitable<void> erasure::go_on(std::shared_ptr<attempt> self, erasure& e) {
    session_impl& s = *self->session;
    const auto part = std::exchange(e.part, nullptr);
    error_code ec = part->ec;
    std::string text = part->text;
    if (!ec) {
        s.cleanups.succeeded();
        try {
            const logic::left_place done = e.after(part->response);
            // If an answer was lost, it may have been our own first copy that deleted them.
            e.was_there = e.was_there || done.was_there || part->left == logic::effect::unresolved;
            // Otherwise somebody has deleted it before, and its note is still there.
            const bool with_note = part->response.succeeded || (self->resumed && e.bumps_);
            if (done.over && (with_note || !self->there.has_note())) {
                e.end(done.epoch);
                self->changed.notify_all();
                co_return;
            }
            self->there.not_left(e.index_, done.epoch);
            e.send_again();
            co_return;
        } catch (const error& thrown) {
            ec = thrown.code();
            text = thrown.what();
        }
    }
    logic::remedy next = logic::remedy_for(ec, text);
    if (next == logic::remedy::forget) {
        const call_terms how = s.owner->within(s.request_timeout);
        const std::optional<bool> gone = co_await session_impl::look_for_lease(self->session, how);
        if (gone == true) {
            self->all_over();
            co_return;
        }
        if (s.gives_lease_up()) {
            co_return; // it has ended meanwhile for another reason
        }
        next = logic::remedy::later;
        ec = errc::outcome_unknown;
        text += "; no renewal has told yet whether the lease is gone";
    }
    e.trouble = ec;
    e.trouble_text = std::move(text);
    self->changed.notify_all();
    if (!e.may_go_on(next)) {
        if (e.is_just_in_case()) {
            logic::slot_table::renew(*self->queues[e.index_].slot);
            leftover::erase(self->session, e.what());
            e.end(0);
            self->changed.notify_all();
        } else {
            self->give_lease_up();
        }
        co_return;
    }
    if (next == logic::remedy::erase) {
        co_await e.erase_meanwhile();
    }
    if (next != logic::remedy::again) {
        const std::chrono::milliseconds first(100);
        const auto moment = logic::backoff(e.pauses_++, s.world.random(), first);
        co_await sleep_until(s.world, detail::after(s.world.now(), moment));
    }
    e.send_again();
}

/// Whether there is still hope after one more failure.
inline bool erasure::may_go_on(logic::remedy next) {
    session_impl& s = *of_.session;
    const auto too_long = [&](logic::failing_time<time_point>& failing) {
        const time_point now = s.world.now();
        failing.failed(now);
        return failing.has_lasted(s.ttl(), now, s.well_since());
    };
    const bool may_help = next == logic::remedy::again || next == logic::remedy::erase;
    if (is_just_in_case() && !may_help) {
        return false; // a user that may not put a key may not erase one, either
    }
    refusals_ = next == logic::remedy::surrender ? refusals_ + 1 : 0;
    switch (next) {
    case logic::remedy::again:
        // If nothing gets through, that concerns more than this place.
        return !too_long(s.cleanups);
    case logic::remedy::later:
        return !too_long(failing_);
    case logic::remedy::surrender:
        return refusals_ < logic::refusals_for_good;
    case logic::remedy::erase:
    case logic::remedy::forget:
        break;
    }
    return true;
}

/// There is no space for an epoch. So nothing else can be put either, and the others may go on.
inline asio::awaitable<void> erasure::erase_meanwhile() {
    session_impl& s = *of_.session;
    auto only = std::make_shared<lane_part>(logic::erase_only(what(), life_));
    only->likely = true;
    of_.keep_apart(*only);
    std::function<std::optional<time_point>()> while_wanted = [&s] {
        return s.gives_lease_up() ? std::nullopt : std::optional(time_point::max());
    };
    (void)co_await of_.ask(std::move(only), std::move(while_wanted));
}

} // namespace coetcd::detail
