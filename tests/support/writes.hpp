// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/detail/env.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/world.hpp"

/// What tests of writes share that are applied once.
namespace support {

inline bool is_write(const coetcd::detail::call_request& r) {
    return r.what == coetcd::detail::rpc::txn && r.body.find("request_put") != std::string::npos;
}

/// What may become of a request.
inline scripted_env::fate broken() {
    scripted_env::fate f;
    f.breaks = true;
    return f;
}
inline scripted_env::fate lost() {
    scripted_env::fate f;
    f.arrives = false;
    return f;
}
inline scripted_env::fate unanswered() {
    scripted_env::fate f;
    f.answered = false;
    return f;
}
inline scripted_env::fate late(std::chrono::nanoseconds by) {
    scripted_env::fate f;
    f.late = by;
    return f;
}

/// What becomes of the next requests that `which` picks; of later ones nothing special.
inline void fate_of(world& w,
                    bool (*which)(const coetcd::detail::call_request&),
                    std::vector<scripted_env::fate> copies) {
    w.env->decide = [which, copies = std::move(copies), next = std::size_t{0}](
                        const coetcd::detail::call_request& r) mutable {
        return which(r) && next < copies.size() ? copies[next++] : scripted_env::fate();
    };
}

/// The same of the next transactions that write, copies included.
inline void fate_of_copies(world& w, std::vector<scripted_env::fate> copies) {
    fate_of(w, is_write, std::move(copies));
}

} // namespace support
