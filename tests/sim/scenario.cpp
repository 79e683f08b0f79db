// SPDX-License-Identifier: BSL-1.0
#include "sim/scenario.hpp"

#include <coetcd/detail/access.hpp>
#include <coetcd/detail/service/session.hpp>
#include <coetcd/mutex.hpp>
#include <coetcd/observer.hpp>
#include <coetcd/watch.hpp>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace sim {
namespace {

using namespace std::chrono_literals;
using coetcd::errc;
using coetcd::session_end;
using coetcd::detail::session_impl;

constexpr std::string_view queue_prefix = "lock/";
constexpr std::string_view resource_prefix = "resource/";
constexpr std::string_view data_prefix = "data/";

std::string name_of(int lock) {
    return std::string(queue_prefix) + std::to_string(lock);
}

/// A lock that its user counts on, from the grant until he gives it back.
struct hold {
    const process* in;
    std::string name;
    std::string key;
    std::int64_t fence;
    coetcd::lease_id lease;
    std::shared_ptr<session_impl> session;
    std::function<bool()> owns; ///< What the library says.
    bool sound_clock;
    bool guards_body; ///< It was taken by `with_lock`.

    bool valid() const {
        // The first two first: a look at a lock may end a session, and this is only a look.
        return session->reason() == session_end::none &&
               session->certain_until() > session->world.now() && owns();
    }
};

/// Somebody who waits for a lock.
struct request {
    const process* in;
    std::string name;
    coetcd::lease_id lease;
    std::uint64_t arrival;
    bool queues; ///< Else it does not wait.
    bool cancelled = false;
};

/// What somebody watches, and how much of it he was told.
struct watching {
    std::string key;
    std::string range_end;
    coetcd::watch_options how;
    nanoseconds began{0};
    nanoseconds told{0}; ///< When he was told something the last time.
    /// All changes after this one must be told; those of the start revision on, if there is one.
    std::int64_t after = 0;
    /// Whether it is known from which change on he was told.
    bool begun = false;
    std::size_t at = 0;     ///< The first change that he was not told; an index of the history.
    std::int64_t up_to = 0; ///< He was told all changes until then.
};

/// Watches over everything that must be true.
class referee final : public etcd::witness {
public:
    explicit referee(world& w)
        : world_(w) {
        w.store.told = this;
    }

    // What etcd does.

    void changed(const std::vector<etcd::change>& changes, etcd::cause why) override {
        changed_at_.resize(changed_at_.size() + changes.size(), world_.now());
        for (const etcd::change& c : changes) {
            if (c.key.starts_with(resource_prefix)) {
                check_guarded_write(c);
            }
            if (!c.key.starts_with(queue_prefix)) {
                continue;
            }
            if (c.deleted) {
                gone_[c.key] = {c.before.create_revision, why, world_.now()};
                if (why == etcd::cause::operator_) {
                    robbed_.insert(c.before.lease);
                }
            }
            if (const auto slash = c.key.find('/', queue_prefix.size());
                slash != std::string::npos) {
                new_owner(c.key.substr(0, slash));
            }
        }
    }
    void lease_ended(lease_id id, etcd::lease_end how) override {
        ended_[id] = {how, world_.now()};
        if (how != etcd::lease_end::expired) {
            return;
        }
        const auto found = sessions_.find(id);
        if (found == sessions_.end() || !found->second.sound_clock) {
            return;
        }
        const auto s = found->second.impl.lock();
        if (s && s->reason() == session_end::none && s->certain_until() > s->world.now()) {
            world_.fail("a session counts on a lease that has expired");
        }
    }

    /// Once; a request to grant it that is repeated on the way may bring it back.
    bool has_ended(lease_id id) const { return ended_.contains(id); }

    // What clients do.

    void opened(const std::shared_ptr<session_impl>& s, const process& in, bool sound_clock) {
        known_session known(s, in, sound_clock);
        if (s->reason() != session_end::none) { // the answer to its grant came too late
            known.ends = 1;
            known.why = s->reason();
            known.ended_at = world_.now();
        }
        sessions_[s->lease()] = known;
    }
    void session_ended(lease_id id, session_end why) {
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
        // A body is cancelled at once; a waiter may have a request under way.
        world_.after(2ms, [this, id] { look_for_untold_loss(id, true); });
        world_.after(6s, [this, id] { look_for_untold_loss(id, false); });
        if (why == session_end::expired && world_.store.has_lease(id)) {
            world_.fail("a session ended as expired, and its lease lives");
        }
        if (why == session_end::cleanup_failed && world_.healed() && calm_) {
            world_.fail("a session gave its lease up although nothing goes wrong");
        }
    }

    /// Who waited for the end of a session was told of it.
    void told_of_loss(lease_id id, session_end why) {
        const known_session& s = sessions_.at(id);
        if (s.ends == 0 || s.why != why) {
            world_.fail("lost() tells of another end than the one there was");
        }
        if (s.prompt && s.in->pauses == s.pauses_then && world_.now() > s.ended_at + 1ms) {
            world_.fail("lost() did not tell at once");
        }
    }
    /// A round of renewal is over.
    void renewed(lease_id id, bool failed) {
        if (const auto found = sessions_.find(id); found != sessions_.end()) {
            found->second.failed = failed;
            look_at_states_ = true;
        }
    }
    /// Whether every session says what it has to say of itself. Looks if something has happened.
    void look_at_states() {
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
            // Else the look itself would end it.
            if (s->certain_until() > s->world.now() && known.failed) {
                const bool suspect = s->state() == coetcd::session_state::suspect;
                if (suspect != *known.failed) {
                    world_.fail(suspect ? "a session that was renewed is still suspect"
                                        : "a session that was not renewed is not suspect");
                }
            }
        }
    }
    /// Its process is no more.
    void crashed(lease_id id) { crashed_[id] = world_.now(); }
    bool awaits_expiry() const {
        return std::any_of(crashed_.begin(), crashed_.end(), [&](const auto& c) {
            return world_.store.has_lease(c.first);
        });
    }

    // Watches.

    std::list<watching>::iterator watches(watching v) {
        v.began = world_.now();
        v.begun = v.how.start_revision != 0;
        v.after = v.begun ? v.how.start_revision - 1 : world_.store.revision;
        v.up_to = v.begun ? v.after : 0;
        v.at = first_after(v.after);
        return watches_.insert(watches_.end(), std::move(v));
    }
    void watches_no_more(std::list<watching>::iterator v) { watches_.erase(v); }
    void told(watching& v, const coetcd::watch_batch& batch) {
        v.told = world_.now();
        const std::vector<etcd::change>& all = world_.store.history();
        for (const coetcd::event& e : batch.events) {
            ++told_changes;
            if (!v.begun) {
                // It may tell some of what happened while it began.
                v.at = std::min(v.at, first_after(e.kv.mod_revision - 1));
                v.begun = true;
            }
            while (v.at != all.size() &&
                   (!concerns(v, all[v.at]) || (events_were_lost() && !is(e, all[v.at], v.how)))) {
                ++v.at;
            }
            if (v.at == all.size() || !is(e, all[v.at], v.how)) {
                world_.fail("a watch tells, of revision " + std::to_string(e.kv.mod_revision) +
                            ", " + e.kv.key + ", what is not next, or did not happen so");
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
            if (concerns(v, all[v.at]) && !events_were_lost()) {
                world_.fail("a watch is at revision " + std::to_string(batch.revision) +
                            " and has left out " + all[v.at].key + " of revision " +
                            std::to_string(all[v.at].revision));
            }
        }
    }
    void told_of_compaction(const watching& v, std::int64_t compact_revision) {
        ++told_compactions;
        const std::int64_t next = v.up_to + 1;
        if (compact_revision > world_.store.compacted || (v.begun && next >= compact_revision)) {
            world_.fail("a watch is called compacted, and all that it needs is there");
        }
    }
    /// Whether somebody was not told yet what happened.
    bool owes_changes() const {
        return !events_were_lost() &&
               std::any_of(watches_.begin(), watches_.end(), [&](const watching& v) {
                   return first_untold(v) != world_.store.history().size();
               });
    }
    void look_for_untold(nanoseconds healed_at, nanoseconds bound) {
        if (events_were_lost()) {
            return;
        }
        for (const watching& v : watches_) {
            const std::size_t i = first_untold(v);
            // One with a small buffer is told little by little, a round trip at a time.
            const nanoseconds moved = v.how.buffer == 1 ? v.told : v.began;
            if (i != changed_at_.size() &&
                world_.now() > std::max({changed_at_[i], healed_at, v.began, moved}) + bound) {
                world_.fail(
                    "a watch does not tell what has happened: " + world_.store.history()[i].key +
                    " of revision " + std::to_string(world_.store.history()[i].revision));
            }
        }
    }

    std::list<request>::iterator wants(request r) {
        r.arrival = ++last_arrival_;
        return requests_.insert(requests_.end(), std::move(r));
    }
    void wants_no_more(std::list<request>::iterator r) { requests_.erase(r); }

    std::list<hold>::iterator granted(std::list<request>::iterator r, hold h) {
        ++grants;
        world_.note("granted", static_cast<std::uint64_t>(h.fence), h.key);
        if (!owners_.contains({h.key, h.fence})) {
            world_.fail("a lock was granted that etcd never gave: " + h.key);
        }
        if (!fences_.insert({h.name, h.fence}).second) {
            world_.fail("a fencing token was given twice");
        }
        for (const hold& other : holds_) {
            if (other.name == h.name && !excused(other) && !excused(h) && other.valid() &&
                h.valid()) {
                world_.fail("two hold a lock: " + other.key + " and " + h.key);
            }
        }
        for (const request& other : requests_) {
            if (other.lease == h.lease && other.name == h.name && other.queues &&
                other.arrival < r->arrival && !other.cancelled && r->queues) {
                world_.fail("a lock went to who came later in a session");
            }
        }
        holds_.push_back(std::move(h));
        return std::prev(holds_.end());
    }
    void gives_back(std::list<hold>::iterator h) {
        for (auto& [name, o] : current_) {
            if (o.key == h->key) {
                o.since = world_.now(); // its key has to go from now on
            }
        }
        holds_.erase(h);
    }

    /// @param certain Every request was answered, so that the answer must be right.
    void unlocked(const std::string& key, std::int64_t fence, bool was_ours, bool certain) {
        const auto found = gone_.find(key);
        const bool by_request = found != gone_.end() && found->second.create_revision == fence &&
                                found->second.why == etcd::cause::request;
        if (was_ours && certain && !by_request) {
            world_.fail("unlock() says that it gave back what was not there: " + key);
        }
        if (was_ours && world_.store.keys.contains(key) && certain) {
            world_.fail("unlock() says that it gave back what is still there: " + key);
        }
    }
    /// @param repeated A request of it was repeated on the way: the second time an unlock finds
    ///   nothing any more.
    void lock_lost(lease_id id, bool repeated) {
        if (!repeated && !robbed_.contains(id) && !ended_.contains(id)) {
            world_.fail("a lock is called lost, and nobody took it");
        }
    }

    /// A resource outside etcd, which refuses a fence below the largest it has seen.
    void write_resource(const std::string& name, std::int64_t fence) {
        std::int64_t& largest = resource_[name];
        if (!fences_.contains({name, fence})) {
            world_.fail("a resource was written with a fence that nobody was given");
        }
        largest = std::max(largest, fence);
    }

    // Once nothing goes wrong any more.

    /// Nobody may be first in a queue for long, and not hold the lock.
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound) {
        calm_ = !one_fails && world_.now() > healed_at + world::longest_delay + 5s;
        look_at_states_ = true;
        look_for_unnoticed(healed_at);
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
            const bool held = std::any_of(holds_.begin(), holds_.end(), [&](const hold& h) {
                return h.key == o.key && h.fence == o.create_revision;
            });
            if (held) {
                continue;
            }
            const auto s = sessions_.find(o.lease);
            const bool waiting = s != sessions_.end() &&
                                 std::any_of(requests_.begin(),
                                             requests_.end(),
                                             [&](const request& r) { return r.lease == o.lease; });
            world_.fail((waiting ? "nobody takes the lock whose turn it is: " : "a stray key: ") +
                        o.key);
        }
    }

    /// Whether a session counts on a lease that is gone, and has had no time yet to learn it.
    bool has_unnoticed() const {
        return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& s) {
            return !world_.store.has_lease(s.first) && is_alive(s.second);
        });
    }

    std::uint64_t grants = 0;
    std::uint64_t told_changes = 0;
    std::uint64_t told_compactions = 0;
    std::chrono::seconds longest_ttl{0};
    bool one_fails = false; ///< A call does, although all else goes well.

private:
    struct known_session {
        known_session() = default;
        known_session(const std::shared_ptr<session_impl>& s, const process& p, bool sound)
            : impl(s)
            , in(&p)
            , sound_clock(sound) {}
        std::weak_ptr<session_impl> impl;
        const process* in = nullptr;
        bool sound_clock = false;
        int ends = 0;
        session_end why = session_end::none;
        nanoseconds ended_at{0};
        bool prompt = false; ///< Whoever waits for its end can be told at once.
        std::uint64_t pauses_then = 0;
        std::optional<bool> failed; ///< The last renewal.
    };
    struct owner {
        std::string key;
        std::int64_t create_revision = 0;
        lease_id lease = 0;
        nanoseconds since{0};
    };
    struct end {
        std::int64_t create_revision;
        etcd::cause why;
        nanoseconds when;
    };

    /// Whether etcd itself took it away, so that its user may not know it yet.
    bool excused(const hold& h) const {
        const auto lease = ended_.find(h.lease);
        const bool revoked = lease != ended_.end() && lease->second.how != etcd::lease_end::expired;
        return !h.sound_clock || revoked || robbed_.contains(h.lease);
    }

    /// Whether somebody goes on although his session is over, with a body or waiting for a lock.
    void look_for_untold_loss(lease_id id, bool bodies) {
        const known_session& s = sessions_.at(id);
        if (!s.prompt || s.in->has_crashed() || s.in->pauses != s.pauses_then || !s.sound_clock) {
            return;
        }
        if (bodies && std::any_of(holds_.begin(), holds_.end(), [&](const hold& h) {
                return h.lease == id && h.guards_body;
            })) {
            world_.fail("a body goes on although its lock is lost");
        }
        if (!bodies && std::any_of(requests_.begin(), requests_.end(), [&](const request& r) {
                return r.lease == id;
            })) {
            world_.fail("somebody waits for a lock although his session is lost");
        }
    }

    static bool is_alive(const known_session& known) {
        const auto s = known.impl.lock();
        return s && s->reason() == session_end::none && s->certain_until() > s->world.now();
    }

    /// With the next round of renewal, every session knows what is gone.
    void look_for_unnoticed(nanoseconds healed_at) {
        const auto is_late = [&](nanoseconds when, std::chrono::seconds ttl) {
            return world_.now() > std::max(when, healed_at) + nanoseconds(ttl) / 2 + 5s;
        };
        for (const auto& [id, known] : sessions_) {
            const auto gone = ended_.find(id);
            if (gone != ended_.end() && !world_.store.has_lease(id) && is_alive(known) &&
                known.sound_clock && is_late(gone->second.when, known.impl.lock()->ttl())) {
                world_.fail("a session does not notice that its lease is gone");
            }
        }
        for (const hold& h : holds_) {
            const auto gone = gone_.find(h.key);
            if (gone != gone_.end() && gone->second.create_revision == h.fence && h.sound_clock &&
                h.valid() && is_late(gone->second.when, h.session->ttl())) {
                world_.fail("a holder does not notice that his key is gone: " + h.key);
            }
        }
    }

    /// The first change of a later revision.
    std::size_t first_after(std::int64_t revision) const {
        const std::vector<etcd::change>& all = world_.store.history();
        const auto found = std::upper_bound(
            all.begin(), all.end(), revision, [](std::int64_t r, const etcd::change& c) {
                return r < c.revision;
            });
        return static_cast<std::size_t>(found - all.begin());
    }
    static bool concerns(const watching& v, const etcd::change& c) {
        const bool wanted =
            (c.deleted ? !v.how.no_delete : !v.how.no_put) && c.revision >= v.how.start_revision;
        return wanted &&
               (v.range_end.empty() ? c.key == v.key : c.key >= v.key && c.key < v.range_end);
    }
    std::size_t first_untold(const watching& v) const {
        const std::vector<etcd::change>& all = world_.store.history();
        std::size_t i = v.at;
        while (i != all.size() && !concerns(v, all[i])) {
            ++i;
        }
        return i;
    }
    bool events_were_lost() const {
        return world_.counts()[static_cast<std::size_t>(fault::event_lost)] != 0;
    }
    static bool is(const coetcd::key_value& kv, const std::string& key, const etcd::record& r) {
        return kv.key == key && kv.value == r.value && kv.create_revision == r.create_revision &&
               kv.mod_revision == r.mod_revision && kv.version == r.version && kv.lease == r.lease;
    }
    static bool
    is(const coetcd::event& e, const etcd::change& c, const coetcd::watch_options& how) {
        const bool deleted = e.type != coetcd::event_type::put;
        const bool before = how.prev_kv && c.before.version != 0;
        return deleted == c.deleted && e.kv.mod_revision == c.revision && e.kv.key == c.key &&
               (deleted || is(e.kv, c.key, c.now)) && e.prev_kv.has_value() == before &&
               (!before || is(*e.prev_kv, c.key, c.before));
    }

    void new_owner(const std::string& name) {
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
            }
        }
    }

    void check_guarded_write(const etcd::change& c) {
        const std::string name = std::string(queue_prefix) + c.key.substr(resource_prefix.size());
        if (c.deleted || std::to_string(current_[name].create_revision) != c.now.value) {
            world_.fail("a guarded write came through, and the lock was not the writer's");
        }
    }

    world& world_;
    std::map<lease_id, known_session> sessions_;
    struct lease_ending {
        etcd::lease_end how;
        nanoseconds when;
    };
    std::map<lease_id, lease_ending> ended_;
    std::set<lease_id> robbed_; // whose keys an operator deleted
    std::map<std::string, end> gone_;
    std::map<std::string, owner> current_;
    std::set<std::pair<std::string, std::int64_t>> owners_;
    std::set<std::pair<std::string, std::int64_t>> fences_;
    std::map<std::string, std::int64_t> resource_;
    std::list<hold> holds_;
    std::list<request> requests_;
    std::uint64_t last_arrival_ = 0;
    bool calm_ = false;
    bool look_at_states_ = false;
    std::map<lease_id, nanoseconds> crashed_;
    std::list<watching> watches_;
    std::vector<nanoseconds> changed_at_; // of each change in etcd's history
};

/// What the library reports of one client.
class reporter final : public coetcd::observer {
public:
    explicit reporter(referee& to)
        : to_(to) {}
    void on_renewal(const coetcd::renewal_report& r) override {
        to_.renewed(r.lease, bool(r.outcome));
    }
    void on_session_end(const coetcd::session_report& r) override {
        to_.session_ended(r.lease, r.reason);
    }
    void on_lock_wait(const coetcd::lock_wait_report& r) override { taken += r.acquired ? 1U : 0U; }
    void on_lock_hold(const coetcd::lock_hold_report&) override { ++given_back; }

    std::uint64_t taken = 0;
    std::uint64_t given_back = 0;

private:
    referee& to_;
};

/// An operation that runs by itself and can be cancelled.
struct operation {
    explicit operation(process& p)
        : done(std::make_shared<suspension>(p)) {}
    asio::cancellation_signal stop;
    const std::shared_ptr<suspension> done;
    int completions = 0;
    std::exception_ptr failure;
    std::optional<nanoseconds> cancelled_at;
    std::list<request>::iterator* wants = nullptr;
};

enum class way { lock, try_lock, try_lock_for, scoped_lock, with_lock };

/// What all clients of a history share.
struct stage {
    stage(const plan& p, world::options o)
        : what(p)
        , w(p.seed, o)
        , judge(w)
        , taste(chance::derive(p.seed, 3)) {}
    const plan& what;
    world w;
    referee judge;
    chance taste; ///< Of what clients do.

    int locks = 1;
    std::chrono::seconds ttl{3};
    std::uint32_t cancel_ppm = 0;
    bool sluggish = false; ///< Who has lost a lock is long in letting go of it.
    bool reached = false;
    std::uint64_t cancellations = 0;
    std::uint64_t crashes = 0;
};

/// A client and what it does.
class actor {
public:
    actor(stage& s, std::shared_ptr<process> p, coetcd::client_options options)
        : s_(s)
        , p_(std::move(p))
        , report_(std::make_shared<reporter>(s.judge))
        , jobs_(1) {
        options.observer = report_;
        std::vector<std::string> urls;
        const int known = options.member_refresh ? 1 : s.w.store.members();
        for (int m = 0; m != known; ++m) {
            urls.push_back("http://m" + std::to_string(m));
        }
        client_.emplace(p_, coetcd::endpoints(std::move(urls)), options);
        p_->on_crash = [this] { crashed(); };
    }

    void start(int jobs, int rounds, bool sound_clock) {
        sound_clock_ = sound_clock;
        jobs_ = jobs;
        for (int i = 0; i != jobs; ++i) {
            auto at_end = [this](std::exception_ptr failure) {
                --jobs_;
                if (failure) {
                    fail("a client", failure);
                }
            };
            asio::co_spawn(p_->executor(), job(rounds), std::move(at_end));
        }
    }
    bool finished() const { return jobs_ == 0; }

    /// Watches something, besides, until the end.
    void start_watch() {
        ++watches_;
        auto at_end = [this](std::exception_ptr failure) {
            --watches_;
            if (failure) {
                fail("a watcher", failure);
            }
        };
        asio::co_spawn(p_->executor(), watch(), std::move(at_end));
    }

    /// Crashes at its n-th suspension.
    void crash_at(std::uint64_t n) {
        p_->on_suspension = [this, n] {
            if (++seen_ == n) {
                s_.reached = true;
                p_->crash_soon();
            }
        };
    }
    /// Cancels what is under way at the n-th suspension of this client.
    void cancel_at(std::uint64_t n) {
        p_->on_suspension = [this, n] {
            if (current_ && ++seen_ == n) {
                s_.reached = true;
                emit(current_);
            }
        };
    }

    /// Ends the session and the client; what is left behind is to be nothing.
    void close(bool orderly) {
        if (orderly && session_) {
            asio::co_spawn(p_->executor(), close_session(), [](std::exception_ptr) {});
        } else {
            drop();
        }
    }
    bool closed() const { return !client_ && watches_ == 0 && mourners_ == 0; }
    bool counts_match() const { return report_->taken == report_->given_back || p_->has_crashed(); }
    process& in() { return *p_; }
    bool has_live_session(lease_id id) const {
        if (!session_) {
            return false;
        }
        const session_impl& impl = *coetcd::detail::access::impl(*session_);
        return impl.lease() == id && impl.reason() == session_end::none &&
               impl.certain_until() > impl.world.now();
    }

private:
    void drop() {
        session_.reset();
        watcher_.reset();
        client_.reset();
    }
    void crashed() {
        p_->on_suspension = nullptr;
        jobs_ = 0;
        watches_ = 0;
        mourners_ = 0;
        current_ = nullptr;
        if (session_) {
            s_.judge.crashed(session_->lease());
        }
        drop();
        ++s_.crashes;
    }
    asio::awaitable<void> close_session() {
        const lease_id lease = session_->lease();
        try {
            co_await session_->close();
            if (s_.w.store.has_lease(lease) && !s_.judge.has_ended(lease)) {
                s_.w.fail("close() returned, and the lease lives");
            }
        } catch (const boost::system::system_error&) {
            if (s_.what.what != plan::kind::fail_at) {
                s_.w.fail("close() failed although nothing goes wrong");
            }
        }
        drop();
    }

    void fail(const std::string& who, const std::exception_ptr& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const std::exception& e) {
            s_.w.fail(who + " met an unexpected exception: " + e.what());
        }
    }

    void emit(const std::shared_ptr<operation>& o) {
        auto now = [this, o] {
            if (o->completions == 0 && !o->cancelled_at) {
                ++s_.cancellations;
                s_.w.note("cancel", p_->number());
                o->cancelled_at = s_.w.now();
                if (o->wants) {
                    (*o->wants)->cancelled = true;
                }
                o->stop.emit(asio::cancellation_type::terminal);
            }
        };
        asio::post(p_->executor(), std::move(now));
    }

    /// Runs `work`, whose end is none of the caller's.
    asio::awaitable<void> perform(std::shared_ptr<operation> o, asio::awaitable<void> work) {
        auto at_end = [this, o](std::exception_ptr failure) {
            o->failure = failure;
            if (++o->completions != 1) {
                s_.w.fail("an operation completed twice");
            }
            o->done->resume();
        };
        asio::co_spawn(p_->executor(),
                       std::move(work),
                       asio::bind_cancellation_slot(o->stop.slot(), std::move(at_end)));
        const std::uint64_t pauses = p_->pauses;
        if (s_.taste.ppm(s_.cancel_ppm)) {
            const nanoseconds when = s_.taste.skewed(0ms, s_.taste.one_in(4) ? 2000ms : 100ms);
            s_.w.after(when, [this, o] { emit(o); });
        }
        (void)co_await suspension::wait(o->done);
        if (o->cancelled_at && p_->pauses == pauses && s_.w.now() - *o->cancelled_at > 1ms) {
            s_.w.fail("a cancelled operation did not end at once");
        }
        if (o->failure) {
            judge(o->failure);
        }
    }

    /// Whether an operation may have ended so.
    void judge(const std::exception_ptr& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const boost::system::system_error& e) {
            const error_code ec = e.code();
            s_.w.note("threw", static_cast<std::uint64_t>(ec.value()));
            const bool expected = ec == errc::timed_out || ec == errc::unavailable ||
                                  ec == errc::outcome_unknown || ec == errc::session_lost ||
                                  ec == errc::lock_lost || ec == errc::not_owner ||
                                  ec == asio::error::operation_aborted ||
                                  ec == coetcd::server_errc::resource_exhausted ||
                                  ec == coetcd::server_errc::unauthenticated;
            if (!expected) {
                s_.w.fail(std::string("an unexpected error: ") + e.what());
            }
        } catch (const std::exception& e) {
            s_.w.fail(std::string("an unexpected exception: ") + e.what());
        }
    }

    asio::awaitable<void> job(int rounds) {
        chance taste(s_.taste.next());
        for (int round = 0; round != rounds; ++round) {
            co_await have_session();
            const auto o = std::make_shared<operation>(*p_);
            const way how = static_cast<way>(taste.below(5));
            std::string name =
                name_of(static_cast<int>(taste.below(static_cast<std::uint64_t>(s_.locks))));
            current_ = p_->number() == 0 ? o : nullptr;
            asio::awaitable<void> work = attempt(o, std::move(name), how, taste);
            co_await perform(o, std::move(work));
            current_ = nullptr;
            if (taste.one_in(2)) { // else at once
                (void)co_await p_->sleep(taste.skewed(0ms, 300ms));
            }
        }
    }

    /// Opens a session if there is none that lives.
    asio::awaitable<void> have_session() {
        for (;;) {
            if (opening_) {
                (void)co_await p_->sleep(20ms);
                continue;
            }
            if (session_ && session_->state() != coetcd::session_state::lost) {
                co_return;
            }
            opening_ = true;
            session_.reset();
            try {
                coetcd::session opened =
                    co_await coetcd::session::open(*client_, coetcd::session_options(s_.ttl));
                session_.emplace(std::move(opened));
                s_.judge.opened(coetcd::detail::access::impl(*session_), *p_, sound_clock_);
                mourn();
            } catch (const boost::system::system_error& e) {
                // A lease may end before its grant is answered.
                if (e.code() != coetcd::server_errc::not_found) {
                    judge(std::current_exception());
                }
            }
            opening_ = false;
            if (!session_) {
                (void)co_await p_->sleep(200ms);
            }
        }
    }

    /// Waits for the end of the session.
    void mourn() {
        ++mourners_;
        auto at_end = [this, id = session_->lease()](std::exception_ptr failure, session_end why) {
            --mourners_;
            if (failure) {
                fail("who waits for lost()", failure);
            } else {
                s_.judge.told_of_loss(id, why);
            }
        };
        asio::co_spawn(p_->executor(), session_->lost(), std::move(at_end));
    }

    /// What a watch is of, drawn at random.
    static watching draw_watch(chance& taste, std::int64_t revision) {
        watching v;
        const std::uint64_t what = taste.below(5);
        if (what == 0) {
            v.key = "data/0";
        } else if (what == 1) {
            v.key = name_of(0) + "/";
            v.range_end = name_of(0) + "0";
        } else if (what == 2) {
            v.key = "a";
            v.range_end = "z";
        } else {
            v.key = data_prefix;
            v.range_end = "data0";
        }
        if (taste.one_in(2)) {
            v.how.start_revision = std::max<std::int64_t>(1, revision + taste.between(-12, 4));
        }
        v.how.prev_kv = taste.one_in(3);
        v.how.no_put = taste.one_in(8);
        v.how.no_delete = !v.how.no_put && taste.one_in(8);
        v.how.progress_notify = taste.one_in(3);
        v.how.buffer = taste.one_in(3) ? 1 : 1'000'000;
        return v;
    }

    /// A watch in the referee's books, until its user does not count on it any more.
    class watch_entry {
    public:
        watch_entry(referee& judge, const watching& v)
            : judge_(judge)
            , place_(judge.watches(v)) {}
        ~watch_entry() { judge_.watches_no_more(place_); }
        watch_entry(const watch_entry&) = delete;
        watch_entry& operator=(const watch_entry&) = delete;
        watching& operator*() const { return *place_; }

    private:
        referee& judge_;
        const std::list<watching>::iterator place_;
    };

    /// Watches, and starts anew if history was compacted.
    asio::awaitable<void> watch() {
        chance taste(s_.taste.next());
        std::int64_t start = -1;
        while (client_) {
            watching v = draw_watch(taste, s_.w.store.revision);
            if (start >= 0) {
                v.how.start_revision = start;
            }
            start = -1;
            int naps = taste.one_in(2) ? 8 : 0;
            std::optional<watch_entry> seen;
            bool again = false;
            try {
                coetcd::key_range range(v.key);
                range.range_end = v.range_end;
                coetcd::watcher began = co_await client_->watch(std::move(range), v.how);
                if (!client_) {
                    co_return;
                }
                watcher_.emplace(std::move(began));
                seen.emplace(s_.judge, v);
                for (;;) {
                    const coetcd::watch_batch batch = co_await watcher_->next();
                    s_.judge.told(**seen, batch);
                    if (naps > 0 && taste.one_in(2)) {
                        --naps;
                        (void)co_await p_->sleep(taste.skewed(0ms, 200ms));
                    }
                    if (!watcher_) {
                        break;
                    }
                }
            } catch (const coetcd::compacted_error& e) {
                if (seen) {
                    s_.judge.told_of_compaction(**seen, e.compact_revision());
                }
                start = e.compact_revision();
            } catch (const boost::system::system_error& e) {
                if (e.code() != asio::error::operation_aborted && seen) {
                    s_.w.fail(std::string("a watch ended: ") + e.what());
                } else if (!seen) {
                    judge(std::current_exception());
                    again = true;
                }
            }
            seen.reset();
            watcher_.reset();
            if (again) {
                (void)co_await p_->sleep(200ms);
            }
        }
    }

    /// From the request for a lock to the end of its use, in the referee's books.
    class visit {
    public:
        visit(actor& a, std::shared_ptr<operation> o, const std::string& name, way how)
            : actor_(a)
            , session_(coetcd::detail::access::impl(*a.session_))
            , operation_(std::move(o))
            , how_(how)
            , request_(a.s_.judge.wants({a.p_.get(),
                                         name,
                                         session_->lease(),
                                         0,
                                         how != way::try_lock,
                                         operation_->cancelled_at.has_value()})) {
            operation_->wants = &*request_;
        }
        ~visit() {
            give_back();
            no_more();
        }
        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;

        template<class Lock>
        void granted(const Lock& l) {
            key = l.key();
            fence = l.fencing_token();
            hold h{actor_.p_.get(),
                   (*request_)->name,
                   key,
                   fence,
                   session_->lease(),
                   session_,
                   [&l] { return l.owns_lock(); },
                   actor_.sound_clock_,
                   how_ == way::with_lock};
            hold_ = actor_.s_.judge.granted(*request_, std::move(h));
            no_more();
        }
        void give_back() {
            if (hold_) {
                actor_.s_.judge.gives_back(*hold_);
                hold_.reset();
            }
        }
        lease_id lease() const { return session_->lease(); }
        std::string key;
        std::int64_t fence = 0;

    private:
        void no_more() {
            if (request_) {
                operation_->wants = nullptr;
                actor_.s_.judge.wants_no_more(*request_);
                request_.reset();
            }
        }
        actor& actor_;
        const std::shared_ptr<session_impl> session_;
        const std::shared_ptr<operation> operation_;
        const way how_;
        std::optional<std::list<request>::iterator> request_;
        std::optional<std::list<hold>::iterator> hold_;
    };

    asio::awaitable<void>
    attempt(std::shared_ptr<operation> o, std::string name, way how, chance& taste) {
        const lease_id lease = session_->lease();
        try {
            co_await take_and_use(o, name, how, taste);
        } catch (const boost::system::system_error& e) {
            if (e.code() == errc::lock_lost) {
                s_.judge.lock_lost(lease, p_->repeated_calls != 0);
            }
            throw;
        }
    }

    asio::awaitable<void>
    take_and_use(std::shared_ptr<operation> o, std::string name, way how, chance& taste) {
        coetcd::mutex m(*session_, name);
        visit v(*this, o, name, how);
        if (how == way::with_lock) {
            auto body = [this, &v, &name, &taste](const coetcd::held_lock& l) {
                return guarded_body(v, l, name, taste);
            };
            co_await coetcd::with_lock(m, body);
            co_return;
        }
        if (how == way::scoped_lock) {
            coetcd::held_lock l = co_await m.scoped_lock();
            must_own(l);
            v.granted(l);
            co_await use(v, l, name, taste);
            v.give_back();
            if (taste.one_in(2)) {
                co_await unlock(v, l);
            }
            co_return;
        }
        bool taken = true;
        if (how == way::lock) {
            co_await m.lock();
        } else if (how == way::try_lock) {
            taken = co_await m.try_lock();
        } else {
            const nanoseconds patience = taste.skewed(1ms, 3s);
            taken = co_await m.try_lock_for(patience);
        }
        if (!taken) {
            co_return;
        }
        must_own(m);
        v.granted(m);
        co_await use(v, m, name, taste);
        v.give_back();
        if (!taste.one_in(8)) { // else it goes with the mutex
            co_await unlock(v, m);
        }
    }

    /// In the instruction after the one that took it.
    template<class Lock>
    void must_own(const Lock& l) {
        if (!l.owns_lock()) {
            s_.w.fail("a lock was granted that is lost already");
        }
    }

    asio::awaitable<void>
    guarded_body(visit& v, const coetcd::held_lock& l, const std::string& name, chance& taste) {
        v.granted(l);
        struct end {
            visit& of;
            ~end() { of.give_back(); }
        };
        const end at_end{v};
        co_await use(v, l, name, taste);
    }

    template<class Lock>
    asio::awaitable<void> unlock(visit& v, Lock& l) {
        const std::uint64_t failed = p_->failed_calls;
        const bool was_ours = co_await l.unlock();
        s_.judge.unlocked(v.key, v.fence, was_ours, p_->failed_calls == failed);
    }

    /// A change of several keys, for those who watch.
    static coetcd::txn draw_data(chance& taste) {
        coetcd::txn t;
        for (int i = 0; i != 6; ++i) {
            const std::string key = std::string(data_prefix) + std::to_string(i);
            const std::uint64_t what = taste.below(4);
            if (what == 0) {
                t.success.push_back(coetcd::op::erase(key));
            } else if (what != 1) {
                t.success.push_back(coetcd::op::put(key, std::to_string(taste.below(10))));
            }
        }
        return t;
    }

    /// What a lock is for.
    template<class Lock>
    asio::awaitable<void> use(visit& v, const Lock& l, const std::string& name, chance& taste) {
        const int steps = taste.between(0, 3);
        for (int i = 0; i != steps && l.owns_lock(); ++i) {
            const std::uint64_t what = taste.below(4);
            if (what == 3) {
                asio::awaitable<coetcd::txn_response> writing = client_->txn(draw_data(taste));
                try {
                    (void)co_await std::move(writing);
                } catch (const coetcd::error&) {
                    judge(std::current_exception()); // the lock is ours all the same
                }
            } else if (what == 0) {
                const nanoseconds time = taste.skewed(0ms, taste.one_in(8) ? 4s : 60ms);
                const bool very_long = taste.one_in(128);
                (void)co_await p_->sleep(very_long ? time + 25s : time);
            } else if (what == 1) {
                coetcd::txn write;
                write.compares.push_back(l.is_owner());
                write.success.push_back(
                    coetcd::op::put(std::string(resource_prefix) + name.substr(queue_prefix.size()),
                                    std::to_string(v.fence)));
                asio::awaitable<coetcd::txn_response> writing = client_->txn(std::move(write));
                try {
                    (void)co_await std::move(writing);
                } catch (const coetcd::error&) {
                    judge(std::current_exception()); // the lock is ours all the same
                }
            } else {
                const nanoseconds way_there = taste.skewed(1ms, 2s);
                s_.w.after(way_there, [&judge = s_.judge, name, fence = v.fence] {
                    judge.write_resource(name, fence);
                });
            }
        }
        if (s_.sluggish) {
            (void)co_await p_->sleep(taste.skewed(0s, 10s));
            if (!l.owns_lock()) {
                (void)co_await p_->sleep(150s); // nobody may have to wait for that
            }
        }
    }

    stage& s_;
    const std::shared_ptr<process> p_;
    const std::shared_ptr<reporter> report_;
    std::optional<coetcd::client> client_;
    std::optional<coetcd::session> session_;
    bool opening_ = false;
    bool sound_clock_ = true;
    int jobs_;
    std::optional<coetcd::watcher> watcher_;
    int watches_ = 0;
    int mourners_ = 0; ///< Who wait for the end of a session.
    std::shared_ptr<operation> current_;
    std::uint64_t seen_ = 0;
};

/// A swarm: a subset of all faults, each at a rate of its own.
weather draw_weather(chance& c) {
    weather w;
    const auto maybe = [&](fault f, std::uint64_t one_in, int low, int high) {
        const bool on = c.one_in(one_in);
        const int rate = c.between(low, high);
        if (on) {
            w[f] = static_cast<std::uint32_t>(rate);
        }
    };
    maybe(fault::request_lost, 4, 5'000, 100'000);
    maybe(fault::answer_lost, 3, 5'000, 150'000);
    maybe(fault::duplicated, 4, 10'000, 200'000);
    maybe(fault::late_duplicate, 4, 10'000, 200'000);
    maybe(fault::delayed, 4, 10'000, 150'000);
    maybe(fault::refused, 4, 5'000, 100'000);
    maybe(fault::broken, 3, 5'000, 150'000);
    maybe(fault::stream_dropped, 5, 5'000, 60'000);
    maybe(fault::stream_silent, 6, 5'000, 60'000);
    maybe(fault::event_lost, 5, 50'000, 500'000);
    maybe(fault::stale_read, 5, 10'000, 100'000);
    maybe(fault::early_revoke, 6, 5'000, 40'000);
    maybe(fault::leader_change, 6, 5'000, 40'000);
    maybe(fault::compaction, 5, 10'000, 200'000);
    maybe(fault::member_paused, 5, 5'000, 60'000);
    maybe(fault::member_cut, 5, 5'000, 60'000);
    maybe(fault::client_paused, 4, 300, 4'000);
    maybe(fault::client_cut, 5, 5'000, 40'000);
    maybe(fault::client_crashed, 4, 100, 2'000);
    maybe(fault::token_expired, 6, 10'000, 60'000);
    maybe(fault::no_space, 8, 5'000, 30'000);
    maybe(fault::operator_delete, 6, 5'000, 60'000);
    return w;
}

} // namespace

outcome run(const plan& p) {
    chance luck(chance::derive(p.seed, 4));
    world::options o;
    o.members = luck.one_in(4) ? 1 : 3;
    o.speaks = luck.one_in(2) ? dialect::v1 : dialect::v2;
    o.latency_high = std::chrono::milliseconds(luck.between(1, 30));
    if (luck.one_in(2)) {
        o.progress_interval = luck.within(200ms, 10s);
    }
    const bool random = p.what == plan::kind::random;

    stage s(p, o);
    world& w = s.w;
    w.keep_notes(p.notes);
    w.operator_prefixes = {name_of(0) + "/", name_of(1) + "/"};
    s.locks = luck.between(1, 2);
    constexpr int ttls[] = {2, 2, 3, 3, 5, 5, 10, 30};
    s.ttl = std::chrono::seconds(ttls[luck.below(std::size(ttls))]);
    s.judge.longest_ttl = s.ttl;
    s.judge.one_fails = p.what == plan::kind::fail_at;
    w.store.batch = luck.one_in(2) ? 1000 : 2;
    w.store.piece = luck.one_in(2) ? 0 : 2;
    weather sky = draw_weather(luck);
    if (!random || luck.one_in(16)) {
        sky = weather();
    }
    s.sluggish = random && luck.one_in(32);
    if (s.sluggish) {
        sky = weather();
        sky[fault::late_duplicate] = 500'000;
        sky[fault::operator_delete] = 100'000;
    }
    s.cancel_ppm = random && luck.one_in(2) ? 400'000 : 0;

    coetcd::client_options options;
    if (luck.one_in(6)) {
        options.credentials.emplace("root", std::string("secret"));
        options.insecure_plain_text_credentials = true;
        w.store.require_user("root", "secret");
    }
    if (luck.one_in(4)) {
        options.member_refresh = std::chrono::seconds(luck.between(1, 10));
    }

    const int clients = random ? luck.between(2, 4) : 2;
    std::vector<std::unique_ptr<actor>> actors;
    const auto add_actor = [&]() -> actor& {
        std::shared_ptr<process> of = w.add_process();
        bool sound_clock = true;
        if (random && luck.one_in(6)) {
            const bool wild = luck.one_in(3); // beyond what the margin allows for
            of->set_rate(luck.between(wild ? -300'000 : -45'000, wild ? 300'000 : 45'000));
            sound_clock = !wild;
            w.count(fault::clock_rate);
        }
        actors.push_back(std::make_unique<actor>(s, of, options));
        actor& added = *actors.back();
        if (actors.size() == 1 && p.what == plan::kind::cancel_at) {
            added.cancel_at(p.point);
        }
        if (actors.size() == 1 && p.what == plan::kind::crash_at) {
            added.crash_at(p.point);
        }
        if (actors.size() == 1 && p.what == plan::kind::fail_at) {
            of->failing_call = p.point;
            of->failing_how = p.how;
        }
        const int jobs = luck.one_in(4) ? luck.between(2, 3) : 1;
        added.start(jobs, luck.between(1, 3), sound_clock);
        return added;
    };
    for (int i = 0; i != clients; ++i) {
        actor& added = add_actor();
        if (luck.one_in(6)) {
            added.start_watch();
        }
    }
    w.set_weather(sky);

    // It goes wrong, for a while.
    std::uint64_t crashes = 0;
    int coming_back = 0; // Of those who crash, half do.
    bool ending = false;
    const auto finished = [&] {
        return coming_back == 0 && std::all_of(actors.begin(), actors.end(), [](const auto& a) {
                   return a->finished();
               });
    };
    const auto step = [&] {
        const bool more = w.step();
        s.judge.look_at_states();
        for (; crashes != s.crashes; ++crashes) {
            if (!ending && luck.one_in(2)) {
                ++coming_back;
                w.after(luck.within(0ms, 3s), [&] {
                    --coming_back;
                    add_actor();
                });
            }
        }
        return more && w.failure().empty();
    };
    const nanoseconds storm = luck.within(500ms, 8s);
    bool more = true;
    while (more && !finished() && w.now() < storm && !sky.calm()) {
        more = step();
    }

    // Nothing goes wrong any more: all must come to an end.
    w.heal();
    const nanoseconds healed_at = w.now();
    const nanoseconds recheck = std::min<nanoseconds>(s.ttl / 2, 10s);
    // Who was silenced in the storm finds out by and by; a lease that nobody renews ends.
    // Where nothing went wrong at all, a lock is handed over by an event, not by a look.
    const bool calm = p.what != plan::kind::fail_at && s.cancel_ppm == 0 && sky.calm();
    const nanoseconds bound = !calm ? 2 * nanoseconds(s.ttl) + 2s + recheck + 15s
                              : p.what == plan::kind::crash_at ? nanoseconds(s.ttl) + 2s
                                                               : nanoseconds(1s);
    // A watch whose stream fell silent asks after 10 s.
    const nanoseconds patience = calm ? 3s : 40s;
    nanoseconds next_look = w.now();
    const auto look = [&] {
        if (w.now() >= next_look) {
            next_look = w.now() + 250ms;
            s.judge.look_for_stuck(healed_at, bound);
            s.judge.look_for_untold(healed_at, patience);
        }
    };
    const nanoseconds limit = w.now() + 1000s;
    while (more && !finished()) {
        more = step();
        look();
        if (w.now() > limit) {
            w.fail("no progress although nothing goes wrong");
        }
    }

    // Nothing may stay behind of them, though their sessions live on. A tombstone may: it goes with
    // its session.
    const nanoseconds finished_at = w.now();
    ending = true;
    const auto left_behind = [&] {
        std::vector<std::string> keys = w.store.under(std::string(queue_prefix));
        std::erase_if(keys, [](const std::string& key) {
            return key.find('/', queue_prefix.size()) == std::string::npos;
        });
        return keys;
    };
    const auto dirty = [&] {
        return w.in_flight() != 0 || s.judge.has_unnoticed() || s.judge.awaits_expiry() ||
               s.judge.owes_changes() || !left_behind().empty();
    };
    while (more && dirty()) {
        more = step();
        look();
        const nanoseconds waited = w.now() - finished_at;
        if (waited < world::longest_delay + 1s) {
            continue;
        }
        for (const std::string& key : left_behind()) {
            const lease_id lease = w.store.keys.at(key).lease;
            const bool live = std::any_of(actors.begin(), actors.end(), [&](const auto& a) {
                return a->has_live_session(lease);
            });
            if (live || waited > world::longest_delay + 2 * nanoseconds(s.ttl) + 5s) {
                w.fail("a key was left behind: " + key);
            }
        }
        if (waited > world::longest_delay + 2 * nanoseconds(s.ttl) + patience + 6s) {
            break;
        }
    }

    // The end, in good order or not.
    for (const auto& a : actors) {
        a->close(luck.one_in(2));
    }
    const nanoseconds closing_at = w.now();
    const auto busy = [&] {
        for (const auto& a : actors) {
            if (!a->closed() || a->in().waiting() != 0) {
                return true;
            }
        }
        return w.store.streams() != 0;
    };
    while (more && busy()) {
        more = step();
        if (w.now() > closing_at + 40s) {
            w.fail("work goes on although all is closed");
        }
    }
    for (const auto& a : actors) {
        if (more && !a->counts_match()) {
            w.fail("the observer was not told once of each end of a lock");
        }
    }

    outcome result;
    result.failure = w.failure();
    result.reached = s.reached;
    for (const auto& of : w.processes()) {
        result.calls += of->calls;
        if (p.what == plan::kind::fail_at && of->number() == 0) {
            result.reached = of->calls >= p.point;
        }
    }
    result.trace = w.trace();
    result.faults = w.counts();
    result.cancellations = s.cancellations;
    result.grants = s.judge.grants;
    result.told = s.judge.told_changes;
    result.compactions = s.judge.told_compactions;
    result.duration = w.now();
    result.notes = w.notes();
    w.shut_down(); // before the actors go
    return result;
}

} // namespace sim
