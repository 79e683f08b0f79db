// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>

namespace coetcd {

/// A permit of a semaphore, or a waiter for one.
struct permit_entry {
    std::string key;    ///< One of the permit's keys: it has one for each bit of its weight.
    std::string label;  ///< See `session_options::label`. Untrusted text: see `printable`.
    lease_id lease = 0; ///< 0: a stray key; it counts, or blocks everybody, until it is deleted.
    std::int64_t token = 0; ///< As `permit::token`; a waiter's may be greater, once it has permits.
    std::int64_t weight = 0;
};

} // namespace coetcd
