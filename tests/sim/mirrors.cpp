// SPDX-License-Identifier: BSL-1.0
#include "sim/mirrors.hpp"

#include <algorithm>
#include <chrono>

namespace sim {

using namespace std::chrono_literals;

std::size_t mirror_rules::at(std::int64_t revision) const {
    const auto is_later = [](std::int64_t r, const state& s) { return r < s.revision; };
    const auto after = std::upper_bound(states_.begin(), states_.end(), revision, is_later);
    return static_cast<std::size_t>(after - states_.begin()) - 1;
}

void mirror_rules::check_revision(follower& f, std::int64_t now) {
    if (now < f.revision) {
        world_.fail("a mirror has gone back, from revision " + std::to_string(f.revision) + " to " +
                    std::to_string(now));
    }
    if (now > world_.store.revision && !world_.had_other_clusters()) {
        world_.fail("a mirror has a revision that there is not yet: " + std::to_string(now));
    }
    f.revision = now;
}

void mirror_rules::shown(follower& f, const coetcd::mirror_snapshot& all) {
    ++looks;
    check_revision(f, all.revision);
    f.told = true;
    f.last.clear();
    for (const coetcd::mirror_entry& e : all.entries) {
        f.last[e->key] = e->mod_revision;
    }
    if (f.last != states_[at(all.revision)].keys && !is_excused()) {
        world_.fail("a mirror does not have what there was at revision " +
                    std::to_string(all.revision));
    }
}

void mirror_rules::told(follower& f, const coetcd::mirror_batch& batch) {
    ++batches;
    if (batch.changes.empty() && f.told) {
        world_.fail("a reader of a mirror is told nothing");
    }
    bool is_compared = !f.told;
    std::int64_t latest = 0;
    for (const coetcd::mirror_change& c : batch.changes) {
        const auto was = f.last.find(c.key());
        const bool fits =
            c.was ? was != f.last.end() && was->second == c.was->mod_revision : was == f.last.end();
        if (!fits) {
            world_.fail("a reader of a mirror is told of a change from what was not: " + c.key());
        }
        if (c.is) {
            f.last[c.key()] = c.is->mod_revision;
        } else {
            f.last.erase(c.key());
        }
        if (c.revision < latest || c.revision > batch.revision) {
            world_.fail("a reader of a mirror is told changes out of order: " + c.key());
        }
        latest = c.revision;
        is_compared = is_compared || c.by_comparison;
    }
    if (!is_compared && !is_excused()) {
        check_steps(f, batch);
    }
    check_revision(f, batch.revision);
    f.told = true;
    if (f.last != states_[at(batch.revision)].keys && !is_excused()) {
        world_.fail("a reader of a mirror does not know what there was at revision " +
                    std::to_string(batch.revision));
    }
}

/// Each change that there was is told, and no other. A reader that is told the difference is told
/// nothing of what is again as it was.
void mirror_rules::check_steps(const follower& f, const coetcd::mirror_batch& batch) const {
    std::set<std::int64_t> told;
    for (const coetcd::mirror_change& c : batch.changes) {
        told.insert(c.revision);
    }
    const bool may_skip = f.is_slow || world_.count_of(fault::compaction) != 0;
    for (std::size_t i = at(f.revision) + 1; i <= at(batch.revision); ++i) {
        if (told.erase(states_[i].revision) != 0) {
            continue;
        }
        std::size_t again = i; // all is as it was before
        while (may_skip && again <= at(batch.revision) && !told.contains(states_[again].revision) &&
               states_[again].keys != states_[i - 1].keys) {
            ++again;
        }
        if (!may_skip || again > at(batch.revision) || told.contains(states_[again].revision)) {
            world_.fail("a reader of a mirror is not told what happened at revision " +
                        std::to_string(states_[i].revision));
        }
        i = again;
    }
    if (!told.empty()) {
        world_.fail("a reader of a mirror is told of what did not happen, at revision " +
                    std::to_string(*told.begin()));
    }
}

void mirror_rules::changed(const std::vector<etcd::change>& changes) {
    const auto concerns = [](const etcd::change& c) { return c.key.starts_with(mirrored_prefix); };
    if (std::none_of(changes.begin(), changes.end(), concerns)) {
        return;
    }
    table next = states_.back().keys;
    std::int64_t revision = 0;
    for (const etcd::change& c : changes) {
        if (!concerns(c)) {
            continue;
        }
        revision = c.revision;
        if (c.deleted) {
            next.erase(c.key);
        } else {
            next[c.key] = c.revision;
        }
    }
    states_.push_back({revision, std::move(next), world_.now()});
}

bool mirror_rules::owes_states() const {
    return std::any_of(followers_.begin(), followers_.end(), [&](const follower& f) {
        return f.reads_changes && is_untold(f);
    });
}

void mirror_rules::look_for_untold(nanoseconds healed_at, nanoseconds bound) const {
    if (world_.had_other_clusters()) {
        return;
    }
    const nanoseconds since = std::max(states_.back().since, healed_at);
    for (const follower& f : followers_) {
        if (f.reads_changes && is_untold(f) && world_.now() > std::max(since, f.since) + bound) {
            world_.fail("a reader of a mirror is not told what there is");
        }
    }
    for (const nanoseconds began : waiting_) {
        if (world_.now() > std::max(began, healed_at) + bound) {
            world_.fail("who waits for a revision of a mirror waits for ever");
        }
    }
}

} // namespace sim
