// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coetcd::detail::wire {

/// Asks for a watch. The id is ours to choose (1 or more) and is never used twice on a stream.
struct watch_create_request {
    explicit watch_create_request(key_range which)
        : range(std::move(which)) {}
    key_range range;
    std::int64_t watch_id = 0;
    std::int64_t start_revision = 0; ///< 0: from now on.
    bool prev_kv = false;
    bool progress_notify = false;
    bool no_put = false;
    bool no_delete = false;
};

/// Ends a watch.
struct watch_cancel_request {
    std::int64_t watch_id = 0;
};

/// The smallest read of a watch's keys, for the revision in the answer's header: the user may read
/// no other keys. It reads only the first key: etcd counts all keys of a range, whatever the limit.
inline range_request least_of(const watch_create_request& watched) {
    range_options least;
    least.keys_only = true;
    return range_request(watched.range.key, least);
}

/// Any message that etcd sends on a watch stream.
struct watch_response {
    response_header header;
    std::int64_t watch_id = 0; ///< -1: a refused create, or the answer to a progress request.
    bool created = false;
    bool canceled = false;
    std::int64_t compact_revision = 0; ///< Not 0: canceled because the history before it is gone.
    std::string cancel_reason;
    std::vector<event> events;
};

} // namespace coetcd::detail::wire
