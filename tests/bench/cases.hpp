// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "bench/servers.hpp"

namespace bench {

/// One case, measured for each of its subjects.
struct bench_case {
    std::string id;                    ///< Unique, such as `uncontended-64`.
    std::string title;                 ///< For people.
    std::string kind;                  ///< Which the workers know.
    std::vector<std::string> subjects; ///< See `task`.
    std::size_t count = 1;             ///< See `task`.
    double seconds = 2;                ///< See `task`.
    double limit = 60;                 ///< See `task`.
    long ttl = 10;                     ///< See `task`.
    std::size_t slice = 0;             ///< See `task`.
    double stall = 0;                  ///< See `task`.
    std::size_t writes = 0;            ///< Other writes a second, meanwhile.
    double hold = 0;                   ///< See `task`.
    int delay_ms = 0;                  ///< Added to each round trip.
    int members = 1;                   ///< Of the cluster.
    int fsync_ms = 0;                  ///< What each write of etcd's log takes, at the least.
    int turns = 1;                     ///< Measurements in each round. Several short ones spread
                                       ///< a machine's other load evenly over the subjects.
    bool once = false;                 ///< One round is enough: there is no peer.
};

/// The numbers that one subject yields in one round, by name.
using sample = std::map<std::string, double>;

std::vector<bench_case> all_cases(bool in_short);

/// Measures one subject in one case.
/// @param number Differs in each call: it is part of the locks' names.
/// @param remark Receives the first error that did not end the measurement, if any.
/// @throws std::runtime_error if that fails.
sample run_case(const bench_case& c,
                const std::string& subject,
                const programs& all,
                servers& with,
                int number,
                std::string& remark);

} // namespace bench
