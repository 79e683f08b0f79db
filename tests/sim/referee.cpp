// SPDX-License-Identifier: BSL-1.0
#include "sim/referee.hpp"

#include <algorithm>

namespace sim {

using namespace std::chrono_literals;

void referee::changed(const std::vector<etcd::change>& changes, etcd::cause why) {
    changed_at_.resize(changed_at_.size() + changes.size(), world_.now());
    const auto has_returned = [this](lease_id id) { return ended_.contains(id); };
    why = tenure.changed(changes, why, has_returned);
    permits.changed(changes, why, has_returned);
    book.changed(changes, has_returned);
    values.changed(changes, has_returned);
    members.changed(changes, has_returned);
    lock_values.changed(changes);
    jobs.changed(changes, why, has_returned);
    mirrors.changed(changes);
    queues.changed(changes, why, has_returned);
    parcels.changed(changes, why, has_returned);
    turnstile.changed(changes, why);
    hall.changed(changes, why);
    latches.changed(changes);
    barriers.changed(changes, why, has_returned);
    calls.changed(changes);
    for (const etcd::change& c : changes) {
        if (c.key.starts_with(resource_prefix)) {
            check_guarded_write(c);
        } else if (c.key.starts_with(data_prefix)) {
            check_once(c);
        }
        sharing.changed(c, why);
        herd.changed(c);
        if (!c.key.starts_with(queue_prefix)) {
            continue;
        }
        slots.changed(c, ended_.contains((c.deleted ? c.before : c.now).lease));
        if (!c.deleted && c.before.version == 0) {
            begun_[{c.key, c.revision}] = world_.now();
        }
        const std::string name = lock_of(c.key);
        const bool queued = c.key.size() > name.size() && c.key[name.size()] == '/';
        if (c.deleted) {
            gone_[{c.key, c.before.create_revision}] = {why, world_.now(), tells_all()};
            if (why == etcd::cause::operator_) {
                robbed_.insert({c.before.lease, name});
            }
        }
        if (queued) {
            touched_[{c.deleted ? c.before.lease : c.now.lease, name}] = world_.now();
            if (c.deleted && why == etcd::cause::operator_) {
                rob_waiter(c);
            }
            new_owner(name);
            leaders.changed(name, c, why);
        }
    }
}

void referee::sent(const process& by,
                   std::uint64_t number,
                   const coetcd::detail::call_request& request) {
    rates.sent(by);
    tenure.sent(by, number, request);
    if (request.what == coetcd::detail::rpc::txn && !tenure.is_operator(by)) {
        lock_requests what;
        what.read(request.body);
        slots.sent(number, by, what);
        herd.sent(number, by, what);
    }
}

void referee::lease_ended(lease_id id, etcd::lease_end how) {
    ended_[id] = {how, world_.now()};
    tenure.lease_ended(id, how);
    if (how != etcd::lease_end::expired) {
        permits.revoked(id);
        return;
    }
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || !found->second.sound_clock) {
        return;
    }
    const auto s = found->second.impl.lock();
    if (s && s->is_certain()) {
        world_.fail("a session counts on a lease that has expired");
    }
}

void referee::opened(const std::shared_ptr<session_impl>& s,
                     const process& in,
                     bool sound_clock,
                     bool works) {
    known_session known(s, in, sound_clock);
    known.works = works;
    known.opened_at = world_.now();
    if (s->reason() != session_end::none) { // the answer to its grant came too late
        known.ends = 1;
        known.why = s->reason();
        known.ended_at = world_.now();
    }
    sessions_[s->lease()] = known;
    look_at_states_ = true;
}

void referee::session_ended(lease_id id, session_end why) {
    world_.note("session_end", static_cast<std::uint64_t>(why));
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
        return; // it ended before it was given to its user
    }
    known_session& s = found->second;
    if (++s.ends > 1) {
        world_.fail("a session ended twice");
    }
    s.why = why;
    s.ended_at = world_.now();
    s.prompt = !s.in->is_paused();
    s.pauses_then = s.in->pauses;
    // A waiter whose key has gone may be asking etcd about its lease.
    world_.after(2ms, [this, id] { look_for_untold_loss(id, going_on::bodies); });
    world_.after(2ms, [this, id] { look_for_untold_loss(id, going_on::waiters_with_places); });
    world_.after(6s, [this, id] { look_for_untold_loss(id, going_on::waiters); });
    if (why == session_end::expired && world_.store.has_lease(id)) {
        world_.fail("a session ended as expired, and its lease lives");
    }
    if ((only_refused || prompt) && s.sound_clock &&
        (why == session_end::deadline || (why == session_end::cleanup_failed && !s.works))) {
        world_.fail("a session was lost although all members but one do as they are asked");
    }
    if (why == session_end::cleanup_failed && world_.healed() && calm_) {
        world_.fail("a session gave its lease up although nothing goes wrong");
    }
    const auto live = s.impl.lock();
    if (why == session_end::cleanup_failed && live && s.sound_clock && !s.works &&
        !world_.had_refusals() &&
        world_.now() - s.opened_at < live->ttl() / 2) { // etcd refuses nothing for good here
        world_.fail("a session gave its lease up before it had tried for a ttl");
    }
    if (why == session_end::deadline && live && s.renewed &&
        live->world.now() - *s.renewed < live->ttl() / 2) {
        world_.fail("a session was lost by its clock long before its time");
    }
}

void referee::told_of_loss(lease_id id, session_end why) {
    const known_session& s = sessions_.at(id);
    if (s.ends == 0 || s.why != why) {
        world_.fail("lost() tells of another end than the one there was");
    }
    if (s.prompt && s.in->pauses == s.pauses_then && world_.now() > s.ended_at + 1ms) {
        world_.fail("lost() did not tell at once");
    }
}

void referee::renewed(lease_id id, bool failed, nanoseconds took) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || orphans_.contains(id)) {
        return; // the session that orphaned it may tell late
    }
    known_session& known = found->second;
    const auto s = known.impl.lock();
    if (!s) {
        return;
    }
    // Several may be under way. What was sent before the last one that succeeded says nothing.
    const auto sent = s->world.now() - took;
    if (!known.renewed || sent >= *known.renewed) {
        known.failed = failed;
        known.renewed = failed ? known.renewed : sent;
        look_at_states_ = true;
    }
}

void referee::look_at_states() {
    if (!std::exchange(look_at_states_, false)) {
        return;
    }
    for (const auto& [id, known] : sessions_) {
        const auto s = known.impl.lock();
        if (!s || s->reason() != session_end::none) {
            continue;
        }
        if (known.ends != 0) {
            world_.fail("a session that was lost lives again");
        }
        // A leader that has been replaced may answer for some time, and renew nothing.
        const bool one_leader = world_.store.term == first_term_;
        const std::optional<nanoseconds> expires = world_.store.end_of_lease(id);
        if (known.sound_clock && one_leader && expires &&
            known.in->to_world(s->certain_until()) > *expires) {
            world_.fail("a session counts on its lease for longer than that may last");
        }
        // Else the look itself would end it.
        if (s->is_certain() && known.failed) {
            const bool suspect = s->state() == coetcd::session_state::suspect;
            if (suspect != *known.failed) {
                world_.fail(suspect ? "a session that was renewed is still suspect"
                                    : "a session that was not renewed is not suspect");
            }
        }
    }
}

bool referee::awaits_expiry() const {
    return std::any_of(crashed_.begin(), crashed_.end(), [&](const auto& c) {
        return world_.store.has_lease(c.first);
    });
}

std::list<watching>::iterator referee::watches(watching v) {
    v.began = world_.now();
    v.begun = v.how.start_revision != 0;
    v.after = v.begun ? v.how.start_revision - 1 : world_.store.revision;
    v.up_to = v.begun ? v.after : 0;
    v.at = first_after(v.after);
    return watches_.insert(watches_.end(), std::move(v));
}

/// Users ask for history, what the library watches for itself does not.
void referee::watched(std::uint64_t stream,
                      std::int64_t id,
                      std::int64_t start_revision,
                      const std::string& key) {
    constexpr std::int64_t first_question = std::int64_t{1} << 62;
    if (id >= first_question) {
        return;
    }
    const bool retains = key.starts_with(queue_prefix) && key.ends_with('.');
    const bool users = start_revision != 0 && !retains;
    if (streams_.emplace(stream, users).first->second != users) {
        world_.fail("a stream has watches of users and of locks");
    }
}

void referee::look_at_sleeper(watching& v, nanoseconds since) {
    const std::size_t i = first_untold(v);
    if (v.how.buffer == 1 && i != changed_at_.size() && changed_at_[i] < since + 2s &&
        world_.store.watches_of(v.key) != 0) {
        world_.fail("a stream is kept although nobody reads it: " + v.key);
    }
}

void referee::told(watching& v, const coetcd::watch_batch& batch) {
    v.told = world_.now();
    std::set<std::int64_t> revisions;
    for (const coetcd::event& e : batch.events) {
        revisions.insert(e.kv.mod_revision);
    }
    if (v.how.buffer == 1 && revisions.size() > world_.store.batch) {
        world_.fail("a watch holds " + std::to_string(revisions.size()) +
                    " revisions, and has room for one message");
    }
    const std::vector<etcd::change>& all = world_.store.history();
    for (const coetcd::event& e : batch.events) {
        ++told_changes;
        if (!v.begun) {
            // It may tell some of what happened while it began.
            v.at = std::min(v.at, first_after(e.kv.mod_revision - 1));
            v.begun = true;
        }
        while (v.at != all.size() && (!concerns(v, all[v.at]) ||
                                      (world_.had_lost_events() && !is(e, all[v.at], v.how)))) {
            ++v.at;
        }
        if (v.at == all.size() || !is(e, all[v.at], v.how)) {
            world_.fail("a watch tells, of revision " + std::to_string(e.kv.mod_revision) + ", " +
                        e.kv.key + ", what is not next, or did not happen so");
            return;
        }
        ++v.at;
    }
    const std::int64_t last = batch.events.empty() ? 0 : batch.events.back().kv.mod_revision;
    if (batch.revision < std::max(last, v.up_to)) {
        world_.fail("a watch goes back to revision " + std::to_string(batch.revision));
    }
    v.up_to = batch.revision;
    if (!v.begun && batch.revision < v.after) {
        return;
    }
    v.begun = true;
    for (; v.at != all.size() && all[v.at].revision <= batch.revision; ++v.at) {
        if (concerns(v, all[v.at]) && !world_.had_lost_events()) {
            world_.fail("a watch is at revision " + std::to_string(batch.revision) +
                        " and has left out " + all[v.at].key + " of revision " +
                        std::to_string(all[v.at].revision));
        }
    }
}

void referee::told_of_compaction(const watching& v, std::int64_t compact_revision) {
    ++told_compactions;
    const std::int64_t next = v.up_to + 1;
    if (compact_revision > world_.store.compacted || (v.begun && next >= compact_revision)) {
        world_.fail("a watch is called compacted, and all that it needs is there");
    }
}

bool referee::owes_changes() {
    const bool owes_events = !world_.had_lost_events() &&
                             std::any_of(watches_.begin(), watches_.end(), [&](watching& v) {
                                 return first_untold(v) != world_.store.history().size();
                             });
    return owes_events || leaders.owes_states() || values.owes_states() || members.owes_states() ||
           jobs.owes_work() || mirrors.owes_states() || queues.owes_items() ||
           parcels.owes_items() || turnstile.owes_passage() || hall.owes_passage() ||
           latches.owes_opening() || barriers.owes_passage();
}

void referee::look_for_untold(nanoseconds healed_at, nanoseconds bound) {
    leaders.look_for_untold(healed_at, bound);
    values.look_for_untold(healed_at, bound);
    members.look_for_untold(healed_at, bound);
    mirrors.look_for_untold(healed_at, bound);
    if (world_.had_lost_events()) {
        return;
    }
    for (watching& v : watches_) {
        if (v.sleeps) {
            continue;
        }
        const std::size_t i = first_untold(v);
        // What has happened before is told little by little.
        if (i != changed_at_.size() &&
            world_.now() > std::max({changed_at_[i], healed_at, v.began, v.told}) + bound) {
            world_.fail(
                "a watch does not tell what has happened: " + world_.store.history()[i].key +
                " of revision " + std::to_string(world_.store.history()[i].revision));
        }
    }
}

std::list<request>::iterator referee::wants(request r) {
    r.arrival = ++last_arrival_;
    return requests_.insert(requests_.end(), std::move(r));
}

void referee::wants_no_more(std::list<request>::iterator r) {
    nanoseconds& wanted = wanted_at_[{r->lease, r->name}];
    wanted = std::max(wanted, world_.now()); // it may be retained for longer
    requests_.erase(r);
}

std::list<hold>::iterator referee::granted(std::list<request>::iterator r, hold h) {
    ++grants;
    world_.note("granted", static_cast<std::uint64_t>(h.fence), h.key);
    if (!owners_.contains({h.key, h.fence}) && !went_before_its_turn(h)) {
        world_.fail("a lock was granted that etcd never gave: " + h.key);
    }
    if (!fences_.insert({h.name, h.fence}).second) {
        granted_again(h);
    }
    look_for_another(h);
    for (const request& other : requests_) {
        if (other.lease == h.lease && other.name == h.name && other.queues &&
            other.arrival < r->arrival && !other.cancelled && r->queues) {
            world_.fail("a lock went to who came later in a session");
        }
    }
    holds_.push_back(std::move(h));
    return std::prev(holds_.end());
}

void referee::granted_again(const hold& h) {
    if (retained_.erase({h.name, h.fence}) == 0) {
        world_.fail("a fencing token was given twice");
    }
    ++retentions;
    const auto wanted = wanted_by_others(h.name, h.fence, h.lease);
    // If its event is lost, a look tells of it within half a ttl.
    if (calm_ && wanted && world_.now() > *wanted + nanoseconds(longest_ttl) / 2 + 5s) {
        world_.fail("a session has a lock again that others want: " + h.key);
    }
}

bool referee::is_retained(const std::string& key) const {
    const auto found = world_.store.keys.find(key);
    const std::optional<lock_key> of = lock_key::parse(key);
    if (!of || found == world_.store.keys.end()) {
        return false;
    }
    const auto until = retained_.find({of->name, found->second.create_revision});
    return until != retained_.end() && world_.now() < until->second + 1s;
}

std::optional<nanoseconds> referee::wanted_by_others(const std::string& name,
                                                     std::int64_t create_revision,
                                                     lease_id of) const {
    std::optional<nanoseconds> first;
    const auto& keys = world_.store.keys;
    for (auto k = keys.lower_bound(name + "/"); k != keys.lower_bound(name + "0"); ++k) {
        const auto begun = begun_.find({k->first, k->second.create_revision});
        if (k->second.create_revision > create_revision && k->second.lease != of &&
            begun != begun_.end()) {
            first = std::min(first.value_or(begun->second), begun->second);
        }
    }
    return first;
}

/// Somebody has deleted its key while others were before it, and these have gone since: it will
/// find that out.
bool referee::went_before_its_turn(const hold& h) const {
    const auto gone = gone_.find({h.key, h.fence});
    const auto& keys = world_.store.keys;
    return gone != gone_.end() && gone->second.why != etcd::cause::request &&
           std::none_of(keys.lower_bound(h.name + "/"),
                        keys.lower_bound(h.name + "0"),
                        [&](const auto& k) { return k.second.create_revision < h.fence; });
}

void referee::look_for_another(const hold& h) {
    for (const hold& other : holds_) {
        if (other.name == h.name && !excused(other) && !excused(h) && other.valid() && h.valid()) {
            world_.fail("two hold a lock: " + other.key + " and " + h.key);
        }
    }
    const std::string claim = tenure.claim_of(h.name);
    if (!claim.empty() && !excused(h) && h.valid()) {
        world_.fail("a lock is held, and claimed: " + h.key + " and " + claim);
    }
}

std::list<timed_hold>::iterator referee::claimed(timed_hold h) {
    if (!owners_.contains({h.key, h.token})) {
        world_.fail("a claim was granted that etcd never gave: " + h.key);
    }
    if (!fences_.insert({h.name, h.token}).second) {
        world_.fail("a fencing token was given twice");
    }
    const std::string other = tenure.claim_of(h.name);
    const auto claim = tenure.claimed(std::move(h));
    if (!tenure.counts(*claim)) {
        return claim; // it is over, or may be
    }
    if (!other.empty()) {
        world_.fail("a name is claimed twice: " + other + " and " + claim->key);
    }
    for (const hold& held : holds_) {
        if (held.name == claim->name && !excused(held) && held.valid()) {
            world_.fail("a name is claimed, and its lock is held: " + claim->key + " and " +
                        held.key);
        }
    }
    return claim;
}

std::list<hold>::iterator referee::resumed(hold h) {
    ++resumptions;
    world_.note("resumed", static_cast<std::uint64_t>(h.fence), h.key);
    // A late copy may have put its key again after that was deleted by hand: another life.
    fences_.insert({h.name, h.fence});
    if (!owners_.contains({h.key, h.fence}) && !went_before_its_turn(h)) {
        world_.fail("a lock was resumed that etcd never gave: " + h.key);
    }
    look_for_another(h);
    holds_.push_back(std::move(h));
    return std::prev(holds_.end());
}

void referee::not_resumed(const std::string& key, std::int64_t fence, bool stays) {
    const auto end = gone_.find({key, fence});
    if (stays && end != gone_.end() && end->second.why == etcd::cause::request) {
        world_.fail("what an orphaned session held was given back: " + key);
    }
    const auto found = world_.store.keys.find(key);
    if (found != world_.store.keys.end() && found->second.create_revision == fence &&
        world_.count_of(fault::stale_read) == 0) {
        world_.fail("a lock was not resumed, and its lease holds it: " + key);
    }
}

void referee::gives_back(std::list<hold>::iterator h) {
    const nanoseconds until = wanted_until(*h);
    nanoseconds& wanted = wanted_at_[{h->lease, h->name}];
    wanted = std::max(wanted, until);
    if (h->clean && h->retained.count() != 0) {
        const nanoseconds stays =
            h->retained * (h->sound_clock ? 11 : 15) / 10 + 1s; // it may be slow
        wanted = std::max(wanted, until + stays);
        retained_[{h->name, h->fence}] = until + stays;
    }
    for (auto& [name, o] : current_) {
        if (o.key == h->key && o.create_revision == h->fence) {
            o.since = std::max(o.since, until); // its key has to go from then on
        }
    }
    holds_.erase(h);
}

void referee::unlocked(const std::string& key, std::int64_t fence, bool was_ours, bool certain) {
    const auto found = gone_.find({key, fence});
    const bool by_request = found != gone_.end() && found->second.why == etcd::cause::request;
    if (was_ours && certain && !by_request) {
        world_.fail("unlock() says that it gave back what was not there: " + key);
    }
    const auto now = world_.store.keys.find(key);
    if (was_ours && certain && now != world_.store.keys.end() &&
        now->second.create_revision == fence) {
        world_.fail("unlock() says that it gave back what is still there: " + key);
    }
}

void referee::lock_lost(lease_id id, const std::string& name, bool repeated) {
    if (!repeated && !robbed_.contains({id, name}) && !ended_.contains(id)) {
        world_.fail("a lock is called lost, and nobody took it");
    }
}

nanoseconds referee::wanted_until(const hold& h) const {
    return h.is_over() ? std::min(world_.now(), h.in->to_world(*h.until)) : world_.now();
}

void referee::look_at_holds() {
    sharing.look_at_holds();
    for (const hold& h : holds_) {
        if (h.is_over()) {
            if (h.owns()) {
                world_.fail("a lock is held for longer than it may be: " + h.key);
            }
            if (h.guards_body && h.in->pauses == h.pauses && !h.in->has_crashed() &&
                h.session->world.now() > *h.until + 2ms) {
                world_.fail("a body goes on although the time of its lock is over");
            }
            continue;
        }
        const auto found = world_.store.keys.find(h.key);
        const bool there = found != world_.store.keys.end() &&
                           found->second.create_revision == h.fence && h.session->is_certain();
        if (there && !h.owns()) {
            world_.fail("a lock is given up as lost, and its key is there: " + h.key);
        }
    }
}

void referee::write_resource(const std::string& name, std::int64_t fence) {
    std::int64_t& largest = resource_[name];
    if (!fences_.contains({name, fence})) {
        world_.fail("a resource was written with a fence that nobody was given");
    }
    largest = std::max(largest, fence);
}

void referee::look_for_stuck(nanoseconds healed_at, nanoseconds bound) {
    calm_ = !one_fails && world_.now() > healed_at + world::longest_delay + 5s;
    look_at_states_ = true;
    look_for_unnoticed(healed_at);
    look_for_robbed_waiters(healed_at);
    look_for_surplus(healed_at, bound);
    sharing.look_for_stuck(healed_at, bound);
    permits.look_for_stuck(healed_at, bound);
    for (const auto& [id, when] : crashed_) {
        const nanoseconds limit =
            world::longest_delay + 2 * nanoseconds(longest_ttl) + etcd::election_timeout + 2s;
        if (world_.store.has_lease(id) && world_.now() > std::max(when, healed_at) + limit) {
            world_.fail("the lease of a client that crashed lives on");
        }
    }
    for (const auto& [name, o] : current_) {
        if (o.key.empty() || world_.now() < std::max(o.since, healed_at) + bound) {
            continue;
        }
        const std::optional<lock_key> parts = lock_key::parse(o.key);
        const bool claimed = parts && parts->claimed; // it lasts for its time, whatever happens
        nanoseconds more =
            orphans_.contains(o.lease) || claimed ? 2 * nanoseconds(longest_ttl) : 0s;
        more += tenure.may_wait(name, o.key, o.since);
        nanoseconds since = o.since;
        if (const auto kept = retained_.find({name, o.create_revision}); kept != retained_.end()) {
            const auto wanted = wanted_by_others(name, o.create_revision, o.lease);
            since = std::max(since, std::min(kept->second, wanted.value_or(kept->second)));
        }
        bool held = false;
        for (const hold& h : holds_) {
            if (h.key == o.key && h.fence == o.create_revision) {
                since = std::max(since, wanted_until(h));
                held = held || !h.is_over();
            }
        }
        if (held || world_.now() < std::max(since, healed_at) + bound + more) {
            continue;
        }
        const auto s = sessions_.find(o.lease);
        const bool waiting = s != sessions_.end() &&
                             std::any_of(requests_.begin(), requests_.end(), [&](const request& r) {
                                 return r.lease == o.lease;
                             });
        world_.fail((waiting ? "nobody takes the lock whose turn it is: " : "a stray key: ") +
                    o.key);
    }
}

/// In the long run a session that waits for a lock or holds it has one key. Any other has none.
void referee::look_for_surplus(nanoseconds healed_at, nanoseconds bound) {
    for (const request& r : requests_) {
        nanoseconds& wanted = wanted_at_[{r.lease, r.name}];
        wanted = std::max(wanted, world_.now());
    }
    for (const hold& h : holds_) {
        nanoseconds& wanted = wanted_at_[{h.lease, h.name}];
        wanted = std::max(wanted, wanted_until(h));
    }
    const nanoseconds old = world_.now() - bound;
    std::map<std::pair<lease_id, std::string>, int> kept;
    for (auto k = world_.store.keys.lower_bound(std::string(queue_prefix));
         k != world_.store.keys.end() && k->first.starts_with(queue_prefix) && old > healed_at;
         ++k) {
        const std::optional<lock_key> of = lock_key::parse(k->first);
        if (of && of->queued && !of->claimed && sessions_.contains(k->second.lease) &&
            begun_[{k->first, k->second.create_revision}] < old &&
            !orphans_.contains(k->second.lease)) {
            const auto wanted = wanted_at_.find({k->second.lease, of->name});
            const bool in_use = wanted != wanted_at_.end() && wanted->second >= old;
            if (++kept[{k->second.lease, of->name}] > (in_use ? 1 : 0)) {
                world_.fail("the key of an attempt that is over stays: " + k->first);
            }
        }
    }
}

bool referee::has_unnoticed() const {
    return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& s) {
        return (!world_.store.has_lease(s.first) || was_replaced(s.second)) && is_alive(s.second);
    });
}

bool referee::was_replaced(const known_session& known) const {
    const std::optional<nanoseconds> replaced = world_.replaced_at();
    return replaced && known.opened_at < *replaced;
}

bool referee::excused(const hold& h) const {
    const auto gone = gone_.find({h.key, h.fence});
    const bool robbed =
        gone != gone_.end() && (gone->second.why == etcd::cause::operator_ ||
                                (h.given_back_before && gone->second.why == etcd::cause::request));
    return !h.sound_clock || was_revoked(h.lease) || robbed;
}

void referee::look_for_untold_loss(lease_id id, going_on which) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
        return; // it was orphaned
    }
    const known_session& s = found->second;
    if (!s.prompt || s.in->has_crashed() || s.in->pauses != s.pauses_then || !s.sound_clock) {
        return;
    }
    const auto waits = [&](const request& r) {
        return r.lease == id && (which == going_on::waiters ||
                                 (!ended_.contains(id) && !robbed_.contains({id, r.name})));
    };
    if (which == going_on::bodies) {
        if (std::any_of(holds_.begin(), holds_.end(), [&](const hold& h) {
                return h.lease == id && h.guards_body;
            })) {
            world_.fail("a body goes on although its lock is lost");
        }
    } else if (std::any_of(requests_.begin(), requests_.end(), waits)) {
        world_.fail("somebody waits for a lock although its session is lost");
    }
}

bool referee::is_alive(const known_session& known) {
    const auto s = known.impl.lock();
    return s && s->is_certain();
}

void referee::look_for_unseen() {
    if (!only_denied) {
        return;
    }
    const auto is_late = [&](const std::string& key, nanoseconds when, std::chrono::seconds ttl) {
        const auto since = world_.denied_since(key);
        // One more renewal may be on its way before the first look that is refused.
        return since && world_.now() > std::max(when, *since) + nanoseconds(ttl) * 145 / 100 + 1s;
    };
    look_at_holds(is_late);
}

void referee::look_at_holds(const late_end& is_late) const {
    sharing.look_for_unnoticed(is_late);
    permits.look_for_unnoticed(is_late);
    for (const hold& h : holds_) {
        const auto gone = gone_.find({h.key, h.fence});
        if (gone != gone_.end() && h.sound_clock && h.valid() &&
            is_late(h.key, gone->second.when, h.session->ttl())) {
            world_.fail("a holder does not notice that its key is gone: " + h.key);
        }
    }
}

void referee::look_for_unnoticed(nanoseconds healed_at) {
    const auto is_late = [&](nanoseconds when, std::chrono::seconds ttl) {
        // A third of it, plus the jitter and what clocks may differ.
        const nanoseconds due =
            prompt ? nanoseconds(ttl) * 37 / 100 + 700ms : nanoseconds(ttl) / 2 + 5s;
        return world_.now() > std::max(when, healed_at) + due;
    };
    for (const auto& [id, known] : sessions_) {
        const auto gone = ended_.find(id);
        if (gone != ended_.end() && !world_.store.has_lease(id) && is_alive(known) &&
            known.sound_clock && is_late(gone->second.when, known.impl.lock()->ttl())) {
            world_.fail("a session does not notice that its lease is gone");
        }
        if (was_replaced(known) && is_alive(known) && known.sound_clock &&
            is_late(*world_.replaced_at(), known.impl.lock()->ttl())) {
            world_.fail("a session lives on in a cluster that did not grant its lease");
        }
    }
    look_at_holds([&](const std::string&, nanoseconds when, std::chrono::seconds ttl) {
        return is_late(when, ttl);
    });
    if (prompt) {
        sharing.look_for_unheard();
    }
    for (const hold& h : holds_) {
        const auto gone = gone_.find({h.key, h.fence});
        if (gone == gone_.end() || !h.sound_clock || !h.valid()) {
            continue;
        }
        if (prompt && !owners_.contains({h.key, h.fence}) &&
            world_.now() > std::max({gone->second.when, h.granted_at, healed_at}) + 1s) {
            world_.fail("a holder does not notice that its key had gone before its turn: " + h.key);
        }
        if (h.watched && prompt && gone->second.told &&
            world_.now() > std::max(gone->second.when, h.granted_at) + 1s) {
            world_.fail("a holder that watches its key does not notice its end: " + h.key);
        }
    }
}

void referee::rob_waiter(const etcd::change& c) {
    const std::string name = c.key.substr(0, c.key.find('/', queue_prefix.size()));
    // Behind a hold of its own session a waiter has no key; it may be that of a lost hold, put
    // again by a late copy.
    const bool held = std::any_of(holds_.begin(), holds_.end(), [&](const hold& h) {
        return h.lease == c.before.lease && h.name == name;
    });
    const auto first = std::find_if(requests_.begin(), requests_.end(), [&](const request& r) {
        return r.lease == c.before.lease && r.name == name;
    });
    if (!held && first != requests_.end()) {
        robbed_waiters_.push_back(
            {c.before.lease, name, first->arrival, world_.now(), prompt && tells_all()});
    }
}

void referee::look_for_robbed_waiters(nanoseconds healed_at) {
    std::erase_if(robbed_waiters_, [&](const robbed_waiter& w) {
        const auto waits = std::find_if(requests_.begin(), requests_.end(), [&](const request& r) {
            return r.lease == w.lease && r.name == w.name && r.arrival == w.arrival;
        });
        // It waits no more, or has a place again.
        return waits == requests_.end() || waits->cancelled || touched_[{w.lease, w.name}] > w.when;
    });
    // Of two keys of a session one is being given up.
    const auto& keys = world_.store.keys;
    const auto has_key = [&](const robbed_waiter& w) {
        return std::any_of(keys.lower_bound(w.name + "/"),
                           keys.lower_bound(w.name + "0"),
                           [&](const auto& k) { return k.second.lease == w.lease; });
    };
    for (const robbed_waiter& w : robbed_waiters_) {
        const auto known = sessions_.find(w.lease);
        const auto s = known == sessions_.end() ? nullptr : known->second.impl.lock();
        if (!s || !is_alive(known->second) || !known->second.sound_clock ||
            known->second.in->is_paused() || has_key(w)) {
            continue;
        }
        const nanoseconds look = std::min<nanoseconds>(nanoseconds(s->ttl()) / 2, 10s) * 21 / 20;
        const nanoseconds due = w.told ? nanoseconds(1s) : look + (prompt ? 1s : 15s);
        if (world_.now() > std::max(w.when, healed_at) + due) {
            world_.fail("a waiter does not notice that its key is gone: " + w.name);
        }
    }
}

std::size_t referee::first_after(std::int64_t revision) const {
    const std::vector<etcd::change>& all = world_.store.history();
    const auto found = std::upper_bound(
        all.begin(), all.end(), revision, [](std::int64_t r, const etcd::change& c) {
            return r < c.revision;
        });
    return static_cast<std::size_t>(found - all.begin());
}

bool referee::concerns(const watching& v, const etcd::change& c) {
    const bool wanted =
        (c.deleted ? !v.how.no_erase : !v.how.no_put) && c.revision >= v.how.start_revision;
    return wanted && (v.range_end.empty() ? c.key == v.key : c.key >= v.key && c.key < v.range_end);
}

std::size_t referee::first_untold(watching& v) const {
    const std::vector<etcd::change>& all = world_.store.history();
    while (v.at != all.size() && !concerns(v, all[v.at])) {
        ++v.at;
    }
    return v.at;
}

bool referee::is(const coetcd::key_value& kv, const std::string& key, const etcd::record& r) {
    return kv.key == key && kv.value == r.value && kv.create_revision == r.create_revision &&
           kv.mod_revision == r.mod_revision && kv.version == r.version && kv.lease == r.lease;
}

bool referee::is(const coetcd::event& e, const etcd::change& c, const coetcd::watch_options& how) {
    const bool deleted = e.type != coetcd::event_type::put;
    const bool before = how.prev_kv && c.before.version != 0;
    return deleted == c.deleted && e.kv.mod_revision == c.revision && e.kv.key == c.key &&
           (deleted || is(e.kv, c.key, c.now)) && e.prev_kv.has_value() == before &&
           (!before || is(*e.prev_kv, c.key, c.before));
}

void referee::new_owner(const std::string& name) {
    owner now;
    const std::string prefix = name + "/";
    for (auto k = world_.store.keys.lower_bound(prefix);
         k != world_.store.keys.end() && k->first.starts_with(prefix);
         ++k) {
        if (now.key.empty() || k->second.create_revision < now.create_revision) {
            now = {k->first, k->second.create_revision, k->second.lease, world_.now()};
        }
    }
    owner& before = current_[name];
    if (before.key != now.key || before.create_revision != now.create_revision) {
        before = now;
        if (!now.key.empty()) {
            owners_.insert({now.key, now.create_revision});
            firsts_.insert({name, now.create_revision});
        }
    }
}

void referee::check_once(const etcd::change& c) {
    if (!c.deleted && written_.insert({c.now.value, serving_}).first->second != serving_) {
        world_.fail("a write was made twice: " + c.key);
    }
}

void referee::check_guarded_write(const etcd::change& c) {
    const std::string name = std::string(queue_prefix) + c.key.substr(resource_prefix.size());
    if (c.deleted || std::to_string(current_[name].create_revision) != c.now.value) {
        world_.fail("a guarded write came through, and the lock was not the writer's");
    }
}

} // namespace sim
