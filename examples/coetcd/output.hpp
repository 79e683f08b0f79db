// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <nlohmann/json_fwd.hpp>

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
    unavailable = 69,   ///< etcd cannot be asked, or refuses.
    failed = 70,        ///< Something else.
    no_output = 74,     ///< What it has to say cannot be written.
    lost = 75,          ///< What it held was lost.
    lost_and_runs = 76, ///< The same, and the command could not be stopped.
};

/// What there is to say cannot be written: the disk is full, or nobody reads.
class output_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Writes a line at once, before anything else is done.
/// @throws output_error
void say(std::string_view line);
/// Writes lines, and waits until that is done, unless it is cancelled: others go on meanwhile, and
/// a signal ends it, although nobody reads it.
/// @throws output_error
boost::asio::awaitable<void> tell(std::string lines);

/// A line for people, on the standard error.
void note(std::string_view line);
/// From now on `note` waits for nobody to read it.
void note_aside();
/// As `note`, in a new process, which has one thread. It waits for 2 s at most, and no signal ends
/// it.
void note_in_fork(std::string_view line);
/// Waits a while, if need be, until what was noted is written.
void finish_notes();

/// The same text with single spaces, so that none of it can be taken for what stands beside it.
std::string single_spaced(std::string_view text);

/// Text of others, fit for a terminal, as `coetcd::printable` makes it, and all of it.
std::string printed(std::string_view untrusted);

/// What the library says of its options, said of the command's flags.
std::string in_flags(std::string text);

/// A lease, as etcdctl shows it: 16 digits.
std::string hex(std::int64_t lease);

/// JSON in one line of ASCII, whatever texts of others are in it: what is not, is escaped, and
/// bytes that are not UTF-8 become U+FFFD.
std::string text_of(const nlohmann::json& j);

} // namespace tool
