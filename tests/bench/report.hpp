// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "bench/cases.hpp"

namespace bench {

/// The measurements of one subject in one case, by round.
struct row {
    bench_case what;
    std::string subject;
    std::vector<sample> rounds;
    std::string remark;

    /// Of all rounds; 0 if it was not measured.
    double median_of(const std::string& name) const;
    double most(const std::string& name) const;
};

/// Everything measured with one etcd.
struct results {
    std::string version;
    std::vector<row> rows;

    const row* find(const std::string& id, const std::string& subject) const;
};

/// A limit for a number that was measured.
struct bound {
    std::string text;
    double value;
    double limit;
    bool at_least;
    bool anywhere; ///< However slow the machine is: what breaks it is a defect.
    bool holds() const { return at_least ? value >= limit : value <= limit; }
};

/// The bounds that apply to what was measured.
std::vector<bound> bounds_of(const results& r);

void print_table(const results& r);
void print_bounds(const std::vector<bound>& all);
json to_json(const results& r, const std::vector<bound>& all);

/// Draws the rates as SVG.
std::string chart(const results& r);

/// The program in its role as the suite: `--help` tells its options.
/// @returns Its exit status.
int run_all(std::vector<std::string> arguments);

} // namespace bench
