// SPDX-License-Identifier: BSL-1.0
#include "sim/stories.hpp"

namespace sim {

std::string tell_story(std::uint64_t seed) {
    switch (seed % 4) {
    case 0:
        return follow_name(seed);
    case 1:
        return count_round_trips(seed);
    case 2:
        return cross_executors(seed);
    default:
        return seed / 4 % 4 == 0 ? crowd_far_away(seed) : serve_again(seed);
    }
}

} // namespace sim
