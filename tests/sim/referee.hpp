// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/service/session.hpp>
#include <coetcd/watch.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/barriers.hpp"
#include "sim/jobs.hpp"
#include "sim/latches.hpp"
#include "sim/leaders.hpp"
#include "sim/ledger.hpp"
#include "sim/lock_values.hpp"
#include "sim/meetings.hpp"
#include "sim/members.hpp"
#include "sim/mirrors.hpp"
#include "sim/permits.hpp"
#include "sim/queues.hpp"
#include "sim/registers.hpp"
#include "sim/sharing.hpp"
#include "sim/slots.hpp"
#include "sim/tenure.hpp"
#include "sim/values.hpp"
#include "sim/world.hpp"

namespace sim {

using coetcd::session_end;
using coetcd::detail::session_impl;

inline constexpr std::string_view queue_prefix = "lock/";
inline constexpr std::string_view resource_prefix = "resource/";
inline constexpr std::string_view data_prefix = "data/";

inline std::string name_of(int lock) {
    return std::string(queue_prefix) + std::to_string(lock);
}

/// A lock that its user counts on, from the grant until it is given back.
struct hold {
    const process* in;
    std::string name;
    std::string key;
    std::int64_t fence;
    coetcd::lease_id lease;
    std::shared_ptr<session_impl> session;
    std::function<bool()> owns; ///< What the library says.
    bool sound_clock;
    bool guards_body; ///< It was taken by `with_lock`, or `lead`.
    /// It was resumed, and an earlier owner had given it back: that may still be on its way.
    bool given_back_before = false;
    /// When it is to end, by its process's clock, whatever becomes of the session.
    std::optional<coetcd::detail::time_point> until{};
    bool watched = false; ///< Its key is watched while it is held.
    nanoseconds granted_at{0};
    std::uint64_t pauses = 0; ///< Of its process, until it was granted.

    nanoseconds retained{0}; ///< For how long it may stay with its session when it was given back.
    /// It was given back by its holder, who has nothing under way.
    bool clean = false;

    /// Its time is.
    bool is_over() const { return until && session->world.now() >= *until; }
    bool valid() const {
        // This first: a look at a lock may end a session, and this is only a look.
        return session->is_certain() && owns();
    }
};

/// An attempt to take a lock.
struct request {
    const process* in;
    std::string name;
    coetcd::lease_id lease;
    std::uint64_t arrival;
    bool queues; ///< Else it does not wait.
    bool cancelled = false;
};

/// What a reader watches, and how much of it the reader was told.
struct watching {
    std::string key;
    std::string range_end;
    coetcd::watch_options how;
    nanoseconds began{0};
    nanoseconds told{0}; ///< When the reader was told something the last time.
    /// All changes after this one must be told; those of the start revision on, if there is one.
    std::int64_t after = 0;
    /// Whether it is known from which change on the reader was told.
    bool begun = false;
    std::size_t at = 0;     ///< The first change that was not told; an index of the history.
    std::int64_t up_to = 0; ///< All changes until then were told.
    bool sleeps = false;    ///< The reader reads nothing now.
};

/// Watches over everything that must be true.
class referee final : public etcd::witness, public wiretap {
public:
    explicit referee(world& w)
        : slots(w)
        , sharing(
              w, [this](lease_id id) { return was_revoked(id); }, [this] { return tells_all(); })
        , herd(w,
               [this](const process& p, lease_id id) {
                   const auto found = sessions_.find(id);
                   return found != sessions_.end() && found->second.in == &p;
               })
        , leaders(w)
        , rates(w)
        , permits(w)
        , tenure(w)
        , values(w)
        , members(w)
        , lock_values(w)
        , jobs(w)
        , mirrors(w)
        , queues(w, mail_name, queue_rules::order::arrival)
        , parcels(w, parcels_name, queue_rules::order::priority)
        , turnstile(w, turnstile_name, meeting_rules::kind::passes)
        , hall(w, hall_name, meeting_rules::kind::stays)
        , latches(w)
        , barriers(w)
        , book(w)
        , calls(w)
        , world_(w)
        , first_term_(w.store.term) {
        w.store.told = this;
        w.listening = this;
    }

    slot_rules slots;
    sharing_rules sharing;
    herd_counter herd;
    leader_rules leaders;
    rate_meter rates;
    permit_rules permits;
    tenure_rules tenure;
    value_rules values;
    member_rules members;
    lock_value_rules lock_values;
    job_rules jobs;
    mirror_rules mirrors;
    queue_rules queues;
    queue_rules parcels;
    meeting_rules turnstile;
    meeting_rules hall;
    latch_rules latches;
    barrier_rules barriers;
    ledger book; ///< Of what is written once, if anything is.
    registers calls;

    // What the network does.

    void sent(const process& by,
              std::uint64_t number,
              const coetcd::detail::call_request& request) override;
    void arrives(std::uint64_t number) override {
        serving_ = number;
        slots.arrives(number);
        tenure.arrives(number);
    }
    void served(std::uint64_t number) override {
        serving_ = 0;
        slots.served();
        tenure.served();
        if (!world_.went_astray()) {
            herd.served(number);
        }
    }
    void answered(std::uint64_t number) override {
        slots.answered(number);
        herd.answered(number);
    }
    void sent_on_stream(const process& by) override { rates.sent(by); }
    void told(const process& who, std::string_view line) override {
        herd.told(who, line);
        mirrors.line_comes(who);
    }

    // What etcd does.

    void changed(const std::vector<etcd::change>& changes, etcd::cause why) override;
    void lease_ended(lease_id id, etcd::lease_end how) override;
    void watched(std::uint64_t stream,
                 std::int64_t id,
                 std::int64_t start_revision,
                 const std::string& key) override;

    /// Once; a request to grant it that is repeated on the way may bring it back.
    bool has_ended(lease_id id) const { return ended_.contains(id); }
    /// By something else than its ttl.
    bool was_revoked(lease_id id) const {
        const auto found = ended_.find(id);
        return found != ended_.end() && found->second.how != etcd::lease_end::expired;
    }

    // What clients do.

    /// @param works It works on jobs: if it is not known whether it has taken one, it ends.
    void opened(const std::shared_ptr<session_impl>& s,
                const process& in,
                bool sound_clock,
                bool works = false);
    void session_ended(lease_id id, session_end why);

    /// A waiter for the end of a session was told of it.
    void told_of_loss(lease_id id, session_end why);
    /// A round of renewal is over.
    void renewed(lease_id id, bool failed, nanoseconds took);
    /// Whether every session says what it has to say of itself. Looks if something has happened.
    void look_at_states();
    /// Its process is no more.
    void crashed(lease_id id) { crashed_[id] = world_.now(); }
    bool awaits_expiry() const;
    /// Whether a key may still be there, since its session retains the lock.
    bool is_retained(const std::string& key) const;
    /// Whether an ownership was the first in its queue.
    bool was_first(const std::string& name, std::int64_t fence) const {
        return firsts_.contains({name, fence});
    }

    // Watches.

    std::list<watching>::iterator watches(watching v);
    void watches_no_more(std::list<watching>::iterator v) { watches_.erase(v); }
    void told(watching& v, const coetcd::watch_batch& batch);
    /// The reader has read nothing for longer than a stream is kept for that. It is called where
    /// nothing goes wrong.
    void look_at_sleeper(watching& v, nanoseconds since);
    void told_of_compaction(const watching& v, std::int64_t compact_revision);
    /// Whether a reader was not told yet what happened.
    bool owes_changes();
    void look_for_untold(nanoseconds healed_at, nanoseconds bound);

    std::list<request>::iterator wants(request r);
    void wants_no_more(std::list<request>::iterator r);

    std::list<hold>::iterator granted(std::list<request>::iterator r, hold h);
    void gives_back(std::list<hold>::iterator h);

    /// Its session does not renew it any more. Another one may adopt it.
    void orphaned(lease_id id) {
        orphans_.insert(id);
        sessions_.erase(id);
    }
    /// What its lease has is held again, by the session that adopted that.
    std::list<hold>::iterator resumed(hold h);
    /// A name was claimed for a time.
    std::list<timed_hold>::iterator claimed(timed_hold h);
    /// Or not.
    /// @param stays It was held when its session was orphaned.
    void not_resumed(const std::string& key, std::int64_t fence, bool stays);

    /// @param certain Every request was answered, so that the answer must be right.
    void unlocked(const std::string& key, std::int64_t fence, bool was_ours, bool certain);
    /// @param repeated A request of it was repeated on the way: the second time an unlock finds
    ///   nothing any more.
    void lock_lost(lease_id id, const std::string& name, bool repeated);
    /// No holder may give a lock up as lost while its key is there.
    void look_at_holds();

    /// A resource outside etcd, which refuses a fence below the largest it has seen.
    void write_resource(const std::string& name, std::int64_t fence);

    // Once nothing goes wrong any more, or nothing that holds up news.

    /// No attempt may be first in a queue for long, and not hold the lock. No key may be there for
    /// long that is not wanted. A holder has to notice what is taken away from it.
    void look_for_stuck(nanoseconds healed_at, nanoseconds bound);

    /// Whether a session counts on a lease that is gone, and has had no time yet to learn it.
    bool has_unnoticed() const;

    std::uint64_t grants = 0;
    std::uint64_t resumptions = 0;
    std::uint64_t retentions = 0; ///< Locks that a session had again at home.
    std::uint64_t told_changes = 0;
    std::uint64_t told_compactions = 0;
    std::chrono::seconds longest_ttl{0};
    bool one_fails = false;    ///< A call does, although all else goes well.
    bool prompt = false;       ///< Each request is answered at once, all the time.
    bool only_refused = false; ///< By one member at a time; else all goes well.
    bool only_denied = false;  ///< Some keys at a time; else each request is answered at once.

    /// Who may not look at its keys has to end with its session. To be called before it may again.
    void look_for_unseen();

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
        bool works = false;
        nanoseconds opened_at{0};
        int ends = 0;
        session_end why = session_end::none;
        nanoseconds ended_at{0};
        bool prompt = false; ///< A waiter for its end can be told at once.
        std::uint64_t pauses_then = 0;
        /// When the last renewal that succeeded was sent, by its own clock.
        std::optional<coetcd::detail::time_point> renewed;
        std::optional<bool> failed; ///< Since then, or the last one has.
    };
    struct owner {
        std::string key;
        std::int64_t create_revision = 0;
        lease_id lease = 0;
        nanoseconds since{0};
    };
    struct end {
        etcd::cause why;
        nanoseconds when;
        bool told; ///< By an event.
    };

    bool went_before_its_turn(const hold& h) const;
    /// A session has it again that has given it back.
    void granted_again(const hold& h);
    /// Since when a lock is wanted by others than its owner; nothing if it is not.
    std::optional<nanoseconds>
    wanted_by_others(const std::string& name, std::int64_t create_revision, lease_id of) const;
    /// Two may not hold one lock.
    void look_for_another(const hold& h);
    void look_for_surplus(nanoseconds healed_at, nanoseconds bound);
    /// Whether watches are told what happens now.
    bool tells_all() const {
        return world_.store.tells && world_.now_weather()[fault::event_lost] == 0;
    }
    /// Until when its key may be there for it.
    nanoseconds wanted_until(const hold& h) const;

    /// Whether etcd itself took it away, so that its user may not know it yet.
    bool excused(const hold& h) const;

    /// What may go on although its session is over.
    enum class going_on { bodies, waiters_with_places, waiters };
    /// Whether one of those does.
    void look_for_untold_loss(lease_id id, going_on which);

    static bool is_alive(const known_session& known);
    /// Whether it is from before the cluster was replaced.
    bool was_replaced(const known_session& known) const;

    void look_at_holds(const late_end& is_late) const;
    /// With the next round of renewal, every session knows what is gone.
    void look_for_unnoticed(nanoseconds healed_at);
    /// With its event, or with its next look, a waiter knows that its key is gone.
    void look_for_robbed_waiters(nanoseconds healed_at);
    void rob_waiter(const etcd::change& c);

    /// The first change of a later revision.
    std::size_t first_after(std::int64_t revision) const;
    static bool concerns(const watching& v, const etcd::change& c);
    std::size_t first_untold(watching& v) const;
    static bool is(const coetcd::key_value& kv, const std::string& key, const etcd::record& r);
    static bool is(const coetcd::event& e, const etcd::change& c, const coetcd::watch_options& how);

    void new_owner(const std::string& name);

    void check_guarded_write(const etcd::change& c);

    /// What a user writes is written once, unless the network has made the copy.
    void check_once(const etcd::change& c);

    world& world_;
    const std::uint64_t first_term_;
    std::map<lease_id, known_session> sessions_;
    struct lease_ending {
        etcd::lease_end how;
        nanoseconds when;
    };
    std::map<lease_id, lease_ending> ended_;
    std::set<std::pair<lease_id, std::string>> robbed_; // whose keys an operator deleted, by name
    struct robbed_waiter {
        lease_id lease;
        std::string name;
        std::uint64_t arrival; ///< Of the request.
        nanoseconds when;
        bool told; ///< By an event.
    };
    std::vector<robbed_waiter> robbed_waiters_;
    std::map<std::pair<lease_id, std::string>, nanoseconds> touched_;   // keys, the last time
    std::map<std::pair<std::string, std::int64_t>, end> gone_;          // lives of keys
    std::map<std::pair<std::string, std::int64_t>, nanoseconds> begun_; // likewise
    std::map<std::pair<lease_id, std::string>, nanoseconds> wanted_at_; // the last time
    std::map<std::string, owner> current_;
    std::set<std::pair<std::string, std::int64_t>> owners_;
    std::set<std::pair<std::string, std::int64_t>> firsts_; // likewise, by name
    std::set<std::pair<std::string, std::int64_t>> fences_;
    std::map<std::pair<std::string, std::int64_t>, nanoseconds> retained_; // until when
    std::map<std::string, std::int64_t> resource_;
    std::map<std::string, std::uint64_t> written_; // data, and by which request
    std::uint64_t serving_ = 0;
    std::list<hold> holds_;
    std::list<request> requests_;
    std::uint64_t last_arrival_ = 0;
    bool calm_ = false;
    bool look_at_states_ = false;
    std::map<lease_id, nanoseconds> crashed_;
    std::set<lease_id> orphans_; // and those whose successor may have given up
    std::list<watching> watches_;
    std::map<std::uint64_t, bool> streams_; // of watches: whether of users
    std::vector<nanoseconds> changed_at_;   // of each change in etcd's history
};

} // namespace sim
