// SPDX-License-Identifier: BSL-1.0
#include "sim/permits.hpp"

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

void permit_rules::changed(const std::vector<etcd::change>& changes, etcd::cause why) {
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
            robbed_.insert({k->id, c.before.create_revision});
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
        const bool first = std::all_of(queue.begin(), queue.end(), [&](const auto& other) {
            return own != queue.end() && other.second >= own->second;
        });
        if (!first) {
            world_.fail("a permit went to one who came later: " + c.key);
        }
    }
    for (const etcd::change& c : changes) {
        const std::optional<permit_key> k = permit_key::parse(c.key);
        if (k && !k->held) {
            if (c.deleted) {
                waiting_[k->name].erase(k->id);
            } else if (c.before.version == 0) {
                waiting_[k->name][k->id] = c.revision;
            }
        }
        constexpr std::string_view limit = ".limit";
        if (!k && c.key.starts_with(semaphore_prefix) && c.key.ends_with(limit) && !c.deleted) {
            const std::string name = c.key.substr(0, c.key.size() - limit.size());
            limits_[name][c.revision] = std::stoll(c.now.value);
        }
    }
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
