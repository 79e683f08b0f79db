// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coetcd {

/// A key with its value, as a mirror has it. It never changes, and lives for as long as anybody
/// refers to it, in any thread. Null: there is no such key.
using mirror_entry = std::shared_ptr<const key_value>;

/// Options of a mirror. Trivially destructible, so that a call may spell them in braces.
struct mirror_options {
    /// Bytes of changes to keep for a slow reader: keys, values and what holds them. Beyond that it
    /// gets differences: see `mirror_changes`. Must be positive.
    std::size_t buffer = 1024 * 1024;
};

/// A change of one key.
struct mirror_change {
    /// When it was made; if it was found by comparison, the revision that was compared.
    std::int64_t revision = 0;
    mirror_entry was; ///< Null: there was no such key.
    mirror_entry is;  ///< Null: the key is gone.
    /// It was found by comparing the keys now and before: what they were in between may have been
    /// left out.
    bool by_comparison = false;

    const std::string& key() const { return is ? is->key : was->key; }
};

/// Changes, in the order in which they happened.
struct mirror_batch {
    /// All changes up to this revision were delivered.
    std::int64_t revision = 0;
    /// The changes of one revision are never split. Empty only if the first batch finds no keys.
    std::vector<mirror_change> changes;
};

/// All keys of a mirror, or of a part of it, at one revision.
struct mirror_snapshot {
    std::int64_t revision = 0;
    std::vector<mirror_entry> entries; ///< In the order of their keys.
};

} // namespace coetcd
