// SPDX-License-Identifier: BSL-1.0
#include "sim/jobs.hpp"

#include <algorithm>
#include <chrono>

namespace sim {

using namespace std::chrono_literals;

job_rules::where job_rules::parse(const std::string& key) {
    constexpr std::pair<std::string_view, place> places[] = {
        {"jobs/ready/", place::ready},
        {"jobs/again/", place::again},
        {"jobs/run/busy/", place::busy},
        {"jobs.dead/", place::dead},
    };
    for (const auto& [prefix, at] : places) {
        if (key.starts_with(prefix)) {
            return {at, key.substr(prefix.size())};
        }
    }
    return {};
}

// What clients do.

void job_rules::appends(const values& all) {
    for (const std::string& value : all) {
        value_state& v = values_[value];
        v.began = ++calls_;
        v.over = 0;
    }
}

void job_rules::appended(const values& all) {
    for (const std::string& value : all) {
        value_state& v = values_[value];
        v.over = ++calls_;
        if (v.is_new) {
            world_.fail("an item is said to be appended that never was: " + value);
        }
    }
}

void job_rules::not_appended(const values& all) {
    for (const std::string& value : all) {
        value_state& v = values_[value];
        v.refused = true;
        if (!v.is_new && !is_excused()) {
            world_.fail("an item was appended, and its producer is told that it was not: " + value);
        }
    }
}

void job_rules::revives(const std::string& id, const std::string& value) {
    erases_dead(id);
    value_state& v = values_[value];
    v.began = v.is_reviving ? v.began : ++calls_;
    v.is_reviving = true;
    v.over = 0;
}

void job_rules::taken(const attempt& a) {
    const auto found = attempts_.find(a.token);
    if (found == attempts_.end()) {
        world_.fail("a consumer has an item that it never claimed: " + a.value);
        return;
    }
    known_attempt& known = found->second;
    if (known.id != a.order + "." + std::to_string(a.number) || known.value != a.value) {
        world_.fail("a consumer is told of another item than the one it has: " + a.value);
    }
    if (std::exchange(known.told, true)) {
        world_.fail("an item was given to two consumers: " + a.value);
    }
}

void job_rules::ended(const attempt& a, verdict how, bool done) {
    const fate end = attempts_.at(a.token).end;
    const bool is_ack = how == verdict::ack || how == verdict::ack_with_effect;
    const fate wanted = is_ack                                              ? fate::erased
                        : how == verdict::retry && a.number < most_attempts ? fate::again
                                                                            : fate::dead;
    if (done && end != wanted) {
        world_.fail("a consumer is told that its item has ended, and it has not: " + a.value);
    }
    if (done && how == verdict::ack_with_effect && !effects_.contains(a.order)) {
        world_.fail("the work is done, and its effect is not there: " + a.value);
    }
    if (!done && end == wanted && !is_excused()) {
        world_.fail("a consumer is told that its item has not ended, and it has: " + a.value);
    }
}

// What etcd does.

void job_rules::changed(const std::vector<etcd::change>& changes,
                        etcd::cause why,
                        const std::function<bool(lease_id)>& has_returned) {
    const bool concerns = std::any_of(changes.begin(), changes.end(), [](const auto& c) {
        return c.key.starts_with(jobs_name) || c.key.starts_with(effect_prefix);
    });
    if (!concerns) {
        return;
    }
    for (const etcd::change& c : changes) {
        const bool is_marker = parse(c.key).at == place::none && !c.key.starts_with(claim_prefix) &&
                               c.key.starts_with(jobs_name) && c.key.find("-w") != c.key.npos;
        excused_ = excused_ || (is_marker && !c.deleted && has_returned(c.now.lease));
    }
    revision r;
    for (const etcd::change& c : changes) {
        note(c, r, why);
    }
    for (const auto& [order, was] : r.before) {
        judge(order, was, r);
    }
    for (const std::string& id : r.claimed) {
        const auto found = items_.find(order_of(id));
        const where* const is = found == items_.end() ? nullptr : place_of(found->second);
        if (!r.before.contains(order_of(id)) || !is || is->at != place::busy) {
            world_.fail("an item is claimed that was not taken: " + id);
        }
    }
    for (const std::string& order : r.effects) {
        if (!r.before.contains(order) || !items_[order].keys.empty()) {
            world_.fail("the effect of some work came without the end of its item: " + order);
        }
    }
}

void job_rules::note(const etcd::change& c, revision& r, etcd::cause why) {
    if (const where there = parse(c.key); there.at != place::none) {
        const std::string order = order_of(there.id);
        item& i = items_[order];
        const where* const was = place_of(i);
        r.before.emplace(order, was ? *was : where());
        if (c.deleted) {
            i.keys.erase(c.key);
            if (there.at == place::dead) {
                r.gone_dead.insert(i.value);
            }
            return;
        }
        if (c.now.lease != 0) {
            world_.fail("an item has a lease: " + c.key);
        }
        if (!i.keys.emplace(c.key, there).second && !excused_) {
            world_.fail("an item was put where it was: " + c.key);
        }
        if (was && c.now.value != i.value) {
            world_.fail("an item has become another one: " + c.key);
        }
        i.value = c.now.value;
        i.since = world_.now();
    } else if (c.key.starts_with(claim_prefix)) {
        const std::string id = c.key.substr(claim_prefix.size());
        if (c.deleted) {
            if (why == etcd::cause::request) {
                r.given_up[id] = claims_[id].token;
            }
            claims_.erase(id);
            unclaimed_[id] = world_.now();
            return;
        }
        ++claims;
        r.claimed.insert(id);
        claims_[id] = {c.revision, world_.now()};
        if (c.now.lease == 0) {
            world_.fail("a claim has no lease: " + c.key);
        }
        if (!claimed_.insert(id).second && !excused_) {
            world_.fail("an attempt was begun twice: " + id);
        }
        attempts_[c.revision] = {id, items_[order_of(id)].value};
    } else if (c.key.starts_with(effect_prefix) && !c.deleted) {
        const std::string order = c.key.substr(effect_prefix.size());
        r.effects.insert(order);
        effects_.insert(order);
        if (c.now.version != 1) {
            world_.fail("some work has had its effect twice: " + order);
        }
    }
}

void job_rules::judge(const std::string& order, const where& was, const revision& r) {
    const item& i = items_[order];
    if (i.keys.size() > 1) {
        if (!excused_) {
            world_.fail("an item is at two places: " + order);
        }
        return;
    }
    const where is = i.keys.empty() ? where() : i.keys.begin()->second;
    switch (was.at) {
    case place::none:
        judge_appended(order, is, r);
        break;
    case place::ready:
    case place::again:
        if (is.at != place::busy || is.id != was.id || !r.claimed.contains(is.id)) {
            world_.fail("an item was taken, and nobody has it: " + was.id);
        }
        judge_taken(order, was, r);
        break;
    case place::busy:
        judge_given_up(was, is, r);
        break;
    case place::dead:
        if (is.at != place::none || !erased_.contains(was.id)) {
            world_.fail("a dead item has gone: " + was.id);
        }
        break;
    }
}

void job_rules::judge_appended(const std::string& order, const where& is, const revision& r) {
    value_state& v = values_[items_[order].value];
    const bool is_revived = r.gone_dead.contains(items_[order].value);
    if (is.at != place::ready || attempt_of(is.id) != 1) {
        world_.fail("an item has come from nowhere: " + order);
    }
    if (v.began == 0) {
        world_.fail("an item was appended that nobody has: " + order);
    }
    if (!v.is_new && !is_revived && !excused_) {
        world_.fail("an item was appended twice: " + items_[order].value);
    }
    if (v.refused && v.is_new && !is_excused()) {
        world_.fail("an item was appended although its producer was told that it is not: " +
                    items_[order].value);
    }
    for (const auto& [other, i] : items_) {
        const value_state& before = values_[i.value];
        const where* const at = place_of(i);
        const bool is_counted = at && (at->at == place::ready || at->at == place::busy);
        if (is_counted && before.over != 0 && before.over < v.began && order < other) {
            world_.fail("an item comes before one that was there when it came: " + order);
        }
    }
    v.is_new = false;
    v.is_reviving = false;
}

/// It has to be the first one of those that are to be tried again, if there are any.
void job_rules::judge_taken(const std::string& order, const where& was, const revision& r) const {
    for (const auto& [other, i] : items_) {
        const where* const at = place_of(i);
        if (!at || other == order || r.before.contains(other)) {
            continue;
        }
        const bool is_before =
            at->at == place::again && (was.at == place::ready || at->id < was.id);
        if (is_before) {
            world_.fail("an item was taken before one that was to be tried again: " + order);
        }
    }
}

/// Its consumer ends it; or it has none any more, and is put back.
void job_rules::judge_given_up(const where& was, const where& is, const revision& r) {
    const auto given_up = r.given_up.find(was.id);
    const bool by_owner = given_up != r.given_up.end();
    const std::int64_t token = by_owner ? given_up->second : 0;
    if (!by_owner && claims_.contains(was.id)) {
        world_.fail("an item was taken away from its consumer: " + was.id);
    }
    const int before = attempt_of(was.id);
    fate end = fate::erased;
    if (is.at == place::none) {
        ++finished;
        if (!by_owner) {
            world_.fail("an item was erased by somebody whose it was not: " + was.id);
        }
    } else if (is.at == place::again) {
        end = fate::again;
        if (attempt_of(is.id) != before + 1 || before >= most_attempts) {
            world_.fail("an attempt at an item was not counted: " + is.id);
        }
    } else if (is.at == place::dead) {
        end = fate::dead;
        if (is.id != was.id || (before < most_attempts && !buried_.contains(token))) {
            world_.fail("an item is dead that was to be tried again: " + is.id);
        }
    } else {
        world_.fail("an item that was taken is where it may not be: " + is.id);
    }
    if (by_owner) {
        attempts_[token].end = end;
    }
}

bool job_rules::owes_work() const {
    return !waiting_.empty() && std::any_of(items_.begin(), items_.end(), [&](const auto& i) {
        const where* const at = place_of(i.second);
        return at && at->at != place::dead;
    });
}

void job_rules::look_for_idle(nanoseconds healed_at, nanoseconds bound) const {
    const auto is_long = [&](nanoseconds since) {
        return world_.now() > std::max(since, healed_at) + bound;
    };
    const bool waits = std::any_of(waiting_.begin(), waiting_.end(), is_long);
    for (const auto& [order, i] : items_) {
        const where* const at = place_of(i);
        if (!at || at->at == place::dead || !is_long(i.since)) {
            continue;
        }
        if (at->at != place::busy) {
            if (waits) {
                world_.fail("an item is ready, and a consumer waits for one: " + order);
            }
            continue;
        }
        const auto found = claims_.find(at->id);
        if (found == claims_.end()) {
            if (waits && is_long(unclaimed_.at(at->id))) {
                world_.fail("an item of a consumer that is gone is not ready again: " + order);
            }
            continue;
        }
        if (world_.count_of(fault::rights_revoked) != 0 &&
            world_.count_of(fault::late_duplicate) + world_.count_of(fault::duplicated) != 0) {
            continue; // of two copies of a request to take it, the second one may be refused
        }
        const auto h = held_.find(found->second.token);
        if (h == held_.end() || (h->second.count == 0 && is_long(h->second.since))) {
            world_.fail("an item is busy with nobody: " + order);
        }
    }
}

} // namespace sim
