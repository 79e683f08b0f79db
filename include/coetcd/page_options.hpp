// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <vector>

namespace coetcd {

/// How to read a range in pages. Trivially destructible, so that a call may spell them in braces.
struct page_options {
    /// The most keys in a page. Must be positive.
    std::int64_t size = 1000;
    /// The revision at which to read; 0 for the newest when the first page is read. Not negative.
    std::int64_t revision = 0;
    bool keys_only = false;
};

/// Some keys of a range, in the order of their bytes.
struct key_page {
    std::vector<key_value> kvs;
    /// The revision at which all pages are read.
    std::int64_t revision = 0;
    /// How many keys of the range come after these.
    std::int64_t left = 0;
};

} // namespace coetcd
