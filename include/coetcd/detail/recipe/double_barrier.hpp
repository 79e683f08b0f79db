// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/async/turns.hpp>
#include <coetcd/detail/env.hpp>
#include <coetcd/detail/logic/arrival.hpp>
#include <coetcd/detail/recipe/gathering.hpp>
#include <coetcd/detail/recipe/once.hpp>
#include <coetcd/detail/recipe/until_told.hpp>
#include <coetcd/detail/service/call.hpp>
#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace coetcd::detail {

/// A member of the groups that gather at a double barrier. Lives and ends at home.
class double_barrier_impl {
public:
    double_barrier_impl(std::shared_ptr<session_impl> s, std::string n, std::int64_t parties)
        : gate(std::make_shared<gathering>(
              "double_barrier", std::move(s), std::move(n), parties, logic::gathers::to_stay))
        , about(gate->about)
        , turns_(about.session->world) {}

    const std::shared_ptr<gathering> gate;
    const named_recipe& about;

    static asio::awaitable<void> enter(std::shared_ptr<double_barrier_impl> self) {
        (void)co_await enter_until(std::move(self), time_point::max());
    }
    static asio::awaitable<bool> enter_until(std::shared_ptr<double_barrier_impl> self,
                                             time_point deadline) {
        const auto until_the_end = self->turns_.try_take();
        self->require(until_the_end && !self->inside_, "enter", "it is inside, or about to be");
        auto gathers = gathering::gather_until(self->gate, deadline);
        const std::shared_ptr<barrier_arrival> mine = co_await std::move(gathers);
        self->inside_ = mine;
        self->group_ = mine ? mine->group : 0;
        co_return mine != nullptr;
    }

    static asio::awaitable<void> leave(std::shared_ptr<double_barrier_impl> self) {
        (void)co_await leave_until(std::move(self), time_point::max());
    }
    static asio::awaitable<bool> leave_until(std::shared_ptr<double_barrier_impl> self,
                                             time_point deadline) {
        const auto until_the_end = self->turns_.try_take();
        self->require(until_the_end && self->group_ != 0, "leave", "it is not inside");
        const std::shared_ptr<client_impl> by = self->about.session->owner;
        if (const auto mine = std::exchange(self->inside_, nullptr)) { // given up if this fails
            self->about.session->require_alive(self->about.title);
            const txn leaves = logic::leave(mine->keys, self->group_);
            const outcome<txn_response> left =
                co_await call(by, leaves, self->about.within().as(impact::idempotent));
            left.check();
            mine->over = true;
            if (logic::was_lost(left.response)) {
                throw error(errc::session_lost, self->about.title + ": its lease has ended");
            }
            self->left_at_ = left.response.header.revision;
            const range_response& others = logic::answers::range_at(left.response, 1);
            if (logic::those_inside(others, self->group_).empty()) {
                self->group_ = 0;
                co_return true;
            }
        }
        std::function<bool(const logic::member_keys&)> all_left =
            [](const logic::member_keys& now) { return now.empty(); };
        auto question = logic::inside_now(self->about.title, self->about.name, self->group_);
        auto waiting = until_told(by,
                                  self->about.session->request_timeout,
                                  std::move(question),
                                  std::move(all_left),
                                  deadline,
                                  self->left_at_);
        const bool ended = co_await std::move(waiting);
        if (ended) {
            self->group_ = 0;
        }
        co_return ended;
    }

private:
    void require(bool fits, const char* call, const char* why) const {
        if (!fits) {
            throw std::logic_error(about.title + ", " + call + ": " + why);
        }
    }

    std::shared_ptr<barrier_arrival> inside_; // given up with this object
    std::int64_t group_ = 0;                  // that of ours, until all of it have left
    std::int64_t left_at_ = 0;                // the revision at which we did
    turns turns_;                             // of calls: there are no two at once
};

} // namespace coetcd::detail
