// SPDX-License-Identifier: BSL-1.0
#include "sim/members.hpp"

#include <algorithm>
#include <chrono>
#include <tuple>

namespace sim {

using namespace std::chrono_literals;

void member_rules::changed(const std::vector<etcd::change>& changes,
                           const std::function<bool(lease_id)>& has_returned) {
    list next = states_.back().members;
    bool changes_any = false;
    for (const etcd::change& c : changes) {
        if (!c.deleted && c.key.starts_with(tombstone_prefix)) {
            lease_of_[std::string(group_prefix) + c.key.substr(tombstone_prefix.size())] =
                c.now.lease;
        }
        if (!c.key.starts_with(group_prefix)) {
            continue;
        }
        changes_any = true;
        std::erase_if(next, [&](const coetcd::member_entry& m) { return m.key == c.key; });
        if (c.deleted) {
            continue;
        }
        put_[c.key].insert(c.now.value);
        lease_of_[c.key] = c.now.lease;
        // With the lease in which it left goes what makes late copies void.
        const auto left = left_.find(c.key);
        if (left != left_.end() && !has_returned(c.now.lease) && !has_returned(left->second)) {
            world_.fail("a member that has left is there again: " + c.key);
        }
        next.push_back(
            {c.key, c.now.value, c.now.create_revision, c.now.mod_revision, c.now.lease});
    }
    if (changes_any) {
        std::sort(next.begin(), next.end(), [](const auto& a, const auto& b) {
            return std::tie(a.joined, a.key) < std::tie(b.joined, b.key);
        });
        states_.push_back({std::move(next), world_.now()});
    }
}

void member_rules::has_put(const std::string& key, const std::string& value) {
    ++joined;
    const auto found = put_.find(key);
    if ((found == put_.end() || !found->second.contains(value)) && !world_.had_other_clusters()) {
        world_.fail("a value of a member is said to be there that never was: " + value);
    }
}

void member_rules::has_left(const std::string& key) {
    if (world_.store.keys.contains(key) && !world_.had_other_clusters()) {
        world_.fail("leave() has returned, and the member is there: " + key);
    }
    left_[key] = lease_of_[key];
}

void member_rules::told(following& f, const list& now) {
    ++told_lists;
    if (f.told && f.last == now) {
        world_.fail("who follows a group is told the same again");
    }
    f.told = true;
    f.last = now;
    if (world_.had_lost_events() || world_.had_other_clusters()) {
        return; // it may be told what it has pieced together
    }
    const auto is_it = [&](const state& s) { return s.members == now; };
    const auto from = states_.begin() + static_cast<std::ptrdiff_t>(f.at);
    const auto found = std::find_if(from, states_.end(), is_it);
    if (found == states_.end()) {
        world_.fail("who follows a group is told a list that was not there since the last one");
        return;
    }
    f.at = static_cast<std::size_t>(found - states_.begin());
}

bool member_rules::is_missing(const membership& m) const {
    const auto found = world_.store.keys.find(m.key);
    return m.lives() && (found == world_.store.keys.end() || found->second.value != m.value);
}

bool member_rules::owes_states() const {
    return std::any_of(
        followers_.begin(), followers_.end(), [&](const following& f) { return is_untold(f); });
}

void member_rules::look_for_untold(nanoseconds healed_at, nanoseconds bound) const {
    if (world_.had_other_clusters()) {
        return;
    }
    const nanoseconds since = std::max(states_.back().since, healed_at);
    for (const following& f : followers_) {
        if (is_untold(f) && world_.now() > std::max(since, f.since) + bound) {
            world_.fail("who follows a group is not told who is in it");
        }
    }
    for (const membership& m : members_) {
        // It may have paused before the next attempt, if etcd refused the last one.
        if (is_missing(m) && world_.now() > std::max(since, m.since) + bound + 31s) {
            world_.fail("a member is not there again: " + m.key);
        }
    }
}

} // namespace sim
