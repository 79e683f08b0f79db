// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/observer.hpp>

#include <boost/asio/cancellation_signal.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>

#include "sim/common.hpp"
#include "sim/referee.hpp"
#include "sim/scenario.hpp"
#include "sim/world.hpp"

namespace sim {

/// What the library reports of one client.
class reporter final : public coetcd::observer {
public:
    explicit reporter(referee& to)
        : to_(to) {}
    void on_session_open(const coetcd::session_open_report& r) override { open_.insert(r.lease); }
    void on_renewal(const coetcd::renewal_report& r) override {
        in_order = in_order && open_.contains(r.lease);
        to_.renewed(r.lease, bool(r.outcome), r.latency);
    }
    void on_session_end(const coetcd::session_report& r) override {
        const auto opened = open_.find(r.lease);
        in_order = in_order && opened != open_.end();
        if (opened != open_.end()) {
            open_.erase(opened);
        }
        to_.session_ended(r.lease, r.reason);
    }
    void on_lock_wait_begin(const coetcd::lock_wait_begin_report&) override { ++waits; }
    void on_lock_wait(const coetcd::lock_wait_report& r) override {
        --waits;
        taken += r.acquired ? 1U : 0U;
    }
    void on_lock_hold(const coetcd::lock_hold_report&) override { ++given_back; }

    std::uint64_t taken = 0;
    std::uint64_t given_back = 0;
    std::int64_t waits = 0; ///< That have begun, and have not ended.
    bool in_order = true; ///< Nothing was told of a session before its beginning or after its end.

private:
    referee& to_;
    std::multiset<coetcd::lease_id> open_;
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
    bool may_linger = false; ///< Though it was cancelled.
};

enum class way {
    lock,
    try_lock,
    try_lock_for,
    scoped_lock,
    with_lock,
    // As a candidate, under the same names.
    campaign,
    try_campaign,
    campaign_for,
    lead,
};
constexpr std::uint64_t ways_of_locks = 5;
constexpr std::uint64_t all_ways = 9;

/// What all clients of a history share.
struct stage {
    stage(const plan& p, world::options o)
        : what(p)
        , w(p.seed, o)
        , judge(w)
        , taste(chance::derive(p.seed, 3))
        , latency(o.latency_high)
        , has_pools(o.connections != 0) {}
    const plan& what;
    world w;
    referee judge;
    chance taste;              ///< Of what clients do.
    const nanoseconds latency; ///< The longest, of a message.
    const bool has_pools;      ///< Clients have only so many connections.

    int locks = 1;
    bool shares = false;       ///< Some want locks that are shared, or several at once.
    bool only_permits = false; ///< A crowd wants permits of one semaphore, and nothing else.
    int semaphores = 0;
    std::chrono::seconds ttl{3};
    std::uint32_t cancel_ppm = 0;
    bool elects = false;     ///< Some campaign instead of locking.
    bool crowded = false;    ///< Hundreds wait, each of them for a short use.
    bool lingering = false;  ///< Locks are held for long.
    bool hasty = false;      ///< They are given back with a renewal, and wanted again at once;
                             ///< or change between reading and writing again and again.
    bool sluggish = false;   ///< A holder that has lost a lock is long in letting go of it.
    bool lying = false;      ///< Claims are kept for longer than they last.
    bool busy = false;       ///< Some keep the lane of a client busy.
    bool limits = false;     ///< Some locks are held for so long at most; some keys are watched.
    bool retains = false;    ///< Some locks stay with their session when they are given back.
    bool valued = false;     ///< Some locks have a value.
    bool claims = false;     ///< Some claim a name for a time, instead of locking it.
    bool outlasting = false; ///< Claims last for so long at least, also if they are given back.
    bool proves = false;     ///< Some ask whether an ownership lasts, or share it.
    bool asks = false;       ///< Many ask holders to give a lock back, and some holders listen.
    bool works = false;      ///< Something is done behind the gates.
    bool impatient = false;  ///< Several of one session wait, none of them for long.
    /// From when on nothing goes wrong, nor is late for what went wrong before.
    nanoseconds calm_since = nanoseconds::max();
    /// All that lock the first one wait so long after a holder that has vanished.
    std::optional<std::chrono::milliseconds> delay;
    bool reached = false;
    /// Some are cancelled in the moment in which an answer comes.
    std::optional<chance> moments;
    /// Each is told that an answer has come.
    std::list<std::function<void(const process&)>> at_answers;
    std::uint64_t cancellations = 0;
    std::uint64_t writes = 0;
    std::uint64_t crashes = 0;
    std::uint64_t tasks = 0; ///< That groups have run.
    int laggards = 0;        ///< Readers that watch, and read rarely.
};

} // namespace sim
