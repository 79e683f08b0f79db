// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

namespace sim {

// Histories that are about one thing alone. Each returns what was violated; it is empty if nothing
// was.

/// A name whose addresses move and die, while lookups are slow, fail or hang; until nothing goes
/// wrong any more. Then an attempt to connect to it must succeed within a bound.
std::string follow_name(std::uint64_t seed);

/// Clients that keep their objects through a storm. When it has passed each call takes the round
/// trips that docs/pages/costs.md says, and they go to a member that is near and well.
std::string count_round_trips(std::uint64_t seed);

/// A client on one executor, coroutines that use it on another one, and coroutines on a third one
/// that close and destroy what these use, at each step of it. Every call ends, where it was made;
/// and nothing lives on of what was ended.
std::string cross_executors(std::uint64_t seed);

/// Etcd ends the watches of a client, again and again: it has no leader, a token is over, or what
/// comes next was compacted. What they serve, a lock that is held, a wait, feeds and a watch, is
/// told of the next change within a bound.
std::string serve_again(std::uint64_t seed);

/// Many sessions of a client far from etcd, which has few connections to it: all calls wait for
/// one. Each call ends well, and no session is ever in doubt, since etcd answers.
std::string crowd_far_away(std::uint64_t seed);

/// One of those.
std::string tell_story(std::uint64_t seed);

} // namespace sim
