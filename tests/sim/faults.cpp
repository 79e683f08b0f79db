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
    maybe(fault::duplicated, 4, 10'000, 200'000);
    maybe(fault::late_duplicate, 4, 10'000, 200'000);
    maybe(fault::very_late, 3, 1'000, 20'000);
    maybe(fault::delayed, 4, 10'000, 150'000);
    maybe(fault::refused, 4, 5'000, 100'000);
    maybe(fault::broken, 3, 5'000, 150'000);
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
    maybe(fault::client_paused, 4, 300, 4'000);
    maybe(fault::client_cut, 5, 5'000, 40'000);
    maybe(fault::client_crashed, 4, 100, 2'000);
    maybe(fault::token_expired, 6, 10'000, 60'000);
    maybe(fault::no_space, 8, 5'000, 30'000);
    maybe(fault::operator_delete, 6, 5'000, 60'000);
    return w;
}

} // namespace sim
