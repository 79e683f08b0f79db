// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

namespace sim {

// Histories that are about one thing alone. Each returns what was violated; it is empty if nothing
// was.

/// A name whose addresses move and die, while lookups are slow, fail or hang; until nothing goes
/// wrong any more. Then somebody who connects to it must get there within a bound.
std::string follow_name(std::uint64_t seed);

/// Clients that keep their objects through a storm. When it has passed each call takes the round
/// trips that docs/pages/costs.md says, and they go to a member that is near and well.
std::string count_round_trips(std::uint64_t seed);

/// One of those.
std::string tell_story(std::uint64_t seed);

} // namespace sim
