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
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail {

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
    std::map<std::string, std::uint64_t> whose; // by key
    for (const auto& [number, k] : self->held_) {
        for (logic::held_life& life : k->held_by()) {
            whose.emplace(life.key, number);
            all.push_back(std::move(life));
        }
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
        for (const logic::held_life& gone : logic::missing(part->response, some)) {
            // It may have been released while the answer was on its way.
            const auto found = self->held_.find(whose[gone.key]);
            if (found == self->held_.end()) {
                continue;
            }
            const std::vector<logic::held_life> lives = found->second->held_by();
            if (std::find(lives.begin(), lives.end(), gone) != lives.end()) {
                found->second->on_key_gone();
            }
        }
    }
    if (!is_refused) {
        self->refused_look_.ec.clear();
    }
}

} // namespace coetcd::detail
