// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace coetcd {

/// Options of a watch. Trivially destructible, so that a call may spell them in braces.
struct watch_options {
    /// The first revision to deliver; 0 for everything that happens from the call on. Older history
    /// exists back to the last compaction.
    std::int64_t start_revision = 0;
    bool prev_kv = false;  ///< Include the previous key-value pair.
    bool no_put = false;   ///< Leave puts out.
    bool no_erase = false; ///< Leave erases out.
    /// Report progress while nothing changes: about every ten minutes, unless etcd is configured
    /// otherwise.
    bool progress_notify = false;
    /// Bytes to buffer for a slow reader: keys, values and what holds them. Beyond that nothing is
    /// read from etcd until `watcher::next` has returned what is there. Must be positive.
    std::size_t buffer = 1024 * 1024;
};

/// Changes, in the order in which they happened.
struct watch_batch {
    /// All changes up to this revision were delivered: a watch from `revision + 1` on delivers all
    /// others, in any client.
    std::int64_t revision = 0;
    /// The changes of one revision are never split. Empty if nothing has happened up to `revision`.
    std::vector<event> events;
};

/// What a watch throws with `errc::watch_compacted`: changes that it has yet to deliver are gone.
class compacted_error : public error {
public:
    compacted_error(std::int64_t compact_revision, const std::string& text)
        : error(errc::watch_compacted, text)
        , compact_revision_(compact_revision) {}

    /// The first revision still available.
    std::int64_t compact_revision() const noexcept { return compact_revision_; }

private:
    std::int64_t compact_revision_;
};

/// What a watch throws with `errc::too_large`: a revision is over `client_options::max_answer`.
class oversized_error : public error {
public:
    oversized_error(std::int64_t revision, const std::string& text)
        : error(errc::too_large, text)
        , revision_(revision) {}

    /// The revision that is too large: all before it was delivered, and a watch from the next one
    /// on leaves it out. 0 if it is not known, since its first key is very long.
    std::int64_t revision() const noexcept { return revision_; }

private:
    std::int64_t revision_;
};

} // namespace coetcd
