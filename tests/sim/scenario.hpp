// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "sim/world.hpp"

namespace sim {

/// What a history goes without.
struct cuts {
    std::set<std::size_t> faults; ///< By number, in the order in which they would strike.
    std::set<std::size_t> users;  ///< By number, as they begin.
    int rounds = std::numeric_limits<int>::max(); ///< The most that each user takes.
};

/// One history: clients that take locks from one another while things go wrong, until nothing goes
/// wrong any more and all of them must come to their end.
struct plan {
    std::uint64_t seed = 0;

    enum class kind {
        random,    ///< Cancellations and failures come by chance.
        cancel_at, ///< The first client's operation is cancelled at its n-th suspension.
        fail_at,   ///< The first client's n-th call fails.
        answer_at, ///< That operation is cancelled as its n-th answer comes, or soon after.
        crash_at,  ///< The first client ends at its n-th suspension.
    } what = kind::random;
    std::uint64_t point = 0;
    fault how = fault::request_lost;

    bool keys_return = true; ///< Else each attempt may have a key of its own.
    std::size_t notes = 0;   ///< How many lines of the trace to keep.
    cuts without;
};

struct outcome {
    std::string failure; ///< Empty: every checker is content.
    std::uint64_t trace = 0;
    bool reached = false; ///< The point of the plan.
    std::array<std::uint64_t, fault_kinds> faults{};
    std::vector<fault> strikes; ///< Those that came by chance, and those that were cut.
    std::size_t users = 0;      ///< That there were, and those that were cut.
    int rounds = 0;             ///< The most of one of them.
    std::uint64_t cancellations = 0;
    std::uint64_t grants = 0;
    std::uint64_t shared_grants = 0; ///< To read, to write, or of several locks.
    std::uint64_t resumed = 0;
    std::uint64_t upgrades = 0;
    std::uint64_t downgrades = 0;
    std::uint64_t permits = 0;
    std::uint64_t forced = 0;     ///< Ends of ownerships.
    std::uint64_t retentions = 0; ///< Locks that a session had again at home.
    std::uint64_t claims = 0;
    std::uint64_t outlasting = 0;   ///< Of them: for so long at least.
    std::uint64_t delays = 0;       ///< After holders that have vanished.
    std::uint64_t proofs = 0;       ///< Asked for.
    std::uint64_t heard = 0;        ///< Requests to give a lock back.
    std::uint64_t works = 0;        ///< That were done behind a gate.
    std::uint64_t tasks = 0;        ///< That groups have run.
    std::uint64_t told = 0;         ///< Changes, to watchers.
    std::uint64_t compactions = 0;  ///< That they were told of.
    std::uint64_t states = 0;       ///< Of elections, to observers.
    std::uint64_t proclaimed = 0;   ///< Values.
    std::uint64_t handed_out = 0;   ///< Values, by queues.
    std::uint64_t put_back = 0;     ///< Of them.
    std::uint64_t gathered = 0;     ///< Groups, at barriers.
    std::uint64_t latches = 0;      ///< That have opened.
    std::uint64_t closings = 0;     ///< Of barriers.
    std::uint64_t late_entries = 0; ///< Requests of attempts that were over; void, all of them.
    std::uint64_t ends_told = 0;    ///< Of keys in a queue.
    std::uint64_t wakes = 0;        ///< Waiters that asked because of one.
    double busiest = 0;             ///< See `rate_meter`.
    std::uint64_t calls = 0;
    nanoseconds duration{0};
    std::deque<std::string> notes;
};

outcome run(const plan& p);

} // namespace sim
