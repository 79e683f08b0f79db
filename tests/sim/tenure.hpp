// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// The name of the lock to which a key belongs: what is before the second slash, or the first dot
/// behind the first slash. Empty: it is none of a lock, a shared lock or a semaphore.
std::string lock_of(std::string_view key);

/// A name that is claimed for a time, from the moment its user has it until it is given back.
struct timed_hold {
    std::string name;
    std::string key;
    std::int64_t token;
    lease_id lease;
    std::function<bool()> valid; ///< What the library says.
    bool sound_clock;
};

/// A holder that listens for requests to give a lock back.
struct listening_holder {
    std::string name;
    std::int64_t token;
    std::function<bool()> owns; ///< What the library says.
    nanoseconds began{0};
    std::optional<nanoseconds> lost_at{}; ///< As far as it was seen.
};

/// What must be true of how ownerships end, and of what comes after them: by force, with the time
/// of a claim, or with a holder that vanishes.
class tenure_rules {
public:
    explicit tenure_rules(world& w)
        : world_(w) {}

    // What the network does.

    void sent(const process& by, std::uint64_t number, const coetcd::detail::call_request& request);
    void arrives(std::uint64_t number) { serving_ = number; }
    void served() { serving_ = 0; }

    // What etcd does.

    /// @param lease_returned See `slot_rules::changed`.
    /// @returns The cause: what an operator makes a client do counts as the operator's.
    etcd::cause changed(const std::vector<etcd::change>& changes,
                        etcd::cause why,
                        const std::function<bool(lease_id)>& lease_returned);
    void lease_ended(lease_id id, etcd::lease_end how);

    // What operators do.

    /// This process is one.
    void operates(const process& p) { operators_.insert(&p); }
    bool is_operator(const process& p) const { return operators_.contains(&p); }
    /// An ownership that is there, or one that was there before.
    std::optional<std::pair<std::string, std::int64_t>> draw_ownership(chance& taste) const;
    void forces(const std::string& name, std::int64_t token) { meant_.insert({name, token}); }
    /// `force_unlock` has returned.
    void forced(const std::string& name, std::int64_t token, bool ended);

    // Claims.

    std::list<timed_hold>::iterator claimed(timed_hold h);
    void gives_back(std::list<timed_hold>::iterator h) { claims_.erase(h); }
    /// Gives it back, and it is to last.
    void keeps(const timed_hold& h) { kept_.insert(h.lease); }
    /// `release` has returned.
    void released(lease_id lease, bool had_ended);
    /// It is to last for so long at least, also if it is given back.
    void outlasts(const timed_hold& h, nanoseconds at_least);
    /// Whether no other may have the name now.
    bool counts(const timed_hold& h) const { return !excused(h) && h.valid(); }
    /// The key of one that counts; empty if there is none.
    std::string claim_of(const std::string& name) const;

    // A delay after a holder that has vanished, of locks that have set it.

    void took_over(const std::string& name,
                   const std::string& key,
                   std::int64_t fence,
                   nanoseconds delay,
                   bool sound_clock);
    /// Its user does not want it any more.
    void let_go(const std::string& key, std::int64_t fence);
    /// For how much longer the first in a queue may wait.
    /// @param since When it became the first.
    nanoseconds may_wait(const std::string& name, const std::string& key, nanoseconds since) const;

    // Requests to a holder.

    std::list<listening_holder>::iterator listens(listening_holder l);
    void listens_no_more(std::list<listening_holder>::iterator l) { listeners_.erase(l); }
    /// A holder was told of a request.
    void heard(const listening_holder& l);
    /// A holder that listens is told soon.
    void look_for_unheard(nanoseconds healed_at, nanoseconds bound);

    // Gates.

    /// The greatest token that came through; 0 for none.
    std::int64_t admitted(const std::string& gate) const;
    /// What is done behind a gate is a put of one such value, for a token.
    static std::string work_behind(const std::string& gate) { return "work/" + gate; }
    /// It is reported done; or not done, and never to be.
    void reported_done(const std::string& value);
    void reported_undone(const std::string& value);

    // Sequencers.

    struct known_sequencer {
        std::string name;
        std::string text;
        std::string key;
        std::int64_t fence;
    };
    void keeps(known_sequencer s);
    /// One from before; null if there is none.
    const known_sequencer* draw_sequencer(chance& taste) const;
    /// Whether it lasts.
    bool lasts(const known_sequencer& s) const;

    nanoseconds delay{0}; ///< That all have set, or none.

    std::uint64_t forced_ends = 0;
    std::uint64_t claims = 0;
    std::uint64_t outlasting = 0; ///< Of them.
    std::uint64_t delays = 0;
    std::uint64_t verified = 0;
    std::uint64_t requests_heard = 0;
    std::uint64_t works = 0; ///< Behind a gate.

private:
    struct tenant {
        std::string key;
        std::int64_t fence = 0;
        nanoseconds delay{0};
        bool given_back = false;
        std::int64_t ended = 0; ///< At which a request of its own deleted its key; else 0.
        std::optional<nanoseconds> vanished{};
        lease_id lease = 0; ///< With which it has vanished.
        bool took_note = false;
        bool by_operator = false;
    };

    bool was_meant(const etcd::change& c, const std::vector<etcd::change>& all) const;
    bool excused(const timed_hold& h) const;
    void look_for_early_end(const etcd::change& c, etcd::cause why) const;
    /// Whether a key of a queue has this life.
    bool is_there(const std::string& name, std::int64_t token) const;
    void let_go_of_note(const std::string& name, const std::string& key);
    void check_work(const etcd::change& c);

    world& world_;
    std::set<const process*> operators_;
    std::set<std::uint64_t> calls_; ///< Of operators.
    std::uint64_t serving_ = 0;
    std::uint64_t last_call_ = 0;
    std::set<std::pair<std::string, std::int64_t>> meant_;
    std::set<std::pair<std::string, std::int64_t>> robbed_; // lives of keys
    std::map<std::string, std::uint64_t> ended_;            // keys; the last call before that
    std::deque<std::pair<std::string, std::int64_t>> earlier_;
    std::list<timed_hold> claims_;
    std::set<lease_id> claiming_;             // leases that are not to be renewed
    std::map<lease_id, nanoseconds> renewed_; // the last time
    std::map<lease_id, nanoseconds> used_;    // since when a key has it
    /// Of lives of keys: the end.
    std::map<std::pair<std::string, std::int64_t>, nanoseconds> minima_;
    std::set<lease_id> kept_;
    std::set<lease_id> revoked_;
    std::set<lease_id> closed_; // those of them that were revoked by their own sessions
    std::map<std::string, tenant> tenants_;
    std::map<std::string, nanoseconds> note_gone_; // names; the last time
    std::deque<known_sequencer> sequencers_;
    std::list<listening_holder> listeners_;
    std::map<std::pair<std::string, std::int64_t>, nanoseconds> asked_; // names, tokens; first
    std::set<std::string> done_;                                        // behind gates
    std::set<std::string> undone_;
};

} // namespace sim
