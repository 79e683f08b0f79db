// SPDX-License-Identifier: BSL-1.0
#include "sim/sharing.hpp"

#include <algorithm>

namespace sim {

using coetcd::lock_mode;
using coetcd::detail::logic::held_life;

namespace {

/// The name of the lock to which a key belongs, and what follows it.
std::pair<std::string, std::string> split(const std::string& key) {
    const std::size_t end = std::min(key.find_first_of("./", sharing_prefix.size()), key.size());
    return {key.substr(0, end), key.substr(end)};
}

} // namespace

void sharing_rules::changed(const etcd::change& c, etcd::cause why) {
    if (!c.key.starts_with(sharing_prefix)) {
        return;
    }
    const auto [name, rest] = split(c.key);
    if (rest.ends_with("-void") && !c.deleted) {
        world_.fail("the key that nobody puts was put: " + c.key);
    }
    if (!rest.starts_with("/")) {
        return;
    }
    if (c.deleted && why == etcd::cause::operator_) {
        robbed_.insert({c.before.lease, name});
        taken_away_[{c.key, c.before.create_revision}] = {world_.now(), tells_()};
    }
    look_at(name);
    if (rest.starts_with("/write/") && !c.deleted && c.before.version == 0) {
        check_upgrade(name, c);
    }
}

/// A write key was put. It must not be by a copy of an upgrade that was given up since.
void sharing_rules::check_upgrade(const std::string& name, const etcd::change& c) {
    const std::string id = c.key.substr(c.key.rfind('/') + 1);
    for (const shared_hold& h : holds_) {
        const std::vector<held_life> keys = h.keys();
        const bool its = std::any_of(keys.begin(), keys.end(), [&](const held_life& k) {
            return k.key == name + "/read/" + id || k.key == name + "/keep/" + id;
        });
        if (its && *h.just_reads && h.valid() && !over_(h.lease)) {
            world_.fail("a ghost: a copy that came late makes a reader write: " + c.key);
        }
    }
}

/// Which keys may own the lock now. A key that may once, may for as long as it lives: all others
/// that come are younger.
void sharing_rules::look_at(const std::string& name) {
    struct key {
        std::string id;
        std::int64_t born;
    };
    std::vector<key> reads;
    std::vector<key> writes;
    std::vector<key> keeps;
    std::int64_t oldest = 0;
    const std::string prefix = name + "/";
    for (auto k = world_.store.keys.lower_bound(prefix);
         k != world_.store.keys.end() && k->first.starts_with(prefix);
         ++k) {
        const std::int64_t born = k->second.create_revision;
        oldest = oldest == 0 ? born : std::min(oldest, born);
        const std::string rest = k->first.substr(prefix.size());
        const std::size_t slash = rest.find('/');
        const std::string folder = rest.substr(0, slash);
        const std::string id = slash == rest.npos ? "" : rest.substr(slash + 1);
        if (folder == "read") {
            reads.push_back({id, born});
        } else if (folder == "write") {
            writes.push_back({id, born});
        } else if (folder == "keep") {
            keeps.push_back({id, born});
        } else {
            world_.fail("a key of a shared lock that is no slot's: " + k->first);
        }
    }
    const auto older = [](const std::vector<key>& among, const key& than) {
        return std::any_of(among.begin(), among.end(), [&](const key& k) {
            return k.born < than.born && k.id != than.id;
        });
    };
    const auto born = [](const std::vector<key>& among, const key& of) {
        const auto found =
            std::find_if(among.begin(), among.end(), [&](const key& k) { return k.id == of.id; });
        return found == among.end() ? std::int64_t{0} : found->born;
    };
    const auto entitle = [&](const char* folder, const key& k) {
        entitled_.insert({{prefix + folder + k.id, k.born}, world_.now()});
    };
    for (const key& k : reads) {
        if (!older(writes, k)) {
            entitle("read/", k);
        }
    }
    for (const key& k : writes) {
        if (born(keeps, k) == k.born) {
            if (oldest == k.born) {
                entitle("write/", k);
                entitle("keep/", k);
            }
            continue;
        }
        // An upgrade: there is no other reader, and its base is the oldest of all.
        const std::int64_t base = std::max(born(reads, k), born(keeps, k));
        if (base != 0 && oldest == base && !older(reads, k)) {
            entitle("write/", k);
        }
    }
}

void sharing_rules::touch(lease_id lease, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        touched_[{lease, name}] = world_.now();
    }
}

bool sharing_rules::excused(const shared_hold& h) const {
    const bool robbed = std::any_of(h.names.begin(), h.names.end(), [&](const std::string& name) {
        return robbed_.contains({h.lease, name});
    });
    return !h.sound_clock || robbed || over_(h.lease);
}

/// Somebody has deleted keys of it while others were before it, and these have gone since: it will
/// find that out.
bool sharing_rules::went_before_its_turn(const shared_hold& h, const held_life& own) const {
    const std::string name = split(own.key).first;
    const std::string id = own.key.substr(own.key.rfind('/') + 1);
    const std::string before = own.key.starts_with(name + "/read/") ? name + "/write/" : name + "/";
    const std::vector<std::string> others = world_.store.under(before);
    const bool has_turn = std::none_of(others.begin(), others.end(), [&](const std::string& key) {
        return world_.store.keys.at(key).create_revision < own.create_revision &&
               key.substr(key.rfind('/') + 1) != id;
    });
    return has_turn && (robbed_.contains({h.lease, name}) || over_(h.lease) || !h.sound_clock);
}

void sharing_rules::check(const shared_hold& h) {
    for (const held_life& k : h.proof()) {
        if (!entitled_.contains({k.key, k.create_revision}) && !went_before_its_turn(h, k)) {
            world_.fail("a shared lock was granted that etcd never gave: " + k.key);
        }
    }
    if (excused(h) || !h.valid()) {
        return;
    }
    for (const shared_hold& other : holds_) {
        if (&other == &h || excused(other) || !other.valid()) {
            continue;
        }
        for (std::size_t i = 0; i != h.names.size(); ++i) {
            for (std::size_t k = 0; k != other.names.size(); ++k) {
                const bool both_read =
                    h.mode(i) == lock_mode::shared && other.mode(k) == lock_mode::shared;
                if (h.names[i] == other.names[k] && !both_read) {
                    world_.fail("somebody writes, and is not alone: " + h.names[i]);
                }
            }
        }
    }
}

std::list<shared_hold>::iterator sharing_rules::granted(shared_hold h) {
    ++grants;
    touch(h.lease, h.names);
    h.since = world_.now();
    holds_.push_back(std::move(h));
    check(holds_.back());
    return std::prev(holds_.end());
}

void sharing_rules::raised(shared_hold& h) {
    ++upgrades;
    h.since = world_.now();
    check(h);
}

void sharing_rules::gives_back(std::list<shared_hold>::iterator h) {
    touch(h->lease, h->names);
    holds_.erase(h);
}

void sharing_rules::look_at_holds() {
    for (const shared_hold& h : holds_) {
        if (h.is_over() && h.owns()) {
            world_.fail("a shared lock is held for longer than it may be: " + h.names.front());
        }
    }
}

void sharing_rules::look_for_stuck(nanoseconds healed_at, nanoseconds bound) {
    for (const std::string& key : left_behind()) {
        const etcd::record& now = world_.store.keys.at(key);
        const std::optional<nanoseconds> since = entitled_since(now);
        if (!since) {
            continue;
        }
        const held_life own{key, now.create_revision};
        const bool held = std::any_of(holds_.begin(), holds_.end(), [&](const shared_hold& h) {
            const std::vector<held_life> all = h.keys();
            const bool wanted = !h.is_over() || world_.now() < h.in->to_world(*h.until) + bound;
            return wanted && std::find(all.begin(), all.end(), own) != all.end();
        });
        nanoseconds& held_at = held_at_[{own.key, own.create_revision}];
        if (held) {
            held_at = world_.now(); // its holder has to notice first that it does not hold it
            continue;
        }
        const nanoseconds touched = touched_[{now.lease, split(key).first}];
        if (world_.now() >= std::max({*since, touched, held_at, healed_at}) + bound) {
            world_.fail("nobody takes the shared lock whose turn it is, or its key stays: " + key);
        }
    }
}

void sharing_rules::look_for_unnoticed(const late_end& is_late) const {
    for (const shared_hold& h : holds_) {
        if (!h.sound_clock || !h.valid()) {
            continue;
        }
        for (const held_life& k : h.keys()) {
            const auto gone = taken_away_.find({k.key, k.create_revision});
            if (gone != taken_away_.end() && is_late(k.key, gone->second.when, h.session->ttl())) {
                world_.fail("a holder does not notice that its key is gone: " + k.key);
            }
        }
    }
}

void sharing_rules::look_for_unheard() const {
    for (const shared_hold& h : holds_) {
        if (!h.sound_clock || !h.watched || !h.valid()) {
            continue;
        }
        for (const held_life& k : h.keys()) {
            const auto gone = taken_away_.find({k.key, k.create_revision});
            if (gone != taken_away_.end() && gone->second.told &&
                world_.now() > std::max(gone->second.when, h.since) + 1s) {
                world_.fail("a holder that watches its key does not notice its end: " + k.key);
            }
        }
    }
}

/// Since when an attempt may own all that it wants: several locks are taken by keys that are put at
/// once. So may be those of others of its session; they are counted in, as long as they are there.
std::optional<nanoseconds> sharing_rules::entitled_since(const etcd::record& r) const {
    nanoseconds last{0};
    for (const std::string& each : left_behind()) {
        const etcd::record& other = world_.store.keys.at(each);
        if (other.lease == r.lease && other.create_revision == r.create_revision) {
            const auto since = entitled_.find({each, r.create_revision});
            if (since == entitled_.end()) {
                return std::nullopt;
            }
            last = std::max(last, since->second);
        }
    }
    // One that was in the way of another name may have been deleted by hand: it has to notice.
    for (const auto& [life, how] : taken_away_) {
        if (life.second == r.create_revision) {
            last = std::max(last, how.when);
        }
    }
    return last;
}

std::vector<std::string> sharing_rules::left_behind() const {
    std::vector<std::string> keys = world_.store.under(std::string(sharing_prefix));
    std::erase_if(keys, [](const std::string& key) { return !split(key).second.starts_with("/"); });
    return keys;
}

} // namespace sim
