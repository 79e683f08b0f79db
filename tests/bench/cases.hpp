// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "bench/servers.hpp"

namespace bench {

/// One row of what is compared, for all subjects.
struct bench_case {
    std::string id;                    ///< Unique, such as `uncontended-64`.
    std::string title;                 ///< For people.
    std::string kind;                  ///< Which the workers know.
    std::vector<std::string> subjects; ///< Who does it.
    std::size_t count = 1;             ///< See `task`.
    double seconds = 2;                ///< See `task`.
    double limit = 60;                 ///< See `task`.
    long ttl = 10;                     ///< See `task`.
    std::size_t slice = 0;             ///< See `task`.
    std::size_t writes = 0;            ///< Other writes a second, meanwhile.
    int delay_ms = 0;                  ///< A round trip of this much more.
    int turns = 1;                     ///< How often in each round: short, so that what others do
                                       ///< on this machine meets all subjects alike.
    bool once = false;                 ///< One round is enough: it says nothing about a peer.
};

/// What is measured, of a subject in a round: by name.
using sample = std::map<std::string, double>;

std::vector<bench_case> all_cases(bool in_short);

/// Lets one subject do one case.
/// @param number Unlike those of other calls: names of locks are made of it.
/// @param remark Set to what else there is to say.
/// @throws std::runtime_error if that fails.
sample run_case(const bench_case& c,
                const std::string& subject,
                const programs& all,
                servers& with,
                int number,
                std::string& remark);

} // namespace bench
