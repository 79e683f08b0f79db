// SPDX-License-Identifier: BSL-1.0
#include "sim/leaders.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "sim/slots.hpp"

namespace sim {

namespace {

/// 0: it is none.
std::uint64_t number(const std::string& value) {
    std::uint64_t n = 0;
    (void)std::from_chars(value.data(), value.data() + value.size(), n);
    return n;
}

/// A claim that is given back, and is to last for some time yet, gets another lease; perhaps twice.
bool is_only_leased(const etcd::change& c) {
    const std::optional<lock_key> k = lock_key::parse(c.key);
    return k && k->claimed && c.now.value == c.before.value;
}

} // namespace

std::vector<leader_rules::state>& leader_rules::states_of(const std::string& name) {
    std::vector<state>& all = states_[name];
    if (all.empty()) {
        all.emplace_back(); // at first there is no leader
    }
    return all;
}

void leader_rules::changed(const std::string& name, const etcd::change& c, etcd::cause why) {
    if (!c.deleted && why == etcd::cause::request && !is_only_leased(c)) {
        std::vector<std::uint64_t>& values = values_[{c.key, c.now.create_revision}];
        const std::uint64_t value = number(c.now.value);
        if (c.before.version != 0) {
            ++proclaimed;
            if (!values.empty() && value <= values.back()) {
                world_.fail("what was proclaimed is undone, or put twice: " + c.key);
            }
        }
        values.push_back(value);
    }
    std::optional<coetcd::leader> first;
    const std::string prefix = name + "/";
    for (auto k = world_.store.keys.lower_bound(prefix);
         k != world_.store.keys.end() && k->first.starts_with(prefix);
         ++k) {
        if (!first || k->second.create_revision < first->term) {
            first.emplace();
            first->key = k->first;
            first->value = k->second.value;
            first->term = k->second.create_revision;
            first->revision = k->second.mod_revision;
            first->lease = k->second.lease;
        }
    }
    std::vector<state>& all = states_of(name);
    if (all.back().who != first) {
        all.push_back({std::move(first), world_.now()});
    }
}

void leader_rules::has_proclaimed(const std::string& key,
                                  std::int64_t term,
                                  const std::string& value) {
    const std::vector<std::uint64_t>& values = values_[{key, term}];
    if (std::find(values.begin(), values.end(), number(value)) == values.end()) {
        world_.fail("proclaim() says that it has put what was never there: " + key);
    }
}

std::list<leader_rules::observing>::iterator leader_rules::observes(std::string name) {
    (void)states_of(name);
    return observers_.insert(observers_.end(),
                             {std::move(name), world_.now(), std::nullopt, std::nullopt});
}

void leader_rules::told(observing& o, const std::optional<coetcd::leader>& l) {
    ++told_states;
    o.last = l;
    const std::vector<state>& all = states_of(o.name);
    // Never the same again, and never one from before.
    std::size_t i = o.at ? *o.at + 1 : 0;
    while (i != all.size() && all[i].who != l) {
        ++i;
    }
    // Where the event of a key ahead was lost, or it was not there when it looked, in a state from
    // before, the first key that it was told of seems to lead.
    const bool misled = world_.had_lost_events() || world_.count_of(fault::stale_read) != 0;
    const bool seems = l && misled && values_.contains({l->key, l->term});
    if (i == all.size() && !seems) {
        world_.fail("who observes " + o.name + " is told what has not been since: " +
                    (l ? l->key + ", " + l->value : std::string("nobody")));
    }
    if (i != all.size()) {
        o.at = i;
    }
}

bool leader_rules::is_untold(const observing& o) const {
    const std::vector<state>& all = states_.at(o.name);
    return !o.last || *o.last != all.back().who;
}

bool leader_rules::owes_states() const {
    return std::any_of(
        observers_.begin(), observers_.end(), [&](const observing& o) { return is_untold(o); });
}

void leader_rules::look_for_untold(nanoseconds healed_at, nanoseconds bound) {
    for (const observing& o : observers_) {
        const nanoseconds since = states_.at(o.name).back().since;
        if (is_untold(o) && world_.now() > std::max({since, healed_at, o.since}) + bound) {
            world_.fail("who observes is not told who leads: " + o.name);
        }
    }
}

} // namespace sim
