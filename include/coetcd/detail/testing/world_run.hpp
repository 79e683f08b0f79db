// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/config.hpp>
#include <coetcd/detail/testing/world.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::testing {

COETCD_DECL world::world(std::uint64_t seed, options o)
    : store([this] { return now_; }, o.members, o.speaks)
    , luck(chance::derive(seed, 1))
    , options_(o)
    , ties_(chance::derive(seed, 2))
    , seed_(seed)
    , member_paused_until_(static_cast<std::size_t>(o.members))
    , member_lags_until_(static_cast<std::size_t>(o.members)) {
    events_.reserve(256);
    after(etcd::expiry_interval, [this] { look_at_leases(); });
    after(options_.progress_interval, [this] { tell_progress(); });
}

COETCD_DECL world::~world() {
    shut_down();
}

COETCD_DECL void world::shut_down() {
    for (const auto& p : processes_) {
        p->shut_down();
    }
    events_.clear();
}

COETCD_DECL std::shared_ptr<process> world::add_process(asio::io_context* where) {
    const std::size_t number = processes_.size();
    processes_.push_back(
        std::make_shared<process>(*this, number, chance::derive(seed_, 100 + number), where));
    return processes_.back();
}

COETCD_DECL void world::at(nanoseconds when, std::function<void()> fire) {
    const std::uint64_t tie = options_.in_order ? 0 : ties_.next();
    events_.push_back({std::max(when, now_), tie, ++last_event_, std::move(fire)});
    std::push_heap(events_.begin(), events_.end(), later());
}

COETCD_DECL void world::run_ready() {
    for (bool any = true; any;) {
        any = false;
        for (const auto& p : processes_) {
            any = p->run_ready() || any;
        }
    }
}

COETCD_DECL bool world::step() {
    run_ready();
    if (events_.empty() || !failure_.empty()) {
        return false;
    }
    std::pop_heap(events_.begin(), events_.end(), later());
    event next = std::move(events_.back());
    events_.pop_back();
    if (next.when > now_) {
        now_ = next.when;
        handlers_now_ = 0;
    }
    next.fire();
    return failure_.empty();
}

COETCD_DECL void world::pass(nanoseconds time) {
    const nanoseconds limit = now_ + time;
    run_ready();
    while (!events_.empty() && events_.front().when <= limit && step()) {
        run_ready();
    }
    now_ = std::max(now_, limit);
}

COETCD_DECL nanoseconds world::all_awake() const {
    nanoseconds result = now_;
    for (const auto& p : processes_) {
        result = std::max(result, p->paused_until_);
    }
    return result;
}

COETCD_DECL nanoseconds world::awake(int member) const {
    return std::max(now_, member_paused_until_[static_cast<std::size_t>(member)]);
}

COETCD_DECL void world::new_leader() {
    // Only a member that neither stands still, nor is cut off, nor lags.
    std::vector<int> fit;
    for (int m = 0; m != store.members(); ++m) {
        if (awake(m) <= now_ && !store.is_cut(m) && !store.lags(m)) {
            fit.push_back(m);
        }
    }
    if (!fit.empty()) {
        store.elect(fit[luck.below(fit.size())]);
        note("elected", static_cast<std::uint64_t>(store.leader()));
    }
}

COETCD_DECL void world::let_lag(int member, nanoseconds until) {
    store.lag(member, true);
    member_lags_until_[static_cast<std::size_t>(member)] = until;
    at(until, [this, member] { store.lag(member, false); });
}

COETCD_DECL void world::look_at_leases() {
    store.expire();
    after(luck.within(std::chrono::milliseconds(1), etcd::expiry_interval),
          [this] { look_at_leases(); });
}

COETCD_DECL void world::look_at_watches() {
    if (store.has_unsynced() && !std::exchange(looking_at_watches_, true)) {
        after(luck.within(nanoseconds(0), options_.sync_interval), [this] {
            looking_at_watches_ = false;
            store.sync();
            look_at_watches();
        });
    }
}

COETCD_DECL void world::tell_progress() {
    store.tell_progress();
    after(options_.progress_interval, [this] { tell_progress(); });
}

COETCD_DECL void world::note(std::string_view what, std::uint64_t a, std::string_view text) {
    const auto mix = [this](std::uint64_t x) {
        trace_ = (trace_ ^ x) * 0x100000001b3;
        trace_ ^= trace_ >> 29;
    };
    mix(static_cast<std::uint64_t>(now_.count()));
    mix(a + 0x10000 * what.size() + static_cast<unsigned char>(what[0]));
    for (std::size_t i = 0; i < text.size();) {
        std::uint64_t chunk = 0;
        const std::size_t n = std::min(sizeof chunk, text.size() - i);
        std::memcpy(&chunk, text.data() + i, n);
        mix(chunk);
        i += n;
    }
    if (most_notes_ != 0) {
        const std::string micros = std::to_string(now_.count() / 1000);
        notes_.push_back(micros + " us  " + std::string(what) + " " + std::to_string(a) + " " +
                         std::string(text));
        if (notes_.size() > most_notes_) {
            notes_.pop_front();
        }
    }
}

COETCD_DECL void world::fail(std::string what) {
    if (failure_.empty()) {
        failure_ = std::move(what);
        note("VIOLATION", 0, failure_);
    }
}

} // namespace coetcd::detail::testing
