// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a session finds out that what it holds was deleted.

#include <coetcd/detail/logic/held.hpp>
#include <coetcd/detail/logic/lease_clock.hpp>
#include <coetcd/detail/logic/retry.hpp>
#include <coetcd/detail/service/lane.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/detail/service/until_over.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

/// Tells those that hold one of these lives now: another one may have taken the lock at home, by
/// the same life, since etcd was asked.
inline void session_impl::tell_gone(const std::vector<logic::held_life>& gone) {
    std::map<std::string, std::uint64_t> whose; // by key
    if (!gone.empty()) {
        for (const auto& [number, k] : held_) {
            for (logic::held_life& life : k->held_by()) {
                whose.emplace(std::move(life.key), number);
            }
        }
    }
    for (const logic::held_life& one : gone) {
        const auto holder = whose.find(one.key);
        const auto found = holder == whose.end() ? held_.end() : held_.find(holder->second);
        if (found != held_.end()) {
            const std::vector<logic::held_life> lives = found->second->held_by();
            if (std::find(lives.begin(), lives.end(), one) != lives.end()) {
                found->second->on_key_gone();
            }
        }
    }
}

/// Finds what is lost because its key was deleted by hand, although the lease lives. It runs beside
/// the renewals, not in their way, unless etcd refuses the look. Then no renewal counts before one
/// succeeds: a user that has lost its rights would never learn that its keys are gone, but its
/// leases are renewed all the same by an etcd before 3.4.42 and 3.5.28.
inline asio::awaitable<void> session_impl::look_after_held(std::shared_ptr<session_impl> self) {
    struct looking {
        session_impl& of;
        ~looking() { of.looks_ = false; }
    };
    self->looks_ = true;
    const looking until_the_end{*self};
    std::vector<logic::held_life> all;
    for (const auto& [number, k] : self->held_) {
        std::vector<logic::held_life> lives = k->held_by();
        std::move(lives.begin(), lives.end(), std::back_inserter(all));
    }
    bool is_refused = false;
    for (const std::vector<logic::held_life>& some : logic::rounds(std::move(all))) {
        const auto part = std::make_shared<lane_part>(logic::look_at(some));
        part->order = lane_part::rank::patient;
        part->likely = true;
        part->not_after = after(self->world.now(), logic::renewal_timeout(self->ttl_));
        co_await until_over(self->owner->transactions, part);
        if (logic::is_forbidden(part->ec)) {
            self->refused_look_.ec = part->ec;
            self->refused_look_.text = part->text;
            is_refused = true;
            continue;
        }
        if (part->ec) {
            co_return; // the next round looks again
        }
        self->tell_gone(logic::missing(part->response, some));
    }
    if (!is_refused) {
        self->refused_look_.ec.clear();
    }
}

} // namespace coetcd::detail
