// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// What the command line means. Nothing here rewrites a word of the user's: what stands after `--`
// is not even looked at.

namespace tool {

using words = std::vector<std::string>;

/// The command line is wrong; says which word, and why.
class usage_error : public std::invalid_argument {
public:
    using std::invalid_argument::invalid_argument;
};

/// A decimal number; nothing for what is not one from end to end.
std::optional<std::int64_t> number_in(std::string_view text);

/// Takes a value as it was written.
/// @throws usage_error if it is no such value.
using taker = std::function<void(const std::string&)>;

taker text(std::string& into);
taker text(std::optional<std::string>& into);
/// A text that is not empty: a variable of a script may be.
taker name(std::string& into);
/// The same, and not longer than the library takes.
taker lock_name(std::string& into);
/// Texts with commas in between, none of them empty.
taker list(words& into);
/// A decimal number from 1.
taker count(std::int64_t& into);
taker count(std::optional<std::int64_t>& into, std::int64_t least);
/// `90`, `90s`, `1.5m`, `250ms`, `1h30m`: a time, in seconds.
taker time(double& into);
taker time(std::optional<double>& into);
/// The same, but no less than a millisecond.
taker some_time(double& into);
inline std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(std::llround(seconds * 1000));
}

/// `true` or `false`, in any of the spellings that etcdctl knows.
taker yes(bool& into);
taker one_of(std::string& into, words choices);

/// `--name`, `--name=value` or `--name value`.
struct option {
    std::string name;  ///< With its dashes.
    std::string value; ///< What help calls its value; empty: it has none, and is taken with `true`.
    std::string help;
    taker take;
    std::string letter{};   ///< As `-v`; empty: it has none.
    std::string initial{};  ///< What it is by default, for help.
    std::string variable{}; ///< Of the environment, which is asked if it is not given.
};

/// A word without dashes, told by its place.
struct operand {
    std::string name;
    std::string help;
    taker take;
    bool needed = true;
};

struct subcommand {
    std::string name;
    std::string help;
    std::vector<operand> operands;
    std::vector<option> options;
    /// Gets all that stands after `--`, as it is. Null: these are further operands, whatever they
    /// begin with.
    words* command = nullptr;
    /// Looks at all of it together. May be empty.
    /// @throws usage_error
    std::function<void()> check{};
};

struct grammar {
    std::string help;
    std::vector<option> options; ///< Of all subcommands; may also stand in front of one.
    std::vector<subcommand> subcommands;
    std::string closing; ///< The end of its help.
};

/// What the line is: a subcommand; or help was asked for.
struct meaning {
    const subcommand* wanted = nullptr;
    std::string help{};
};

/// Reads the line, without the name of the program. It is cut at the first `--`.
/// @param variable The environment: null for one that is not set.
/// @throws usage_error
meaning
parse(const grammar& g, const words& line, const std::function<const char*(const char*)>& variable);

} // namespace tool
