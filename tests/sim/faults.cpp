// SPDX-License-Identifier: BSL-1.0
#include "sim/faults.hpp"

#include <cstdint>

namespace sim {

weather draw_weather(chance& c) {
    weather w;
    const auto maybe = [&](fault f, std::uint64_t one_in, int low, int high) {
        const bool on = c.one_in(one_in);
        const int rate = c.between(low, high);
        if (on) {
            w[f] = static_cast<std::uint32_t>(rate);
        }
    };
    maybe(fault::request_lost, 4, 5'000, 100'000);
    maybe(fault::answer_lost, 3, 5'000, 150'000);
    maybe(fault::doubted, 4, 5'000, 100'000);
    maybe(fault::doubted_late, 4, 5'000, 100'000);
    maybe(fault::duplicated, 4, 10'000, 200'000);
    maybe(fault::late_duplicate, 4, 10'000, 200'000);
    maybe(fault::very_late, 3, 1'000, 20'000);
    maybe(fault::delayed, 4, 10'000, 150'000);
    maybe(fault::refused, 4, 5'000, 100'000);
    maybe(fault::broken, 3, 5'000, 150'000);
    maybe(fault::interrupted, 4, 5'000, 150'000);
    maybe(fault::stream_dropped, 5, 5'000, 60'000);
    maybe(fault::stream_silent, 6, 5'000, 60'000);
    maybe(fault::event_lost, 5, 50'000, 500'000);
    maybe(fault::stale_read, 5, 10'000, 100'000);
    maybe(fault::early_revoke, 6, 5'000, 40'000);
    maybe(fault::leader_change, 6, 5'000, 40'000);
    maybe(fault::compaction, 5, 10'000, 200'000);
    maybe(fault::member_paused, 5, 5'000, 60'000);
    maybe(fault::member_cut, 5, 5'000, 60'000);
    maybe(fault::member_lags, 4, 10'000, 200'000);
    maybe(fault::member_hidden, 5, 5'000, 100'000);
    maybe(fault::client_paused, 4, 300, 4'000);
    maybe(fault::client_cut, 5, 5'000, 40'000);
    maybe(fault::client_crashed, 4, 100, 2'000);
    maybe(fault::token_expired, 6, 10'000, 60'000);
    maybe(fault::locked_out, 4, 5'000, 30'000);
    maybe(fault::no_space, 8, 5'000, 30'000);
    maybe(fault::operator_delete, 6, 5'000, 60'000);
    maybe(fault::silent_delete, 8, 5'000, 60'000);
    return w;
}

sky draw_sky(chance& c) {
    const std::uint64_t which = c.below(32);
    return which < 2     ? sky::clear
           : which == 2  ? sky::deaf
           : which < 5   ? sky::robbed
           : which < 7   ? sky::belated
           : which == 7  ? sky::sluggish
           : which < 10  ? sky::refusing
           : which == 10 ? sky::lying
                         : sky::mixed;
}

sky draw_rare_sky(chance& c) {
    const std::uint64_t which = c.below(24);
    return which == 0   ? sky::replaced
           : which == 1 ? sky::grudging
           : which < 5  ? sky::orphaning
           : which < 7  ? sky::straying
           : which == 7 ? sky::disowning
                        : sky::mixed;
}

weather draw_weather(chance& c, sky s) {
    weather w;
    switch (s) {
    case sky::clear:
        break;
    case sky::deaf:
        w[fault::event_lost] = 700'000;
        break;
    case sky::robbed:
        w[fault::operator_delete] = 50'000;
        w[fault::silent_delete] = 100'000;
        w[fault::early_revoke] = 20'000;
        break;
    case sky::belated:
        w[fault::delayed] = 500'000;
        w[fault::answer_lost] = 100'000;
        w[fault::client_cut] = 50'000;
        break;
    case sky::sluggish:
        w[fault::late_duplicate] = 500'000;
        w[fault::operator_delete] = 300'000;
        break;
    case sky::refusing:
        w[fault::member_refuses] = 500'000;
        break;
    case sky::lying:
        w[fault::ttl_overstated] = 300'000;
        w[fault::client_crashed] = 500; // and what it had is not renewed
        break;
    case sky::replaced:
        w[fault::cluster_replaced] = 100'000;
        break;
    case sky::grudging:
        w[fault::member_refuses] = 400'000;
        w[fault::refused] = 500'000;
        break;
    case sky::orphaning:
        w[fault::early_revoke] = 200'000;
        w[fault::request_lost] = 500'000;
        w[fault::client_cut] = 50'000;
        break;
    case sky::straying:
        w[fault::member_strays] = 300'000;
        w[fault::stream_dropped] = 50'000;
        w[fault::doubted_late] = 100'000; // also by endpoints that have come back
        break;
    case sky::disowning:
        w[fault::rights_revoked] = 300'000;
        w[fault::operator_delete] = 50'000;
        w[fault::silent_delete] = 50'000;
        break;
    case sky::mixed:
        w = draw_weather(c);
        break;
    }
    return w;
}

void add_wrong_answers(chance& c, weather& w) {
    if (c.one_in(6)) {
        w[fault::member_refuses] = static_cast<std::uint32_t>(c.between(5'000, 60'000));
    }
    if (c.one_in(6)) {
        w[fault::ttl_overstated] = static_cast<std::uint32_t>(c.between(10'000, 500'000));
    }
    if (c.one_in(6)) {
        w[fault::end_invented] = static_cast<std::uint32_t>(c.between(10'000, 300'000));
    }
    if (c.one_in(12)) {
        w[fault::rights_revoked] = static_cast<std::uint32_t>(c.between(5'000, 100'000));
    }
}

void add_other_clusters(chance& c, weather& w) {
    if (c.one_in(5)) {
        w[fault::member_strays] = static_cast<std::uint32_t>(c.between(5'000, 100'000));
    }
    if (c.one_in(8)) {
        w[fault::cluster_replaced] = static_cast<std::uint32_t>(c.between(5'000, 100'000));
    }
}

} // namespace sim
