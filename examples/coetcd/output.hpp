// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tool {

/// The exit statuses of this program, besides that of a command that it runs.
enum exit_status {
    well = 0,
    not_had = 1, ///< Somebody else has it, also after `--timeout`; or there is nobody.
    wrong_usage = 2,
    unavailable = 69, ///< etcd cannot be asked, or refuses.
    failed = 70,      ///< Something else.
    no_output = 74,   ///< What it has to say cannot be written.
    lost = 75,        ///< What it held was lost.
};

/// What there is to say cannot be written: the disk is full, or nobody reads.
class output_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Writes a line at once.
/// @throws output_error
void say(std::string_view line);

/// A line for people, on the standard error.
void note(std::string_view line);

/// A lease, as etcdctl shows it.
std::string hex(std::int64_t lease);

} // namespace tool
