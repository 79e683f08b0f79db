// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>

namespace coetcd::detail::testing {

/// A source of chance that is the same with every compiler and standard library, and costs next to
/// nothing to begin: a schedule has a dozen of them.
class chance {
public:
    explicit chance(std::uint64_t seed)
        : at_(scramble(seed)) {}

    std::uint64_t next() { return scramble(at_ += step); }

    /// One of 0 ... n - 1. The slight bias does not matter here.
    std::uint64_t below(std::uint64_t n) { return next() % n; }
    int between(int low, int high) {
        return low + static_cast<int>(below(static_cast<std::uint64_t>(high - low + 1)));
    }
    /// True so often in a million. Costs nothing for 0.
    bool ppm(std::uint32_t of) { return of != 0 && below(1'000'000) < of; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }

    /// Evenly distributed.
    std::chrono::nanoseconds within(std::chrono::nanoseconds low, std::chrono::nanoseconds high) {
        const auto span = static_cast<std::uint64_t>((high - low).count()) + 1;
        return low + std::chrono::nanoseconds(static_cast<std::int64_t>(below(span)));
    }
    /// Most are near `low`, few near `high`, as in networks.
    std::chrono::nanoseconds skewed(std::chrono::nanoseconds low, std::chrono::nanoseconds high) {
        const auto part = static_cast<std::int64_t>(below(1024));
        const std::int64_t cube = part * part * part / (1024 * 1024);
        return low + (high - low) / 1024 * cube;
    }

    /// The n-th independent stream of a seed.
    static std::uint64_t derive(std::uint64_t seed, std::uint64_t n) {
        return scramble(seed ^ scramble(n + step));
    }

private:
    static constexpr std::uint64_t step = 0x9e3779b97f4a7c15;
    static std::uint64_t scramble(std::uint64_t x) { // splitmix64
        x += step;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }
    std::uint64_t at_;
};

} // namespace coetcd::detail::testing
