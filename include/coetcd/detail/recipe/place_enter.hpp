// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a place is entered: what it asks for when its turn has come, and what it learns.

#include <coetcd/detail/logic/places.hpp>
#include <coetcd/detail/logic/rule.hpp>
#include <coetcd/detail/logic/slots.hpp>
#include <coetcd/detail/recipe/place.hpp>
#include <coetcd/detail/service/lane.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace coetcd::detail {

/// What keeps it from asking is told to the waiter; nothing was sent then.
inline void place::on_turn() noexcept {
    try {
        ask_in_turn();
    } catch (...) {
        failure_ = std::current_exception();
        for (logic::slot_table::slot* taken : slots_) {
            logic::slot_table::free(*taken, taken->epoch);
        }
        slots_.clear();
        there_.withdraw();
        begins_ = false;
        phase_ = phase::waiting;
    }
    changed.notify_all();
}

inline void place::ask_in_turn() {
    const bool lives = session->reason() == session_end::none;
    if (phase_ == phase::waiting && begins_ && lives && slots_.empty() && take_slots()) {
        phase_ = phase::entered;
        bool free = true;
        for (std::size_t i = 0; i != names.size(); ++i) {
            turn_->at(i).slots.add_closing(earlier_);
            // What we have is there when etcd looks, and what we are giving up, even if that
            // goes in the same request.
            const local_queues::line& l = turn_->at(i);
            free = free && (recipe_.admits ? !l.was_full : l.was_free && !l.slots.any_other());
        }
        const bool takes = beginning_ == beginning::take_or_leave || free;
        send_entry(takes ? logic::asking::take : logic::asking::enter);
    }
}

inline void place::send_entry(logic::asking what) {
    asked_ = what;
    const bool why = beginning_ == beginning::take_or_leave || what != logic::asking::take;
    const std::string& value = value_ ? *value_ : session->label();
    auto part =
        std::make_shared<lane_part>(logic::to_ask(rule(), what, keys(), create_revision(), value));
    part->puts = names;
    part->likely = beginning_ != beginning::take_or_leave;
    part->asks_why = why;
    entry_ = submit(std::move(part));
}

inline bool place::take_slots() {
    slots_.reserve(names.size());
    for (std::size_t i = 0; i != names.size(); ++i) {
        logic::slot_table::slot* s = turn_->at(i).slots.take();
        if (!s) {
            for (auto* taken : slots_) {
                logic::slot_table::free(*taken, taken->epoch);
            }
            slots_.clear();
            return false;
        }
        slots_.push_back(s);
    }
    logic::attempt_keys wanted;
    wanted.lease = session->lease();
    for (std::size_t i = 0; i != names.size(); ++i) {
        wanted.claims.push_back(recipes_[i]->claim(
            names[i], session->lease(), session->nonce(), slots_[i]->number, slots_[i]->epoch));
    }
    rule().prepare(wanted);
    there_.begin(std::move(wanted));
    return true;
}

inline void place::learn(const logic::standing& now, bool was_known) {
    using at = logic::standing::where;
    if (turn_) {
        turn_->was_told();
    }
    if (now.at == at::owner || now.at == at::behind || now.at == at::taken ||
        now.at == at::no_room || now.at == at::too_many) {
        for (std::size_t i = 0; turn_ && i != names.size(); ++i) {
            turn_->at(i).was_free = now.at == at::owner;
            turn_->at(i).was_full = now.at != at::owner || now.crowded;
        }
    }
    if (recipe_.admits && turn_ && !was_known && is_known() && now.at != at::owner) {
        turn_->tell_behind();
    }
    if (now.at == at::ended) {
        for (std::size_t i = 0; i != names.size(); ++i) {
            slots_[i]->epoch = now.epochs[i];
        }
    }
    if (is_known() && turn_) {
        turn_->pass_on();
    }
}

} // namespace coetcd::detail
