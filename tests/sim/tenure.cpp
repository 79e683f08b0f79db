// SPDX-License-Identifier: BSL-1.0
#include "sim/tenure.hpp"

#include <algorithm>
#include <iterator>

namespace sim {

namespace {

constexpr std::string_view prefixes[] = {"lock/", "shared/", "sem/"};
constexpr std::size_t most_earlier = 8;

std::string_view id_of(std::string_view key) {
    return key.substr(key.rfind('/') + 1);
}

} // namespace

std::string lock_of(std::string_view key) {
    for (const std::string_view prefix : prefixes) {
        if (key.starts_with(prefix)) {
            return std::string(key.substr(0, key.find_first_of("./", prefix.size())));
        }
    }
    return {};
}

void tenure_rules::sent(const process& by,
                        std::uint64_t number,
                        const coetcd::detail::call_request& request) {
    last_call_ = std::max(last_call_, number);
    if (operators_.contains(&by)) {
        calls_.insert(number);
    }
    if (request.what == rpc::lease_keep_alive) {
        constexpr std::string_view digits = "0123456789";
        const std::string& all = request.body; // one after the other
        for (std::size_t at = all.find("\"ID\""); at != all.npos; at = all.find("\"ID\"", at + 1)) {
            const std::size_t first = all.find_first_of(digits, at);
            const lease_id id = std::stoll(all.substr(first));
            renewed_[id] = world_.now();
            if (claiming_.contains(id)) {
                world_.fail("the lease of a claim is renewed");
            }
        }
    }
}

bool tenure_rules::was_meant(const etcd::change& c, const std::vector<etcd::change>& all) const {
    const std::string name = lock_of(c.key);
    if (meant_.contains({name, c.before.create_revision})) {
        return true;
    }
    // A writer may have one more key, of another age.
    return std::any_of(all.begin(), all.end(), [&](const etcd::change& other) {
        return other.deleted && id_of(other.key) == id_of(c.key) && lock_of(other.key) == name &&
               meant_.contains({name, other.before.create_revision});
    });
}

etcd::cause tenure_rules::changed(const std::vector<etcd::change>& changes,
                                  etcd::cause why,
                                  const std::function<bool(lease_id)>& lease_returned) {
    const bool by_force = why == etcd::cause::request && calls_.contains(serving_);
    if (by_force) {
        why = etcd::cause::operator_;
    }
    for (const etcd::change& c : changes) {
        if (c.key.starts_with("gate/") && c.before.version != 0 && c.now.value < c.before.value) {
            world_.fail("a gate has admitted a token below the largest: " + c.key);
        }
        if (!c.deleted && c.key.starts_with("work/")) {
            check_work(c);
        }
        const std::string name = lock_of(c.key);
        if (c.deleted && c.key == name + ".own") {
            note_gone_[name] = world_.now();
            if (why == etcd::cause::request) {
                let_go_of_note(name, c.before.value);
            }
        }
        if (!c.deleted && !name.empty() && c.key.starts_with(name + ".ask/")) {
            const std::int64_t token = std::stoll(c.now.value, nullptr, 16);
            asked_.insert({{name, token}, world_.now()});
            if (!is_there(name, token)) {
                world_.fail("somebody is asked for a lock that he does not have: " + c.key);
            }
        }
        if (name.empty() || name.size() == c.key.size() || c.key[name.size()] != '/') {
            continue;
        }
        if (!c.deleted) {
            if (c.before.version != 0) {
                continue;
            }
            used_.emplace(c.now.lease, world_.now());
            earlier_.emplace_back(name, c.revision);
            if (earlier_.size() > most_earlier) {
                earlier_.pop_front();
            }
            const auto ended = ended_.find(c.key);
            if (ended != ended_.end() && serving_ != 0 && serving_ <= ended->second &&
                !lease_returned(c.now.lease)) {
                world_.fail("what was ended by force has come back: " + c.key);
            }
            continue;
        }
        if (by_force) {
            ++forced_ends;
            ended_[c.key] = last_call_;
            if (!was_meant(c, changes)) {
                world_.fail("an ownership was ended by force that was not meant: " + c.key);
            }
        }
        look_for_early_end(c, why);
        if (why == etcd::cause::operator_) {
            robbed_.insert({c.key, c.before.create_revision});
        }
        const auto t = tenants_.find(name);
        if (t != tenants_.end() && t->second.key == c.key &&
            t->second.fence == c.before.create_revision) {
            t->second.ended = why == etcd::cause::request ? c.revision : 0;
            t->second.by_operator = why == etcd::cause::operator_;
            if (t->second.ended == 0) {
                t->second.vanished = world_.now();
                t->second.lease = c.before.lease;
            }
        }
    }
    return why;
}

void tenure_rules::lease_ended(lease_id id, etcd::lease_end how) {
    if (how == etcd::lease_end::revoked && kept_.contains(id)) {
        world_.fail("a claim that was to be kept was given back");
    }
    if (how != etcd::lease_end::expired) {
        revoked_.insert(id);
        if (how == etcd::lease_end::revoked) {
            closed_.insert(id);
        }
        return;
    }
    for (const timed_hold& h : claims_) {
        if (h.lease == id && h.sound_clock && h.valid()) {
            world_.fail("a claim is valid, and its time is over: " + h.key);
        }
    }
}

std::optional<std::pair<std::string, std::int64_t>>
tenure_rules::draw_ownership(chance& taste) const {
    if (!earlier_.empty() && taste.one_in(3)) {
        return earlier_[taste.below(earlier_.size())];
    }
    std::vector<std::string> keys;
    for (const std::string_view prefix : prefixes) {
        for (std::string& key : world_.store.under(std::string(prefix))) {
            const std::size_t mark = key.find_first_of("./", prefix.size());
            if (mark != key.npos && key[mark] == '/') {
                keys.push_back(std::move(key));
            }
        }
    }
    if (keys.empty()) {
        return std::nullopt;
    }
    const std::string& key = keys[taste.below(keys.size())];
    return std::pair(lock_of(key), world_.store.keys.at(key).create_revision);
}

void tenure_rules::forced(const std::string& name, std::int64_t token, bool ended) {
    // In a state from before it may not have been there yet.
    if (is_there(name, token) && (ended || world_.count_of(fault::stale_read) == 0)) {
        world_.fail("force_unlock() has returned, and the ownership lasts: " + name + ", " +
                    std::to_string(token));
    }
}

bool tenure_rules::is_there(const std::string& name, std::int64_t token) const {
    const std::vector<std::string> keys = world_.store.under(name + "/");
    return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
        return world_.store.keys.at(key).create_revision == token;
    });
}

std::list<timed_hold>::iterator tenure_rules::claimed(timed_hold h) {
    ++claims;
    world_.note("claimed", static_cast<std::uint64_t>(h.token), h.key);
    claiming_.insert(h.lease);
    // Before, it may have been asked for how long it has.
    if (renewed_.contains(h.lease) && renewed_[h.lease] > used_[h.lease]) {
        world_.fail("the lease of a claim was renewed: " + h.key);
    }
    return claims_.insert(claims_.end(), std::move(h));
}

void tenure_rules::released(lease_id lease, bool had_ended) {
    if (!had_ended && world_.store.has_lease(lease)) {
        world_.fail("a claim was released, and its lease lives");
    }
}

void tenure_rules::outlasts(const timed_hold& h, nanoseconds at_least) {
    ++outlasting;
    if (h.sound_clock) { // which may be a bit fast
        minima_[{h.key, h.token}] = used_.at(h.lease) + at_least * 20 / 21;
    }
}

void tenure_rules::look_for_early_end(const etcd::change& c, etcd::cause why) const {
    const auto least = minima_.find({c.key, c.before.create_revision});
    if (least == minima_.end() || why == etcd::cause::operator_ || world_.now() >= least->second ||
        world_.count_of(fault::early_revoke) != 0 || world_.had_other_clusters()) {
        return;
    }
    world_.fail("a claim has ended before its minimum: " + c.key);
}

bool tenure_rules::excused(const timed_hold& h) const {
    return !h.sound_clock || revoked_.contains(h.lease) || robbed_.contains({h.key, h.token});
}

std::string tenure_rules::claim_of(const std::string& name) const {
    for (const timed_hold& h : claims_) {
        if (h.name == name && counts(h)) {
            return h.key;
        }
    }
    return {};
}

void tenure_rules::took_over(const std::string& name,
                             const std::string& key,
                             std::int64_t fence,
                             nanoseconds delay,
                             bool sound_clock) {
    tenant& t = tenants_[name];
    if (t.fence > fence) {
        return;
    }
    // A holder that gives back what an operator has deleted takes its note away. So does a holder
    // that has no space for anything else.
    // A session that is closed gives back what it has: what says so may come after the revocation.
    const bool gave_back =
        (t.given_back && (t.by_operator || world_.count_of(fault::no_space) != 0)) ||
        (t.took_note && closed_.contains(t.lease));
    if (t.vanished && !gave_back && t.fence != fence) {
        ++delays;
        // Its clock may be a bit fast.
        if (sound_clock && world_.now() < *t.vanished + delay * 20 / 21) {
            world_.fail("a lock was taken too soon after a holder that has vanished: " + key +
                        " after " + t.key);
        }
    }
    t = tenant{key, fence, delay};
    const auto now = world_.store.keys.find(key);
    if (now == world_.store.keys.end() || now->second.create_revision != fence) {
        t.vanished = world_.now(); // already: at some time before
        t.given_back = t.by_operator = true;
    }
}

void tenure_rules::let_go(const std::string& key, std::int64_t fence) {
    for (auto& [name, t] : tenants_) {
        if (t.key == key && t.fence == fence) {
            t.given_back = true;
        }
    }
}

/// A holder that notices that its key was deleted takes its note away, before its user knows.
void tenure_rules::let_go_of_note(const std::string& name, const std::string& key) {
    const auto t = tenants_.find(name);
    if (t != tenants_.end() && t->second.key == key) {
        t->second.given_back = t->second.took_note = true;
    }
}

nanoseconds
tenure_rules::may_wait(const std::string& name, const std::string& key, nanoseconds since) const {
    const auto note = world_.store.keys.find(name + ".own");
    if (note == world_.store.keys.end()) {
        // A wait may have begun before the holder that left the note took it away.
        const auto gone = note_gone_.find(name);
        return gone != note_gone_.end() && gone->second > since ? delay * 22 / 21 : nanoseconds(0);
    }
    const auto t = tenants_.find(name);
    const etcd::record& left = note->second;
    // Not in an earlier life of its key, nor in a later one: an attempt that was cancelled may have
    // had it, and an operator deleted it.
    const auto leaves = [&](const tenant& by) {
        return left.value == by.key && left.mod_revision >= by.fence &&
               left.mod_revision < by.ended;
    };
    // Its own, put there later, it may have put after it has waited; an earlier tenant may have had
    // the same key.
    const std::int64_t life = world_.store.keys.at(key).create_revision;
    const bool waited = left.value == key && left.mod_revision > life;
    // If an attempt was cancelled, and its session closed, it was first unnoticed.
    const bool needless =
        left.mod_revision == life || (!waited && t != tenants_.end() && leaves(t->second));
    return needless ? nanoseconds(0) : delay * 22 / 21;
}

std::list<listening_holder>::iterator tenure_rules::listens(listening_holder l) {
    l.began = world_.now();
    return listeners_.insert(listeners_.end(), std::move(l));
}

void tenure_rules::heard(const listening_holder& l) {
    ++requests_heard;
    if (!asked_.contains({l.name, l.token})) {
        world_.fail("a holder was asked to give a lock back, and nobody has asked: " + l.name +
                    ", " + std::to_string(l.token));
    }
}

void tenure_rules::look_for_unheard(nanoseconds healed_at, nanoseconds bound) {
    if (world_.had_lost_events()) {
        return;
    }
    for (listening_holder& l : listeners_) {
        if (!l.owns() && !l.lost_at) {
            l.lost_at = world_.now();
        }
        if (world_.now() <= std::max(healed_at, l.began) + bound) {
            continue;
        }
        if (l.lost_at) {
            if (world_.now() > *l.lost_at + bound) {
                world_.fail("a holder listens for requests although the lock is lost: " + l.name);
            }
            continue;
        }
        for (const std::string& key : world_.store.under(l.name + ".ask/")) {
            const etcd::record& now = world_.store.keys.at(key);
            const auto asked = asked_.find({l.name, std::stoll(now.value, nullptr, 16)});
            if (asked->first.second == l.token && world_.now() > asked->second + bound) {
                world_.fail("a holder is not told that somebody has asked: " + key);
            }
        }
    }
}

void tenure_rules::check_work(const etcd::change& c) {
    ++works;
    const auto gate = world_.store.keys.find(c.key.substr(std::string_view("work/").size()));
    const std::int64_t token = std::stoll(c.now.value);
    if (gate == world_.store.keys.end() || gate->second.mod_revision != c.now.mod_revision ||
        std::stoll(gate->second.value, nullptr, 16) != token) {
        world_.fail("what is done behind a gate was done without its token: " + c.key);
    }
    if (undone_.contains(c.now.value)) {
        world_.fail("what was not admitted was done: " + c.key);
    }
    done_.insert(c.now.value);
}

void tenure_rules::reported_done(const std::string& value) {
    if (!done_.contains(value)) {
        world_.fail("what was not done behind a gate is reported done: " + value);
    }
}

void tenure_rules::reported_undone(const std::string& value) {
    undone_.insert(value);
    if (done_.contains(value)) {
        world_.fail("what was done behind a gate is reported not done: " + value);
    }
}

std::int64_t tenure_rules::admitted(const std::string& gate) const {
    const auto now = world_.store.keys.find(gate);
    return now == world_.store.keys.end()
               ? 0
               : static_cast<std::int64_t>(std::stoull(now->second.value, nullptr, 16));
}

void tenure_rules::keeps(known_sequencer s) {
    sequencers_.push_back(std::move(s));
    if (sequencers_.size() > most_earlier) {
        sequencers_.pop_front();
    }
}

const tenure_rules::known_sequencer* tenure_rules::draw_sequencer(chance& taste) const {
    return sequencers_.empty() ? nullptr : &sequencers_[taste.below(sequencers_.size())];
}

bool tenure_rules::lasts(const known_sequencer& s) const {
    const auto now = world_.store.keys.find(s.key);
    return now != world_.store.keys.end() && now->second.create_revision == s.fence;
}

} // namespace sim
