// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/next_step.hpp>

#include <set>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using where = standing::where;

namespace {

const std::vector<where> all{where::owner,
                             where::behind,
                             where::queued,
                             where::taken,
                             where::ended,
                             where::gone,
                             where::delayed,
                             where::room,
                             where::no_room,
                             where::too_many,
                             where::exceeds};

} // namespace

TEST_CASE("each standing of one that waits has its next step", "[next_step]") {
    const std::vector<std::pair<where, step>> table{
        {where::owner, step::own},
        {where::behind, step::wait},
        {where::queued, step::confirm},
        {where::taken, step::enter},
        {where::ended, step::enter},
        {where::gone, step::explain},
        {where::delayed, step::delay},
        {where::room, step::admit},
        {where::no_room, step::wait_room},
        {where::too_many, step::enter},
        {where::exceeds, step::refuse},
    };
    std::set<where> seen;
    for (const auto& [at, next] : table) {
        CAPTURE(static_cast<int>(at));
        CHECK(next_step(at) == next);
        seen.insert(at);
    }
    CHECK(seen.size() == all.size());
}

TEST_CASE("one that does not wait leaves what others have", "[next_step]") {
    const std::vector<std::pair<where, try_step>> table{
        {where::owner, try_step::own},
        {where::behind, try_step::leave},
        {where::queued, try_step::confirm},
        {where::taken, try_step::leave},
        {where::ended, try_step::take},
        {where::gone, try_step::explain},
        {where::delayed, try_step::leave},
        {where::room, try_step::leave},
        {where::no_room, try_step::leave},
        {where::too_many, try_step::leave},
        {where::exceeds, try_step::refuse},
    };
    std::set<where> seen;
    for (const auto& [at, next] : table) {
        CAPTURE(static_cast<int>(at));
        CHECK(next_try_step(at, false) == next);
        seen.insert(at);
        // Where the answer tells of another key, that may be one that the session is giving up.
        const bool waits = at == where::behind || at == where::taken || at == where::no_room ||
                           at == where::too_many;
        CHECK(next_try_step(at, true) == (waits ? try_step::wait_own : next));
    }
    CHECK(seen.size() == all.size());
}

TEST_CASE("only the proof that no key is before it makes an attempt an owner", "[next_step]") {
    for (const where at : all) {
        CAPTURE(static_cast<int>(at));
        CHECK((next_step(at) == step::own) == (at == where::owner));
        for (const bool own : {false, true}) {
            CHECK((next_try_step(at, own) == try_step::own) == (at == where::owner));
        }
    }
}
