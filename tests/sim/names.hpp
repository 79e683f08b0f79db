// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

namespace sim {

/// One history of a name whose addresses move and die, while lookups are slow, fail or hang; until
/// nothing goes wrong any more. Then somebody who connects to it must get there within a bound.
/// @returns What was violated; empty if nothing was.
std::string follow_name(std::uint64_t seed);

} // namespace sim
