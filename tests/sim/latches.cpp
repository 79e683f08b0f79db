// SPDX-License-Identifier: BSL-1.0
#include "sim/latches.hpp"

#include <algorithm>

namespace sim {

int latch_rules::current() const {
    int which = 0;
    for (auto found = latches_.find(which); found != latches_.end() && found->second.is_open();
         found = latches_.find(which)) {
        ++which;
    }
    return which;
}

std::list<latch_rules::calling>::iterator latch_rules::begin_call(int which, bool waits) {
    const std::int64_t now = latches_[which].counts;
    return calls_.insert(calls_.end(), {which, world_.now(), now, now, waits});
}

void latch_rules::counted(int which, lease_id by) {
    ++latches_[which].by[by].done;
    check(which, by);
}

void latch_rules::not_counted(int which, lease_id by) {
    ++latches_[which].by[by].refused;
    check(which, by);
}

void latch_rules::check(int which, lease_id by) const {
    const tally& t = latches_.at(which).by.at(by);
    if (t.keys > t.begun - t.refused && !world_.had_other_clusters()) {
        world_.fail("a latch was counted down without a call, or by one call twice");
    }
    if (t.keys < t.done) {
        world_.fail("a latch was not counted down, and a caller is told that it was");
    }
}

void latch_rules::look_at_remaining(const calling& c, std::int64_t n, bool reads) const {
    const latch_state& l = latches_.at(c.of);
    const auto left = [&](std::int64_t counts) {
        return std::max<std::int64_t>(0, l.total - counts);
    };
    if ((n < left(c.most) || n > left(c.least)) && !(reads && is_excused())) {
        world_.fail("a latch is said to be " + std::to_string(n) + ", and was " +
                    std::to_string(left(c.least)) + " to " + std::to_string(left(c.most)));
    }
}

void latch_rules::look_at_open(const calling& c, bool open) const {
    const latch_state& l = latches_.at(c.of);
    if (open && !l.is_open()) {
        world_.fail("a wait for a latch is over, and it is not open");
    }
    if (!open && l.is_open() && l.open_since < c.began && !is_excused()) {
        world_.fail("a latch was open, and a waiter is told that it was not");
    }
}

void latch_rules::changed(const std::vector<etcd::change>& changes) {
    constexpr std::string_view total = ".total";
    for (const etcd::change& c : changes) {
        if (!c.key.starts_with(latch_prefix)) {
            continue;
        }
        const std::string rest = c.key.substr(latch_prefix.size());
        const int which = std::stoi(rest);
        latch_state& l = latches_[which];
        if (c.deleted || c.now.version != 1 || c.now.lease != 0) {
            world_.fail("a key of a latch changes, or has a lease: " + c.key);
        }
        if (rest.ends_with(total)) {
            l.total = std::stoll(c.now.value);
        } else {
            const std::string id = rest.substr(rest.find('/') + 1);
            const auto by = static_cast<lease_id>(std::stoull(id, nullptr, 16));
            ++l.counts;
            ++l.by[by].keys;
            check(which, by);
        }
        if (l.is_open() && l.open_since == nanoseconds(0)) {
            ++opened;
            l.open_since = world_.now();
        }
        for (calling& each : calls_) {
            each.most = each.of == which ? l.counts : each.most;
        }
    }
}

bool latch_rules::owes_opening() const {
    return std::any_of(calls_.begin(), calls_.end(), [&](const calling& c) {
        return c.waits && latches_.at(c.of).is_open();
    });
}

void latch_rules::look_for_stuck(nanoseconds healed_at, nanoseconds bound) const {
    for (const calling& c : calls_) {
        const latch_state& l = latches_.at(c.of);
        const nanoseconds since = std::max({l.open_since, c.began, healed_at});
        if (c.waits && l.is_open() && world_.now() > since + bound) {
            world_.fail("a latch is open, and somebody waits for it");
        }
    }
}

} // namespace sim
