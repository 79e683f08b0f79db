// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace coetcd {

/// What a transaction of `stm` is protected from. The levels are those of Go's client, except that
/// ranges are protected, too.
enum class isolation {
    /// All reads show the store at one moment. Nobody has changed, until the commit, what was read
    /// or is written.
    serializable_snapshot,
    /// The same, but what is written without having been read may have been changed.
    serializable,
    /// Each read shows the store as it is then. Nobody has changed what was read until the commit.
    repeatable_reads,
    /// Each read shows the store as it is then. What was read may have been changed: an amount that
    /// was read and written back may undo what somebody else has written.
    read_committed,
};

/// The name of the enumerator; "unknown" for any other value.
inline const char* to_string(isolation level) noexcept {
    switch (level) {
    case isolation::serializable_snapshot:
        return "serializable_snapshot";
    case isolation::serializable:
        return "serializable";
    case isolation::repeatable_reads:
        return "repeatable_reads";
    case isolation::read_committed:
        return "read_committed";
    }
    return "unknown";
}

/// Options of `stm`.
class stm_options {
public:
    /// @param protection See `level`.
    stm_options(isolation protection = isolation::serializable_snapshot)
        : level(protection) {}

    isolation level;

    /// Keys that are read together before the body runs, in one round trip; at most 128. Everything
    /// else that the body reads costs one round trip each.
    std::vector<std::string> prefetch;

    /// How often the body is run before `errc::conflict`. At least 1. Use more where many write to
    /// the same keys at the same time.
    unsigned attempts = 20;

    /// The longest pause between two runs. It begins with 1 ms and doubles, less up to a half by
    /// chance; 0 for none.
    std::chrono::milliseconds max_pause{500};

    /// Prefix of the key in etcd that records whether a commit was applied, for when its answer is
    /// lost: `marker`, a dot, and a part of the session's own. The key has the session's lease. A
    /// user needs to read and write such keys.
    std::string marker = "coetcd.stm";
};

} // namespace coetcd
