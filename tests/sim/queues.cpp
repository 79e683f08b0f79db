// SPDX-License-Identifier: BSL-1.0
#include "sim/queues.hpp"

#include <coetcd/detail/service/session.hpp>

#include <algorithm>
#include <cstdio>

namespace sim {

bool queue_rules::is_put_back(const etcd::change& c) const {
    if (by_ == order::arrival) {
        return c.key[items_prefix_.size()] == '!';
    }
    const auto found = items_.find(c.now.value); // it is where it was
    return found != items_.end() && found->second.at != place::none;
}

// What clients do.

void queue_rules::appends(const values& all, std::uint16_t priority) {
    char digits[] = "0000/";
    (void)std::snprintf(digits, sizeof digits, "%04x/", priority);
    for (const std::string& value : all) {
        items_[value].began = ++times_;
        items_[value].folder = items_prefix_ + (by_ == order::priority ? digits : "");
    }
}

void queue_rules::appended(const values& all) {
    for (const std::string& value : all) {
        item& i = items_[value];
        i.over = ++times_;
        if (i.at == place::none) {
            world_.fail("a value is said to be in a queue that never was: " + value);
        }
    }
}

void queue_rules::not_appended(const values& all) {
    for (const std::string& value : all) {
        item& i = items_[value];
        i.refused = true;
        if (i.at != place::none && !is_excused()) {
            world_.fail("a value is in a queue, and its producer is told that it is not: " + value);
        }
    }
}

void queue_rules::handed(lease_id by, const std::string& value) {
    ++handed_out;
    item& i = items_[value];
    if (excused_) {
        i.at = i.at == place::taken ? place::handed : i.at;
        return;
    }
    if (i.at == place::handed) {
        world_.fail("a value of a queue was handed out twice: " + value);
    } else if (i.at != place::taken || i.taken_by != by) {
        world_.fail("a value of a queue was handed to a consumer that has not taken it: " + value);
    }
    i.at = place::handed;
}

void queue_rules::look_at_empty(nanoseconds began) const {
    if (world_.count_of(fault::stale_read) != 0 || world_.had_other_clusters()) {
        return;
    }
    for (const auto& [value, i] : items_) {
        if (i.at == place::there && i.since < began) {
            world_.fail("a queue is said to be empty, and is not: " + value);
        }
    }
}

void queue_rules::look_at_order(const std::string& value, nanoseconds began) const {
    const item& i = items_.at(value);
    if (i.passed_over && *i.passed_over < began && world_.count_of(fault::stale_read) == 0 &&
        !world_.had_other_clusters()) {
        world_.fail("a value was handed out before one of a smaller number: " + value);
    }
}

void queue_rules::sizing::told(std::int64_t size) const {
    const world& w = of_.world_;
    if (w.count_of(fault::stale_read) == 0 && !w.had_other_clusters() &&
        (size < place_->least || size > place_->most)) {
        of_.world_.fail("a queue is said to have " + std::to_string(size) + " items, and has " +
                        std::to_string(of_.there_));
    }
}

// What etcd does.

void queue_rules::changed(const std::vector<etcd::change>& changes,
                          etcd::cause why,
                          const std::function<bool(lease_id)>& has_returned) {
    lease_id by = 0;
    for (const etcd::change& c : changes) {
        const bool is_marker = c.key.starts_with(beside_) && c.key.find("-w") != c.key.npos;
        if (is_marker && !c.deleted) {
            by = c.now.lease;
            excused_ = excused_ || has_returned(by);
        }
    }
    for (const etcd::change& c : changes) {
        if (!c.key.starts_with(items_prefix_)) {
            continue;
        }
        if (c.deleted) {
            judge_taken(c, why, by);
        } else if (is_put_back(c)) {
            judge_put_back(c, by);
        } else {
            judge_appended(c.now.value, c);
        }
        item& i = items_[c.deleted ? c.before.value : c.now.value];
        i.since = world_.now();
        if (!c.deleted) {
            i.at = place::there;
            i.key = c.key;
            i.put = c.revision;
            if (c.now.lease != 0) {
                world_.fail("a value of a queue has a lease: " + c.key);
            }
            if (c.before.version != 0) {
                world_.fail("a value of a queue was put where another one is: " + c.key);
            }
        }
        there_ += c.deleted ? -1 : 1;
    }
    for (bounds& b : sizings_) {
        b.least = std::min(b.least, there_);
        b.most = std::max(b.most, there_);
    }
}

void queue_rules::judge_appended(const std::string& value, const etcd::change& c) {
    const item& mine = items_[value];
    if (mine.began == 0) {
        world_.fail("a queue has a value that nobody has put there: " + value);
    }
    if (mine.at != place::none && !excused_) {
        world_.fail("a value is in a queue twice: " + value);
    }
    if (mine.refused && !is_excused()) {
        world_.fail("a value came to a queue although its producer was told that it did not: " +
                    value);
    }
    if (!c.key.starts_with(mine.folder)) {
        world_.fail("a value is not where its priority is: " + c.key);
    }
    for (const auto& [other, i] : items_) {
        if (i.at == place::there && i.over != 0 && i.over < mine.began && c.key < i.key &&
            i.folder == mine.folder && i.key[items_prefix_.size()] != '!') {
            world_.fail("a value comes before one that was in the queue when it came: " + value);
        }
    }
}

void queue_rules::judge_put_back(const etcd::change& c, lease_id by) {
    ++put_back;
    const std::string& value = c.now.value;
    const item& i = items_[value];
    if (excused_) {
        return;
    }
    if (by_ == order::priority && c.key != i.key) {
        world_.fail("a value is put back at another place: " + c.key);
    }
    if (i.at == place::handed) {
        world_.fail("a value is put back that a consumer has: " + value);
    } else if (i.at != place::taken || i.taken_by != by) {
        world_.fail("a value is put back by a consumer that has not taken it: " + value);
    }
}

void queue_rules::judge_taken(const etcd::change& c, etcd::cause why, lease_id by) {
    item& mine = items_[c.before.value];
    if (why != etcd::cause::request || by == 0) {
        world_.fail("a value has gone from a queue, and nobody has taken it: " + c.key);
    }
    // The consumer had seen it, at this revision or a later one, as the first; unless it was told
    // of it, and not of another one.
    const bool may_miss =
        !only_looks && (world_.had_lost_events() || world_.count_of(fault::stale_read) != 0);
    for (const auto& [other, i] : items_) {
        if (!may_miss && i.at == place::there && i.key < c.key && i.put <= mine.put) {
            world_.fail("a value was taken from a queue before one that was first: " + c.key);
        }
    }
    mine.passed_over.reset();
    for (const auto& [other, i] : items_) {
        if (by_ == order::priority && i.at == place::there && i.key < c.key) {
            mine.passed_over = std::min(mine.passed_over.value_or(i.since), i.since);
        }
    }
    mine.at = place::taken;
    mine.taken_by = by;
}

bool queue_rules::is_live(lease_id id) const {
    const auto found = sessions_.find(id);
    const auto s = found == sessions_.end() ? nullptr : found->second.lock();
    return s && s->is_certain();
}

bool queue_rules::owes_items() const {
    const bool waits =
        std::any_of(calls_.begin(), calls_.end(), [](const calling& c) { return c.waits; });
    return std::any_of(items_.begin(), items_.end(), [&](const auto& each) {
        const item& i = each.second;
        return (waits && i.at == place::there) ||
               (i.at == place::taken && is_live(i.taken_by) && !unknown_.contains(i.taken_by));
    });
}

void queue_rules::look_for_idle(nanoseconds healed_at, nanoseconds bound) const {
    const auto is_long = [&](nanoseconds since) {
        return world_.now() > std::max(since, healed_at) + bound;
    };
    const bool waits = std::any_of(calls_.begin(), calls_.end(), [&](const calling& c) {
        return c.waits && is_long(c.began);
    });
    for (const auto& [value, i] : items_) {
        if (i.at == place::there && waits && is_long(i.since)) {
            world_.fail("a queue has a value, and a consumer waits for one: " + value);
        }
        if (i.at == place::taken && is_long(i.since) && is_live(i.taken_by) &&
            !unknown_.contains(i.taken_by) && !excused_) {
            world_.fail("a value of a queue is lost, and its consumer lives: " + value);
        }
    }
}

} // namespace sim
