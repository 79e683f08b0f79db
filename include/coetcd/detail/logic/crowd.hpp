// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace coetcd::detail::logic {

/// How many transactions one of two requests takes: half of a crowd, so that etcd works on one
/// request while the client reads the answer of the other. A crowd is as large as it was lately:
/// the transactions that were just answered are about to come back.
class crowd {
public:
    /// @param present How many transactions wait or are under way.
    std::size_t share(std::size_t present) {
        lately_ = std::max(present, lately_ - (lately_ + 7) / 8);
        return std::max(few, (lately_ + 1) / 2);
    }

private:
    static constexpr std::size_t few = 4; // with fewer, a separate request is not worth its cost

    std::size_t lately_ = 0;
};

} // namespace coetcd::detail::logic
