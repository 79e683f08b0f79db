// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/overdue.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;

TEST_CASE("a part that stands back goes first once it is overdue", "[logic][overdue]") {
    struct {
        oldest patient;
        oldest pressing;
        bool first;
    } const rows[] = {
        {{1, 0, 0ms}, {2, 0, 0ms}, false},
        {{1, 2, 99ms}, {2, 0, 0ms}, false},
        {{1, 3, 0ms}, {2, 0, 0ms}, true},
        {{1, 0, 100ms}, {2, 0, 0ms}, true},
        {{1, 9, 9s}, {2, 9, 9s}, true},
        {{2, 9, 9s}, {1, 0, 0ms}, false}, // which has waited for longer
        {{2, 9, 9s}, {1, 9, 9s}, false},
    };
    for (const auto& row : rows) {
        CAPTURE(row.patient.number, row.patient.passed_over, row.patient.waited.count());
        CHECK(goes_first(row.patient, row.pressing) == row.first);
    }
}
