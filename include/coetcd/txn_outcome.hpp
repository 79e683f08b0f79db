// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace coetcd {

/// The outcome of a transaction that was carried out once.
struct txn_outcome {
    bool succeeded = false;    ///< Which list was carried out.
    std::int64_t revision = 0; ///< The store's revision after it, and that of what it wrote.
    /// One for each operation of that list. Nothing if the answer was lost and what it said cannot
    /// be read again: the history is compacted already, or the list has a transaction in it, or a
    /// read between two changes of the same keys.
    std::optional<std::vector<op_response>> responses;
};

} // namespace coetcd
