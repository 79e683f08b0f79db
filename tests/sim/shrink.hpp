// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iosfwd>

#include "sim/scenario.hpp"

namespace sim {

/// Takes faults, users and their steps away from a history that violates something, for as long as
/// it goes on to violate that; tells what is left, as a story.
/// @returns Whether anything was violated.
bool shrink(plan p, std::ostream& to);

} // namespace sim
