// SPDX-License-Identifier: BSL-1.0
#include <coetcd/detail/logic/lease_clock.hpp>

#include <chrono>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

using namespace coetcd::detail::logic;
using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using std::chrono::seconds;

namespace {

constexpr seconds longest(9'000'000'000); // what etcd grants at the most
constexpr auto most = std::numeric_limits<std::uint64_t>::max();
constexpr seconds ttls[] = {1s, 2s, 3s, 5s, 7s, 10s, 60s, 3600s, longest};

} // namespace

TEST_CASE("the times of a lease follow from its ttl", "[logic][lease_clock]") {
    struct {
        seconds ttl;
        nanoseconds margin, certain, timeout;
    } const rows[] = {
        {1s, 250ms, 750ms, 250ms},
        {2s, 250ms, 1750ms, 500ms},
        {3s, 300ms, 2700ms, 750ms},
        {5s, 500ms, 4500ms, 1250ms},
        {8s, 800ms, 7200ms, 2s},
        {10s, 1s, 9s, 2s},
        {60s, 6s, 54s, 2s},
        {longest, longest / 10, longest - longest / 10, 2s},
    };
    for (const auto& row : rows) {
        CAPTURE(row.ttl.count());
        CHECK(margin(row.ttl) == row.margin);
        CHECK(certain(row.ttl) == row.certain);
        CHECK(renewal_timeout(row.ttl) == row.timeout);
    }
    CHECK(certain(0s) < 0s); // a lease that is over is not certain for any time
}

TEST_CASE("a lease is renewed every third of its ttl, give or take", "[logic][lease_clock]") {
    for (const seconds ttl : ttls) {
        CAPTURE(ttl.count());
        const nanoseconds third = nanoseconds(ttl) / 3;
        const auto tenth = static_cast<std::uint64_t>((third / 10).count());
        CHECK(renewal_interval(ttl, 0) == third - third / 20);
        CHECK(renewal_interval(ttl, tenth) == third - third / 20 + third / 10);
        CHECK(renewal_interval(ttl, tenth + 1) == renewal_interval(ttl, 0));
        for (const std::uint64_t chance : {std::uint64_t{12345}, most / 3, most}) {
            CHECK(renewal_interval(ttl, chance) >= third - third / 20);
            CHECK(renewal_interval(ttl, chance) <= third + third / 20 + 1ns);
        }
    }
}

TEST_CASE("there is time for a second attempt before a lease becomes uncertain",
          "[logic][lease_clock]") {
    for (const seconds ttl : ttls) {
        CAPTURE(ttl.count());
        const nanoseconds third = nanoseconds(ttl) / 3;
        CHECK(third + third / 20 + 1ns + renewal_timeout(ttl) < certain(ttl));
    }
}

TEST_CASE("the pause after a renewal that failed is short and random", "[logic][lease_clock]") {
    CHECK(renewal_pause(0) == 100ms);
    CHECK(renewal_pause(399) == 499ms);
    CHECK(renewal_pause(400) == 100ms);
    CHECK(renewal_pause(most) >= 100ms);
    CHECK(renewal_pause(most) < 500ms);
}

TEST_CASE("after events that were false a waiter takes a pause that grows up to two seconds",
          "[logic][lease_clock]") {
    const std::chrono::milliseconds full[] = {
        25ms, 50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms};
    unsigned in_a_row = 0;
    for (const nanoseconds longest : full) {
        CHECK(pause_after_false_end(in_a_row, 0) == longest / 2);
        CHECK(pause_after_false_end(in_a_row++,
                                    static_cast<std::uint64_t>((longest / 2).count())) == longest);
    }
}

TEST_CASE("a waiter looks by itself within half a ttl, and every ten seconds",
          "[logic][lease_clock]") {
    for (const seconds ttl : ttls) {
        CAPTURE(ttl.count());
        const nanoseconds full = ttl > 20s ? nanoseconds(10s) : nanoseconds(ttl) / 2;
        const auto quarter = static_cast<std::uint64_t>((full / 4).count());
        CHECK(recheck_interval(ttl, 0) == full);
        CHECK(recheck_interval(ttl, quarter) == full - full / 4);
        CHECK(recheck_interval(ttl, quarter + 1) == full);
        CHECK(recheck_interval(ttl, most) <= full);
        CHECK(recheck_interval(ttl, most) >= full - full / 4);
    }
}

TEST_CASE("a lease that has less than half of its time left is renewed alone", "[lease_clock]") {
    CHECK_FALSE(renews_alone(certain(10s), 10s));
    CHECK_FALSE(renews_alone(certain(10s) / 2, 10s));
    CHECK(renews_alone(certain(10s) / 2 - 1ns, 10s));
    CHECK(renews_alone(-1s, 10s));
}

TEST_CASE("a grant is believed as far as etcd can have made it", "[logic][lease_clock]") {
    struct {
        seconds asked, said, credible;
    } const rows[] = {
        {3s, 3s, 3s},
        {3s, 1s, 1s},
        {1s, 2s, 2s},   // etcd's minimum, as a rule
        {1s, 75s, 75s}, // with the longest election timeout that there is
        {1s, 76s, 1s},
        {3s, longest, 3s},
        {100s, 100s, 100s},
        {100s, 101s, 100s},
        {longest, longest, longest},
    };
    for (const auto& row : rows) {
        CAPTURE(row.asked.count(), row.said.count());
        CHECK(credible_grant(row.asked, row.said) == row.credible);
    }
}

TEST_CASE("no single answer makes a lease last longer", "[logic][lease_clock]") {
    struct {
        const char* what;
        seconds asked, granted, first, said, renewed;
    } const rows[] = {
        {"all is well", 10s, 10s, 10s, 10s, 10s},
        {"a renewal says more", 10s, 10s, 10s, longest, 10s},
        {"a renewal says less", 10s, 10s, 10s, 4s, 4s},
        {"etcd raises it", 1s, 2s, 1s, 2s, 2s},
        {"the grant says more, and renewals do not", 3s, 60s, 3s, 3s, 3s},
        {"the grant says more than there is", 3s, longest, 3s, longest, 3s},
        {"the grant says less", 3s, 2s, 2s, 3s, 2s},
    };
    for (const auto& row : rows) {
        CAPTURE(row.what);
        const trusted_ttl ttl(row.asked, row.granted);
        CHECK(ttl.at_first() == row.first);
        CHECK(ttl.renewed(row.said) == row.renewed);
    }
    const trusted_ttl other = trusted_ttl::of_granted(3600s); // another client has asked for it
    CHECK(other.at_first() == 3600s);
    CHECK(other.renewed(3600s) == 3600s);
    CHECK(other.renewed(3601s) == 3600s);
}

TEST_CASE("events that were false are acted upon more and more rarely", "[logic][lease_clock]") {
    nanoseconds last{0};
    for (unsigned in_a_row = 1; in_a_row != 12; ++in_a_row) {
        const nanoseconds pause = pause_after_false_end(in_a_row, 0);
        CHECK(pause >= last);
        CHECK(pause >= 25ms);
        CHECK(pause <= 2s);
        last = pause;
    }
}
