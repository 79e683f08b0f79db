// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/held_mode.hpp>

#include "support/catch.hpp"

using coetcd::detail::logic::held_mode;

TEST_CASE("a reader goes on as a writer, and as a reader again", "[logic][rw]") {
    held_mode m;
    CHECK_FALSE(m.writes());
    CHECK(m.write_life() == 0);
    CHECK(m.begin_upgrade());
    CHECK_FALSE(m.writes());
    CHECK(m.write_life() == 0);
    CHECK(m.upgraded(70));
    CHECK(m.writes());
    CHECK(m.write_life() == 70);
    CHECK_FALSE(m.begin_upgrade());

    CHECK(m.downgrade() == 70);
    CHECK_FALSE(m.writes());
    CHECK(m.write_life() == 0);
    CHECK(m.is_downgrade_unknown());
    CHECK(m.downgrade() == 0); // it is told once
    CHECK(m.is_downgrade_unknown());
    m.downgrade_known();
    CHECK_FALSE(m.is_downgrade_unknown());
    CHECK(m.begin_upgrade());
    m.not_upgraded();
    CHECK(m.begin_upgrade());
}

TEST_CASE("a downgrade while an upgrade is under way prevails", "[logic][rw]") {
    held_mode m;
    CHECK(m.begin_upgrade());
    CHECK(m.downgrade() == 0);
    CHECK_FALSE(m.is_downgrade_unknown());
    CHECK_FALSE(m.upgraded(70));
    CHECK_FALSE(m.writes());
    m.not_upgraded();
    CHECK(m.begin_upgrade());
}

TEST_CASE("what began as a writer is downgraded, and not by an upgrade's end", "[logic][rw]") {
    held_mode m;
    m.begin_writing(60);
    CHECK(m.writes());
    CHECK_FALSE(m.begin_upgrade());
    m.not_upgraded();
    CHECK(m.write_life() == 60);
    CHECK_FALSE(m.upgraded(70));
    CHECK(m.write_life() == 60);
    CHECK(m.downgrade() == 60);
    m.not_upgraded();
    CHECK(m.is_downgrade_unknown());
}
