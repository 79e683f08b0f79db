// SPDX-License-Identifier: BSL-1.0
#include "sim/meetings.hpp"

#include <algorithm>

namespace sim {

// What clients do.

std::string meeting_rules::claim(const calling& c) {
    arrival* mine = nullptr;
    std::string id;
    int candidates = 0;
    for (auto& [each, a] : arrivals_) {
        if (a.by == c.by && a.revision > c.after && a.group != 0 && !a.claimed) {
            ++candidates;
            if (!mine || a.revision < mine->revision) {
                mine = &a;
                id = each;
            }
        }
    }
    if (!mine) {
        world_.fail("somebody comes through " + name_ + " without its group");
        return {};
    }
    mine->claimed = true;
    return candidates == 1 ? id : std::string();
}

void meeting_rules::look_at_withdrawn(const calling& c) const {
    if (doubtful_.contains(c.by)) {
        return;
    }
    for (const auto& [id, a] : arrivals_) {
        if (a.by == c.by && a.revision > c.after && (a.group != 0 || a.at == place::there)) {
            world_.fail("somebody is told that it has withdrawn from " + name_ +
                        ", and is in: " + id);
        }
    }
}

void meeting_rules::look_at_left(const leaving& l, bool all) const {
    const auto found = inside_.find(l.group);
    const bool is_empty = found == inside_.end() || found->second.empty();
    if (all && !is_empty) {
        world_.fail("somebody has left " + name_ +
                    " while another one is inside: " + *found->second.begin());
    }
    if (!all && is_empty && empty_since_.contains(l.group) && empty_since_.at(l.group) < l.began &&
        world_.count_of(fault::stale_read) == 0) {
        world_.fail("all had left " + name_ + ", and somebody is told that they have not");
    }
}

std::int64_t meeting_rules::group_of(const std::string& id) const {
    const auto found = arrivals_.find(id);
    return found == arrivals_.end() ? 0 : found->second.group;
}

// What etcd does.

void meeting_rules::changed(const std::vector<etcd::change>& changes, etcd::cause why) {
    const std::string arrivals = name_ + "/";
    const std::string insiders = name_ + ".in/";
    std::set<std::string> erased;
    std::vector<etcd::change> entered;
    const etcd::change* bound = nullptr;
    bool concerns = false;
    for (const etcd::change& c : changes) {
        if (c.deleted && why == etcd::cause::lease && c.key.starts_with(name_)) {
            ended_.insert(c.before.lease);
        }
        if (c.key.starts_with(arrivals)) {
            concerns = true;
            const std::string id = c.key.substr(arrivals.size());
            if (c.deleted) {
                arrivals_[id].at = place::gone;
                --there_;
                if (why == etcd::cause::request) {
                    erased.insert(id);
                }
                continue;
            }
            const arrival now{c.now.lease, c.revision, place::there, false, 0, world_.now()};
            const auto [known, is_new] = arrivals_.try_emplace(id, now);
            // Late copies of the request for a lease and of the one to arrive undo its end.
            const bool is_reborn =
                known->second.at != place::there && ended_.contains(known->second.by);
            if (c.now.lease == 0 || !(is_new || is_reborn)) {
                world_.fail("an arrival at " + name_ + " has no lease, or comes again: " + id);
            }
            known->second = now;
            ++there_;
        } else if (c.key.starts_with(insiders)) {
            if (c.deleted) {
                judge_left(c.key.substr(insiders.size()), why);
            } else {
                entered.push_back(c);
            }
        } else if (c.key == name_ + ".bound") {
            bound = &c;
        } else if (c.key == name_ + ".parties") {
            if (c.deleted || c.now.version != 1) {
                world_.fail("the size of the groups of " + name_ + " changes");
            }
            parties_ = std::stoll(c.now.value);
        }
    }
    if (bound) {
        judge_bound(*bound, erased);
    } else if (!entered.empty()) {
        judge_entered(entered, erased);
    } else if (erased.size() > 1) {
        world_.fail("several have gone from " + name_ + " at once, and not through");
    }
    if (concerns) {
        full_since_ = world_.now();
    }
}

/// They have gone through, in that revision.
void meeting_rules::judge_group(const std::set<std::string>& erased, std::int64_t revision) {
    ++groups;
    if (static_cast<std::int64_t>(erased.size()) != parties_) {
        world_.fail("a group goes through " + name_ + " that is not whole");
    }
    std::int64_t newest = 0;
    for (const std::string& id : erased) {
        arrival& a = arrivals_[id];
        a.at = place::through;
        a.group = revision;
        a.since = world_.now();
        newest = std::max(newest, a.revision);
    }
    for (const auto& [id, a] : arrivals_) {
        if (a.at == place::there && a.revision < newest) {
            world_.fail("somebody who came first stays behind at " + name_ + ": " + id);
        }
    }
}

void meeting_rules::judge_bound(const etcd::change& c, const std::set<std::string>& erased) {
    judge_group(erased, c.revision);
    std::int64_t newest = 0;
    for (const std::string& id : erased) {
        newest = std::max(newest, arrivals_[id].revision);
    }
    const std::int64_t bound = c.deleted ? 0 : std::stoll(c.now.value);
    if (bound != newest || bound <= bound_ || kind_ == kind::stays) {
        world_.fail("the bound of " + name_ + " is " + std::to_string(bound) + " and not " +
                    std::to_string(newest));
    }
    bound_ = bound;
}

void meeting_rules::judge_entered(const std::vector<etcd::change>& entered,
                                  const std::set<std::string>& erased) {
    const std::size_t prefix = name_.size() + std::string_view(".in/").size();
    judge_group(erased, entered.front().revision);
    for (const etcd::change& c : entered) {
        const std::string id = c.key.substr(prefix);
        if (!erased.contains(id) || c.now.version != 1 || c.now.lease != arrivals_[id].by ||
            entered.size() != erased.size()) {
            world_.fail("somebody enters " + name_ + " who is not in the group: " + id);
        }
        inside_[c.revision].insert(id);
    }
}

void meeting_rules::judge_left(const std::string& id, etcd::cause why) {
    arrivals_[id].at = place::gone;
    if (why == etcd::cause::request && staying_.contains(id)) {
        world_.fail("somebody is inside " + name_ + ", and its key was erased: " + id);
    }
    const std::int64_t group = arrivals_[id].group;
    std::set<std::string>& inside = inside_[group];
    inside.erase(id);
    if (inside.empty()) {
        empty_since_[group] = world_.now();
    }
}

/// @returns Who has waited in vain since then, if anybody has.
std::optional<std::string> meeting_rules::find_stuck(nanoseconds until) const {
    const auto is_long = [until](nanoseconds since) { return since <= until; };
    for (const calling& c : calls_) {
        for (const auto& [id, a] : arrivals_) {
            if (a.by != c.by || a.revision <= c.after) {
                continue;
            }
            const bool is_full = parties_ != 0 && there_ >= parties_ && is_long(full_since_);
            if (a.at == place::there && is_full) {
                return "a whole group waits at " + name_ + ": " + id;
            }
            if (a.at == place::through && !a.claimed && is_long(a.since)) {
                return "somebody waits at " + name_ + " whose group went through: " + id;
            }
        }
    }
    for (const leaving& l : departures_) {
        const auto found = empty_since_.find(l.group);
        if (found != empty_since_.end() && is_long(std::max(found->second, l.began))) {
            return "somebody waits for others to leave " + name_ + ", and all have left";
        }
    }
    return std::nullopt;
}

void meeting_rules::look_for_stuck(nanoseconds healed_at, nanoseconds bound) const {
    const nanoseconds until = world_.now() - bound;
    if (until <= healed_at) {
        return;
    }
    if (const std::optional<std::string> whom = find_stuck(until)) {
        world_.fail(*whom);
    }
}

} // namespace sim
