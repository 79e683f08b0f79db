// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "sim/common.hpp"
#include "sim/world.hpp"

namespace sim {

/// A swarm: a subset of all faults, each at a rate of its own.
weather draw_weather(chance& c);

/// Which of them there may be. Where there are only a few, what is promised "at once" or "with the
/// next renewal" has a bound that can be checked.
enum class sky {
    mixed,
    clear,
    deaf,      ///< Most events are lost.
    robbed,    ///< Keys and leases are taken away, some keys without an event.
    belated,   ///< Answers come late or never, and then perhaps nothing gets through.
    sluggish,  ///< A holder that has lost a lock is long in letting go of it.
    refusing,  ///< One member after the other refuses what the others do.
    lying,     ///< Leases end before their time is over, by what some answers say.
    replaced,  ///< All endpoints lead to another cluster, for good.
    grudging,  ///< What is refused, although it may be carried out, is hard to send again.
    orphaning, ///< Leases are taken away, and the renewal that would tell does not get through.
    straying,  ///< Streams end, and endpoints lead to another cluster for a while.
    disowning  ///< Users lose their rights for a while, and then keys.
};
sky draw_sky(chance& c);
/// What a mixed one is instead, now and then, as long as there is no crowd.
sky draw_rare_sky(chance& c);
weather draw_weather(chance& c, sky s);
/// What a mixed one may have besides.
void add_wrong_answers(chance& c, weather& w);
/// Endpoints that lead to another cluster, in some weathers.
void add_other_clusters(chance& c, weather& w);

} // namespace sim
