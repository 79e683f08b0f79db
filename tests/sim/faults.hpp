// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "sim/random.hpp"
#include "sim/world.hpp"

namespace sim {

/// A swarm: a subset of all faults, each at a rate of its own.
weather draw_weather(chance& c);

} // namespace sim
