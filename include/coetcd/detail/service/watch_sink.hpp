// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace coetcd::detail {

/// Who is told of a watch. Called on the client's executor; may call the hub to begin and end
/// watches.
class watch_sink {
public:
    /// The watch is in force. Told again each time that a broken stream was replaced.
    virtual void on_created() = 0;
    /// Events of whole revisions, in order. `events` may be taken.
    virtual void on_events(std::vector<event>& events) = 0;
    /// All changes up to `revision` were told.
    virtual void on_progress(std::int64_t /*revision*/) {}
    /// How many bytes of one revision may wait for the rest of it, where etcd sends it in pieces.
    /// With more, the watch ends with `errc::too_large`.
    virtual std::size_t most_held() const { return 1024 * 1024; }
    /// The watch is over; it is removed already.
    virtual void on_ended(error_code ec, std::string text, std::int64_t compact_revision) = 0;

protected:
    ~watch_sink() = default;
};

} // namespace coetcd::detail
