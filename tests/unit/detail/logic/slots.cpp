// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/slots.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using coetcd::detail::logic::slot_table;
using use = slot_table::slot::use;

namespace {

/// So many slots, all in use.
std::vector<slot_table::slot*> take(slot_table& from, int count) {
    std::vector<slot_table::slot*> out;
    for (int i = 0; i != count; ++i) {
        out.push_back(from.take());
        REQUIRE(out.back());
    }
    return out;
}

} // namespace

TEST_CASE("slots are numbered from zero on, and begin without an epoch", "[logic][slots]") {
    slot_table table;
    CHECK(table.all_free());
    std::uint64_t number = 0;
    for (const auto* slot : take(table, 3)) {
        CHECK(slot->number == number++);
        CHECK(slot->epoch == 0);
        CHECK(slot->state == use::used);
    }
    CHECK_FALSE(table.all_free());
}

TEST_CASE("the free slot with the lowest number is used again, with its epoch", "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 4);
    slot_table::free(*slots[3], 9);
    slot_table::free(*slots[1], 7);
    slot_table::slot* const again = table.take();
    CHECK(again == slots[1]);
    CHECK(again->number == 1);
    CHECK(again->epoch == 7);
    CHECK(again->state == use::used);
    CHECK(table.take() == slots[3]);
    CHECK(table.take()->number == 4);
}

TEST_CASE("a slot that is being given up is not used", "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 1);
    slot_table::close(*slots[0]);
    CHECK(slots[0]->state == use::closing);
    CHECK_FALSE(table.all_free());
    CHECK(table.take()->number == 1);
    slot_table::free(*slots[0], 5);
    CHECK(table.take() == slots[0]);
}

TEST_CASE("while two slots are being given up there is no new one", "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 4);
    slot_table::close(*slots[1]);
    slot_table::close(*slots[3]);
    CHECK_FALSE(table.take());
    CHECK_FALSE(table.take()); // asking costs nothing
    slot_table::free(*slots[0], 0);
    CHECK(table.take() == slots[0]); // one that is free will do
    CHECK_FALSE(table.take());
    slot_table::free(*slots[3], 5);
    CHECK(table.take() == slots[3]);
    CHECK(table.take()->number == 4); // only one is left
}

TEST_CASE("as many slots may be given up at once as are in use", "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 6);
    for (const std::size_t closing : {0U, 1U, 2U}) {
        slot_table::close(*slots[closing]);
    }
    CHECK_FALSE(table.take()); // three of each
    slot_table::free(*slots[0], 0);
    CHECK(table.take() == slots[0]);
    CHECK(table.take()->number == 6); // four are in use, two are given up
    slot_table::close(*slots[0]);
    CHECK(table.take()->number == 7);
}

TEST_CASE("all slots are free when none is in use or being given up", "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 2);
    slot_table::free(*slots[0], 0);
    CHECK_FALSE(table.all_free());
    slot_table::close(*slots[1]);
    CHECK_FALSE(table.all_free());
    slot_table::free(*slots[1], 0);
    CHECK(table.all_free());
}

TEST_CASE("an attempt that has just taken a slot can tell whether it is the only one",
          "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 2);
    CHECK(table.any_other());
    slot_table::close(*slots[0]);
    CHECK(table.any_other());
    slot_table::free(*slots[0], 0);
    CHECK_FALSE(table.any_other());
    CHECK(table.take() == slots[0]);
    CHECK(table.any_other());
}

TEST_CASE("a slot stays where it is when others are added", "[logic][slots]") {
    slot_table table;
    slot_table::slot* const first = table.take();
    (void)take(table, 1000);
    slot_table::free(*first, 3);
    CHECK(table.take() == first);
}

TEST_CASE("a slot whose keys are in doubt for good goes on with others", "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 3);
    slot_table::close(*slots[1]);
    slot_table::renew(*slots[1]);
    slot_table::free(*slots[1], 0);
    slot_table::slot* const again = table.take();
    CHECK(again == slots[1]);
    CHECK(again->number > 1000);
    CHECK(again->epoch == 0);
    CHECK(take(table, 1).front()->number == 3);
}

TEST_CASE("slots that are being given up are awaited, whatever becomes of them later",
          "[logic][slots]") {
    slot_table table;
    const auto slots = take(table, 3);
    slot_table::giving_up some;
    table.add_closing(some);
    CHECK(some.empty());
    CHECK(slot_table::are_over(some));
    slot_table::free(*slots[0], 1);
    slot_table::close(*slots[1]);
    slot_table::close(*slots[2]);
    table.add_closing(some);
    CHECK(some.size() == 2);
    CHECK_FALSE(slot_table::are_over(some));
    slot_table::free(*slots[1], 2);
    CHECK_FALSE(slot_table::are_over(some));
    slot_table::free(*slots[2], 3);
    CHECK(slot_table::are_over(some));
    // The next life of one is another matter.
    slot_table::slot* const again = table.take();
    CHECK(again == slots[0]);
    for (slot_table::slot* s : {again, table.take(), table.take()}) {
        slot_table::close(*s);
    }
    CHECK(slot_table::are_over(some));
}
