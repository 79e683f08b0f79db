// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/testing/chance.hpp>
#include <coetcd/detail/testing/process.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coetcd::detail::testing {

/// What goes wrong by chance: the members of `coetcd::testing::fault_options`.
enum class fault : std::size_t {
    connection_refused,
    connection_broken,
    request_lost,
    request_late,
    request_repeated,
    answer_lost,
    delayed,
    stream_dropped,
    stream_silent,
    client_stalled,
    client_cut,
    lease_ended,
    leader_changed,
    member_stopped,
    compacted,
};
inline constexpr std::array<std::string_view, 15> fault_names{
    "connection_refused",
    "connection_broken",
    "request_lost",
    "request_late",
    "request_repeated",
    "answer_lost",
    "delayed",
    "stream_dropped",
    "stream_silent",
    "client_stalled",
    "client_cut",
    "lease_ended",
    "leader_changed",
    "member_stopped",
    "compacted",
};
static_assert(fault_names[static_cast<std::size_t>(fault::compacted)] == "compacted");

/// How often faults strike.
struct fault_rates {
    std::array<std::uint32_t, fault_names.size()> ppm{}; ///< For each occasion; 0 for never.
    nanoseconds longest{0};                              ///< Of a fault that lasts.

    std::uint32_t& operator[](fault f) { return ppm[static_cast<std::size_t>(f)]; }
};

/// Decides what goes wrong, and remembers what has. It has its own source of chance, so it does not
/// change anybody else's.
class fault_dice {
public:
    explicit fault_dice(std::uint64_t seed)
        : luck(seed) {}

    fault_rates rates;
    chance luck; ///< Also decides how it goes wrong.

    bool strikes(fault f) { return luck.ppm(rates[f]); }
    /// Short ones are more frequent than long ones.
    nanoseconds while_it_lasts() { return luck.skewed(shortest(), rates.longest); }

    /// @param whom What it strikes, as text.
    void record(nanoseconds now, fault f, const std::string& whom) {
        const std::int64_t ms = now / std::chrono::milliseconds(1);
        const std::string fraction = std::to_string(1000 + ms % 1000).substr(1);
        record_.push_back(std::to_string(ms / 1000) + "." + fraction + " s  " +
                          std::string(fault_names[static_cast<std::size_t>(f)]) + "  " + whom);
    }
    const std::vector<std::string>& recorded() const { return record_; }

private:
    nanoseconds shortest() const {
        return std::min(rates.longest, nanoseconds(std::chrono::milliseconds(1)));
    }
    std::vector<std::string> record_;
};

} // namespace coetcd::detail::testing
