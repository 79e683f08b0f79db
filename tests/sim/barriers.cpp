// SPDX-License-Identifier: BSL-1.0
#include "sim/barriers.hpp"

#include <algorithm>

namespace sim {

// What clients do.

std::list<barrier_rules::calling>::iterator barrier_rules::begin_call(int which, purpose p) {
    state& b = barriers_[which];
    calling c;
    c.of = which;
    c.began = world_.now();
    c.waits = p == purpose::waits;
    c.releases = p == purpose::releases;
    c.was_open = !b.is_closed;
    c.was_closed = b.is_closed;
    b.may_open = b.may_open || c.releases;
    return calls_.insert(calls_.end(), std::move(c));
}

std::int64_t barrier_rules::begin_closing(int which, lease_id by, closing how) {
    tally& t = tally_of(which, by, how);
    ++t.begun;
    return t.keys;
}

void barrier_rules::check(const tally& t) const {
    if (t.keys > t.begun - t.refused && !excused_ && !world_.had_other_clusters()) {
        world_.fail("a barrier was closed without a call, or by one call twice");
    }
}

void barrier_rules::look_at_wait(const calling& c, bool open) const {
    if (is_excused()) {
        return;
    }
    if (open && !c.was_open) {
        world_.fail("a wait at a barrier is over, and it was closed all the time");
    }
    if (!open && !c.was_closed) {
        world_.fail("a barrier was open, and a waiter is told that it was not");
    }
}

void barrier_rules::look_at_release(const calling& c, bool opened) const {
    if (is_excused()) {
        return;
    }
    if (opened && c.opened.empty()) {
        world_.fail("a barrier is said to be opened, and nobody has opened it");
    }
    if (!opened && !c.was_open) {
        world_.fail("a barrier is said to have been open, and it was closed");
    }
}

void barrier_rules::look_at_closed(const calling& c,
                                   lease_id by,
                                   closing how,
                                   std::int64_t keys_before) {
    tally& t = tally_of(c.of, by, how);
    ++t.done;
    if ((t.keys < t.done || t.keys == keys_before) && !world_.had_other_clusters()) {
        world_.fail("a barrier is said to be closed by a call, and that has not closed it");
    }
    // No copy of an earlier call of the session closes it any more.
    for (tally& each : barriers_[c.of].by[by]) {
        each.begun = each.keys + each.refused;
    }
}

void barrier_rules::look_at_found_closed(const calling& c, lease_id by, closing how) {
    if (!c.was_closed && !world_.had_other_clusters()) {
        world_.fail("a barrier is said to have been closed, and it was open");
    }
    look_at_refused(c.of, by, how);
}

void barrier_rules::look_at_refused(int which, lease_id by, closing how) {
    tally& t = tally_of(which, by, how);
    ++t.refused;
    check(t);
}

// What etcd does.

void barrier_rules::changed(const std::vector<etcd::change>& changes,
                            etcd::cause why,
                            const std::function<bool(lease_id)>& has_returned) {
    const etcd::change* marker = nullptr;
    for (const etcd::change& c : changes) {
        const bool is_marker = c.key.starts_with(barrier_prefix) && c.key.find('.') != c.key.npos;
        if (is_marker && !c.deleted) {
            marker = &c;
            excused_ = excused_ || has_returned(c.now.lease);
        }
    }
    for (const etcd::change& c : changes) {
        if (!c.key.starts_with(barrier_prefix) || c.key.find('.') != c.key.npos) {
            continue;
        }
        const int which = std::stoi(c.key.substr(barrier_prefix.size()));
        state& b = barriers_[which];
        if (c.deleted) {
            judge_opened(b, c, why);
            b.open_since = world_.now();
        } else {
            judge_closed(b, c, marker);
        }
        b.is_closed = !c.deleted;
        b.may_open = false;
        for (calling& each : calls_) {
            if (each.of == which) {
                b.may_open = b.may_open || each.releases;
                each.was_open = each.was_open || c.deleted;
                each.was_closed = each.was_closed || !c.deleted;
                if (c.deleted) {
                    each.opened.push_back(world_.now());
                }
            }
        }
    }
}

void barrier_rules::judge_closed(state& b, const etcd::change& c, const etcd::change* marker) {
    ++closings;
    if (c.now.version != 1) {
        world_.fail("a barrier that is closed was closed: " + c.key);
    }
    if (!marker || (c.now.lease != 0 && c.now.lease != marker->now.lease)) {
        world_.fail("nothing tells who has closed a barrier, or it has another one's lease");
        return;
    }
    if (!marks_.emplace(marker->key, marker->now.value).second && !excused_) {
        world_.fail("a barrier was closed again by a copy of a request: " + c.key);
    }
    const closing how = c.now.lease == 0 ? closing::for_good : closing::while_alive;
    tally& t = b.by[marker->now.lease][static_cast<std::size_t>(how)];
    ++t.keys;
    check(t);
}

void barrier_rules::judge_opened(const state& b, const etcd::change& c, etcd::cause why) const {
    if (why == etcd::cause::request && !b.may_open) {
        world_.fail("a barrier that was closed anew was opened by a request of before: " + c.key);
    }
    if (why != etcd::cause::request && c.before.lease == 0) {
        world_.fail("a barrier was opened, and nobody has asked for it: " + c.key);
    }
}

bool barrier_rules::owes_passage() const {
    return std::any_of(calls_.begin(), calls_.end(), [&](const calling& c) {
        return c.waits && !barriers_.at(c.of).is_closed;
    });
}

void barrier_rules::look_for_stuck(nanoseconds healed_at, nanoseconds bound) const {
    const nanoseconds now = world_.now();
    for (const calling& c : calls_) {
        if (!c.waits) {
            continue;
        }
        const state& b = barriers_.at(c.of);
        const nanoseconds since = std::max(c.began, healed_at);
        if (!b.is_closed && now > std::max(b.open_since, since) + bound) {
            world_.fail("a barrier is open, and somebody waits at it");
        }
        // By then it has begun to watch.
        const bool was_missed =
            std::any_of(c.opened.begin(), c.opened.end(), [&](nanoseconds opened) {
                return opened > since + bound && now > opened + bound;
            });
        if (was_missed) {
            world_.fail("a barrier was open, and somebody waits on at it");
        }
    }
}

} // namespace sim
