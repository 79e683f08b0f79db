// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <coetcd/error.hpp>
#include <coetcd/kv.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace coetcd::detail {

/// What is told of a watch. Called on the client's executor; may call the hub to begin and end
/// watches.
class watch_sink {
public:
    /// The watch is in force. Told again each time that a broken stream was replaced.
    virtual void on_created() = 0;
    /// Events of whole revisions, in order. `events` may be taken.
    virtual void on_events(std::vector<event>& events) = 0;
    /// All changes up to `revision` were told.
    virtual void on_progress(std::int64_t /*revision*/) {}
    /// Whether it can take no more for now. What etcd sends waits on its way then, or in etcd: see
    /// `watch_hub::go_on`.
    virtual bool is_full() const { return false; }
    /// The watch is over; it is removed already.
    /// @param revision The one that was too large, or the first that was not compacted; 0: none.
    virtual void on_ended(error_code ec, std::string text, std::int64_t revision) = 0;

protected:
    ~watch_sink() = default;
};

} // namespace coetcd::detail
