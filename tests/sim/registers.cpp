// SPDX-License-Identifier: BSL-1.0
#include "sim/registers.hpp"

#include <iterator>

namespace sim {

std::optional<std::string> registers::at(const std::string& key, std::int64_t revision) const {
    const auto found = history_.find(key);
    if (found == history_.end()) {
        return std::nullopt;
    }
    const auto later = found->second.upper_bound(revision);
    return later == found->second.begin() ? std::nullopt : std::prev(later)->second;
}

std::string registers::begin() {
    std::string value = std::to_string(++begun_);
    entries_[value];
    return value;
}

bool registers::is_excused() const {
    return world_.had_other_clusters() || world_.had_refusals() || world_.had_foreign_answers();
}

bool registers::were_copied() const {
    return world_.count_of(fault::duplicated) != 0 || world_.count_of(fault::late_duplicate) != 0 ||
           world_.count_of(fault::very_late) != 0;
}

void registers::check(const entry& e) {
    if (!e.told || is_excused()) {
        return;
    }
    // The answer to a copy says that the condition does not hold any more.
    if (*e.told == 0 && e.applied && !were_copied()) {
        world_.fail("a call has failed for good that was carried out");
    }
    if (*e.told != 0 && (!e.applied || (!were_copied() && e.applied != e.told))) {
        world_.fail("a call is said to be carried out that was not, at that revision");
    }
}

void registers::ended(const std::string& value, std::int64_t revision) {
    entry& e = entries_.at(value);
    e.told = revision;
    check(e);
    ++calls;
}

void registers::saw(const std::string& key,
                    const std::optional<std::string>& value,
                    std::int64_t revision,
                    const char* who) {
    ++calls;
    if (!is_excused() && at(key, revision) != value) {
        world_.fail(std::string(who) + " was told of what was not there: " + key + " at revision " +
                    std::to_string(revision));
    }
}

void registers::changed(const std::vector<etcd::change>& changes) {
    for (const etcd::change& c : changes) {
        if (!c.key.starts_with(prefix)) {
            continue;
        }
        history_[c.key][c.revision] =
            c.deleted ? std::nullopt : std::optional<std::string>(c.now.value);
        if (c.deleted) {
            continue;
        }
        entry& e = entries_.at(c.now.value);
        if (e.applied && !were_copied() && !is_excused()) {
            world_.fail("a call was carried out twice");
        }
        e.applied = c.revision;
        check(e);
    }
}

} // namespace sim
