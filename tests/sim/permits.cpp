// SPDX-License-Identifier: BSL-1.0
#include "sim/permits.hpp"

#include <coetcd/detail/logic/permits.hpp>

#include <algorithm>
#include <iterator>

namespace sim {

std::optional<permit_key> permit_key::parse(std::string_view key) {
    constexpr std::string_view wait = "/wait/";
    constexpr std::string_view hold = "/hold/";
    std::optional<permit_key> found;
    if (!key.starts_with(semaphore_prefix)) {
        return found;
    }
    const std::size_t slash = key.find('/', semaphore_prefix.size());
    if (slash == key.npos) {
        return found;
    }
    const std::string_view rest = key.substr(slash);
    if (rest.starts_with(wait)) {
        found.emplace();
        found->id = rest.substr(wait.size());
    } else if (rest.starts_with(hold) && rest.size() > hold.size() + 3) {
        found.emplace();
        found->held = true;
        const std::string bit(rest.substr(hold.size(), 2));
        found->weight = std::int64_t{1} << std::stoi(bit, nullptr, 16);
        found->id = rest.substr(hold.size() + 3);
    }
    if (found) {
        found->name = key.substr(0, slash);
    }
    return found;
}

void permit_rules::changed(const std::vector<etcd::change>& changes,
                           etcd::cause why,
                           const std::function<bool(lease_id)>& has_returned) {
    std::set<std::string> names;
    for (const etcd::change& c : changes) {
        if (!c.key.starts_with(semaphore_prefix)) {
            continue;
        }
        names.insert(c.key.substr(0, c.key.find_first_of("./", semaphore_prefix.size())));
        returned_ = returned_ || (!c.deleted && has_returned(c.now.lease));
        if (c.deleted) {
            born_.erase(c.key);
        } else {
            born_.emplace(c.key, world_.now());
        }
    }
    std::set<std::pair<std::string, std::string>> admitted; // left the queue
    for (const etcd::change& c : changes) {
        const std::optional<permit_key> k = permit_key::parse(c.key);
        if (k && !k->held && c.deleted) {
            admitted.insert({k->name, k->id});
        }
    }
    for (const etcd::change& c : changes) {
        const std::optional<permit_key> k = permit_key::parse(c.key);
        if (!k || !k->held) {
            continue;
        }
        if (c.deleted && why == etcd::cause::operator_) {
            robbed_.emplace(std::pair(k->id, c.before.create_revision), world_.now());
        }
        if (c.deleted || c.before.version != 0) {
            continue;
        }
        put_.insert({c.key, c.revision});
        const auto& queue = waiting_[k->name];
        if (!admitted.contains({k->name, k->id})) {
            if (!queue.empty()) {
                world_.fail("a permit was taken although somebody waits: " + c.key);
            }
            continue;
        }
        const auto own = queue.find(k->id);
        std::int64_t before = used(k->name); // with this one, and those admitted together with it
        for (const auto& [id, other] : queue) {
            const bool is_older = own == queue.end() || other.since < own->second.since;
            before += is_older && !admitted.contains({k->name, id}) ? other.weight : 0;
        }
        // A member's false word may let one ask before its turn; it counts then, and gives way.
        if (before > limit_since(k->name, c.revision) && !world_.had_false_ends_of_permits()) {
            world_.fail("a permit went to one who came later: " + c.key);
        }
    }
    for (const etcd::change& c : changes) {
        const std::optional<permit_key> k = permit_key::parse(c.key);
        if (k && !k->held) {
            if (c.deleted) {
                waiting_[k->name].erase(k->id);
            } else if (c.before.version == 0) {
                waiting_[k->name][k->id] = {c.revision, std::stoll(c.now.value)};
            }
        }
        constexpr std::string_view limit = ".limit";
        if (!k && c.key.starts_with(semaphore_prefix) && c.key.ends_with(limit) && !c.deleted) {
            const std::string name = c.key.substr(0, c.key.size() - limit.size());
            const std::int64_t now = std::stoll(c.now.value);
            limits_[name][c.revision] = now;
            if (why == etcd::cause::request) {
                check_limit(name, c.before.version == 0 ? -1 : std::stoll(c.before.value), now);
            }
        }
    }
    for (const std::string& name : names) {
        look_at(name);
    }
}

std::int64_t permit_rules::used(const std::string& name) const {
    std::int64_t sum = 0;
    for (const std::string& key : world_.store.under(name + "/hold/")) {
        sum += permit_key::parse(key)->weight;
    }
    return sum;
}

/// Who may be admitted, besides those before it, or has to be told that it never will.
void permit_rules::look_at(const std::string& name) {
    const auto stored = world_.store.keys.find(name + ".limit");
    std::map<std::int64_t, std::string> waiters; // by age
    for (const std::string& key : world_.store.under(name + "/wait/")) {
        waiters[world_.store.keys.at(key).create_revision] = key;
    }
    std::map<std::string, candidate>& before = next_[name];
    std::map<std::string, candidate> now;
    if (stored != world_.store.keys.end()) {
        const std::int64_t limit = std::stoll(stored->second.value);
        std::int64_t sum = used(name);
        std::size_t counting = coetcd::detail::logic::permits::counting(limit);
        std::size_t ahead = 0;
        for (const auto& [life, key] : waiters) {
            if (counting-- == 0) {
                break; // it is told when it has moved up
            }
            const std::int64_t weight = std::stoll(world_.store.keys.at(key).value);
            sum += weight;
            if (sum > limit && weight <= limit) {
                break;
            }
            const auto was = before.find(key);
            const bool same = was != before.end() && was->second.life == life;
            // Where events are lost, it may have to find out by and by that others have gone.
            const bool stays = same && (was->second.ahead == ahead || !world_.had_lost_events());
            now[key] = {life, stays ? was->second.since : world_.now(), ahead++};
        }
    }
    before = std::move(now);
}

void permit_rules::look_for_stuck(nanoseconds healed_at, nanoseconds bound) {
    for (const auto& [name, all] : next_) {
        for (const auto& [key, c] : all) {
            if (world_.now() > std::max(c.since, healed_at) + bound) {
                world_.fail("nobody takes the permit whose turn it is: " + key);
            }
        }
    }
    for (const auto& [key, born] : born_) {
        const std::optional<permit_key> k = permit_key::parse(key);
        if (!k) {
            continue;
        }
        const etcd::record& now = world_.store.keys.at(key);
        const auto touched = touched_.find({now.lease, k->name});
        const nanoseconds wanted = touched == touched_.end() ? born : touched->second;
        if (world_.now() <= std::max({born, wanted, healed_at}) + bound) {
            continue;
        }
        const bool held = std::any_of(holds_.begin(), holds_.end(), [&](const permit_hold& h) {
            return h.token == now.create_revision && permit_key::parse(h.key)->id == k->id;
        });
        if (k->held && !held) {
            world_.fail("nobody has the permit whose key is there: " + key);
        }
    }
}

void permit_rules::look_for_unnoticed(const late_end& is_late) const {
    for (const permit_hold& h : holds_) {
        const auto gone = robbed_.find({permit_key::parse(h.key)->id, h.token});
        if (gone != robbed_.end() && h.sound_clock && h.valid() &&
            is_late(h.key, gone->second, h.session->ttl())) {
            world_.fail("who has a permit does not notice that its key is gone: " + h.key);
        }
    }
}

std::size_t permit_rules::changes_limit(std::string name, bool relative, std::int64_t by) {
    limit_calls_.push_back({std::move(name), relative, by});
    return limit_calls_.size() - 1;
}

/// Each change is made by a call, and each call makes one at most.
/// @param before -1 for none.
void permit_rules::check_limit(const std::string& name, std::int64_t before, std::int64_t now) {
    constexpr std::int64_t initial = 2;
    ++limits;
    limit_change change{now, before < 0 && now == initial, {}}; // by an attempt to take permits
    for (std::size_t i = 0; i != limit_calls_.size(); ++i) {
        const limit_call& c = limit_calls_[i];
        const std::int64_t from = before < 0 ? initial : before;
        const bool fits = c.name == name && (c.relative ? from + c.by : c.by) == now;
        if (fits && !c.refused && !c.done) {
            change.by.push_back(i);
        }
    }
    limit_changes_.push_back(std::move(change));
    std::vector<std::vector<std::size_t>> calls; // that may have made each change
    for (const limit_change& c : limit_changes_) {
        if (!c.needs_none) {
            calls.push_back(c.by);
            std::erase_if(calls.back(), [&](std::size_t call) { return !made(call, c); });
        }
    }
    if (!returned_ && !all_differ(calls)) {
        world_.fail("a limit was changed, and nobody has asked for that: " + name);
    }
}

bool permit_rules::made(std::size_t call, const limit_change& c) const {
    const limit_call& by = limit_calls_[call];
    return std::find(c.by.begin(), c.by.end(), call) != c.by.end() && (!by.done || by.now == c.now);
}

/// Whether each can have one of those that it may have, and no two the same.
bool permit_rules::all_differ(const std::vector<std::vector<std::size_t>>& choices) {
    std::map<std::size_t, std::size_t> taken; // by which one
    std::set<std::size_t> seen;
    const std::function<bool(std::size_t)> find = [&](std::size_t who) {
        for (const std::size_t one : choices[who]) {
            const auto by = taken.find(one);
            if (seen.insert(one).second && (by == taken.end() || find(by->second))) {
                taken[one] = who;
                return true;
            }
        }
        return false;
    };
    for (std::size_t who = 0; who != choices.size(); ++who) {
        seen.clear();
        if (!find(who)) {
            return false;
        }
    }
    return true;
}

void permit_rules::changed_limit(std::size_t call, std::int64_t now) {
    limit_calls_[call].done = true;
    limit_calls_[call].now = now;
    std::vector<std::vector<std::size_t>> changes; // that each call which is done may have made
    for (std::size_t i = 0; i != limit_calls_.size(); ++i) {
        if (!limit_calls_[i].done) {
            continue;
        }
        std::vector<std::size_t>& its = changes.emplace_back();
        for (std::size_t k = 0; k != limit_changes_.size(); ++k) {
            if (made(i, limit_changes_[k])) {
                its.push_back(k);
            }
        }
    }
    if (!returned_ && !all_differ(changes)) {
        world_.fail("a limit is said to be changed that was not: " + limit_calls_[call].name);
    }
}

void permit_rules::refused_limit(std::size_t call) {
    limit_calls_[call].refused = true;
}

std::list<permit_hold>::iterator permit_rules::granted(permit_hold h) {
    ++grants;
    world_.note("permitted", static_cast<std::uint64_t>(h.token), h.key);
    if (!put_.contains({h.key, h.token})) {
        world_.fail("a permit was granted that etcd never gave: " + h.key);
    }
    if (!tokens_.insert({h.name, h.token}).second) {
        world_.fail("a token of a permit was given twice");
    }
    const std::string name = h.name;
    const std::int64_t since = h.token;
    const bool counts = h.valid() && !excused(h);
    holds_.push_back(std::move(h));
    if (counts) {
        std::int64_t used = 0;
        for (const permit_hold& other : holds_) {
            used += other.name == name && !excused(other) && other.valid() ? other.weight : 0;
        }
        const std::int64_t limit = limit_since(name, since);
        if (used > limit) {
            world_.fail("there are " + std::to_string(used) + " permits, and the limit is " +
                        std::to_string(limit) + ": " + holds_.back().key);
        }
    }
    return std::prev(holds_.end());
}

void permit_rules::gives_back(std::list<permit_hold>::iterator h) {
    touch(h->lease, h->name);
    holds_.erase(h);
}

std::vector<std::string> permit_rules::left_behind() const {
    std::vector<std::string> keys = world_.store.under(std::string(semaphore_prefix));
    std::erase_if(keys, [](const std::string& key) { return !permit_key::parse(key); });
    return keys;
}

bool permit_rules::excused(const permit_hold& h) const {
    const std::optional<permit_key> k = permit_key::parse(h.key);
    return !h.sound_clock || revoked_.contains(h.lease) || robbed_.contains({k->id, h.token});
}

std::int64_t permit_rules::limit_since(const std::string& name, std::int64_t revision) const {
    std::int64_t most = 0;
    const auto found = limits_.find(name);
    if (found == limits_.end()) {
        return most;
    }
    auto at = found->second.upper_bound(revision);
    if (at != found->second.begin()) {
        --at; // what was in force then
    }
    for (; at != found->second.end(); ++at) {
        most = std::max(most, at->second);
    }
    return most;
}

} // namespace sim
